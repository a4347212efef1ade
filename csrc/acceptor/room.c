/* Limits the memory that all connections together hold: incomplete commands, replies that have not left, and replies
 * whose turn has not come.
 *
 * At the limit a connection whose incomplete command needs more than a block waits until there is room; nothing is
 * received from it. One connection at a time, the one that has waited longest, may go beyond the limit. So commands are
 * completed even if all room is taken by incomplete ones. Small commands need no room and go on.
 *
 * A connection that holds much, is not waiting for us, and moves next to nothing for some seconds gets an error and is
 * closed, but only while others wait.
 */
#include "acceptor/room.h"

#include <string.h>

#include "acceptor/life.h"
#include "acceptor/lists.h"

static bool is_short(const struct acceptor *a) {
    return a->blocks.taken_bytes > a->max_buffered_bytes;
}

static bool has_room(const struct acceptor *a, size_t bytes) {
    return a->blocks.taken_bytes + bytes <= a->max_buffered_bytes;
}

size_t room_unsent_bytes(const struct acceptor *a, const struct connection *c) {
    if (c->codec->unsent_limit != NULL) return c->codec->unsent_limit(a, c);
    return is_short(a) && a->output_high_bytes > BLOCK_BYTES ? BLOCK_BYTES : a->output_high_bytes;
}

size_t room_receive_bytes(const struct acceptor *a) {
    return is_short(a) && a->receive_bytes > SHORT_RECEIVE_BYTES ? SHORT_RECEIVE_BYTES : a->receive_bytes;
}

/* Falls from `most` at the limit to a block at one and a half times the limit: connections that hold the most are
 * closed first. */
size_t room_pending_bytes(const struct acceptor *a, size_t most) {
    if (!is_short(a)) return most;
    size_t spare = a->max_buffered_bytes / 2, over = a->blocks.taken_bytes - a->max_buffered_bytes;
    if (most > a->max_buffered_bytes) most = a->max_buffered_bytes;
    size_t now = over < spare ? (size_t)((double)most * (double)(spare - over) / (double)spare) : 0;
    return now > BLOCK_BYTES ? now : BLOCK_BYTES;
}

/* The capacity of the connection's input buffer, where most of its input is. */
static size_t in_capacity(const struct connection *c) {
    const struct compression *k = compression_of(c);
    return k != NULL && k->packed.capacity > c->in.capacity ? k->packed.capacity : c->in.capacity;
}

static bool is_large(const struct connection *c) {
    const struct output *wire = c->filter != NULL ? &c->filter->wire : c->framing != NULL ? &c->framing->wire : &c->out;
    return in_capacity(c) > BLOCK_BYTES || output_is_large(&c->out) || output_is_large(wire) ||
           c->kept_bytes > BLOCK_BYTES;
}

/* Whether it may exceed the limit, by one command: not again while the last one waits in a worker's channel. */
static bool may_exceed(const struct acceptor *a, const struct connection *c) {
    return c->number == a->overdraft && a->overdraft_lent == NULL;
}

bool room_for_input(struct acceptor *a, struct connection *c, const struct buffer *buffer, size_t bytes) {
    assert(c->stall == STALL_NONE);
    size_t growth = buffer_growth(buffer, bytes);
    if (growth == 0 || buffer->capacity + growth <= BLOCK_BYTES || has_room(a, growth) || may_exceed(a, c)) return true;
    c->wanted_bytes = growth < UINT32_MAX ? (uint32_t)growth : UINT32_MAX;
    connection_list_add(&a->roomless, c->number);
    return stalled_by(a, c, STALL_ROOM, WAITS_ROOM);
}

/* Whether the connection that may exceed the limit no longer needs to. */
static bool is_settled(const struct acceptor *a) {
    const struct connection *c = a->overdraft != 0 ? connection_find(a, a->overdraft) : NULL;
    return c == NULL || c->closing || in_capacity(c) <= BLOCK_BYTES;
}

/* Wakes connections that wait for room, longest first: one whatever it needs, others as far as there is room. */
static void let_go_on(struct acceptor *a) {
    struct connection_list *list = &a->roomless;
    size_t promised = 0, gone = 0;
    for (; gone < list->count; gone++) {
        struct connection *c = connection_find(a, list->items[gone]);
        if (c == NULL || c->stall != STALL_ROOM) continue;
        if (a->overdraft == 0)
            a->overdraft = c->number;
        else if (has_room(a, promised + c->wanted_bytes))
            promised += c->wanted_bytes;
        else
            break;
        socket_wake(a, c);
    }
    list->count -= gone;
    memmove(list->items, list->items + gone, list->count * sizeof *list->items);
}

/* Whether the client is the one to act: input would be taken if it came, or output would leave if it were read. */
static bool is_idling(const struct connection *c) {
    if (c->choked) return true;
    return c->stall == STALL_NONE && in_capacity(c) > BLOCK_BYTES;
}

static void cut_off(struct acceptor *a, struct connection *c) {
    bool listens = !c->choked && !c->closing;
    if (listens && c->codec->crowded != NULL)
        c->codec->crowded(a, c);
    else if (listens && c->codec->ended != NULL)
        c->codec->ended(a, c);
    if (c->closed) return;
    if (!listens) {
        socket_close(a, c);
        return;
    }
    c->closing = c->muted = true;
    if (c->in.bytes != NULL) buffer_release(&a->blocks, &c->in);
    socket_dirty(a, c);
}

/* `begins`: there has been no sweep for long, so the figures of the last one do not count. */
static void sweep(struct acceptor *a, bool begins) {
    for (uint32_t i = 0; i < a->highest_index; i++) {
        struct connection *c = a->table[i];
        if (c == NULL || c->fd < 0) continue;
        bool moves = c->moved_bytes - c->moved_before >= CROWDED_BYTES;
        c->moved_before = c->moved_bytes;
        if (begins || moves || !is_large(c) || !is_idling(c))
            c->idle_sweeps = 0;
        else if (++c->idle_sweeps >= CROWDED_SWEEPS)
            cut_off(a, c);
    }
}

/* Again after much was given back: what went back to the heap meanwhile may be little, but the last in every page. */
static void look_at_heap(struct acceptor *a) {
    if (a->now_ns < a->next_trim_ns) return;
    a->next_trim_ns = a->now_ns + IDLE_TRIM_NS;
    const bool is_much = blocks_unneeded_bytes(&a->blocks) >= IDLE_TRIM_BYTES;
    if (is_much || a->trims_again) blocks_trim_unneeded(&a->blocks);
    a->trims_again = is_much;
    blocks_look(&a->blocks);
}

void room_look(struct acceptor *a) {
    a->room_is_back = false;
    if (a->overdraft != 0 && a->overdraft_lent == NULL && is_settled(a)) a->overdraft = 0;
    if (a->roomless.count > 0 && (a->overdraft == 0 || has_room(a, 0))) let_go_on(a);
    if (room_is_wanted(a) && a->now_ns >= a->next_sweep_ns) {
        bool begins = a->now_ns - a->next_sweep_ns >= (uint64_t)CROWDED_SWEEPS * SWEEP_NS;
        a->next_sweep_ns = a->now_ns + SWEEP_NS;
        sweep(a, begins);
    }
    look_at_heap(a);
}

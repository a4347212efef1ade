/* Heartbeats of NSQ connections: a frame each interval, so that clients know that we are there; and whoever sends no
 * command for two intervals, or takes no output for one, is not there any more.
 *
 * Each connection that has an interval is in a heap by the time at which something may be due. Commands that come make
 * it later than that, which is seen when the time comes: a command costs nothing here.
 */
#include "acceptor/protocols/nsq.h"

#include <stdlib.h>

static const char TEXT[] = "_heartbeat_";

static struct heap_places places_of(const struct acceptor *a) {
    return (struct heap_places){a->beat_places, sizeof *a->beat_places};
}

static uint32_t index_of(const struct connection *c) {
    return c->number & ((1u << INDEX_BITS) - 1);
}

static uint64_t silent_at(const struct nsq *n) {
    return n->heard_ns + 2 * n->heartbeat_ns;
}

static void schedule(struct acceptor *a, struct connection *c) {
    struct nsq *n = c->nsq;
    uint64_t due = n->beat_ns < silent_at(n) || c->closing ? n->beat_ns : silent_at(n);
    n->beating = true;
    if (heap_push(&a->beats, places_of(a), heap_key(due, 0, index_of(c)))) return;
    n->beating = false;
    engine_oom(a, c);
}

void heartbeat_set(struct acceptor *a, struct connection *c, uint64_t interval_ns) {
    struct nsq *n = c->nsq;
    if (n->beating) heap_remove(&a->beats, places_of(a), a->beat_places[index_of(c)]);
    n->beating = false;
    n->heartbeat_ns = interval_ns;
    if (interval_ns == 0) return;
    n->heard_ns = a->now_ns;
    n->beat_ns = a->now_ns + interval_ns;
    n->taken = true;
    schedule(a, c);
}

/* What it sent is not read now, or not answered: its silence is ours. */
static bool is_waiting_for_us(const struct connection *c) {
    return c->stall != STALL_NONE || c->slot_count > 0;
}

/* False if the connection is not to be looked at again. */
static bool beat(struct acceptor *a, struct connection *c) {
    struct nsq *n = c->nsq;
    if (is_waiting_for_us(c)) n->heard_ns = a->now_ns;
    /* It is looked at again until it has taken its last word, or takes nothing any more. */
    bool silent = a->now_ns >= silent_at(n) && !c->closing;
    if (silent && !c->choked) nsq_cut_short(a, c);
    if (silent && c->choked) {
        socket_close(a, c);
        return false;
    }
    if (a->now_ns < n->beat_ns) return true;
    if (c->choked && !n->taken) {
        socket_close(a, c);
        return false;
    }
    n->taken = false;
    n->beat_ns += n->heartbeat_ns;
    if (n->beat_ns <= a->now_ns) n->beat_ns = a->now_ns + n->heartbeat_ns;
    /* While Python has a command, the connection may be about to be encrypted. */
    if (!c->closing && c->stall != STALL_PYTHON) nsq_say(a, c, FRAME_RESPONSE, TEXT, sizeof TEXT - 1);
    return !c->closed;
}

void heartbeats_run(struct acceptor *a) {
    const struct heap_entry *top;
    while ((top = heap_top(&a->beats)) != NULL && top->high <= a->now_ns) {
        struct connection *c = a->table[heap_item(*top)];
        heap_remove(&a->beats, places_of(a), 0);
        c->nsq->beating = false;
        if (beat(a, c)) schedule(a, c);
    }
}

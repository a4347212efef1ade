#include "acceptor/mesh.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "acceptor/lists.h"
#include "acceptor/upcalls.h"
#include "acceptor/wake.h"

enum { HEARD_PER_TURN = 1024 };

/* A message of the mesh itself, in place of a protocol's number: the sender takes no more input. */
enum { SAYS_QUIET = 0 };

static uint64_t there(const struct acceptor *a) {
    return a->mesh_there;
}

static struct mesh_link *link_of(struct acceptor *a, uint32_t other) {
    return &a->mesh[other];
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

static void gather(uint8_t *out, const struct mesh_part *parts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (parts[i].bytes > 0) memcpy(out, parts[i].at, parts[i].bytes);
        out += parts[i].bytes;
    }
}

void mesh_send(struct acceptor *a, uint32_t other, uint32_t protocol, struct message head,
               const struct mesh_part *parts, size_t count) {
    struct channel *channel = link_of(a, other)->channel;
    if (channel == NULL) return;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += parts[i].bytes;
    head.conn = protocol;
    head.body_bytes = (uint32_t)bytes;
    a->mesh_published_to |= bit_of(other);
    struct message *place = channel_reserve(channel, bytes);
    if (place != NULL) {
        *place = head;
        gather((uint8_t *)(place + 1), parts, count);
        channel_sent(channel);
        return;
    }
    /* The message is too large for a record, or the ring has no room now. */
    uint8_t *body = bytes_take(&a->blocks, bytes);
    if (body == NULL) abort(); /* without memory the process cannot go on; the supervisor starts another acceptor */
    gather(body, parts, count);
    channel_send(channel, &head, body, bytes);
    bytes_give(&a->blocks, body, bytes);
}

uint64_t mesh_full(struct acceptor *a) {
    uint64_t found = 0;
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1)
        if (link_of(a, first_of(rest))->backlogged) found |= rest & -rest;
    return found;
}

bool mesh_may_send(struct acceptor *a, struct connection *c, uint64_t others) {
    uint64_t full = others & mesh_full(a);
    if (full == 0) return true;
    connection_list_add(&link_of(a, first_of(full))->stalled, c->number);
    return stalled_by(a, c, STALL_MESH, WAITS_ACCEPTOR);
}

void mesh_publish(struct acceptor *a) {
    for (uint64_t rest = a->mesh_published_to & there(a); rest != 0; rest &= rest - 1) {
        struct mesh_link *link = link_of(a, first_of(rest));
        channel_publish(link->channel);
        link->backlogged = channel_backlogged(link->channel);
    }
    a->mesh_published_to = 0;
}

size_t mesh_trim(struct acceptor *a) {
    size_t freed = 0;
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1)
        freed += channel_trim(link_of(a, first_of(rest))->channel, a->now_ns);
    return freed;
}

void mesh_look(struct acceptor *a) {
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1) {
        struct mesh_link *link = link_of(a, first_of(rest));
        link->backlogged = channel_backlogged(link->channel);
        if (!link->backlogged && link->stalled.count > 0) connection_list_wake(a, &link->stalled, STALL_MESH);
    }
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

/* Messages from another acceptor may be for many recipients; half of a turn is left to publishers here. */
static bool has_heard_enough(const struct acceptor *a, uint32_t limit) {
    return limit != UINT32_MAX && a->handed >= HANDED_PER_TURN / 2;
}

/* Of one that is gone all counts, and at once. */
static bool may_hear(const struct acceptor *a, uint32_t other, uint32_t limit) {
    return (a->mesh_paused & bit_of(other)) == 0 || limit == UINT32_MAX;
}

static bool hear(struct acceptor *a, uint32_t other, uint32_t limit) {
    struct channel *channel = link_of(a, other)->channel;
    const struct message *m;
    bool any = false;
    for (uint32_t i = 0; i < limit && may_hear(a, other, limit) && (m = channel_receive(channel)) != NULL; i++) {
        any = true;
        const struct codec *codec = codec_at(a->codecs, m->conn);
        if (m->conn == SAYS_QUIET) link_of(a, other)->quiet = true;
        if (codec != NULL && codec->mesh_heard != NULL) codec->mesh_heard(a, codec_state(a, m->conn), other, m);
        if (has_heard_enough(a, limit)) limit = i + 1;
    }
    return any;
}

/* Earlier messages have not all been sent yet: then publishers here and other acceptors take turns. */
static bool must_wait(const struct acceptor *a) {
    return a->handed >= (a->others_next ? HANDED_PER_TURN : HANDED_PER_TURN / 2);
}

static bool hear_others(struct acceptor *a) {
    bool any = false;
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1) {
        uint32_t other = first_of(rest);
        struct channel *channel = link_of(a, other)->channel;
        if (hear(a, other, HEARD_PER_TURN)) {
            channel_release(channel);
            any = true;
        } else if (channel_broken(channel)) {
            acceptor_mesh_gone(a, other);
            upcall_push(a, UPCALL_BROKEN, BOARD_MAX_WORKERS + other, 0, NULL, NULL, 0);
        }
    }
    return any;
}

bool mesh_hear(struct acceptor *a) {
    size_t before = a->handed;
    bool any = !must_wait(a) && hear_others(a);
    if (a->handed > before) a->others_next = false;
    a->heard_to = a->handed;
    return any;
}

/* --- sleeping ----------------------------------------------------------------------------------------------------- */

bool mesh_may_sleep(struct acceptor *a) {
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1) {
        if (channel_may_sleep(link_of(a, first_of(rest))->channel)) continue;
        /* Takes back the announcement from those that have been told already. */
        for (uint64_t before = there(a); before != rest; before &= before - 1)
            channel_awake(link_of(a, first_of(before))->channel);
        return false;
    }
    return true;
}

void mesh_awake(struct acceptor *a) {
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1) channel_awake(link_of(a, first_of(rest))->channel);
}

/* --- stopping ----------------------------------------------------------------------------------------------------- */

static void say_quiet(struct acceptor *a, uint32_t other) {
    mesh_send(a, other, SAYS_QUIET, (struct message){0}, NULL, 0);
}

void acceptor_say_quiet(struct acceptor *a) {
    a->said_quiet = true;
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1) say_quiet(a, first_of(rest));
    wake_self(a);
}

bool acceptor_others_are_quiet(struct acceptor *a) {
    for (uint64_t rest = there(a); rest != 0; rest &= rest - 1)
        if (!link_of(a, first_of(rest))->quiet) return false;
    return mesh_full(a) == 0;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

int acceptor_mesh(struct acceptor *a, uint32_t other, int out_fd, int in_fd, int peer_wake_fd) {
    if (other >= BOARD_MAX_ACCEPTORS || other == a->index) {
        errno = EINVAL;
        return -1;
    }
    acceptor_mesh_gone(a, other);
    struct mesh_link *link = link_of(a, other);
    link->channel = channel_open(out_fd, in_fd, peer_wake_fd, MAX_REPLY_BYTES);
    if (link->channel == NULL) return -1;
    a->mesh_there |= bit_of(other);
    link->quiet = false;
    if (a->said_quiet) say_quiet(a, other);
    for (uint32_t i = 0; i < a->codecs->count; i++)
        if (a->codecs->items[i]->mesh_joined != NULL) a->codecs->items[i]->mesh_joined(a, a->codec_states[i], other);
    mesh_publish(a);
    wake_self(a);
    return 0;
}

void acceptor_mesh_gone(struct acceptor *a, uint32_t other) {
    if (other >= BOARD_MAX_ACCEPTORS || link_of(a, other)->channel == NULL) return;
    struct mesh_link *link = link_of(a, other);
    /* Messages that it sent before it died count. */
    do hear(a, other, UINT32_MAX);
    while (!channel_drained(link->channel)); /* a large message is assembled over several calls */
    channel_close(link->channel);
    link->channel = NULL;
    link->backlogged = false;
    a->mesh_there &= ~bit_of(other);
    a->mesh_paused &= ~bit_of(other);
    a->mesh_published_to &= ~bit_of(other);
    for (uint32_t i = 0; i < a->codecs->count; i++)
        if (a->codecs->items[i]->mesh_lost != NULL) a->codecs->items[i]->mesh_lost(a, a->codec_states[i], other);
    connection_list_wake(a, &link->stalled, STALL_MESH);
    wake_self(a);
}

void mesh_close(struct acceptor *a) {
    for (uint32_t other = 0; other < BOARD_MAX_ACCEPTORS; other++) {
        if (link_of(a, other)->channel != NULL) channel_close(link_of(a, other)->channel);
        free(link_of(a, other)->stalled.items);
    }
}

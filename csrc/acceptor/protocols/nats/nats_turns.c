/* Publishers whose messages have very many recipients take turns. A message is in the output of all recipients before
 * the next one is handled. But when a turn has used up its share, the rest of a publisher's input waits for a later
 * turn, and no more is received from it. */
#include "acceptor/protocols/nats/nats_turns.h"

#include <string.h>

#include "acceptor/protocols/nats/nats_fanout.h"

/* One whose last message is still being handed out goes on behind that. */
bool nats_wait_for_turn(struct acceptor *a, struct nats_server *server, struct connection *c) {
    if (!nats_fanout_may_go_on(server, c)) return false;
    const struct nats_fanouts *all = &server->fanouts;
    bool is_full = all->count >= NATS_MOST_FANOUTS || all->bytes >= NATS_MOST_FANOUT_BYTES;
    if (a->handed < HANDED_PER_TURN && !is_full) return true;
    connection_list_add(&server->publishers, c->number);
    codec_left(a, server->protocol);
    return stalled(c, STALL_TURN);
}

/* Lets at least one go on, unless earlier output is still to be sent; one that has to wait again is put at the end. */
void nats_hand_on(struct acceptor *a, struct nats_server *server) {
    struct connection_list *waiting = &server->publishers;
    size_t at = 0, count = waiting->count;
    while (at < count && (a->handed < HANDED_PER_TURN || (at == 0 && a->late.count == 0))) {
        struct connection *c = connection_find(a, waiting->items[at++]);
        if (c == NULL || c->stall != STALL_TURN) continue;
        c->stall = STALL_NONE;
        socket_run(a, c);
    }
    waiting->count -= at;
    if (waiting->count == 0) return;
    memmove(waiting->items, waiting->items + at, waiting->count * sizeof waiting->items[0]);
    codec_left(a, server->protocol);
}

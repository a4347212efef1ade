/* Publishers whose messages are for very many take turns. What has been published is in everybody's output before the
 * next message is looked at; but when a turn has had its part the rest of the input waits, and nothing more of it is
 * received. */
#include <string.h>

#include "acceptor/protocols/nats/nats.h"

bool nats_wait_for_turn(struct acceptor *a, struct nats_server *server, struct connection *c) {
    connection_list_add(&server->publishers, c->number);
    codec_left(a, server->protocol);
    return stalled(c, STALL_TURN);
}

/* One at least, unless what was handed out before is still to be sent; who has to wait again stands behind the others.
 * */
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

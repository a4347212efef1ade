/* What is forgotten in pieces: what a server wanted that has gone, and what a client that has gone subscribed to. There may be
 * millions of either, and nobody else is to wait for them.
 *
 * It is nobody's from the beginning: a message is given to no connection that is closed, and for no route that is leaving, whose
 * number is no other's until all is forgotten. Other servers are told of a client's subjects as each goes: until then they send
 * what nobody here wants any more, as they would if it was on its way.
 */
#include <stdlib.h>

#include "acceptor/protocols/nats/nats_route.h"

/* In a turn. */
enum { FORGOTTEN_AT_ONCE = 2048 };

/* --- routes ------------------------------------------------------------------------------------------------------- */

static void forget_some(struct nats_server *server, uint32_t route, size_t *left) {
    struct nats_route_link *link = nats_link_of(server, route);
    for (; server->remotes[route] != NULL && *left > 0; --*left) nats_forget_remote(server, server->remotes[route]);
    if (server->remotes[route] != NULL || !link->leaving) return;
    link->leaving = false;
    server->leaving_links--;
}

void nats_route_left(struct acceptor *a, struct nats_server *server, uint32_t route) {
    struct nats_route_link *link = nats_link_of(server, route);
    size_t left = FORGOTTEN_AT_ONCE;
    if (!link->leaving) server->leaving_links++;
    link->leaving = true;
    forget_some(server, route, &left);
    if (link->leaving) codec_left(a, server->protocol);
}

void nats_route_is_anew(struct nats_server *server, uint32_t route) {
    size_t all = SIZE_MAX;
    forget_some(server, route, &all);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

void nats_client_left(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    size_t left = FORGOTTEN_AT_ONCE;
    if (nats_let_go_some(a, c, &left)) return;
    c->kept = true;
    nats_of(c)->next_orphaned = server->leaving;
    server->leaving = c;
    codec_left(a, server->protocol);
}

static void let_go_on(struct acceptor *a, struct nats_server *server, size_t *left) {
    while (server->leaving != NULL && nats_let_go_some(a, server->leaving, left)) {
        struct connection *c = server->leaving;
        server->leaving = nats_of(c)->next_orphaned;
        socket_let_go(a, c);
    }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

void nats_leave_on(struct acceptor *a, void *state) {
    struct nats_server *server = state;
    size_t left = FORGOTTEN_AT_ONCE;
    let_go_on(a, server, &left);
    for (uint32_t n = 0; server->leaving_links > 0 && n < NATS_ROUTES; n++)
        if (server->links[n].leaving) forget_some(server, BOARD_MAX_ACCEPTORS + n, &left);
    if (server->leaving != NULL || server->leaving_links > 0) codec_left(a, server->protocol);
}

void nats_leaving_free(struct nats_server *server, void (*freed)(struct connection *)) {
    while (server->leaving != NULL) {
        struct connection *c = server->leaving;
        struct nats *n = nats_of(c);
        server->leaving = n->next_orphaned;
        for (uint32_t i = 0; n->sids != NULL && i <= n->sid_mask; i++) free(n->sids[i]);
        free(n->sids);
        freed(c);
        free(c);
    }
}

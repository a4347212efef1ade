/* Removes the interest of servers and acceptors that have left, and the subscriptions of clients that have left, in
 * pieces. There may be millions of each, and others must not wait for that.
 *
 * Such interest counts for nothing at once: messages go to no closed connection, and to no other whose epoch has ended.
 * One that comes back, or gets the number of one that has left, starts without interest. Other servers are told of each
 * subject as it is removed. Until then they may send messages that are no longer wanted here, and are dropped.
 */
#include "acceptor/protocols/nats/nats_leaving.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_interest.h"
#include "acceptor/protocols/nats/nats_looks.h"
#include "acceptor/protocols/nats/nats_route_interest.h"
#include "acceptor/protocols/nats/nats_subscription.h"

enum { FORGOTTEN_AT_ONCE = 2048 };

/* Returns how many to remove in a turn; fewer if many servers have to be told of each. */
static size_t most_at_once(const struct acceptor *a, const struct nats_server *server) {
    size_t left = a->handed < HANDED_PER_TURN ? HANDED_PER_TURN - a->handed : 0;
    if (server->route_count == 0 || left / server->route_count >= FORGOTTEN_AT_ONCE) return FORGOTTEN_AT_ONCE;
    return left / server->route_count + 1;
}

/* --- others ------------------------------------------------------------------------------------------------------- */

/* Adds interest to a list that is to be removed, at its front or end. */
static void put_to(struct nats_remotes *left, struct nats_remotes more, bool before) {
    struct nats_remotes one = before ? more : *left, other = before ? *left : more;
    *left =
        (struct nats_remotes){one.first != NULL ? one.first : other.first, other.last != NULL ? other.last : one.last};
    if (one.last == NULL || other.first == NULL) return;
    one.last->next = other.first;
    other.first->previous = one.last;
}

void nats_other_left(struct acceptor *a, struct nats_server *server, uint32_t number) {
    struct nats_other *other = &server->others[number];
    put_to(&server->left, other->wanted, nats_is_route(number));
    *other = (struct nats_other){.epoch = other->epoch + 1};
    if (server->left.first != NULL) codec_left(a, server->protocol);
}

/* Other acceptors learn of a route's end by themselves; servers and leaf nodes connected here do not. */
static void forget(struct acceptor *a, struct nats_server *server, struct nats_remote *r) {
    nats_tell_routes_of(a, server, r, 0);
    nats_look_hear(a, server, r, 0);
    nats_drop_remote(a, server, r);
}

bool nats_may_hear(struct acceptor *a, struct nats_server *server) {
    const uint64_t most_bytes = (uint64_t)server->max_interest * NATS_INTEREST_BYTES;
    while (server->interest >= server->max_interest || server->interest_bytes >= most_bytes) {
        if (server->left.first == NULL || !nats_is_route(server->left.first->other)) return false;
        forget(a, server, server->left.first);
    }
    return true;
}

static void forget_some(struct acceptor *a, struct nats_server *server, size_t left) {
    const size_t most = a->handed + HANDED_PER_TURN; /* a pattern may mean very many imported streams */
    for (; server->left.first != NULL && left > 0 && a->handed < most; left--) forget(a, server, server->left.first);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

void nats_client_left(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    size_t left = most_at_once(a, server);
    if (nats_let_go_some(a, c, &left)) {
        nats_account_drop(a, server, nats_of(c)->account);
        return;
    }
    c->kept = true;
    nats_of(c)->next_orphaned = server->leaving;
    server->leaving = c;
    codec_left(a, server->protocol);
}

static void let_go_on(struct acceptor *a, struct nats_server *server, size_t *left) {
    for (struct connection **at = &server->leaving, *c; (c = *at) != NULL && *left > 0;) {
        if (!nats_let_go_some(a, c, left)) {
            at = &nats_of(c)->next_orphaned; /* it waits for a look, and others need not */
            continue;
        }
        *at = nats_of(c)->next_orphaned;
        nats_account_drop(a, server, nats_of(c)->account);
        socket_let_go(a, c);
    }
}

/* --- both --------------------------------------------------------------------------------------------------------- */

void nats_leave_on(struct acceptor *a, void *state) {
    struct nats_server *server = state;
    size_t left = most_at_once(a, server);
    let_go_on(a, server, &left);
    forget_some(a, server, most_at_once(a, server));
    if (server->leaving != NULL || server->left.first != NULL) codec_left(a, server->protocol);
}

static void forget_all(struct nats_server *server, const struct nats_remotes *list) {
    while (list->first != NULL) nats_forget_remote(server, list->first);
}

void nats_leaving_free(struct nats_server *server, void (*freed)(struct connection *)) {
    for (uint32_t other = 0; other < NATS_OTHERS; other++) forget_all(server, &server->others[other].wanted);
    forget_all(server, &server->left);
    while (server->leaving != NULL) {
        struct connection *c = server->leaving;
        struct nats *n = nats_of(c);
        server->leaving = n->next_orphaned;
        for (uint32_t i = 0; i < n->sid_buckets; i++) {
            for (struct nats_subscription *s = n->sids[i], *next; s != NULL; s = next) {
                next = s->next_sid;
                subjects_remove(server->accounts[n->account].subjects, &s->entry);
                free(s);
            }
        }
        free(n->sids);
        freed(c);
        free(c);
    }
}

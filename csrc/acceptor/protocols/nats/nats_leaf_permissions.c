/* What leaf nodes and hubs may want and send, and interest by which a loop is found. */
#include "acceptor/protocols/nats/nats_leaf_permissions.h"

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_figures.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_reserved.h"
#include "acceptor/protocols/nats/nats_route_send.h"
#include "acceptor/protocols/nats/nats_say.h"

static void end_loop(struct acceptor *a, struct connection *c) {
    const struct nats_account *account = &route_server(a, c)->accounts[route_of(c)->account];
    nats_say(a, c, "-ERR '", 6);
    nats_say_quoted(a, c, "Loop detected for leafnode account=",
                    (struct text){(const uint8_t *)account->name, account->name_bytes});
    static const char delayed[] = ". Delaying attempt to reconnect for 30s'\r\n";
    nats_say(a, c, delayed, sizeof delayed - 1);
    route_of(c)->reason = NATS_LOOPED;
    if (!c->closed) nats_route_hang_up(a, c);
}

static void end_violation(struct acceptor *a, struct connection *c, const char *what, struct text subject) {
    nats_say_violation(a, c, what, subject, (struct text){0});
    if (!c->closed) nats_route_hang_up(a, c);
}

bool nats_leaf_may_want(struct acceptor *a, struct connection *c, struct text subject) {
    struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    if (nats_is_loop(subject)) {
        bool is_loop = subject.bytes == r->loop_bytes && memcmp(subject.at, r->loop, subject.bytes) == 0;
        if (is_loop) end_loop(a, c);
        return !is_loop;
    }
    if (server->max_subscriptions > 0 && server->others[r->other].count >= server->max_subscriptions) {
        nats_route_say(a, c, "-ERR 'maximum subscriptions exceeded'\r\n", 39);
        return false;
    }
    if (r->permissions == NULL) return true;
    const struct text none = {0};
    bool may = nats_may_subscribe(&server->permissions, r->permissions, subject, none);
    bool is_pattern = subject_has_wildcard(subject.at, subject.bytes);
    if (!may && !is_pattern) {
        /* A hub has set this server's permissions itself, so it need not be told of a violation. */
        if ((r->flags & ROUTE_HUB) == 0) end_violation(a, c, "Subscription to ", subject);
        return false;
    }
    /* Of a pattern it gets the messages that are allowed. */
    if (!may || nats_is_denied_some(r->permissions, subject, none)) r->flags |= ROUTE_DENIED_SOME;
    return true;
}

bool nats_leaf_may_send(struct acceptor *a, struct connection *c, struct text subject) {
    struct nats_server *server = route_server(a, c);
    struct nats_permissions *set = route_of(c)->publishing;
    bool may = set == NULL || nats_begins_with(subject, "_R_.") || nats_begins_with(subject, "$JS.ACK.") ||
               nats_may_publish(&server->permissions, set, subject);
    if (!may && (route_of(c)->flags & ROUTE_HUB) == 0) end_violation(a, c, "Publish to ", subject);
    return may;
}

/* Leaf nodes: servers outside of the cluster that are connected to one account here; and hubs: servers to one of whose
 * accounts this server is connected. Their connections are routes (nats_route.h), except for what is here: joining an
 * account; and permissions and loops, which are in nats_leaf_permissions.c.
 *
 * A leaf node's interest is told to all like that of a client here. Its messages go to all that want them, except leaf
 * nodes of its own cluster, its origin, which get them from each other. A hub's messages and interest go to no route.
 * INFO, CONNECT and authentication are handled by Python (acceptor/protocols/nats/leaves.py and hubs.py).
 */
#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_figures.h"
#include "acceptor/protocols/nats/nats_name.h"
#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_route.h"
#include "acceptor/protocols/nats/nats_route_interest.h"
#include "acceptor/protocols/nats/nats_route_send.h"
#include "acceptor/protocols/nats/nats_topics.h"

static void opened(struct acceptor *a, struct connection *c) {
    nats_route_opened(a, c, ROUTE_LEAF);
}

/* Numbers are used in rotation, as for routes. 0: none is free. */
static uint32_t free_link(struct nats_server *server, bool is_hub) {
    uint32_t first = is_hub ? NATS_FIRST_HUB : NATS_FIRST_LEAF, most = is_hub ? NATS_HUBS : NATS_LEAVES;
    uint32_t *last = is_hub ? &server->last_hub : &server->last_leaf;
    for (uint32_t n = 0; n < most; n++) {
        *last = (*last + 1) % most;
        if (nats_link_of(server, first + *last)->connection == NULL) return first + *last;
    }
    return 0;
}

/* Joins a leaf node or hub to an account, and tells it the interest there. Text: "LOOP CLUSTER ACCOUNT": the subject by
 * which loops are found, its cluster's name, perhaps empty, and the account. The value: whether it supports headers. */
static int64_t join(struct acceptor *a, struct connection *c, const struct codec_call *k) {
    struct nats_server *server = route_server(a, c);
    struct nats_route *r = route_of(c);
    const uint8_t *end = k->bytes + k->bytes_count;
    const uint8_t *blank = k->bytes_count > 0 ? memchr(k->bytes, ' ', k->bytes_count) : NULL;
    const uint8_t *second = blank != NULL ? memchr(blank + 1, ' ', (size_t)(end - blank - 1)) : NULL;
    if (second == NULL) return CALL_REFUSED;
    size_t loop_bytes = (size_t)(blank - k->bytes);
    if (loop_bytes > sizeof r->loop) return CALL_REFUSED;
    if (r->other != 0 || c->closed || c->closing) return CALL_CLOSED;
    r->account = nats_account_named(server, (struct text){second + 1, (size_t)(end - second - 1)});
    if (r->account == 0) return CALL_REFUSED;
    uint32_t other = free_link(server, (r->flags & ROUTE_HUB) != 0);
    if (other == 0) return CALL_REFUSED;
    uint32_t origin = nats_origin_take(&server->origins, (struct text){blank + 1, (size_t)(second - blank - 1)});
    if (origin == 0) return CALL_REFUSED;
    memcpy(r->loop, k->bytes, loop_bytes);
    r->loop_bytes = (uint32_t)loop_bytes;
    r->flags |= (uint32_t)(k->value & (ROUTE_HEADERS | ROUTE_TRACES));
    r->other = other;
    nats_account_hold(server, r->account);
    nats_link_of(server, other)->connection = c;
    nats_link_of(server, other)->origin = origin;
    server->route_count++;
    server->leaf_count++;
    const struct nats_interest loop = {
        .account = r->account, .subject = {(const uint8_t *)r->loop, loop_bytes}, .weight = 1};
    nats_route_say_interest(a, server, c, &loop);
    if (!c->closed) nats_tell_route(a, server, c);
    return c->closed ? CALL_CLOSED : CALL_DONE;
}

static int64_t call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *k) {
    struct nats_route *r = route_of(c);
    if (strcmp(what, "join") == 0) return join(a, c, k);
    if (strcmp(what, "solicited") == 0) r->flags |= ROUTE_HUB;
    if (strcmp(what, "info") == 0) {
        nats_set_name(&r->info, k->bytes, k->bytes_count);
        return CALL_DONE;
    }
    if (strcmp(what, "sniff-until-ns") == 0) { /* Python has the deadline */
        r->flags |= ROUTE_SNIFF;
        return CALL_DONE;
    }
    if (strcmp(what, "publishing") != 0) return nats_route_call(a, c, what, k);
    nats_permissions_drop(r->publishing);
    r->publishing = nats_permissions_take(&route_server(a, c)->permissions, k->value);
    return c->closed ? CALL_CLOSED : CALL_DONE;
}

/* Hands the first byte to Python, which decides by it whether the connection is encrypted; then parses lines. */
static size_t parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct nats_route *r = route_of(c);
    if ((r->flags & ROUTE_SNIFF) == 0) return nats_route_parse(a, c, data, bytes);
    if (bytes == 0) return 0;
    uint8_t line[6] = "SNIFF";
    line[5] = *data;
    r->flags &= ~(uint32_t)ROUTE_SNIFF;
    reply_by_python(a, c, line, sizeof line);
    return 0;
}

const struct codec nats_leaf_codec = {
    .name = "nats-leaf",
    .acceptor_bytes = sizeof(struct nats_routes),
    .connection_bytes = sizeof(struct nats_route),
    .counters = nats_route_counters,
    .counter_count = ROUTE_COUNTERS,
    .first_gauge = ROUTE_COUNTERS,
    .tells_live = true,
    .python_keeps = true,
    .joins_servers = true,
    .answer = nats_not_kept_routed,
    .replied = nats_kept_routed,
    .parse = parse,
    .started = nats_route_started,
    .set = nats_route_set,
    .call = call,
    .go_on = nats_route_go_on,
    .last_words = nats_leaf_last_words,
    .opened = opened,
    .sent = nats_route_sent,
    .due = nats_route_due,
    .ended = nats_route_ended,
    .closed = nats_route_closed,
    .freed = nats_route_freed,
};

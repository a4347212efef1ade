/* Traced messages that go to other servers, which publish events of their own. */
#include "acceptor/protocols/nats/nats_hops.h"

#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_route_send.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "acceptor/protocols/nats/nats_trace.h"
#include "acceptor/protocols/nats/nats_traced.h"
#include "base/decimal.h"

static const char UNSUPPORTED[] =
    "Message delivered but remote does not support message tracing so no trace event generated from there";
static const char ONLY_UNSUPPORTED[] = "Not delivered because remote does not support message tracing";
static const char DENIED[] = "Not delivered because publish denied for this subject";

/* Writes the hop of the next server, as "1", "2" and so on behind this server's own: "1.2". */
static struct text next_hop(struct nats_trace *t, uint8_t *room) {
    uint8_t *out = room;
    if (t->hop_bytes > 0) {
        memcpy(out, t->texts + t->dest_bytes, t->hop_bytes);
        out += t->hop_bytes;
        *out++ = '.';
    }
    out = decimal_put(out, ++t->hops);
    return (struct text){room, (size_t)(out - room)};
}

void nats_trace_send(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account, uint32_t flags,
                     const struct nats_message *m, const struct nats_chosen *chosen) {
    struct nats_message sent = *m;
    uint8_t hop[NATS_HOP_BYTES + DECIMAL_MAX_BYTES + 1];
    bool is_traced = (server->trace->legs & NATS_LEG_STREAM) == 0;
    if (!is_traced && server->trace->only) return;
    /* Without memory the server traces it as the first one would. */
    if (is_traced)
        (void)nats_set_header(&sent, NATS_TRACE_HOP, next_hop(server->trace, hop), &server->trace_room);
    else
        (void)nats_set_header(&sent, NATS_TRACE_DEST, nats_trace_disabled(), &server->trace_room);
    struct nats_trace *t = server->trace;
    if (!is_traced) server->trace = NULL;
    if (nats_link_of(server, other)->connection == NULL)
        nats_pass_to(a, server, account, other, flags, &sent, chosen);
    else if (is_traced)
        nats_trace_route(a, server, other, account, &sent, chosen);
    else
        nats_route_send(a, server, other, account, &sent, chosen);
    server->trace = t;
    nats_room_done(&server->trace_room);
}

void nats_trace_route(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account,
                      const struct nats_message *m, const struct nats_chosen *chosen) {
    const struct connection *c = nats_link_of(server, other)->connection;
    struct nats_trace *t = server->trace;
    if (c == NULL || c->closed || c->closing) return;
    const struct nats_route *r = route_of(c);
    bool is_leaf = nats_is_leaf(other), traces = (r->flags & ROUTE_TRACES) != 0;
    bool denied = (r->flags & ROUTE_DENIED_SOME) != 0 && !nats_route_may_have(server, r, m->subject);
    const struct nats_egress e = {.kind = is_leaf ? NATS_KIND_LEAF : NATS_KIND_ROUTE,
                                  .cid = c->number,
                                  .name = nats_name_of(r->name),
                                  .hop = nats_header_of(m, NATS_TRACE_HOP),
                                  .account = is_leaf && (t->legs & NATS_LEG_ABROAD) != 0 ? account : 0,
                                  .error = denied    ? DENIED
                                           : traces  ? NULL
                                           : t->only ? ONLY_UNSUPPORTED
                                                     : UNSUPPORTED};
    nats_trace_egress(a, server, t, &e);
    if (!denied && (traces || !t->only)) nats_route_send(a, server, other, account, m, chosen);
}

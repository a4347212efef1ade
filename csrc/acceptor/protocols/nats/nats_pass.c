/* Sends a message to the other acceptors and servers that want it. */
#include "acceptor/protocols/nats/nats_pass.h"

#include "acceptor/protocols/nats/nats_hops.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_route_send.h"

static void send_to(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t other, uint32_t flags,
                    const struct nats_message *m, const struct nats_chosen *chosen) {
    if (!nats_is_route(other)) {
        nats_pass_to(a, server, account, other, flags, m, chosen);
        return;
    }
    const struct nats_route_link *link = nats_link_of(server, other);
    if (server->trace != NULL)
        nats_trace_send(a, server, other, account, flags, m, chosen);
    else if (link->connection != NULL)
        nats_route_send(a, server, other, account, m, chosen);
    else
        nats_pass_to(a, server, account, other, flags, m, chosen);
    if (link->full) server->full_route = other;
}

void nats_pass_on(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_message *message,
                  uint32_t flags, const struct nats_alone *alone, const struct nats_chosen *chosen) {
    uint64_t stamp = ++server->stamp;
    for (uint32_t i = 0; i < alone->count; i++) {
        server->stamps[alone->other[i]] = stamp;
        send_to(a, server, account, alone->other[i], flags | PASSED_ALONE, message, chosen);
    }
    for (size_t i = 0; i < chosen->count; i++) {
        uint32_t other = chosen->other[i];
        if (server->stamps[other] == stamp) continue;
        server->stamps[other] = stamp;
        send_to(a, server, account, other, flags, message, chosen);
    }
}

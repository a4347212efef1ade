/* Requests to the workers: sent, with a slot for the reply; and sent again to a worker that is back. */
#include "acceptor/asks.h"

#include <string.h>

#include "acceptor/bridge.h"
#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/publishes.h"
#include "acceptor/requests.h"
#include "acceptor/slots.h"
#include "acceptor/socket.h"

static void address(struct connection *c, uint32_t worker, struct message *request, uint32_t body_bytes,
                    uint32_t slot) {
    request->conn = c->number;
    request->slot = slot;
    request->body_bytes = body_bytes;
    c->touched_workers |= bit_of(worker);
}

static void send_request(struct acceptor *a, struct connection *c, uint32_t worker, struct message *request,
                         const void *body, uint32_t body_bytes, uint32_t slot) {
    address(c, worker, request, body_bytes, slot);
    peer_send(a, worker, request, body);
}

/* Lends a large body to the channel, which copies it as the ring has room. */
static bool lend(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                 const void *body) {
    struct channel *channel = a->links[worker].channel;
    struct lent lent;
    if (channel == NULL || !socket_lend(a, c, body, request->body_bytes, &lent)) return false;
    if (!channel_lend(channel, request, body, request->body_bytes, &lent)) return false;
    socket_lent(a, c);
    a->published_to |= bit_of(worker);
    return true;
}

bool peer_may_bring_large(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes) {
    struct worker_link *link = &a->links[worker];
    if (c->large_bytes > 0) return stalled(c, STALL_IDLE);
    if (link->large_bytes == 0 || link->large_bytes + body_bytes <= LARGE_ASKED_BYTES) return true;
    connection_list_add(&link->larges, c->number);
    return stalled_by(a, c, STALL_WORKER, WAITS_WORKER);
}

static void bring_large(struct acceptor *a, struct connection *c, uint32_t worker, uint32_t body_bytes, uint32_t slot) {
    a->links[worker].large_bytes += body_bytes;
    c->large_bytes = body_bytes;
    c->large_slot = slot;
}

static uint32_t last_slot(const struct connection *c) {
    return c->head_slot + c->slot_count - 1;
}

void peer_ask(struct acceptor *a, struct connection *c, uint32_t worker, struct message *request, const void *body,
              uint32_t body_bytes, uint64_t value) {
    struct slot *slot = connection_push_slot(c, &a->blocks, request->kind);
    if (slot == NULL) {
        engine_oom(a, c);
        return;
    }
    slot->worker = (uint8_t)worker;
    slot->value = value;
    a->expected++;
    address(c, worker, request, body_bytes, last_slot(c));
    const bool publishes = request->kind == MSG_PUBLISH;
    if (!publishes || !publishes_send(a, worker, request, body)) {
        if (publishes) request->flags |= MSG_JOINED;
        if (body_bytes >= LARGE_BODY_BYTES && c->large_bytes == 0) bring_large(a, c, worker, body_bytes, request->slot);
        if (body_bytes < LENT_BYTES || !lend(a, c, worker, request, body)) peer_send(a, worker, request, body);
    }
    if (request->kind == MSG_PUBLISH || request->kind == MSG_PUBLISH_MANY) bridge_asked(a, c, slot, request, body);
}

static void send_reserve(struct acceptor *a, struct connection *c, const struct slot *slot, uint32_t number) {
    struct message request = {.kind = MSG_RESERVE, .delay_ns = slot->value};
    send_request(a, c, slot->worker, &request, NULL, 0, number);
    a->reserved = true;
}

void peer_reserve(struct acceptor *a, struct connection *c, uint32_t worker, uint64_t timeout_ns) {
    struct slot *slot = connection_push_slot(c, &a->blocks, MSG_RESERVE);
    if (slot == NULL) {
        engine_oom(a, c);
        return;
    }
    slot->worker = (uint8_t)worker;
    slot->value = timeout_ns;
    c->reserve_worker = (uint8_t)worker;
    send_reserve(a, c, slot, last_slot(c));
    if (++c->reserves == 1 && c->half_closed) peer_cancel_reserves(a, c);
}

/* Sends a request of Python's that was kept because its worker was gone. */
static void send_unsent(struct acceptor *a, struct connection *c, struct slot *slot, uint32_t number) {
    struct message request;
    memcpy(&request, slot->body, sizeof request);
    send_request(a, c, slot->worker, &request, slot->body + sizeof request, request.body_bytes, number);
    slot_forget_unsent(a, c, slot);
}

void peer_ask_again(struct acceptor *a, struct connection *c, uint32_t worker) {
    for (uint32_t i = 0; i < c->slot_count; i++) {
        uint32_t number = c->head_slot + i;
        struct slot *slot = connection_slot(c, number);
        if (slot->kind == SLOT_CODEC)
            c->codec->ask_again(a, c, worker);
        else if (slot->worker != worker || slot->answered)
            continue;
        else if (slot->unsent)
            send_unsent(a, c, slot, number);
        else if (slot->kind == MSG_RESERVE)
            send_reserve(a, c, slot, number);
    }
    if (c->half_closed && c->reserve_worker == worker) peer_cancel_reserves(a, c);
}

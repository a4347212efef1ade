/* The end of a trace: its event is published, once other acceptors that were sent the message have told their part. */
#include "acceptor/protocols/nats/nats_trace_end.h"

#include <stdlib.h>

#include "acceptor/mesh.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_journey.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_traced.h"
#include "base/decimal.h"

/* Publishes the event in the account of the message, from where it goes on as any message does. */
static void publish(struct acceptor *a, struct nats_server *server, struct nats_trace *t) {
    struct json_text event = {.limit = 4 * (size_t)NATS_TRACE_BYTES};
    uint8_t digits[DECIMAL_MAX_BYTES];
    json_put(&event, "{\"server\":", 10);
    json_put(&event, server->described, server->described_bytes);
    json_put_name(&event, ",\"seq\":");
    json_put_number(&event, ++server->events_made);
    json_put_name(&event, ",\"time\":");
    json_put_time(&event, nats_wall_now(a));
    json_put_name(&event, "},\"request\":");
    json_put(&event, t->request.at, t->request.bytes);
    json_put_name(&event, "}");
    if (t->hops > 0) json_put_name(&event, ",\"hops\":");
    if (t->hops > 0) json_put_number(&event, t->hops);
    json_put_name(&event, ",\"events\":[");
    json_put(&event, t->ingress.at, t->ingress.bytes);
    json_put_name(&event, "}");
    json_put(&event, t->events.at, t->whole_bytes);
    json_put_name(&event, "]}");
    struct nats_message m = {.subject = {t->texts, t->dest_bytes}, .payload = event.at, .payload_bytes = event.bytes};
    m.size = (struct text){digits, (size_t)(decimal_put(digits, m.payload_bytes) - digits)};
    bool is_whole = !event.failed && !t->request.failed && !t->ingress.failed;
    const struct nats_account_ref account = {t->account, t->account_life};
    if (is_whole && server->described != NULL && nats_account_referred(server, account) != 0)
        nats_deliver_on(a, server, t->account, &m);
    free(event.at);
}

/* Publishes an event that has been waiting. */
static void publish_waiting(struct acceptor *a, struct nats_server *server, struct nats_trace **at) {
    struct nats_trace *t = *at;
    *at = t->next;
    server->traces_waiting--;
    publish(a, server, t);
    nats_trace_free(t);
}

static bool is_over(const struct nats_trace *t) {
    return t->waits == 0 && t->handed == 0;
}

void nats_trace_end(struct acceptor *a, struct nats_server *server) {
    struct nats_trace *t = server->trace, **last = &server->traces;
    server->trace = NULL;
    if (is_over(t)) {
        publish(a, server, t);
        nats_trace_free(t);
        return;
    }
    if (server->traces_waiting == NATS_TRACES) publish_waiting(a, server, &server->traces);
    while (*last != NULL) last = &(*last)->next;
    *last = t;
    server->traces_waiting++;
}

void nats_trace_give_up(struct acceptor *a, struct nats_server *server) {
    while (server->traces != NULL) publish_waiting(a, server, &server->traces);
}

/* --- parts of other acceptors ------------------------------------------------------------------------------------- */

/* What an acceptor tells: how many messages it has handed over, then its part of the event. */
struct told {
    uint64_t handed;
    uint32_t was_handed; /* whether its own message had been handed over */
    uint32_t unused;
};

void nats_trace_continue(struct acceptor *a, struct nats_server *server, uint64_t number, uint32_t flags) {
    const struct text none = {0};
    struct nats_trace *t = nats_trace_new(a, server, 0, none, none);
    if (t == NULL) return;
    t->number = number;
    t->legs = flags >> NATS_LEGS_SHIFT;
    t->only = (flags & PASSED_ONLY_TRACED) != 0;
    t->is_part = true;
    server->trace = t;
}

static struct nats_trace **waiting_for(struct nats_server *server, uint64_t number) {
    struct nats_trace **at = &server->traces;
    while (*at != NULL && (*at)->number != number) at = &(*at)->next;
    return at;
}

static void add_part(struct acceptor *a, struct nats_server *server, uint64_t number, const struct told *told,
                     struct text events) {
    struct nats_trace **at = waiting_for(server, number), *t = *at;
    if (t == NULL) return;
    if (told->was_handed != 0)
        t->handed--;
    else
        t->waits--;
    t->handed += (int64_t)told->handed;
    nats_trace_add(t, events);
    if (is_over(*at)) publish_waiting(a, server, at);
}

void nats_trace_tell(struct acceptor *a, struct nats_server *server, uint32_t flags) {
    struct nats_trace *t = server->trace;
    const struct told told = {(uint64_t)t->waits, (flags & PASSED_HANDED_OVER) != 0, 0};
    const struct text events = nats_trace_part(t);
    uint32_t owner = (uint32_t)(t->number >> 32);
    server->trace = NULL;
    if (owner == a->index)
        add_part(a, server, t->number, &told, events);
    else if (owner < BOARD_MAX_ACCEPTORS && (a->mesh_there & bit_of(owner)) != 0)
        nats_tell_traced(a, server, owner, t->number, (struct text){(const uint8_t *)&told, sizeof told}, events);
    nats_trace_free(t);
}

void nats_trace_told(struct acceptor *a, struct nats_server *server, uint64_t number, const uint8_t *body,
                     size_t bytes) {
    struct told told;
    if (bytes < sizeof told) return;
    memcpy(&told, body, sizeof told);
    add_part(a, server, number, &told, (struct text){body + sizeof told, bytes - sizeof told});
}

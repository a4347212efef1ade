/* A protocol as small as one can be, to show what belongs to one: docs/protocols.md walks through it.
 *
 * The first line that a client sends names a topic. From then on each line is published into it, and what is in the
 * topic comes back as lines: to one of those who named it, as all of them are consumers of the same channel.
 */
#include <string.h>

#include "acceptor/engine.h"

enum { LINE_BYTES = 4096, CREDIT = 100, PRIORITY = 1024 };

#define TIMEOUT_NS ((uint64_t)60000000000)

struct echo {
    uint32_t topic; /* 0: not named yet */
    uint8_t worker;
};

static struct echo *echo_of(const struct connection *c) {
    return connection_state(c);
}

static void put_line(struct acceptor *a, struct connection *c, const void *text, size_t bytes) {
    uint8_t *room = socket_room(a, c, bytes + 1);
    if (room == NULL) return;
    memcpy(room, text, bytes);
    room[bytes] = '\n';
    socket_written(a, c, room + bytes + 1);
}

/* False: not now. */
static bool take_line(struct acceptor *a, struct connection *c, const uint8_t *line, uint32_t bytes) {
    const struct echo *e = echo_of(c);
    if (e->topic == 0) {
        if (!may_do_alone(c)) return false;
        reply_by_python(a, c, line, bytes);
        return true;
    }
    if (!may_ask(a, c, e->worker)) return false;
    struct message request = {.kind = MSG_PUBLISH,
                              .flags = MSG_DURABLE,
                              .topic = e->topic,
                              .id = ids_take(a, binding_at(&a->bindings, e->topic), 1),
                              .pri = PRIORITY,
                              .ttr_ns = TIMEOUT_NS};
    peer_ask(a, c, e->worker, &request, line, bytes, 0);
    return true;
}

static size_t parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    size_t at = 0;
    while (at < bytes && c->stall == STALL_NONE && !c->closed && may_go_on(a, c)) {
        const uint8_t *end = memchr(data + at, '\n', bytes - at);
        if (end == NULL && bytes - at > LINE_BYTES) socket_close(a, c);
        if (end == NULL || !take_line(a, c, data + at, (uint32_t)(end - data - (ptrdiff_t)at))) break;
        at = (size_t)(end + 1 - data);
    }
    return at;
}

/* To a PUBLISH: only a failure is worth a word. */
static void answer(struct acceptor *a, struct connection *c, const struct codec_answer *of) {
    if (of->status != STATUS_OK) put_line(a, c, "(not taken)", sizeof "(not taken)" - 1);
}

static void pushed(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message) {
    if (message->kind != MSG_DELIVER) return;
    put_line(a, c, message + 1, message->body_bytes);
    struct message finish = {.kind = MSG_FINISH, .conn = c->number, .id = message->id};
    struct message sent = {.kind = MSG_SENT, .conn = c->number, .sent_bytes = sizeof *message + message->body_bytes};
    peer_send(a, worker, &finish, NULL);
    peer_send(a, worker, &sent, NULL);
}

static bool subscribing(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                        const void *body) {
    (void)a, (void)body;
    *echo_of(c) = (struct echo){.topic = request->topic, .worker = (uint8_t)worker};
    return true;
}

static void subscribed(struct acceptor *a, struct connection *c, uint8_t status) {
    struct message credit = {.kind = MSG_CREDIT, .conn = c->number, .credit = CREDIT};
    if (status == STATUS_OK) peer_send(a, echo_of(c)->worker, &credit, NULL);
}

/* A worker is back and knows nothing of the subscription: neither does this codec, so the client has to begin anew. */
static void tell(struct acceptor *a, struct connection *c, uint32_t worker) {
    if (echo_of(c)->topic != 0 && echo_of(c)->worker == worker) socket_close(a, c);
}

const struct codec echo_codec = {
    .name = "echo",
    .connection_bytes = sizeof(struct echo),
    .answer = answer,
    .parse = parse,
    .pushed = pushed,
    .subscribing = subscribing,
    .subscribed = subscribed,
    .tell = tell,
};

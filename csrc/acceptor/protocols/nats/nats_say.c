/* What clients and servers are told outside of messages, and how a connection ends. */
#include "acceptor/protocols/nats/nats_say.h"

#include "acceptor/protocols/go_quote.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_logged.h"
#include "acceptor/protocols/nats/nats_websocket.h"

static const char OK[] = "+OK\r\n";

void nats_say(struct acceptor *a, struct connection *c, const void *text, size_t bytes) {
    uint8_t *room = socket_room(a, c, bytes);
    if (room == NULL) return;
    memcpy(room, text, bytes);
    socket_written(a, c, room + bytes);
    if (nats_is(c, NATS_LOGGED)) nats_log_said(a, c, text, bytes);
}

void nats_say_error(struct acceptor *a, struct connection *c, const char *text) {
    nats_say(a, c, "-ERR '", 6);
    nats_say(a, c, text, strlen(text));
    nats_say(a, c, "'\r\n", 3);
}

void nats_say_ok(struct acceptor *a, struct connection *c) {
    if (nats_is(c, NATS_VERBOSE)) nats_say(a, c, OK, sizeof OK - 1);
}

void nats_say_quoted(struct acceptor *a, struct connection *c, const char *before, struct text text) {
    uint8_t quoted[QUOTED_BYTES(NATS_MAX_CONTROL_LINE)];
    const uint8_t *end = go_quote(quoted, text.at, text.bytes);
    nats_say(a, c, before, strlen(before));
    nats_say(a, c, quoted, (size_t)(end - quoted));
}

/* Sends -ERR 'Permissions Violation for WHAT "subject" using queue "queue"'. */
void nats_say_violation(struct acceptor *a, struct connection *c, const char *what, struct text subject,
                        struct text queue) {
    a->refused[c->protocol - 1]++;
    nats_say(a, c, "-ERR 'Permissions Violation for ", 32);
    nats_say_quoted(a, c, what, subject);
    if (queue.bytes > 0) nats_say_quoted(a, c, " using queue ", queue);
    nats_say(a, c, "'\r\n", 3);
}

/* Closes the connection when its output has been sent, or is not taken in time. */
void nats_hang_up(struct acceptor *a, struct connection *c, enum nats_reason reason) {
    struct nats *n = nats_of(c);
    if (n->reason == 0) n->reason = (uint8_t)reason;
    if (c->framing != NULL) nats_say_closing(a, c);
    c->closing = true;
    nats_waits(a, c);
    nats_schedule(a, c);
    if (!c->closed) socket_dirty(a, c);
}

void nats_end(struct acceptor *a, struct connection *c, enum nats_reason reason, const char *text) {
    nats_say_error(a, c, text);
    if (!c->closed) nats_hang_up(a, c, reason);
}

#include "acceptor/protocols/nats/nats_logged.h"

#include <stdlib.h>

#include "acceptor/upcalls.h"

enum {
    MOST_PAYLOAD_BYTES = 64 << 10, /* that are logged of a message */
    MOST_LINE_BYTES = 2 * NATS_LINE_END_BYTES,
    MOST_SAID_BYTES = 8 << 10, /* that are logged of an error */
    /* Lines that wait for Python: when there are so many, commands of clients wait, and further lines are left out.
     * What else Python has to do waits behind them. */
    MANY_WAITING = 256,
    MOST_WAITING = 4096,
    MOST_WAITING_BYTES = 4 << 20
};

/* Lines are made here. */
struct nats_log {
    bool headers_only;
    size_t payload_bytes; /* most that is logged of a message */
    uint32_t left_out;
    size_t said_bytes; /* of a line that is being said */
    uint8_t said[MOST_SAID_BYTES];
    uint8_t made[3 + 1 + sizeof(uint32_t) + MOST_LINE_BYTES + MOST_PAYLOAD_BYTES];
};

static uint8_t *begin(struct nats_log *log, enum nats_logged what) {
    uint8_t *out = nats_put(log->made, "LOG", 3);
    *out++ = (uint8_t)what;
    return nats_put(out, &log->left_out, sizeof log->left_out);
}

static void end(struct acceptor *a, const struct connection *c, struct nats_log *log, const uint8_t *out) {
    if (a->upcall_count >= MANY_WAITING && a->handed < HANDED_PER_TURN) a->handed = HANDED_PER_TURN;
    if (a->upcall_count >= MOST_WAITING || a->upcalls_bytes > MOST_WAITING_BYTES) {
        log->left_out++;
        return;
    }
    upcall_push(a, UPCALL_COMMAND, c->number, c->protocol, NULL, log->made, (size_t)(out - log->made));
    log->left_out = 0;
}

static uint8_t *put_most(uint8_t *out, const uint8_t *at, size_t bytes, size_t most) {
    return nats_put(out, at, bytes < most ? bytes : most);
}

static void log_payload(struct acceptor *a, const struct connection *c, bool is_in, struct text payload,
                        size_t header_bytes) {
    struct nats_log *log = nats_server_of(a, c)->log;
    /* The ends of the last header and of the empty line behind it are left out. */
    if (log->headers_only) payload.bytes = header_bytes > 2 * CRLF_BYTES ? header_bytes - 2 * CRLF_BYTES : 0;
    if (payload.bytes == 0) return;
    const bool is_cut = payload.bytes > log->payload_bytes;
    const enum nats_logged what = is_in    ? is_cut ? NATS_LOGGED_CUT_IN : NATS_LOGGED_PAYLOAD_IN
                                  : is_cut ? NATS_LOGGED_CUT_OUT
                                           : NATS_LOGGED_PAYLOAD_OUT;
    end(a, c, log, put_most(begin(log, what), payload.at, payload.bytes, log->payload_bytes));
}

bool nats_log_set(struct acceptor *a, struct nats_server *server, uint64_t terms) {
    const bool is_on = (terms & 1) != 0;
    if (!is_on) {
        nats_log_free(server);
    } else {
        if (server->log == NULL) server->log = calloc(1, sizeof *server->log);
        if (server->log == NULL) return false;
        const uint64_t most = terms >> 2;
        server->log->headers_only = (terms & 2) != 0;
        server->log->payload_bytes = most > 0 && most < MOST_PAYLOAD_BYTES ? (size_t)most : MOST_PAYLOAD_BYTES;
    }
    for (uint32_t i = 0; i < a->highest_index; i++) {
        struct connection *c = a->table[i];
        if (c == NULL || c->protocol != server->protocol || nats_is(c, NATS_OF_SERVER)) continue;
        nats_of(c)->flags &= ~(uint32_t)NATS_LOGGED;
        if (is_on) nats_of(c)->flags |= NATS_LOGGED;
    }
    return true;
}

void nats_log_free(struct nats_server *server) {
    free(server->log);
    server->log = NULL;
}

void nats_log_opened(struct nats_server *server, struct connection *c) {
    if (server->log != NULL) nats_of(c)->flags |= NATS_LOGGED;
}

void nats_log_came(struct acceptor *a, struct connection *c, const char *verb, struct text arguments) {
    struct nats_log *log = nats_server_of(a, c)->log;
    while (arguments.bytes > 0 && (*arguments.at == ' ' || *arguments.at == '\t')) {
        arguments.at++;
        arguments.bytes--;
    }
    uint8_t *out = nats_put(begin(log, NATS_LOGGED_IN), verb, strlen(verb));
    if (arguments.bytes > 0) *out++ = ' ';
    end(a, c, log, put_most(out, arguments.at, arguments.bytes, MOST_LINE_BYTES / 2));
}

void nats_log_publish(struct acceptor *a, struct connection *c, struct text line, const struct nats_message *m) {
    const size_t verb_bytes = m->header_size.at != NULL ? 4 : 3;
    while (line.bytes > 0 && (line.at[line.bytes - 1] == '\n' || line.at[line.bytes - 1] == '\r')) line.bytes--;
    nats_log_came(a, c, verb_bytes == 4 ? "HPUB" : "PUB", (struct text){line.at + verb_bytes, line.bytes - verb_bytes});
}

void nats_log_message(struct acceptor *a, struct connection *c, struct text line, struct text said,
                      const struct nats_message *m) {
    struct nats_log *log = nats_server_of(a, c)->log;
    nats_log_publish(a, c, line, m);
    if (said.at != m->subject.at) {
        uint8_t *out = nats_put(begin(log, NATS_LOGGED_IN), "MAPPING ", 8);
        out = nats_put(put_most(out, said.at, said.bytes, MOST_LINE_BYTES / 4), " -> ", 4);
        end(a, c, log, put_most(out, m->subject.at, m->subject.bytes, MOST_LINE_BYTES / 4));
    }
    log_payload(a, c, true, (struct text){m->payload, m->payload_bytes}, m->header_bytes);
}

static bool is_said(const struct nats_log *log, const char *text) {
    const size_t bytes = strlen(text);
    return log->said_bytes >= bytes && memcmp(log->said, text, bytes) == 0;
}

/* A line is logged when its last part was said, an error without its quotes. */
void nats_log_said(struct acceptor *a, struct connection *c, const void *text, size_t bytes) {
    enum { BEFORE_ERROR = 6, BEHIND_ERROR = 3 }; /* -ERR '...'\r\n */
    struct nats_log *log = nats_server_of(a, c)->log;
    if (log == NULL) return;
    const size_t room = MOST_SAID_BYTES - log->said_bytes;
    nats_put(log->said + log->said_bytes, text, bytes < room ? bytes : room);
    log->said_bytes += bytes < room ? bytes : room;
    if (bytes < CRLF_BYTES || memcmp((const uint8_t *)text + bytes - CRLF_BYTES, "\r\n", CRLF_BYTES) != 0) return;
    uint8_t *out = begin(log, NATS_LOGGED_OUT);
    if (is_said(log, "-ERR '") && log->said_bytes >= BEFORE_ERROR + BEHIND_ERROR) {
        out = nats_put(out, "-ERR ", 5);
        out = nats_put(out, log->said + BEFORE_ERROR, log->said_bytes - BEFORE_ERROR - BEHIND_ERROR);
        end(a, c, log, out);
    } else if (is_said(log, "+OK\r\n")) {
        end(a, c, log, nats_put(out, "OK", 2));
    } else if (is_said(log, "PING\r\n") || is_said(log, "PONG\r\n")) {
        end(a, c, log, nats_put(out, log->said, 4));
    }
    log->said_bytes = 0;
}

void nats_log_given(struct nats_delivery *d, const struct nats_subscription *s) {
    const bool is_whole = d->message->header_bytes == 0 || nats_is(s->connection, NATS_HEADERS);
    const struct nats_tail *line = is_whole ? &d->whole : &d->without;
    struct nats_log *log = d->server->log;
    const struct text subject = d->message->subject;
    uint8_t *out = nats_put(begin(log, NATS_LOGGED_OUT), line->verb, line->verb_bytes);
    out = put_most(out, subject.at, subject.bytes, MOST_LINE_BYTES / 4);
    *out++ = ' ';
    out = put_most(out, (const uint8_t *)s->sid, s->sid_bytes, MOST_LINE_BYTES / 4);
    *out++ = ' ';
    end(d->a, s->connection, log, put_most(out, line->end.at, line->end.bytes - CRLF_BYTES, MOST_LINE_BYTES / 4));
    const size_t header_bytes = line->verb_bytes > 4 ? d->message->header_bytes : 0;
    log_payload(d->a, s->connection, false, (struct text){line->payload, line->payload_bytes}, header_bytes);
}

void nats_log_removed(struct acceptor *a, const struct nats_subscription *s) {
    struct nats_log *log = nats_server_of(a, s->connection)->log;
    if (log == NULL) return;
    uint8_t *out = begin(log, NATS_LOGGED_GONE);
    end(a, s->connection, log, put_most(out, (const uint8_t *)s->sid, s->sid_bytes, MOST_LINE_BYTES / 2));
}

#include "acceptor/protocols/nats/nats_give.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_leaving.h"
#include "acceptor/protocols/nats/nats_logged.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_replies.h"
#include "acceptor/protocols/nats/nats_subscription.h"
#include "acceptor/protocols/nats/nats_trace_state.h"
#include "base/decimal.h"
#include "base/subject_groups.h"

/* --- lines -------------------------------------------------------------------------------------------------------- */

/* Names are mostly short: two overlapping moves, and no call. */
static inline uint8_t *put_name(uint8_t *out, const void *text, size_t bytes) {
    const uint8_t *at = text;
    if (bytes > 32) return nats_put(out, text, bytes);
    if (bytes >= 16) {
        memcpy(out, at, 16);
        memcpy(out + bytes - 16, at + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(out, at, 8);
        memcpy(out + bytes - 8, at + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(out, at, 4);
        memcpy(out + bytes - 4, at + bytes - 4, 4);
    } else if (bytes > 0) {
        out[0] = at[0];
        out[bytes / 2] = at[bytes / 2];
        out[bytes - 1] = at[bytes - 1];
    }
    return out + bytes;
}

static uint8_t *put_reply(uint8_t *out, const struct nats_message *m) {
    if (m->reply.bytes == 0) return out;
    out = nats_put(out, m->reply.at, m->reply.bytes);
    *out++ = ' ';
    return out;
}

/* The end of the line, as the publisher wrote it if that is contiguous. */
static struct text end_of(uint8_t *room, const struct nats_message *m) {
    if (m->joined) {
        const uint8_t *begin = m->reply.bytes > 0          ? m->reply.at
                               : m->header_size.at != NULL ? m->header_size.at
                                                           : m->size.at;
        return (struct text){begin, (size_t)(m->payload - begin)};
    }
    uint8_t *out = put_reply(room, m);
    if (m->header_bytes > 0) {
        out = nats_put(out, m->header_size.at, m->header_size.bytes);
        *out++ = ' ';
    }
    out = nats_put(nats_put(out, m->size.at, m->size.bytes), "\r\n", CRLF_BYTES);
    return (struct text){room, (size_t)(out - room)};
}

static struct nats_tail line_of(uint8_t *room, const struct nats_message *m) {
    bool headers = m->header_bytes > 0;
    return (struct nats_tail){.end = end_of(room, m),
                              .verb = headers ? "HMSG " : "MSG ",
                              .verb_bytes = headers ? 5 : 4,
                              .payload = m->payload,
                              .payload_bytes = m->payload_bytes,
                              .joined = m->joined};
}

static struct nats_tail line_without_headers(uint8_t *room, const struct nats_message *m) {
    uint8_t *out = decimal_put(put_reply(room, m), m->payload_bytes - m->header_bytes);
    out = nats_put(out, "\r\n", CRLF_BYTES);
    return (struct nats_tail){.end = {room, (size_t)(out - room)},
                              .verb = "MSG ",
                              .verb_bytes = 4,
                              .payload = m->payload + m->header_bytes,
                              .payload_bytes = m->payload_bytes - m->header_bytes};
}

static const struct nats_tail *line_for(struct nats_delivery *d, const struct nats *n) {
    if (d->message->header_bytes == 0 || (n->flags & NATS_HEADERS) != 0) return &d->whole;
    if (!d->is_cut) d->without = line_without_headers(d->server->line_ends[1], d->message);
    d->is_cut = true;
    return &d->without;
}

/* --- to one ------------------------------------------------------------------------------------------------------- */

/* A subscription has had its last message: it is removed once no list is being walked. If memory is short it stays, but
 * gets nothing. */
static void expire(struct nats_server *server, struct nats_subscription *s) {
    if (server->expired_count == server->expired_capacity) {
        uint32_t capacity = server->expired_capacity > 0 ? 2 * server->expired_capacity : 16;
        struct nats_subscription **larger = realloc(server->expired, capacity * sizeof *larger);
        if (larger == NULL) return;
        server->expired = larger;
        server->expired_capacity = capacity;
    }
    server->expired[server->expired_count++] = s;
}

static bool is_slow(const struct nats_delivery *d, const struct connection *c) {
    return connection_unsent(c) > room_pending_bytes(d->a, d->server->max_pending);
}

static void cut_off(struct nats_delivery *d, struct connection *c) {
    codec_count_add(d->a, c, NATS_SLOW_CONSUMERS, 1);
    nats_of(c)->reason = NATS_SLOW_PENDING_BYTES;
    nats_account_of(d->a, c)->slow_consumers++;
    socket_close(d->a, c);
}

static bool is_denied(struct nats_delivery *d, const struct nats_subscription *s) {
    const struct subject_group *g = s->entry.group;
    struct text queue = {NULL, 0};
    if (g != NULL) queue = (struct text){(const uint8_t *)g->name->text, g->name->bytes};
    return !nats_may_have(&d->server->permissions, nats_of(s->connection)->permissions, d->message->subject, queue);
}

/* Allows the client to answer, if its permissions have allow_responses. */
static void expect_reply(struct nats_delivery *d, struct connection *c) {
    struct text reply = d->message->reply;
    if (reply.bytes > 0 && !nats_may_publish(&d->server->permissions, nats_of(c)->permissions, reply))
        nats_reply_expect(d->a, c, reply);
}

/* Rare work after a message was given to a subscription: its limit, allow_responses, and a slow consumer. */
static void look_after(struct nats_delivery *d, struct nats_subscription *s, struct connection *c) {
    struct nats *n = nats_of(c);
    if (nats_has_had_all(s)) expire(d->server, s);
    if (n->permissions != NULL) expect_reply(d, c);
    if (c->choked) nats_waits(d->a, c);
    if (!is_slow(d, c)) return;
    /* Perhaps the output has grown so large only in this turn. */
    socket_flush_well(d->a, c);
    if (!c->closed && is_slow(d, c)) cut_off(d, c);
}

static inline enum nats_refusal refusal_of(struct nats_delivery *d, const struct nats_subscription *s) {
    const struct connection *c = s->connection;
    if (c == NULL) return NATS_FOR_SERVER;
    if (c->closed || c->closing) return NATS_GONE;
    if (c == d->from && !nats_is(c, NATS_ECHO)) return NATS_NO_ECHO;
    if (nats_has_had_all(s)) return NATS_HAD_ALL;
    return nats_is(c, NATS_DENIED_SOME) && is_denied(d, s) ? NATS_DENIED : NATS_ALLOWED;
}

/* Only for messages that are traced; others are not to pay for a call. */
__attribute__((noinline)) enum nats_refusal nats_refusal_of(struct nats_delivery *d,
                                                            const struct nats_subscription *s) {
    return refusal_of(d, s);
}

/* Whether a subscription may have the message. */
static inline bool may_have(struct nats_delivery *d, const struct nats_subscription *s) {
    enum nats_refusal refusal = refusal_of(d, s);
    if (refusal == NATS_FOR_SERVER) d->answers = true;
    return refusal == NATS_ALLOWED;
}

void nats_give(struct nats_delivery *d, struct nats_subscription *s) {
    struct connection *c = s->connection;
    if (!may_have(d, s)) return;
    struct nats *n = nats_of(c);
    const struct nats_tail *line = line_for(d, n);
    struct text subject = d->message->subject;
    bool apart = d->shared != NULL;
    size_t bytes = line->verb_bytes + subject.bytes + s->sid_bytes + 2 + line->end.bytes;
    uint8_t *out = socket_room(d->a, c, apart ? bytes : bytes + line->payload_bytes + CRLF_BYTES);
    if (out == NULL) return;
    out = put_name(out, line->verb, line->verb_bytes);
    out = put_name(out, subject.at, subject.bytes);
    *out++ = ' ';
    out = put_name(out, s->sid, s->sid_bytes);
    *out++ = ' ';
    if (apart) {
        socket_written(d->a, c, nats_put(out, line->end.at, line->end.bytes));
        socket_share(d->a, c, d->shared, d->whole.payload_bytes - line->payload_bytes);
        if (c->closed) return;
    } else if (line->joined) {
        out = nats_put(out, line->end.at, line->end.bytes + line->payload_bytes + CRLF_BYTES);
        socket_written(d->a, c, out);
    } else {
        out = nats_put(nats_put(out, line->end.at, line->end.bytes), line->payload, line->payload_bytes);
        socket_written(d->a, c, nats_put(out, "\r\n", CRLF_BYTES));
    }
    d->delivered++;
    d->bytes += line->payload_bytes;
    n->out_messages++;
    n->out_bytes += line->payload_bytes;
    s->given++;
    if (nats_is(c, NATS_LOGGED)) nats_log_given(d, s);
    look_after(d, s, c);
}

/* --- a message ---------------------------------------------------------------------------------------------------- */

void nats_settle(struct acceptor *a, struct nats_server *server) {
    server->delivering = false;
    for (uint32_t i = 0; i < server->expired_count; i++) nats_unsubscribe(a, server->expired[i]);
    server->expired_count = 0;
    while (server->orphaned != NULL) {
        struct connection *c = server->orphaned;
        server->orphaned = nats_of(c)->next_orphaned;
        nats_client_left(a, c);
    }
}

void nats_begin(struct nats_delivery *d) {
    size_t bytes = d->message->payload_bytes;
    d->whole = line_of(d->server->line_ends[0], d->message);
    d->is_cut = false;
    if (bytes < SHARE_BYTES || d->shared != NULL) return;
    d->shared = shared_new(&d->a->blocks, bytes + CRLF_BYTES);
    if (d->shared != NULL) nats_put(nats_put(d->shared->at, d->message->payload, bytes), "\r\n", CRLF_BYTES);
}

void nats_made(struct nats_delivery *d) {
    bool is_only_traced = d->server->trace != NULL && d->server->trace->only;
    if (d->delivered > 0 && !is_only_traced) {
        uint64_t *counters = d->a->count->counters[d->server->protocol - 1];
        board_add(&counters[NATS_OUT_MESSAGES], d->delivered);
        board_add(&counters[NATS_OUT_BYTES], d->bytes);
        d->account->given_messages += d->delivered;
        d->account->given_bytes += d->bytes;
    }
    socket_put_off(d->a, d->dirty);
    d->a->handed += nats_handed(d);
    d->server->walked = 0;
    if (d->shared != NULL) shared_drop(&d->a->blocks, d->shared);
    nats_settle(d->a, d->server);
}

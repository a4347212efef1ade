/* PUB and HPUB: parses a message, and checks what must hold before it is delivered. */
#include "acceptor/protocols/nats/nats_publish.h"

#include <stdio.h>

#include "acceptor/mesh.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_fanout.h"
#include "acceptor/protocols/nats/nats_halves.h"
#include "acceptor/protocols/nats/nats_journey.h"
#include "acceptor/protocols/nats/nats_line.h"
#include "acceptor/protocols/nats/nats_logged.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_replies.h"
#include "acceptor/protocols/nats/nats_reserved.h"
#include "acceptor/protocols/nats/nats_say.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "acceptor/protocols/nats/nats_shares.h"
#include "acceptor/protocols/nats/nats_topics.h"
#include "acceptor/protocols/nats/nats_trace.h"
#include "acceptor/protocols/nats/nats_trace_end.h"
#include "acceptor/protocols/nats/nats_traced.h"
#include "acceptor/protocols/nats/nats_turns.h"
void nats_say_no_responders(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    const struct nats_subscription *s = nats_own_subscription(a, c, m->reply);
    if (s == NULL) return;
    char sizes[32];
    size_t bytes = sizeof "NATS/1.0 503\r\nNats-Subject: \r\n\r\n" - 1 + m->subject.bytes;
    int length = snprintf(sizes, sizeof sizes, " %zu %zu\r\n", bytes, bytes);
    nats_say(a, c, "HMSG ", 5);
    nats_say(a, c, m->reply.at, m->reply.bytes);
    nats_say(a, c, " ", 1);
    nats_say(a, c, s->sid, s->sid_bytes);
    nats_say(a, c, sizes, (size_t)length);
    nats_say(a, c, "NATS/1.0 503\r\nNats-Subject: ", 28);
    nats_say(a, c, m->subject.at, m->subject.bytes);
    nats_say(a, c, "\r\n\r\n\r\n", 6);
}

static void count_in(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    struct nats *n = nats_of(c);
    if (nats_is(c, NATS_OF_SERVER)) return;
    n->in_messages++;
    n->in_bytes += m->payload_bytes;
    n->active_ns = a->now_ns;
    struct nats_account *account = nats_account_of(a, c);
    account->taken_messages++;
    account->taken_bytes += m->payload_bytes;
    codec_count_add(a, c, NATS_IN_MESSAGES, 1);
    codec_count_add(a, c, NATS_IN_BYTES, m->payload_bytes);
}

static bool may_publish(struct acceptor *a, struct connection *c, struct text subject) {
    struct nats_permissions *set = nats_of(c)->permissions;
    return set == NULL || nats_may_publish(&nats_server_of(a, c)->permissions, set, subject) ||
           nats_reply_allowed(a, c, subject);
}

/* Requests that the server answers in every account: who the client is, and the account's connections and statistics.
 * The first is always answered, the others only if `answers_all` is set. */
static const char *const QUESTIONS[] = {"$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ",
                                        "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ"};
enum { QUESTIONS_COUNT = sizeof QUESTIONS / sizeof *QUESTIONS, MAX_QUESTION_BYTES = NATS_MAX_CONTROL_LINE - 64 };

static bool is_question(const struct nats_server *server, const struct nats_message *m) {
    if (m->reply.bytes == 0 || !nats_begins_with(m->subject, "$SYS.REQ.")) return false;
    if (m->payload_bytes > MAX_QUESTION_BYTES || m->reply.bytes + m->payload_bytes > MAX_QUESTION_BYTES) return false;
    for (uint32_t i = 0; i < (server->answers_all ? QUESTIONS_COUNT : 1); i++)
        if (m->subject.bytes == strlen(QUESTIONS[i]) && nats_begins_with(m->subject, QUESTIONS[i])) return true;
    return false;
}

/* Asks Python for the answer. */
static void ask_python(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    uint8_t *line = nats_server_of(a, c)->subjects_made[0], *out = line;
    const struct text parts[] = {{(const uint8_t *)"ASK ", 4},
                                 m->subject,
                                 {(const uint8_t *)" ", 1},
                                 m->reply,
                                 {(const uint8_t *)"\r\n", CRLF_BYTES},
                                 {m->payload + m->header_bytes, m->payload_bytes - m->header_bytes}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].bytes > 0) memcpy(out, parts[i].at, parts[i].bytes);
        out += parts[i].bytes;
    }
    reply_by_python(a, c, line, (size_t)(out - line));
}

static void publish_here(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    struct nats_server *server = nats_server_of(a, c);
    const struct text no_queue = {NULL, 0};
    if (nats_is_reserved_subject(m->subject) || !may_publish(a, c, m->subject)) {
        nats_trace_violation(server, "Publish to ", m->subject);
        nats_say_violation(a, c, "Publish to ", m->subject, no_queue);
        return;
    }
    if (m->reply.bytes > 0 && nats_is_reserved_reply(m->reply)) {
        nats_trace_violation(server, "Publish with Reply of ", m->reply);
        nats_say_violation(a, c, "Publish with Reply of ", m->reply, no_queue);
        return;
    }
    nats_say_ok(a, c);
    if (__builtin_expect(server->latencies != NULL, 0)) nats_half_end(a, server, c, m->subject);
    bool delivered = nats_deliver(a, c, m), only = server->trace != NULL && server->trace->only;
    if (!only && is_question(server, m) && !c->closed) {
        ask_python(a, c, m);
        return;
    }
    if (!only && nats_keep(a, c, m)) return;
    if (!delivered && m->reply.bytes > 0 && nats_is(c, NATS_NO_RESPONDERS)) nats_say_no_responders(a, c, m);
}

/* Mappings apply before anything else is decided about a subject. */
static void map(const struct acceptor *a, const struct connection *c, struct nats_message *m) {
    struct nats_server *server = nats_server_of(a, c);
    const struct nats_shares *shares = nats_account_of(a, c)->shares;
    if (shares != NULL) m->subject = nats_map(server, shares, m->subject, server->subjects_made[2]);
}

static struct nats_ingress ingress_of(struct connection *c, struct text said) {
    return (struct nats_ingress){c, NATS_KIND_CLIENT, nats_of(c)->account, said};
}

/* Publishes a message, whose subject was `said` before mapping. */
static void publish(struct acceptor *a, struct connection *c, struct nats_message *m, struct text said) {
    struct nats_server *server = nats_server_of(a, c);
    const bool may_be_traced = nats_may_be_traced(nats_account_of(a, c), m);
    if (may_be_traced) {
        const struct nats_ingress from = ingress_of(c, said);
        if (nats_trace_begin(a, server, &from, m) == NATS_NOT_TAKEN) return;
        if (m->subject.at != said.at) nats_trace_mapped(a, server, m->subject);
    }
    count_in(a, c, m);
    publish_here(a, c, m);
    if (!may_be_traced) return;
    if (server->trace != NULL) nats_trace_end(a, server);
    nats_room_done(&server->trace_room);
}

/* A message is too large: if its headers have come and ask for a trace, that is told. */
static void trace_too_large(struct acceptor *a, struct connection *c, const struct nats_message *m, size_t there) {
    struct nats_message headers = *m;
    struct nats_server *server = nats_server_of(a, c);
    const struct nats_ingress from = ingress_of(c, m->subject);
    if (headers.header_bytes > there) headers.header_bytes = there;
    if (!nats_may_be_traced(nats_account_of(a, c), &headers)) return;
    if (nats_trace_begin(a, server, &from, &headers) != NATS_TRACED) return;
    nats_trace_refused(server, "maximum payload exceeded");
    nats_trace_end(a, server);
}

/* Reads the arguments of a PUB or HPUB; false if they are malformed. */
static bool read_publish(const struct nats_arguments *k, bool headers, struct nats_message *m) {
    size_t sizes = headers ? 2 : 1;
    if (k->count != sizes + 1 && k->count != sizes + 2) return false;
    m->subject = k->items[0];
    if (k->count == sizes + 2) m->reply = k->items[1];
    m->size = k->items[k->count - 1];
    uint64_t total = 0, header = 0;
    if (!nats_get_size(m->size, &total)) return false;
    if (headers) {
        m->header_size = k->items[k->count - 2];
        if (!nats_get_size(m->header_size, &header) || header > total) return false;
    }
    m->payload_bytes = total;
    m->header_bytes = header;
    return true;
}

static bool is_literal(struct text subject) {
    return subject_pattern_is_valid(subject.at, subject.bytes) && !subject_has_wildcard(subject.at, subject.bytes);
}

/* In pedantic mode says once that a subject is invalid, as soon as the line has come. */
static void look_at_subject(struct acceptor *a, struct connection *c, struct text subject, bool is_whole) {
    if (!nats_is(c, NATS_PEDANTIC)) return;
    bool complained = nats_is(c, NATS_COMPLAINED);
    if (!complained && !is_literal(subject)) {
        nats_say_error(a, c, "Invalid Publish Subject");
        complained = true;
    }
    nats_of(c)->flags &= ~(uint32_t)NATS_COMPLAINED;
    if (complained && !is_whole) nats_of(c)->flags |= NATS_COMPLAINED;
}

/* A server that takes less than is published for it holds up its publishers until it catches up or is closed. */
static void wait_for_route(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    struct nats_route_link *link = &server->links[server->full_route - BOARD_MAX_ACCEPTORS];
    server->full_route = 0;
    if (c->closed || c->stall != STALL_NONE) return;
    connection_list_add(&link->waiting, c->number);
    stalled(c, STALL_MESH);
}

/* A publisher whose messages no other acceptor wants does not wait for one whose ring is full. */
static bool may_leave(struct acceptor *a, struct connection *c, struct nats_server *server,
                      const struct nats_message *m) {
    struct subject_pattern *const *patterns;
    const struct nats_account *account = nats_account_of(a, c);
    uint64_t full = mesh_full(a);
    if (full == 0) return true;
    bool stays = account->shares == NULL && account->answers == NULL &&
                 (account->remote == NULL || subjects_match(account->remote, server->remote_walk, m->subject.at,
                                                            m->subject.bytes, &patterns) == 0);
    return stays || mesh_may_send(a, c, full);
}

/* A nats-server receives this much at first, and more from those who send more. It does not read what is left when it
 * ends a connection, so the client sees a reset. */
enum { FIRST_READ_BYTES = 512 };

static void end_too_large(struct acceptor *a, struct connection *c, size_t bytes) {
    const bool was_read = bytes <= FIRST_READ_BYTES || nats_of(c)->in_bytes >= FIRST_READ_BYTES;
    if (!was_read && c->filter == NULL) socket_close_by_reset(c);
    nats_end(a, c, NATS_TOO_LARGE, "Maximum Payload Violation");
}

/* Handles a message whose line is well formed; it may still be too large, incomplete, or end wrongly. Returns how much
 * of the input was used. */
static size_t take_message(struct acceptor *a, struct connection *c, struct nats_message *m, const uint8_t *data,
                           size_t line_bytes, size_t bytes) {
    struct nats_server *server = nats_server_of(a, c);
    const struct nats *n = nats_of(c);
    const struct text line = {data, line_bytes};
    if (m->payload_bytes > n->max_payload) {
        if (nats_is(c, NATS_LOGGED)) nats_log_publish(a, c, line, m);
        trace_too_large(a, c, m, bytes - line_bytes);
        end_too_large(a, c, bytes);
        return bytes;
    }
    size_t there = bytes - line_bytes;
    /* A wrong end of the payload is reported at its first wrong byte. */
    bool wrong = (there > m->payload_bytes && m->payload[m->payload_bytes] != '\r') ||
                 (there > m->payload_bytes + 1 && m->payload[m->payload_bytes + 1] != '\n');
    if (wrong) {
        if (nats_is(c, NATS_LOGGED)) nats_log_publish(a, c, line, m);
        look_at_subject(a, c, m->subject, true);
        if (!c->closed) nats_end(a, c, NATS_PROTOCOL_VIOLATION, NATS_UNKNOWN_OPERATION);
        return bytes;
    }
    if (there < m->payload_bytes + CRLF_BYTES) {
        look_at_subject(a, c, m->subject, false);
        return 0;
    }
    if (!nats_may_hand_out(a, server, c)) return 0;
    const struct text said = m->subject;
    map(a, c, m);
    if (is_question(server, m) && !may_do_alone(c)) return 0;
    if (a->mesh_there != 0 && !may_leave(a, c, server, m)) return 0;
    if (server->bound.subjects != NULL && !nats_may_keep(a, c, m)) return 0;
    if (nats_is(c, NATS_LOGGED)) nats_log_message(a, c, line, said, m);
    /* A trace may change the message's headers. */
    const size_t used = line_bytes + m->payload_bytes + CRLF_BYTES;
    look_at_subject(a, c, said, true);
    server->fanouts.origin = c->number;
    if (!c->closed) publish(a, c, m, said);
    server->fanouts.origin = 0;
    if (server->full_route != 0) wait_for_route(a, c);
    (void)nats_fanout_may_go_on(server, c);
    return used;
}

size_t nats_take_publish(struct acceptor *a, struct connection *c, const struct nats_arguments *k, bool headers,
                         const uint8_t *data, size_t line_bytes, size_t bytes) {
    struct nats_message m = {.payload = data + line_bytes, .from = nats_sender(a, c)};
    if ((headers && !nats_is(c, NATS_HEADERS)) || !read_publish(k, headers, &m)) {
        nats_hang_up(a, c, NATS_PROTOCOL_VIOLATION);
        return bytes;
    }
    return take_message(a, c, &m, data, line_bytes, bytes);
}

/* Bound topics: messages to subjects that an option names are also logged in durable topics of the same names, for
 * consumers of all protocols. A publisher that gives a reply subject is told there when the message is safely logged,
 * or why it is not; others are told nothing, as usual.
 */
#include "acceptor/protocols/nats/nats_topics.h"

#include <stdio.h>
#include <stdlib.h>

#include "acceptor/bridge.h"
#include "acceptor/protocols/nats/nats_bound.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_headers.h"
#include "base/decimal.h"

/* The priority that clients of other protocols see. */
#define PRIORITY 1024u
#define TTR_NS   (UINT64_C(60) * 1000000000u)

/* A publisher that waits: these lengths, followed by the reply subject and the topic's name. */
struct waiting {
    uint32_t reply_bytes, topic_bytes;
};

static bool is_to_be_kept(struct acceptor *a, const struct connection *c, struct text subject) {
    return nats_of(c)->account == NATS_GLOBAL_ACCOUNT && nats_is_bound(nats_server_of(a, c), subject);
}

/* --- acknowledgements --------------------------------------------------------------------------------------------- */

/* Writes text escaped for JSON. */
static uint8_t *put_escaped(uint8_t *out, struct text text) {
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t byte = text.at[i];
        if (byte == '"' || byte == '\\') *out++ = '\\';
        if (byte < ' ')
            out += sprintf((char *)out, "\\u%04x", byte);
        else
            *out++ = byte;
    }
    return out;
}

static const char *reason_of(uint8_t status) {
    switch (status) {
    case STATUS_NO_SPACE: return "there is no room for it";
    case STATUS_TOO_MANY: return "there are as many topics as there may be";
    case STATUS_TERMINATED: return "the topic is terminated";
    default: return "the outcome is not known";
    }
}

enum { ACK_BYTES = 256 + 6 * TOPIC_NAME_BYTES };

/* Acknowledges a message in the form of JetStream; `failed`: NULL, or why it was not logged. */
static void say_kept(struct acceptor *a, struct nats_server *server, struct text reply, struct text topic, uint64_t seq,
                     const char *failed) {
    uint8_t json[ACK_BYTES], digits[DECIMAL_MAX_BYTES], *out = json;
    if (failed != NULL)
        out += sprintf((char *)out, "{\"error\":{\"code\":503,\"err_code\":10077,\"description\":\"%s\"},", failed);
    else
        *out++ = '{';
    out = nats_put(out, "\"stream\":\"", sizeof "\"stream\":\"" - 1);
    out = put_escaped(out, topic);
    out += sprintf((char *)out, "\",\"seq\":%llu}", (unsigned long long)seq);
    size_t bytes = (size_t)(out - json), count = (size_t)(decimal_put(digits, bytes) - digits);
    struct nats_message ack = {.subject = reply, .size = {digits, count}, .payload = json, .payload_bytes = bytes};
    nats_deliver_as_server(a, server, NATS_GLOBAL_ACCOUNT, &ack);
}

/* --- logging ------------------------------------------------------------------------------------------------------ */

bool nats_may_keep(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    return !is_to_be_kept(a, c, m->subject) || nats_may_keep_routed(a, c, m);
}

bool nats_may_keep_routed(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    if (m->subject.bytes > TOPIC_NAME_BYTES || draining(a)) return true;
    uint32_t topic = topic_look_up(a, m->subject.at, m->subject.bytes);
    return topic == 0 || may_ask(a, c, binding_at(&a->bindings, topic)->worker);
}

/* Returns the body with the headers, and their head, in front of it. */
static const uint8_t *with_headers(struct nats_server *server, const struct nats_message *m, size_t *bytes) {
    struct headers head = {.bytes = (uint32_t)m->header_bytes, .tag = HEADERS_NATS};
    *bytes = sizeof head + m->payload_bytes;
    uint8_t *room = nats_kept_room(server, *bytes);
    if (room == NULL) return NULL;
    memcpy(room, &head, sizeof head);
    memcpy(room + sizeof head, m->payload, m->payload_bytes);
    return room;
}

/* Stores the reply subject and topic in the slot of the request; false when memory is short. */
static bool wait_for(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    struct slot *slot = connection_slot(c, c->head_slot + c->slot_count - 1);
    struct waiting waiting = {(uint32_t)m->reply.bytes, (uint32_t)m->subject.bytes};
    uint8_t *room = connection_body(c, &a->blocks, slot, sizeof waiting + m->reply.bytes + m->subject.bytes);
    if (room == NULL) return false;
    room = nats_put(room, &waiting, sizeof waiting);
    nats_put(nats_put(room, m->reply.at, m->reply.bytes), m->subject.at, m->subject.bytes);
    return true;
}

static const char *ask_to_keep(struct acceptor *a, struct connection *c, struct nats_server *server,
                               const struct nats_message *m) {
    if (m->subject.bytes > TOPIC_NAME_BYTES) return "the subject is too long for a topic's name";
    if (draining(a)) return "the server takes no more messages";
    if (m->header_bytes > HEADERS_MAX_BYTES) return "the headers are too large to be kept";
    uint32_t topic = topic_look_up(a, m->subject.at, m->subject.bytes);
    if (topic == 0) return reason_of(STATUS_TOO_MANY);
    const struct binding *to = binding_at(&a->bindings, topic);
    const uint8_t *body = m->payload;
    size_t bytes = m->payload_bytes;
    if (m->header_bytes > 0) body = with_headers(server, m, &bytes);
    if (body == NULL) return reason_of(STATUS_NO_SPACE);
    struct message request = {.kind = MSG_PUBLISH,
                              .flags = (uint16_t)(MSG_DURABLE | (m->header_bytes > 0 ? MSG_HEADERS : 0)),
                              .topic = topic,
                              .id = ids_take(a, to, 1),
                              .pri = PRIORITY,
                              .ttr_ns = TTR_NS};
    peer_ask(a, c, to->worker, &request, body, (uint32_t)bytes, 0);
    if (!c->closed && m->reply.bytes > 0 && !wait_for(a, c, m)) return "memory is short: the outcome is not known";
    return NULL;
}

bool nats_keep(struct acceptor *a, struct connection *c, const struct nats_message *m) {
    if (c->closed || !is_to_be_kept(a, c, m->subject)) return false;
    nats_keep_routed(a, c, nats_server_of(a, c), m);
    return true;
}

void nats_keep_routed(struct acceptor *a, struct connection *c, struct nats_server *server,
                      const struct nats_message *m) {
    const char *failed = ask_to_keep(a, c, server, m);
    if (failed != NULL && m->reply.bytes > 0) say_kept(a, server, m->reply, m->subject, 0, failed);
}

static void tell(struct acceptor *a, struct nats_server *server, const uint8_t *body, uint32_t bytes, uint64_t seq,
                 const char *failed) {
    struct waiting waiting;
    if (body == NULL || bytes < sizeof waiting) return;
    memcpy(&waiting, body, sizeof waiting);
    const uint8_t *reply = body + sizeof waiting;
    say_kept(a, server, (struct text){reply, waiting.reply_bytes},
             (struct text){reply + waiting.reply_bytes, waiting.topic_bytes}, seq, failed);
}

void nats_kept(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
               const struct message *reply) {
    (void)worker;
    if (reply->status == STATUS_OK) tell(a, nats_server_of(a, c), slot->body, slot->body_bytes, reply->seq, NULL);
}

void nats_not_kept(struct acceptor *a, struct connection *c, const struct codec_answer *answer) {
    if (answer->status != STATUS_OK)
        tell(a, nats_server_of(a, c), answer->body, answer->body_bytes, 0, reason_of(answer->status));
}

void nats_kept_routed(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
                      const struct message *reply) {
    (void)worker;
    if (reply->status == STATUS_OK) tell(a, route_server(a, c), slot->body, slot->body_bytes, reply->seq, NULL);
}

void nats_not_kept_routed(struct acceptor *a, struct connection *c, const struct codec_answer *answer) {
    if (answer->status != STATUS_OK)
        tell(a, route_server(a, c), answer->body, answer->body_bytes, 0, reason_of(answer->status));
}

/* --- messages published through other protocols ------------------------------------------------------------------- */

bool nats_wants_topic(struct acceptor *a, void *state, const uint8_t *name, size_t bytes) {
    (void)a;
    return nats_is_bound(state, (struct text){name, bytes});
}

void nats_topic_published(struct acceptor *a, void *state, const struct published *message) {
    struct nats_server *server = state;
    struct nats_message m = {.subject = {message->topic, message->topic_bytes}};
    nats_put_body(server, message, &m);
    uint8_t size[DECIMAL_MAX_BYTES], header_size[DECIMAL_MAX_BYTES];
    m.size = (struct text){size, (size_t)(decimal_put(size, m.payload_bytes) - size)};
    m.header_size = (struct text){header_size, (size_t)(decimal_put(header_size, m.header_bytes) - header_size)};
    nats_deliver_as_server(a, server, NATS_GLOBAL_ACCOUNT, &m);
}

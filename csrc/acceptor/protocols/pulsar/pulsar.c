#include <stdlib.h>

#include "acceptor/bridge.h"
#include "acceptor/packed.h"
#include "acceptor/protocols/pulsar/pulsar_asks.h"
#include "acceptor/protocols/pulsar/pulsar_clock.h"
#include "acceptor/protocols/pulsar/pulsar_consumer.h"
#include "acceptor/protocols/pulsar/pulsar_leaving.h"
#include "acceptor/protocols/pulsar/pulsar_producer.h"
#include "acceptor/protocols/pulsar/pulsar_say.h"
#include "acceptor/protocols/pulsar/pulsar_table.h"

static bool heard_alone(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply) {
    struct pulsar *p = pulsar_of(c);
    if (reply->kind != MSG_PUBLISH && reply->kind != MSG_BARRIER) return false;
    if (reply->slot >= p->pending_capacity) return true;
    struct pulsar_pending *pending = &p->pending[reply->slot];
    if (pending->owner == 0 || pending->worker != worker || pending->kind != reply->kind) return true;
    struct pulsar_pending was = *pending;
    pending->copy = NULL;
    pulsar_settle(a, c, pending);
    /* Live subscribers heard of a repeated message when it was first published. */
    bool repeated = was.kind == MSG_PUBLISH && reply->seq == NO_PLACE;
    if (was.copy != NULL) bridge_answer(a, was.copy, repeated ? STATUS_NONE : reply->status);
    if (was.kind == MSG_PUBLISH)
        pulsar_published(a, c, &was, reply);
    else
        pulsar_acked(a, c, &was);
    return true;
}

/* Never has anything to do: only Python's requests have a slot, and Python handles their replies. */
static void answer(struct acceptor *a, struct connection *c, const struct codec_answer *of) {
    (void)a, (void)c, (void)of;
}

/* --- input -------------------------------------------------------------------------------------------------------- */

/* Hands a command to Python. Until the client is connected, further input waits for Python's answer. */
static bool hand_over(struct acceptor *a, struct connection *c, struct pulsar_bytes command) {
    struct pulsar *p = pulsar_of(c);
    if (p->with_python >= PULSAR_MAX_WITH_PYTHON) return stalled(c, STALL_OUTSTANDING);
    size_t bytes = pulsar_length(command);
    if (!upcall_may_push(a, c, bytes)) return false;
    uint8_t *copy = malloc(1 + bytes);
    if (copy == NULL) {
        engine_oom(a, c);
        return true;
    }
    copy[0] = PULSAR_DO;
    memcpy(copy + 1, command.at, bytes);
    p->with_python++;
    if (p->connected)
        upcall_push(a, UPCALL_COMMAND, c->number, c->protocol, NULL, copy, 1 + bytes);
    else
        reply_by_python(a, c, copy, 1 + bytes);
    c->known = true;
    free(copy);
    return true;
}

/* Handles a command that comes once per message. False: it cannot be handled now, and the connection is stalled. */
static bool take_hot(struct acceptor *a, struct connection *c, const struct pulsar_command *command,
                     struct pulsar_bytes bytes, struct pulsar_bytes entry) {
    struct pulsar_send send;
    struct pulsar_flow flow = {0};
    struct pulsar_ids ids;
    switch (command->type) {
    case PULSAR_SEND:
        return pulsar_scan_send(command->body, &send) ? pulsar_send(a, c, &send, entry) : pulsar_hang_up(a, c);
    case PULSAR_FLOW:
        return pulsar_scan_flow(command->body, &flow) && flow.permits > 0 ? pulsar_flow(a, c, &flow)
                                                                          : pulsar_hang_up(a, c);
    case PULSAR_ACK:
        if (!pulsar_scan_ack(command->body, &ids)) return pulsar_hang_up(a, c);
        return ids.has_txn || pulsar_acks_ahead(c, ids) ? hand_over(a, c, bytes) : pulsar_ack(a, c, &ids);
    default: return pulsar_scan_redeliver(command->body, &ids) ? pulsar_redeliver(a, c, &ids) : pulsar_hang_up(a, c);
    }
}

static bool take_command(struct acceptor *a, struct connection *c, struct pulsar_bytes bytes,
                         struct pulsar_bytes entry) {
    struct pulsar *p = pulsar_of(c);
    struct pulsar_command command;
    if (!pulsar_scan_command(bytes, &command) || command.body.at == NULL) return pulsar_hang_up(a, c);
    switch (command.type) {
    case PULSAR_PING: pulsar_say_body(a, c, PULSAR_PONG, NULL, 0); return true;
    case PULSAR_PONG: return true;
    case PULSAR_CONNECT:
    case PULSAR_AUTH_RESPONSE:
        if (p->connected && command.type == PULSAR_CONNECT) return pulsar_hang_up(a, c);
        return hand_over(a, c, bytes);
    case PULSAR_SEND:
    case PULSAR_FLOW:
    case PULSAR_ACK:
    case PULSAR_REDELIVER: return p->connected ? take_hot(a, c, &command, bytes, entry) : pulsar_hang_up(a, c);
    default:
        if (!p->connected) return pulsar_hang_up(a, c);
        if (command.type == PULSAR_CLOSE_PRODUCER) pulsar_producer_leaves(c, command.body);
        return hand_over(a, c, bytes);
    }
}

enum { TLS_HANDSHAKE = 0x16 };

/* Hands a connection that begins with a TLS handshake, as no frame can, to Python with all its input. */
static bool begins_tls(struct acceptor *a, struct connection *c, uint8_t first) {
    static const uint8_t tls[1 + sizeof(struct pulsar_told)] = {PULSAR_TLS};
    if (first != TLS_HANDSHAKE || pulsar_of(c)->connected || c->filter != NULL) return false;
    reply_by_python(a, c, tls, sizeof tls);
    c->known = true;
    return true;
}

/* Returns how many bytes the frame took; 0: it is incomplete, or cannot be handled now. */
static size_t take_frame(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    if (bytes < 4) return 0;
    size_t total = pulsar_get_be32(data);
    if (total < 4 || total > (size_t)pulsar_options(a, c)->max_message_bytes + PULSAR_FRAME_SURPLUS) {
        pulsar_hang_up(a, c);
        return bytes;
    }
    if (bytes < 4 + total) return 0;
    size_t command_bytes = pulsar_get_be32(data + 4);
    if (command_bytes > total - 4) {
        pulsar_hang_up(a, c);
        return bytes;
    }
    const uint8_t *at = data + PULSAR_FRAME_HEAD, *end = data + 4 + total;
    struct pulsar_bytes command = {at, at + command_bytes}, entry = {at + command_bytes, end};
    return take_command(a, c, command, entry) ? 4 + total : 0;
}

static void heard(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    p->heard = true;
    if (p->pinged) pulsar_tell_python(a, c, PULSAR_ALIVE, 0, 0);
    p->pinged = false;
}

static size_t parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    size_t at = 0;
    if (bytes > 0 && begins_tls(a, c, data[0])) return 0;
    while (at < bytes && c->stall == STALL_NONE && !c->closed && !c->closing && may_go_on(a, c)) {
        size_t used = take_frame(a, c, data + at, bytes - at);
        if (used == 0) break;
        at += used;
    }
    if (at > 0) heard(a, c);
    return at;
}

/* --- the life of a connection ------------------------------------------------------------------------------------- */

static bool started(struct acceptor *a, void *state) {
    (void)a;
    *(struct pulsar_options *)state =
        (struct pulsar_options){.max_message_bytes = 5u << 20, .keep_alive_ns = (uint64_t)30 * 1000000000u};
    return true;
}

/* "max-message-size" (bytes), "keep-alive-ns". */
static bool set(void *state, const char *option, uint64_t value) {
    struct pulsar_options *options = state;
    if (strcmp(option, "max-message-size") == 0 && value > 0 && value <= MAX_BODY_BYTES / 2)
        options->max_message_bytes = (uint32_t)value;
    else if (strcmp(option, "keep-alive-ns") == 0 && value > 0 && value < (uint64_t)1 << LONGEST_TIME_NS_BITS)
        options->keep_alive_ns = value;
    else
        return false;
    return true;
}

static void closed(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    pulsar_leave(a, c);
    a->expected -= p->pending_count;
    for (uint32_t i = 0; i < p->pending_capacity && a->bridges; i++)
        if (p->pending[i].copy != NULL) bridge_drop(&a->blocks, p->pending[i].copy);
    p->pending_count = 0;
}

static void freed(struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    pulsar_table_free(&p->producers);
    pulsar_table_free(&p->consumers);
    pulsar_free_pending(p);
}

static void stopped(void *state) {
    pulsar_leaving_free(state, freed);
}

/* A producer whose client has not been answered yet is left to Python, which fails its request. */
static void lose_producer(struct acceptor *a, struct connection *c, struct pulsar_producer *producer) {
    producer->lost = true;
    if (producer->open || producer->waits) pulsar_producer_lose(a, c, producer);
}

/* A worker has died. What it had not answered may have been done or not: clients that come back repeat it. */
static void lost(struct acceptor *a, struct connection *c, uint32_t worker) {
    struct pulsar *p = pulsar_of(c);
    const struct pulsar_producer *producer;
    struct pulsar_consumer *consumer;
    for (uint32_t i = 0; i < p->pending_capacity; i++) {
        struct pulsar_pending *pending = &p->pending[i];
        if (pending->owner != 0 && pending->worker == worker) pulsar_settle(a, c, pending);
    }
    for (uint32_t i = 0; (producer = pulsar_table_next(&p->producers, &i)) != NULL;)
        if (producer->worker == worker) lose_producer(a, c, p->producers.items[i - 1]);
    for (uint32_t i = 0; (consumer = pulsar_table_next(&p->consumers, &i)) != NULL;)
        if (consumer->worker == worker) {
            consumer->lost = true;
            if (consumer->open) pulsar_consumer_lose(a, c, consumer);
        }
}

/* --- Python's calls about a connection ---------------------------------------------------------------------------- */

/* Python's calls: "connected"; "done": Python has answered one of the commands it was handed; "hang-up"; "is-alive":
 * sends a PING, and says PULSAR_ALIVE when the client has sent anything; and those about producers and consumers. */
static int64_t call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call) {
    struct pulsar *p = pulsar_of(c);
    if (strcmp(what, "connected") == 0) {
        p->connected = true;
    } else if (strcmp(what, "done") == 0) {
        if (p->with_python == 0) return CALL_REFUSED;
        if (--p->with_python == PULSAR_MAX_WITH_PYTHON / 2) pulsar_wake(a, c);
    } else if (strcmp(what, "is-alive") == 0) {
        p->pinged = true;
        pulsar_say_body(a, c, PULSAR_PING, NULL, 0);
        wake_self(a);
    } else if (strcmp(what, "hang-up") == 0) {
        pulsar_hang_up(a, c);
        wake_self(a);
    } else if (strstr(what, "producer") != NULL) {
        return pulsar_call_producer(a, c, what, call);
    } else {
        return pulsar_call_consumer(a, c, what, call);
    }
    return CALL_DONE;
}

/* Python's answer to PACKED_ASKS. "opened": the message with this id (the value), decompressed; "unopened": it is not
 * what its metadata say. */
static int64_t configure(struct acceptor *a, void *state, const char *what, uint64_t value, const uint8_t *bytes,
                         size_t bytes_count) {
    (void)state;
    if (strcmp(what, "opened") == 0)
        packed_opened(a, value, bytes, bytes_count);
    else if (strcmp(what, "unopened") == 0)
        packed_opened(a, value, NULL, 0);
    else
        return CALL_REFUSED;
    return CALL_DONE;
}

static struct opening opens(struct codec_bytes headers) {
    struct pulsar_entry entry;
    struct pulsar_metadata metadata;
    pulsar_split_entry((struct pulsar_bytes){headers.at, headers.at + headers.bytes}, &entry);
    if (!entry.is_whole || !pulsar_scan_metadata(entry.metadata, &metadata)) return (struct opening){0};
    return (struct opening){.opens = true,
                            .is_batch = metadata.messages > 0,
                            .compression = metadata.compression,
                            .bytes = metadata.uncompressed_bytes};
}

static bool next_packed(struct codec_bytes *rest, struct codec_bytes *out, struct codec_bytes *said) {
    struct pulsar_bytes bytes = {rest->at, rest->at + rest->bytes};
    struct pulsar_single single;
    if (!pulsar_next_single(&bytes, &single)) return false;
    *rest = (struct codec_bytes){bytes.at, pulsar_length(bytes)};
    *out = (struct codec_bytes){single.payload.at, pulsar_length(single.payload)};
    *said = (struct codec_bytes){single.metadata.at, pulsar_length(single.metadata)};
    return true;
}

static bool subscribing(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                        const void *body) {
    (void)a, (void)body;
    const struct pulsar_consumer *consumer = pulsar_table_at(&pulsar_of(c)->consumers, request->consumer_number);
    return consumer != NULL && consumer->worker == worker;
}

static uint16_t says_of_topic(const uint8_t *name, size_t bytes) {
    static const char scheme[] = "non-persistent://";
    const bool begins = bytes >= sizeof scheme && memcmp(name, scheme, sizeof scheme - 1) == 0;
    return begins ? MSG_TOPIC_NON_PERSISTENT : 0;
}

const struct codec pulsar_codec = {
    .name = "pulsar",
    .acceptor_bytes = sizeof(struct pulsar_options),
    .connection_bytes = sizeof(struct pulsar),
    .python_alongside = true,
    .says_of_topic = says_of_topic,
    .answer = answer,
    .parse = parse,
    .started = started,
    .stopped = stopped,
    .set = set,
    .call = call,
    .opened = pulsar_opened,
    .sent = pulsar_sent,
    .due = pulsar_due,
    .closed = closed,
    .freed = freed,
    .go_on = pulsar_leave_on,
    .pushed = pulsar_pushed,
    .heard_alone = heard_alone,
    .subscribing = subscribing,
    .configure = configure,
    .headers_tag = HEADERS_PULSAR,
    .opens = opens,
    .next_packed = next_packed,
    .lost = lost,
};

/* Pulsar's binary protocol, as far as the load generator uses it: CONNECT, LOOKUP, PRODUCER, SEND, SUBSCRIBE, FLOW,
 * ACK and CLOSE_CONSUMER. Each topic has one subscription, whose consumers take turns. An entry is kept as it came;
 * the MESSAGE before it is written when it is sent. What has been sent is forgotten. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "measure.h"
#include "pulsar/frames.h"

#define MAX_TOPICS 4096u
#define MAX_IDS    4096u /* for the producers, and for the consumers, of a connection */
#define NAME_BYTES 128u
#define LARGEST    ((size_t)8 << 20)
#define SEND_BYTES 40u /* more than a CommandMessage or CommandSendReceipt with the head before it */

struct consumer {
    struct consumer *next; /* in the list of the topic */
    struct connection *connection;
    unsigned id;
    int64_t permits;
};

struct topic {
    char name[NAME_BYTES];
    struct fifo messages;
    struct cursor cursor;
    uint64_t published, delivered;
    bool has_subscription;      /* false: messages are not kept */
    struct consumer *consumers; /* a list */
    struct consumer *turn;
};

/* Producers and consumers of a connection, by their ids; `channel` of the connection points here. */
struct channel {
    struct topic *producers[MAX_IDS];
    struct consumer *consumers[MAX_IDS];
};

static struct topic *topics[MAX_TOPICS];
static unsigned topic_count;

static struct topic *topic_named(struct bytes name) {
    size_t bytes = (size_t)(name.end - name.at);
    if (name.at == NULL || bytes >= NAME_BYTES) die("a name of %zu bytes", bytes);
    for (unsigned i = 0; i < topic_count; i++)
        if (strncmp(topics[i]->name, (const char *)name.at, bytes) == 0 && topics[i]->name[bytes] == 0)
            return topics[i];
    if (topic_count == MAX_TOPICS) die("more than %u topics", MAX_TOPICS);
    struct topic *topic = topics[topic_count++] = allocate(1, sizeof *topic);
    memcpy(topic->name, name.at, bytes);
    return topic;
}

static void say(struct connection *c, enum command type, const uint8_t *body, const uint8_t *end) {
    uint8_t frame[COMMAND_BYTES];
    bare_answer(c, (char *)frame, (size_t)(put_frame(frame, type, body, (size_t)(end - body)) - frame));
}

static unsigned id_in(struct bytes body, unsigned field) {
    uint64_t id = number_in(body, field, UINT64_MAX);
    if (id >= MAX_IDS) die("an id that is too large");
    return (unsigned)id;
}

/* ---- delivery ---- */

static struct consumer *next_ready(struct topic *topic) {
    struct consumer *begin = topic->turn ? topic->turn : topic->consumers, *one = begin;
    if (one == NULL) return NULL;
    do {
        struct consumer *next = one->next ? one->next : topic->consumers;
        if (one->permits > 0) {
            topic->turn = next;
            return one;
        }
        one = next;
    } while (one != begin);
    return NULL;
}

/* Sends the next entry to a consumer. In the fifo the number of its messages is before it. */
static void deliver_to(struct topic *topic, struct consumer *one) {
    size_t bytes;
    const char *kept = fifo_next(&topic->messages, &topic->cursor, &bytes);
    uint32_t messages;
    memcpy(&messages, kept, sizeof messages);
    one->permits -= messages;
    bytes -= sizeof messages;
    uint8_t id[16], body[SEND_BYTES], head[SEND_BYTES + 16];
    uint8_t *id_end = put_number(put_number(id, 1, 1), 2, topic->delivered++);
    uint8_t *end = put_bytes(put_number(body, 1, one->id), 2, id, (size_t)(id_end - id));
    uint8_t *head_end = put_frame_head(head, MESSAGE, (size_t)(end - body), bytes);
    size_t head_bytes = (size_t)(head_end - head), body_bytes = (size_t)(end - body);
    char *to = bare_room(one->connection, head_bytes + body_bytes + bytes);
    memcpy(to, head, head_bytes);
    memcpy(to + head_bytes, body, body_bytes);
    memcpy(to + head_bytes + body_bytes, kept + sizeof messages, bytes);
}

static void deliver(void) {
    for (unsigned i = 0; i < topic_count; i++) {
        struct topic *topic = topics[i];
        for (struct consumer *one; !fifo_at_end(&topic->messages, &topic->cursor) && (one = next_ready(topic));)
            deliver_to(topic, one);
        fifo_release(&topic->messages, topic->cursor.chunk);
    }
}

/* ---- commands ---- */

static void keep(struct topic *topic, const struct frame *frame) {
    size_t bytes = (size_t)(frame->entry.end - frame->entry.at);
    uint32_t messages = (uint32_t)number_in(frame->body, 3, 1);
    char *to = fifo_push(&topic->messages, sizeof messages + bytes);
    memcpy(to, &messages, sizeof messages);
    memcpy(to + sizeof messages, frame->entry.at, bytes);
}

static void take_send(struct connection *c, const struct frame *frame) {
    unsigned id = id_in(frame->body, 1);
    struct topic *topic = c->channel ? c->channel->producers[id] : NULL;
    if (topic == NULL) die("a SEND of nobody");
    if (topic->has_subscription) keep(topic, frame);
    uint8_t message[16], body[SEND_BYTES];
    uint8_t *message_end = put_number(put_number(message, 1, 1), 2, topic->published++);
    uint8_t *end = put_number(put_number(body, 1, id), 2, number_in(frame->body, 2, 0));
    say(c, SEND_RECEIPT, body, put_bytes(end, 3, message, (size_t)(message_end - message)));
}

static void succeed(struct connection *c, uint64_t request) {
    uint8_t body[16];
    say(c, SUCCESS, body, put_number(body, 1, request));
}

static void subscribe(struct connection *c, struct bytes body) {
    struct topic *topic = topic_named(bytes_in(body, 1));
    unsigned id = id_in(body, 4);
    struct consumer *one = c->channel->consumers[id] = allocate(1, sizeof *one);
    *one = (struct consumer){.next = topic->consumers, .connection = c, .id = id};
    topic->consumers = one;
    topic->has_subscription = true;
    succeed(c, number_in(body, 5, 0));
}

static void leave(struct channel *channel, unsigned id) {
    struct consumer *gone = channel->consumers[id];
    channel->consumers[id] = NULL;
    for (unsigned i = 0; gone && i < topic_count; i++) {
        struct consumer **at = &topics[i]->consumers;
        while (*at && *at != gone) at = &(*at)->next;
        if (*at == NULL) continue;
        *at = gone->next;
        topics[i]->turn = NULL;
    }
    free(gone);
}

static void open_producer(struct connection *c, struct bytes body) {
    unsigned id = id_in(body, 2);
    c->channel->producers[id] = topic_named(bytes_in(body, 1));
    uint8_t answer[64], *end = put_text(put_number(answer, 1, number_in(body, 3, 0)), 2, "bare");
    say(c, PRODUCER_SUCCESS, answer, end);
}

static void connect_client(struct connection *c) {
    uint8_t body[64];
    if (c->channel == NULL) c->channel = allocate(1, sizeof *c->channel);
    say(c, CONNECTED, body, put_number(put_text(body, 1, "bare"), 2, 21));
}

static void look_up(struct connection *c, struct bytes body) {
    uint8_t answer[64];
    say(c, LOOKUP_RESPONSE, answer, put_number(put_number(answer, 3, 1), 4, number_in(body, 2, 0)));
}

static void take(struct connection *c, const struct frame *frame) {
    struct bytes body = frame->body;
    if (c->channel == NULL && frame->type != CONNECT) die("command %d before CONNECT", (int)frame->type);
    switch (frame->type) {
    case SEND: take_send(c, frame); break;
    case ACK: break;
    case FLOW:
        if (c->channel->consumers[id_in(body, 1)] == NULL) die("a FLOW of nobody");
        c->channel->consumers[id_in(body, 1)]->permits += (int64_t)number_in(body, 2, 0);
        break;
    case CONNECT: connect_client(c); break;
    case LOOKUP: look_up(c, body); break;
    case PRODUCER: open_producer(c, body); break;
    case SUBSCRIBE: subscribe(c, body); break;
    case CLOSE_CONSUMER:
        leave(c->channel, id_in(body, 1));
        succeed(c, number_in(body, 2, 0));
        break;
    default: die("an unknown command: %d", (int)frame->type);
    }
}

static void handle(struct connection *c) {
    struct frame frame;
    for (size_t used;; c->in_begin += used) {
        const uint8_t *in = (const uint8_t *)c->in;
        used = read_frame(in + c->in_begin, in + c->in_end, LARGEST, &frame);
        if (used == 0) return;
        take(c, &frame);
    }
}

static void forget(struct connection *c) {
    for (unsigned id = 0; c->channel && id < MAX_IDS; id++) leave(c->channel, id);
    free(c->channel);
    c->channel = NULL;
}

const struct protocol bare_pulsar = {.name = "pulsar", .handle = handle, .deliver = deliver, .gone = forget};

/* A load generator for servers of Pulsar's binary protocol: one process, one thread, one epoll set.
 *
 * It exists to measure brokers on a machine that it shares with them, so it must cost little for each message. SENDs
 * are made once and go out a block at a time, with only what differs written into them. Frames are read where recv()
 * left them. All messages of a consumer that one recv() brought are acknowledged by one ACK, as clients do.
 *
 *   publish   each connection has a producer on each topic; it keeps `depth` SENDs (single, or batches) without receipt
 *   fill      the same, after each topic has got a subscription: this makes a backlog for consume
 *   consume   consumers take what is there, until --messages have come and the broker has handled the last ACK
 *   full      producers and consumers; producers pause while too many messages wait. With --rate it is open-loop
 *             instead: SENDs are due at fixed times
 *   idle      each connection has a producer and a consumer on each of its own topics, and is silent until the program
 *             is ended
 *
 * Topics are NAME-0 and so on: to a broker a partition is a topic. Any frame that is not expected ends the program with
 * a message. The result is one line of JSON on stdout.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pulsar/block.h"
#include "pulsar/frames.h"
#include "run.h"

#define MAX_CONNECTIONS 60000u
#define MAX_TOPICS      4096u /* most topics of a connection */
#define MAX_DEPTH       65536u
#define MAX_BATCH       100000u
#define MAX_BODY_BYTES  (4u << 20)
#define MAX_NAME_BYTES  64
#define IN_BYTES        ((size_t)512 << 10) /* most that one recv() brings, besides one whole frame */
#define ID_BYTES        64u                 /* more than a message's id */
#define SUBSCRIPTION    "load"
#define TRIES           50u

enum mode { MODE_FULL, MODE_PUBLISH, MODE_FILL, MODE_CONSUME, MODE_IDLE };
enum type { EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED };

static const char *const MODES[] = {"full", "publish", "fill", "consume", "idle"};
static const char *const TYPES[] = {"exclusive", "shared", "failover", "key-shared"};

struct options {
    struct run_options run;
    unsigned mode, type;
    unsigned producers, consumers; /* numbers of connections */
    unsigned topics;
    unsigned depth;
    unsigned batch;
    unsigned queue; /* permits that each consumer keeps */
    unsigned keys;
    uint64_t max_ready;
    const char *topic;
};

struct counts {
    uint64_t published; /* messages that have a receipt */
    uint64_t consumed;
    uint64_t redelivered;
    uint64_t pauses;
};

struct connection {
    struct stream stream;          /* must be first: the epoll set has its address */
    struct round_trips *producers; /* one for each topic; NULL: the connection consumes */
    unsigned *taken;               /* messages of each consumer since its last FLOW */
    unsigned next;                 /* the producer that sends next in an open loop */
    unsigned index;
};
_Static_assert(offsetof(struct connection, stream) == 0, "a connection has the address of its stream");

struct load {
    struct options options;
    struct loop loop;
    struct connection *connections; /* those of producers first */
    unsigned connection_count;
    struct block block;
    uint64_t sends_left; /* SENDs still to be sent */
    int64_t ready;       /* messages that have a receipt, less those delivered */
    bool paused;
    unsigned next_connection;
    unsigned consumers_open;
    size_t frame_most;
    uint8_t *acks;                /* ids of messages, after room for the head of an ACK */
    struct counts counts, before; /* `before` the window */
    struct histogram publish_ns;  /* from SEND to its receipt */
    struct histogram message_ns;  /* from when it was sent, or due, to delivery */
};

static void say(struct connection *c, enum command type, const uint8_t *body, const uint8_t *end) {
    uint8_t frame[COMMAND_BYTES];
    stream_send(&c->stream, (char *)frame, (size_t)(put_frame(frame, type, body, (size_t)(end - body)) - frame));
}

/* ---- producers ---- */

static uint64_t room(const struct load *load, const struct round_trips *p) {
    uint64_t n = load->options.depth - unanswered(p);
    return n < load->sends_left ? n : load->sends_left;
}

/* Sends `n` SENDs of a producer, which has room for them. `paced`: each was due at a time of its own. */
static void send_some(struct load *load, struct connection *c, unsigned producer, uint64_t n, bool paced) {
    struct round_trips *p = &c->producers[producer];
    struct block *b = &load->block;
    for (unsigned part; n > 0; n -= part) {
        part = n < b->count ? (unsigned)n : b->count;
        for (unsigned i = 0; i < part; i++)
            block_write(b, i, producer, FIRST_SEQUENCE + p->sent + i,
                        paced ? loop_due_ns(&load->loop, i) : load->loop.now_ns);
        stream_send(&c->stream, (char *)b->frames, part * b->frame_bytes);
        count_sent(p, part, load->loop.now_ns);
        load->sends_left -= part;
        if (paced) load->loop.paced += part;
    }
}

static void send_all(struct load *load, struct connection *c) {
    if (load->paused || load->options.run.rate > 0) return;
    for (unsigned i = 0; i < load->options.topics; i++) send_some(load, c, i, room(load, &c->producers[i]), false);
}

/* Sends what is due, with the producers in turn. What finds no room stays due, and its latency grows. */
static void send_due(struct load *load) {
    const struct options *o = &load->options;
    uint64_t most = (uint64_t)o->producers * o->topics * o->depth, due = loop_due(&load->loop, most);
    for (unsigned tried = 0; due > 0 && tried < o->producers * o->topics; tried++) {
        struct connection *c = &load->connections[load->next_connection];
        load->next_connection = (load->next_connection + 1) % o->producers;
        uint64_t n = room(load, &c->producers[c->next]), share = (due + o->producers - 1) / o->producers;
        if (n > share) n = share;
        send_some(load, c, c->next, n, true);
        c->next = (c->next + 1) % o->topics;
        due -= n;
    }
}

static void pause_or_resume(struct load *load) {
    const struct options *o = &load->options;
    if (o->mode != MODE_FULL || o->run.rate > 0) return;
    if (!load->paused && load->ready > (int64_t)o->max_ready) {
        load->paused = true;
        load->counts.pauses++;
    } else if (load->paused && load->ready <= (int64_t)(o->max_ready * 3 / 4)) {
        load->paused = false;
        for (unsigned i = 0; i < o->producers; i++) send_all(load, &load->connections[i]);
    }
}

static void take_receipt(struct load *load, struct connection *c, const struct frame *frame) {
    uint64_t producer = number_in(frame->body, 1, UINT64_MAX), sequence = number_in(frame->body, 2, 0);
    if (producer >= load->options.topics) die("a receipt for producer %" PRIu64, producer);
    struct round_trips *p = &c->producers[producer];
    if (sequence != FIRST_SEQUENCE + p->answered || unanswered(p) == 0)
        die("a receipt for %" PRIu64 " instead of %" PRIu64, sequence - FIRST_SEQUENCE, p->answered);
    count_answered(p, 1, load->loop.now_ns, &load->publish_ns);
    load->counts.published += load->options.batch;
    load->ready += load->options.batch;
}

/* ---- consumers ---- */

static void flow(struct connection *c, unsigned consumer, unsigned permits) {
    uint8_t body[32], *end = put_number(put_number(body, 1, consumer), 2, permits);
    say(c, FLOW, body, end);
}

struct acks {
    unsigned consumer;
    uint8_t *end; /* end of the ids */
};

static void send_acks(struct load *load, struct connection *c, struct acks *acks) {
    uint8_t *ids = load->acks + COMMAND_BYTES, head[32], *end = put_number(put_number(head, 1, acks->consumer), 2, 0);
    size_t head_bytes = (size_t)(end - head), bytes = (size_t)(acks->end - ids);
    if (bytes == 0) return;
    uint8_t frame[64], *at = put_frame_head(frame, ACK, head_bytes + bytes, 0);
    memcpy(at, head, head_bytes);
    size_t before = (size_t)(at - frame) + head_bytes;
    memcpy(ids - before, frame, before);
    stream_send(&c->stream, (char *)ids - before, before + bytes);
    acks->end = ids;
}

static void check_payload(struct load *load, const struct frame *frame) {
    const struct block *b = &load->block;
    size_t bytes = (size_t)(frame->entry.end - frame->entry.at);
    if (bytes != b->frame_bytes - b->checksum_at + 2) die("an entry of %zu bytes", bytes);
    if (b->payload_bytes == 0) return;
    const uint8_t *body = frame->entry.end - b->payload_bytes + (b->body_at - b->payload_at);
    read_body((const char *)body, load->options.run.body_bytes, load->loop.now_ns, &load->message_ns);
}

static void take_message(struct load *load, struct connection *c, const struct frame *frame, struct acks *acks) {
    const struct options *o = &load->options;
    struct bytes rest = frame->body, id = {NULL, NULL};
    uint64_t consumer = UINT64_MAX;
    for (struct field f; next_field(&rest, &f);) {
        if (f.number == 1) consumer = f.value;
        if (f.number == 2) id = f.bytes;
        if (f.number == 3) load->counts.redelivered += f.value;
    }
    size_t id_bytes = (size_t)(id.end - id.at);
    if (consumer >= o->topics || id.at == NULL || id_bytes > ID_BYTES - 2) die("no such message");
    if (consumer != acks->consumer) send_acks(load, c, acks);
    acks->consumer = (unsigned)consumer;
    check_payload(load, frame);
    acks->end = put_bytes(acks->end, 3, id.at, id_bytes);
    load->counts.consumed += o->batch;
    load->ready -= o->batch;
    c->taken[consumer] += o->batch;
    if (c->taken[consumer] < o->queue / 2 && o->queue > 1) return;
    flow(c, (unsigned)consumer, c->taken[consumer]);
    c->taken[consumer] = 0;
}

/* ---- what the server says ---- */

__attribute__((noreturn)) static void die_of_frame(const struct frame *frame) {
    struct bytes text = bytes_in(frame->body, 3);
    die("unexpected command %d: %.*s", (int)frame->type, (int)(text.end - text.at), text.at ? (char *)text.at : "");
}

static void take_frame(struct load *load, struct connection *c, const struct frame *frame, struct acks *acks) {
    if (frame->type == SEND_RECEIPT && c->producers)
        take_receipt(load, c, frame);
    else if (frame->type == MESSAGE && !c->producers)
        take_message(load, c, frame, acks);
    else if (frame->type == PING)
        say(c, PONG, frame->body.at, frame->body.at);
    else if (frame->type == SUCCESS && load->consumers_open > 0)
        load->consumers_open--;
    else if (frame->type != PONG && frame->type != (enum command)31) /* ACTIVE_CONSUMER_CHANGE */
        die_of_frame(frame);
}

static size_t take(void *owner, struct stream *s, const char *in, size_t bytes) {
    struct load *load = owner;
    struct connection *c = (struct connection *)s;
    const uint8_t *at = (const uint8_t *)in, *end = at + bytes;
    struct acks acks = {.end = load->acks + COMMAND_BYTES};
    struct frame frame;
    for (size_t used; (used = read_frame(at, end, load->frame_most, &frame)) > 0; at += used)
        take_frame(load, c, &frame, &acks);
    send_acks(load, c, &acks);
    if (load->options.mode != MODE_IDLE) {
        if (c->producers) send_all(load, c);
        pause_or_resume(load);
    }
    return bytes - (size_t)(end - at);
}

static void turn(void *owner) {
    struct load *load = owner;
    loop_turn(&load->loop, take, load);
    if (load->options.run.rate > 0) send_due(load);
}

/* ---- a run ---- */

static bool consumes(const struct options *o) {
    return o->mode == MODE_FULL || o->mode == MODE_CONSUME;
}

static bool publishes(const struct options *o) {
    return o->mode != MODE_CONSUME && o->mode != MODE_IDLE;
}

static bool has_consumer(const struct options *o, unsigned connection, unsigned topic) {
    return o->type == SHARED || o->type == KEY_SHARED || topic % o->consumers == connection;
}

/* Closes the consumers: when a broker answers that, it has handled the ACKs sent before it. */
static void finish(void *owner) {
    struct load *load = owner;
    const struct options *o = &load->options;
    if (!consumes(o)) return;
    for (unsigned i = 0; i < o->consumers; i++) {
        for (unsigned t = 0; t < o->topics; t++) {
            if (!has_consumer(o, i, t)) continue;
            uint8_t body[32];
            say(&load->connections[o->producers + i], CLOSE_CONSUMER, body, put_number(put_number(body, 1, t), 2, t));
            load->consumers_open++;
        }
    }
    while (load->consumers_open > 0) turn(load);
}

static void count(void *owner) {
    struct load *load = owner;
    load->before = load->counts;
    memset(&load->publish_ns, 0, sizeof load->publish_ns);
    memset(&load->message_ns, 0, sizeof load->message_ns);
}

static bool is_done(const void *owner) {
    const struct load *load = owner;
    uint64_t done = consumes(&load->options) ? load->counts.consumed : load->counts.published;
    return done >= load->options.run.messages;
}

static void start(void *owner) {
    struct load *load = owner;
    const struct options *o = &load->options;
    for (unsigned i = 0; i < o->producers; i++) send_all(load, &load->connections[i]);
    for (unsigned i = 0; i < o->consumers; i++)
        for (unsigned t = 0; t < o->topics; t++)
            if (has_consumer(o, i, t)) flow(&load->connections[o->producers + i], t, o->queue);
}

static const struct run_calls CALLS = {start, turn, count, is_done, finish};

/* ---- opening connections, which still block ---- */

struct asking {
    int fd;
    uint8_t *out; /* commands to be sent next */
    size_t out_bytes;
    uint8_t *in;
    size_t begin, end, in_bytes;
};

static void ask(struct asking *a, enum command type, const uint8_t *body, const uint8_t *end) {
    if (a->out_bytes + COMMAND_BYTES > IN_BYTES) die("too many topics on a connection");
    uint8_t *to = a->out + a->out_bytes;
    a->out_bytes += (size_t)(put_frame(to, type, body, (size_t)(end - body)) - to);
}

static void send_asked(struct asking *a) {
    loop_send_whole(a->fd, a->out, a->out_bytes);
    a->out_bytes = 0;
}

/* Returns the next frame that answers something; it is valid until the next one is read. */
static struct frame heard(struct asking *a) {
    for (struct frame frame;;) {
        size_t used = read_frame(a->in + a->begin, a->in + a->end, a->in_bytes, &frame);
        a->begin += used;
        if (used > 0 && frame.type == ERROR) die_of_frame(&frame);
        if (used > 0 && frame.type != PING && frame.type != (enum command)31) return frame;
        if (used > 0) continue;
        memmove(a->in, a->in + a->begin, a->end - a->begin);
        a->end -= a->begin;
        a->begin = 0;
        ssize_t n = recv(a->fd, a->in + a->end, a->in_bytes - a->end, 0);
        if (n <= 0) die("a connection was ended instead of opened");
        a->end += (size_t)n;
    }
}

static void expect(struct asking *a, enum command type) {
    struct frame frame = heard(a);
    if (frame.type != type) die_of_frame(&frame);
}

static uint8_t *put_topic(const struct options *o, uint8_t *to, unsigned topic) {
    char name[MAX_NAME_BYTES + 64];
    snprintf(name, sizeof name, "persistent://public/default/%s-%u", o->topic, topic);
    return put_text(to, 1, name);
}

/* Looks the topics up. A broker that has not taken one over yet says so, and is asked again. */
static void look_up(const struct options *o, struct asking *a, unsigned first) {
    bool found[MAX_TOPICS] = {false};
    for (unsigned try = 0, missing = o->topics; missing > 0; try++) {
        if (try == TRIES) die("%s is nowhere", o->topic);
        if (try > 0) usleep(100000);
        unsigned asked = missing;
        for (unsigned t = 0; t < o->topics; t++) {
            uint8_t body[COMMAND_BYTES];
            if (found[t]) continue;
            ask(a, LOOKUP, body, put_number(put_number(put_topic(o, body, first + t), 2, t), 3, try > 0));
        }
        send_asked(a);
        for (; asked > 0; asked--) {
            struct frame frame = heard(a);
            uint64_t topic = number_in(frame.body, 4, UINT64_MAX);
            if (frame.type != LOOKUP_RESPONSE || topic >= o->topics) die_of_frame(&frame);
            if (number_in(frame.body, 3, 2) != 1) continue;
            found[topic] = true;
            missing--;
        }
    }
}

static uint8_t *put_subscribe(const struct options *o, uint8_t *to, unsigned topic, unsigned consumer) {
    static const uint8_t auto_split[] = {0x08, 0};
    to = put_text(put_topic(o, to, topic), 2, SUBSCRIPTION);
    to = put_number(put_number(put_number(to, 3, o->type), 4, consumer), 5, consumer);
    to = put_number(to, 13, 1); /* initialPosition: earliest */
    return o->type == KEY_SHARED ? put_bytes(to, 17, auto_split, sizeof auto_split) : to;
}

static void greet(struct asking *a) {
    uint8_t body[COMMAND_BYTES];
    ask(a, CONNECT, body, put_number(put_text(body, 1, "load"), 4, 21));
    send_asked(a);
    expect(a, CONNECTED);
}

static void make_producers(const struct options *o, struct asking *a, unsigned first) {
    for (unsigned t = 0; t < o->topics; t++) {
        uint8_t body[COMMAND_BYTES];
        ask(a, PRODUCER, body, put_number(put_number(put_topic(o, body, first + t), 2, t), 3, t));
    }
    send_asked(a);
    for (unsigned t = 0; t < o->topics; t++) expect(a, PRODUCER_SUCCESS);
}

/* `all`: subscribes to all topics, whichever consumers other connections have. */
static void make_consumers(const struct options *o, struct asking *a, unsigned first, unsigned index, bool all) {
    unsigned asked = 0;
    for (unsigned t = 0; t < o->topics; t++) {
        uint8_t body[COMMAND_BYTES];
        if (!all && !has_consumer(o, index, t)) continue;
        ask(a, SUBSCRIBE, body, put_subscribe(o, body, first + t, t));
        asked++;
    }
    send_asked(a);
    for (; asked > 0; asked--) expect(a, SUCCESS);
}

static void close_all(const struct options *o, struct asking *a) {
    for (unsigned t = 0; t < o->topics; t++) {
        uint8_t body[32];
        ask(a, CLOSE_CONSUMER, body, put_number(put_number(body, 1, t), 2, t));
    }
    send_asked(a);
    for (unsigned t = 0; t < o->topics; t++) expect(a, SUCCESS);
}

static struct asking begin_asking(const struct load *load) {
    const struct options *o = &load->options;
    return (struct asking){.fd = stream_connect(o->run.host, o->run.port),
                           .out = allocate(1, IN_BYTES),
                           .in = allocate(1, IN_BYTES),
                           .in_bytes = IN_BYTES};
}

/* Hands the socket over to the stream, with the bytes that came after the answers. */
static void take_over(struct load *load, struct connection *c, struct asking *a, size_t unsent) {
    stream_open(&c->stream, a->fd, load->loop.epoll_fd, unsent, load->frame_most);
    stream_keep(&c->stream, (const char *)a->in + a->begin, a->end - a->begin);
    free(a->out);
    free(a->in);
}

static void open_connection(struct load *load, struct connection *c, unsigned index) {
    const struct options *o = &load->options;
    bool idle = o->mode == MODE_IDLE, is_producer = index < o->producers;
    unsigned first = idle ? index * o->topics : 0;
    struct asking a = begin_asking(load);
    c->index = index;
    greet(&a);
    look_up(o, &a, first);
    if (is_producer) make_producers(o, &a, first);
    if (!is_producer || idle) make_consumers(o, &a, first, index - o->producers, idle);
    if (is_producer)
        c->producers = allocate(o->topics, sizeof *c->producers);
    else
        c->taken = allocate(o->topics, sizeof *c->taken);
    size_t sends = is_producer && !idle ? (size_t)o->depth * o->topics * load->block.frame_bytes : 0;
    take_over(load, c, &a, sends + (idle ? COMMAND_BYTES : IN_BYTES));
    if (!idle) return;
    for (unsigned t = 0; t < o->topics; t++) flow(c, t, o->queue);
}

/* Gives each topic a subscription that has no consumers yet. */
static void subscribe_for_later(struct load *load) {
    const struct options *o = &load->options;
    struct asking a = begin_asking(load);
    greet(&a);
    look_up(o, &a, 0);
    make_consumers(o, &a, 0, 0, true);
    close_all(o, &a);
    close(a.fd);
    free(a.in);
    free(a.out);
}

static void open_load(struct load *load) {
    const struct options *o = &load->options;
    load->sends_left = o->run.messages && publishes(o) ? (o->run.messages + o->batch - 1) / o->batch : UINT64_MAX;
    block_open(&load->block, o->run.body_bytes, o->batch, o->keys, o->run.rate > 0 ? 1024 : o->depth);
    if (o->run.rate > 0) load->block.sample = 1;
    load->frame_most = load->block.frame_bytes + COMMAND_BYTES;
    size_t in_bytes = IN_BYTES + load->frame_most;
    loop_open(&load->loop, o->run.rate / o->batch, in_bytes);
    load->acks = allocate(1, COMMAND_BYTES + in_bytes / 8 * ID_BYTES);
    if (o->mode == MODE_FILL) subscribe_for_later(load);
    load->connection_count = o->producers + o->consumers;
    load->connections = allocate(load->connection_count, sizeof *load->connections);
    /* Consumers before producers. */
    for (unsigned i = load->connection_count; i-- > 0;) open_connection(load, &load->connections[i], i);
}

static void close_load(struct load *load) {
    for (unsigned i = 0; i < load->connection_count; i++) {
        stream_close(&load->connections[i].stream);
        free(load->connections[i].producers);
        free(load->connections[i].taken);
    }
    loop_close(&load->loop);
    block_close(&load->block);
    free(load->connections);
    free(load->acks);
}

/* ---- options and report ---- */

static void check_options(struct options *o) {
    if (!publishes(o) && o->mode != MODE_IDLE) o->producers = 0;
    if (!consumes(o)) o->consumers = 0;
    if (o->run.rate > 0 && (o->mode != MODE_FULL || o->run.messages > 0)) die("--rate needs mode full and a window");
    if (o->topics > MAX_PRODUCER_ID && publishes(o)) die("no more than %u topics", MAX_PRODUCER_ID);
    if (o->mode == MODE_CONSUME && o->run.messages == 0) die("mode consume needs --messages");
    if (strlen(o->topic) > MAX_NAME_BYTES) die("a topic's name has no more than %d bytes", MAX_NAME_BYTES);
}

static struct options read_options(int argc, char **argv) {
    static struct options o = {
        .run = {RUN_DEFAULTS, .body_bytes = 1024},
        .type = SHARED,
        .producers = 1,
        .consumers = 1,
        .topics = 1,
        .depth = 1,
        .batch = 1,
        .queue = 1000,
        .max_ready = 20000,
        .topic = "load",
    };
    static const struct option_row rows[] = {
        RUN_OPTIONS(o.run, 0, MAX_BODY_BYTES),
        RUN_RATE(o.run),
        RUN_MESSAGES(o.run, "messages"),
        OPTION_WORDS("mode", "MODE", o.mode, MODES,
                     "full: producers and consumers; publish: producers only; fill: the same, and topics have a "
                     "subscription; consume: consumers only; idle: connections with both on each of their own topics, "
                     "until the program is ended"),
        OPTION_WORDS("type", "TYPE", o.type, TYPES, "of subscriptions: exclusive, shared, failover, key-shared"),
        OPTION("producers", "P", o.producers, 1, MAX_CONNECTIONS, "connections that publish to each topic"),
        OPTION("consumers", "C", o.consumers, 1, MAX_CONNECTIONS,
               "connections that consume: from each topic, or, exclusive, from a share of them"),
        OPTION_TEXTUAL("topic", "NAME", o.topic, "topics are NAME-0, NAME-1 and so on"),
        OPTION("topics", "T", o.topics, 1, MAX_TOPICS, "how many; in mode idle: of each connection"),
        OPTION("depth", "D", o.depth, 1, MAX_DEPTH, "SENDs that each producer keeps without receipt"),
        OPTION("batch", "B", o.batch, 1, MAX_BATCH, "messages in each SEND"),
        OPTION("keys", "K", o.keys, 0, 999999, "so many keys in turn; 0: none"),
        OPTION("queue", "Q", o.queue, 1, 1e6, "permits of each consumer"),
        OPTION("max-ready", "M", o.max_ready, 1, 1e9, "producers pause while more messages wait"),
        OPTION_END,
    };
    run_read_options("load_pulsar", rows, &o.run, argc, argv);
    check_options(&o);
    return o;
}

static void report(const struct load *load, const struct run *run) {
    const struct options *o = &load->options;
    const struct counts *now = &load->counts, *before = &load->before;
    uint64_t published = now->published - before->published, consumed = now->consumed - before->consumed;
    printf("{\"mode\": \"%s\", \"type\": \"%s\", \"topics\": %u, \"depth\": %u, \"batch\": %u", MODES[o->mode],
           TYPES[o->type], o->topics, o->depth, o->batch);
    run_report(run, &o->run, consumes(o) ? consumed : published, "message");
    printf(", \"published\": %" PRIu64 ", \"consumed\": %" PRIu64 ", \"redelivered\": %" PRIu64
           ", \"pauses\": %" PRIu64,
           published, consumed, now->redelivered - before->redelivered, now->pauses - before->pauses);
    report_histogram("publish_us", &load->publish_ns);
    report_histogram("message_us", &load->message_ns);
    printf("}\n");
}

int main(int argc, char **argv) {
    static struct load load;
    load.options = read_options(argc, argv);
    open_load(&load);
    if (load.options.mode == MODE_IDLE) run_idle(&load.loop, &CALLS, &load);
    struct run run = run_load(&load.loop, &load.options.run, &CALLS, &load);
    report(&load, &run);
    close_load(&load);
    return 0;
}

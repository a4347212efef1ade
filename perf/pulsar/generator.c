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
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "measure.h"
#include "pulsar/block.h"
#include "pulsar/frames.h"
#include "stream.h"

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
    enum mode mode;
    enum type type;
    const char *host;
    uint16_t port;
    unsigned producers, consumers; /* numbers of connections */
    unsigned topics;
    unsigned depth;
    unsigned batch;
    unsigned queue; /* permits that each consumer keeps */
    unsigned keys;
    size_t body_bytes;
    double seconds;
    double warmup;
    double rate;       /* messages a second; 0: closed loop */
    uint64_t messages; /* 0: the run ends by time */
    uint64_t max_ready;
    const char *topic;
    struct processes server;
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

struct snapshot {
    struct usage usage;
    struct counts counts;
};

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
    uint8_t *in;
    size_t in_bytes, frame_most;
    uint8_t *acks; /* ids of messages, after room for the head of an ACK */
    struct counts counts;
    struct histogram publish_ns; /* from SEND to its receipt */
    struct histogram message_ns; /* from when it was sent, or due, to delivery */
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
    if (load->paused || load->options.rate > 0) return;
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
    if (o->mode != MODE_FULL || o->rate > 0) return;
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
    read_body((const char *)body, load->options.body_bytes, load->loop.now_ns, &load->message_ns);
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

static void on_readable(void *owner, struct stream *s) {
    struct load *load = owner;
    struct connection *c = (struct connection *)s;
    size_t bytes = stream_receive(s, (char *)load->in, load->in_bytes);
    if (bytes == 0) return;
    load->loop.now_ns = load->loop.last_progress_ns = now_ns();
    const uint8_t *at = load->in, *end = load->in + bytes;
    struct acks acks = {.end = load->acks + COMMAND_BYTES};
    struct frame frame;
    for (size_t used; (used = read_frame(at, end, load->frame_most, &frame)) > 0; at += used)
        take_frame(load, c, &frame, &acks);
    send_acks(load, c, &acks);
    stream_keep(s, (const char *)at, (size_t)(end - at));
    if (load->options.mode == MODE_IDLE) return;
    if (c->producers) send_all(load, c);
    pause_or_resume(load);
}

static void turn(struct load *load) {
    loop_turn(&load->loop, on_readable, load);
    if (load->options.rate > 0) send_due(load);
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

static struct snapshot take_snapshot(const struct load *load) {
    return (struct snapshot){.usage = usage_now(&load->options.server), .counts = load->counts};
}

/* Closes the consumers: when a broker answers that, it has handled the ACKs sent before it. */
static void close_consumers(struct load *load) {
    const struct options *o = &load->options;
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

static void run(struct load *load, struct snapshot *begin, struct snapshot *end) {
    const struct options *o = &load->options;
    loop_begin(&load->loop);
    *begin = take_snapshot(load);
    uint64_t warm_ns = begin->usage.time_ns + (uint64_t)(o->warmup * 1e9);
    uint64_t end_ns = warm_ns + (uint64_t)(o->seconds * 1e9);
    for (unsigned i = 0; i < o->producers; i++) send_all(load, &load->connections[i]);
    for (unsigned i = 0; i < o->consumers; i++)
        for (unsigned t = 0; t < o->topics; t++)
            if (has_consumer(o, i, t)) flow(&load->connections[o->producers + i], t, o->queue);
    if (o->messages) {
        const uint64_t *done = consumes(o) ? &load->counts.consumed : &load->counts.published;
        while (*done < o->messages) turn(load);
        if (consumes(o)) close_consumers(load);
    } else {
        while (load->loop.now_ns < warm_ns) turn(load);
        memset(&load->publish_ns, 0, sizeof load->publish_ns);
        memset(&load->message_ns, 0, sizeof load->message_ns);
        *begin = take_snapshot(load);
        while (load->loop.now_ns < end_ns) turn(load);
    }
    *end = take_snapshot(load);
}

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
    return (struct asking){.fd = stream_connect(o->host, o->port),
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
    loop_open(&load->loop, o->rate / o->batch);
    load->sends_left = o->messages && publishes(o) ? (o->messages + o->batch - 1) / o->batch : UINT64_MAX;
    block_open(&load->block, o->body_bytes, o->batch, o->keys, o->rate > 0 ? 1024 : o->depth);
    if (o->rate > 0) load->block.sample = 1;
    load->frame_most = load->block.frame_bytes + COMMAND_BYTES;
    load->in_bytes = IN_BYTES + load->frame_most;
    load->in = allocate(1, load->in_bytes);
    load->acks = allocate(1, COMMAND_BYTES + load->in_bytes / 8 * ID_BYTES);
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
    free(load->in);
    free(load->acks);
}

/* ---- options and report ---- */

static const char usage[] =
    "usage: load_pulsar --port PORT [options]\n"
    "  --host A            IPv4 address (127.0.0.1)\n"
    "  --mode MODE         full: producers and consumers (default); publish: producers only; fill: the same, and "
    "topics\n"
    "                      have a subscription; consume: consumers only; idle: connections with a producer and a "
    "consumer\n"
    "                      on each of their own topics, until the program is ended\n"
    "  --type TYPE         exclusive, shared (default), failover, key-shared\n"
    "  --producers P       connections that publish to each topic (1)\n"
    "  --consumers C       connections that consume: from each topic, or, exclusive, from a share of them (1)\n"
    "  --topic NAME        topics are NAME-0, NAME-1 and so on (load)\n"
    "  --topics T          how many; in mode idle: of each connection (1)\n"
    "  --depth D           SENDs that each producer keeps without receipt (1)\n"
    "  --batch B           messages in each SEND (1)\n"
    "  --keys K            so many keys in turn (0: none)\n"
    "  --queue Q           permits of each consumer (1000)\n"
    "  --max-ready M       producers pause while more messages wait (20000)\n"
    "  --rate R            messages a second, sent at fixed times, instead of as many as are taken\n"
    "  --body BYTES        of each message (1024); times are taken from 16 on\n"
    "  --seconds S         length of the measured window (3)\n"
    "  --warmup W          seconds before the window (0.5)\n"
    "  --messages N        instead of a window: N messages, from the first to the last\n"
    "  --pids A,B,...      processes of the server, whose CPU time in the window is reported\n"
    "prints one line of JSON; times in microseconds unless named otherwise\n";

static unsigned one_of(const char *const *names, size_t count, const char *name) {
    for (unsigned i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return i;
    die("what is %s?\n%s", name, usage);
}

static void check_options(struct options *o) {
    if (o->port == 0) die("--port is missing\n%s", usage);
    if (!publishes(o) && o->mode != MODE_IDLE) o->producers = 0;
    if (!consumes(o)) o->consumers = 0;
    if (o->rate > 0 && (o->mode != MODE_FULL || o->messages > 0)) die("--rate needs mode full and a window");
    if (o->topics > MAX_PRODUCER_ID && publishes(o)) die("no more than %u topics", MAX_PRODUCER_ID);
    if (o->mode == MODE_CONSUME && o->messages == 0) die("mode consume needs --messages");
    if (strlen(o->topic) > MAX_NAME_BYTES) die("a topic's name has no more than %d bytes", MAX_NAME_BYTES);
}

static struct options read_options(int argc, char **argv) {
    static const struct option names[] = {{"host", 1, 0, 'h'},      {"port", 1, 0, 'p'},      {"mode", 1, 0, 'm'},
                                          {"type", 1, 0, 'T'},      {"producers", 1, 0, 'P'}, {"consumers", 1, 0, 'C'},
                                          {"topic", 1, 0, 't'},     {"topics", 1, 0, 'N'},    {"depth", 1, 0, 'd'},
                                          {"batch", 1, 0, 'B'},     {"keys", 1, 0, 'k'},      {"queue", 1, 0, 'q'},
                                          {"max-ready", 1, 0, 'r'}, {"rate", 1, 0, 'f'},      {"body", 1, 0, 'b'},
                                          {"seconds", 1, 0, 's'},   {"warmup", 1, 0, 'w'},    {"messages", 1, 0, 'n'},
                                          {"pids", 1, 0, 'i'},      {"help", 0, 0, 'H'},      {0, 0, 0, 0}};
    struct options o = {.host = "127.0.0.1",
                        .type = SHARED,
                        .producers = 1,
                        .consumers = 1,
                        .topics = 1,
                        .depth = 1,
                        .batch = 1,
                        .queue = 1000,
                        .body_bytes = 1024,
                        .seconds = 3,
                        .warmup = 0.5,
                        .max_ready = 20000,
                        .topic = "load"};
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (name) {
        case 'h': o.host = optarg; break;
        case 'p': o.port = (uint16_t)number(optarg, 1, 65535); break;
        case 'm': o.mode = (enum mode)one_of(MODES, sizeof MODES / sizeof *MODES, optarg); break;
        case 'T': o.type = (enum type)one_of(TYPES, sizeof TYPES / sizeof *TYPES, optarg); break;
        case 'P': o.producers = (unsigned)number(optarg, 1, MAX_CONNECTIONS); break;
        case 'C': o.consumers = (unsigned)number(optarg, 1, MAX_CONNECTIONS); break;
        case 't': o.topic = optarg; break;
        case 'N': o.topics = (unsigned)number(optarg, 1, MAX_TOPICS); break;
        case 'd': o.depth = (unsigned)number(optarg, 1, MAX_DEPTH); break;
        case 'B': o.batch = (unsigned)number(optarg, 1, MAX_BATCH); break;
        case 'k': o.keys = (unsigned)number(optarg, 0, 999999); break;
        case 'q': o.queue = (unsigned)number(optarg, 1, 1e6); break;
        case 'r': o.max_ready = (uint64_t)number(optarg, 1, 1e9); break;
        case 'f': o.rate = number(optarg, 1, 1e9); break;
        case 'b': o.body_bytes = (size_t)number(optarg, 0, MAX_BODY_BYTES); break;
        case 's': o.seconds = number(optarg, 0.01, 86400); break;
        case 'w': o.warmup = number(optarg, 0, 3600); break;
        case 'n': o.messages = (uint64_t)number(optarg, 1, 1e12); break;
        case 'i': read_pids(&o.server, optarg); break;
        case 'H': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc) die("what is %s?\n%s", argv[optind], usage);
    check_options(&o);
    return o;
}

static void report(const struct load *load, const struct snapshot *begin, const struct snapshot *end) {
    const struct options *o = &load->options;
    double seconds = (double)(end->usage.time_ns - begin->usage.time_ns) / 1e9;
    uint64_t published = end->counts.published - begin->counts.published;
    uint64_t consumed = end->counts.consumed - begin->counts.consumed;
    uint64_t messages = consumes(o) ? consumed : published;
    printf("{\"mode\": \"%s\", \"type\": \"%s\", \"topics\": %u, \"depth\": %u, \"batch\": %u, \"body_bytes\": %zu, "
           "\"seconds\": %.4f, \"messages\": %" PRIu64 ", \"rate\": %.0f",
           MODES[o->mode], TYPES[o->type], o->topics, o->depth, o->batch, o->body_bytes, seconds, messages,
           (double)messages / seconds);
    report_cpu(&begin->usage, &end->usage, o->server.count, messages, "message");
    printf(", \"published\": %" PRIu64 ", \"consumed\": %" PRIu64 ", \"redelivered\": %" PRIu64
           ", \"pauses\": %" PRIu64,
           published, consumed, end->counts.redelivered - begin->counts.redelivered,
           end->counts.pauses - begin->counts.pauses);
    report_histogram("publish_us", &load->publish_ns);
    report_histogram("message_us", &load->message_ns);
    printf("}\n");
}

__attribute__((noreturn)) static void stay(struct load *load) {
    puts("ready");
    fflush(stdout);
    for (;; turn(load)) load->loop.last_progress_ns = now_ns();
}

int main(int argc, char **argv) {
    static struct load load;
    load.options = read_options(argc, argv);
    open_load(&load);
    if (load.options.mode == MODE_IDLE) stay(&load);
    struct snapshot begin, end;
    run(&load, &begin, &end);
    report(&load, &begin, &end);
    close_load(&load);
    return 0;
}

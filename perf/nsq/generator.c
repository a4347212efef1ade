/* A load generator for servers of the NSQ protocol (TCP, V2): one process, one thread, one epoll set.
 *
 * It exists to measure brokers on a machine that it shares with them, so it must cost little for each message: the
 * commands of a turn go out with one send() straight from a prepared block, frames are parsed where recv() left them,
 * and the FINs of all messages that one recv() brought leave in one send().
 *
 * Producers keep `depth` commands (PUB, or MPUB of `batch` messages) unanswered. Consumers set RDY once and finish each
 * message. So a run is closed-loop: the rate is what the server can do. With --rate it is open-loop instead: messages
 * are due in bursts at fixed times, whether or not the server has answered, and a message's latency counts from when
 * it was due, so that a server that falls behind cannot hide it.
 *
 * FIN has no answer. A timed run ends by the clock and counts the messages finished (or answered, without consumers) in
 * its window. A run over a number of messages ends when each consumer has sent CLS after its last FIN and has read
 * CLOSE_WAIT.
 *
 * Any frame that is not expected ends the program with a message. The result is one line of JSON on stdout.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "big_endian.h"
#include "commands.h"
#include "run.h"

#define MAX_CONNECTIONS    4096u
#define MAX_DEPTH          65536u
#define MAX_BODY_BYTES     (16u << 20)
#define MAX_BATCH          100000u
#define MAX_CHANNELS       1024u
#define MAX_RDY            1000000u
#define MAX_NAME_BYTES     64
#define IN_BYTES           ((size_t)512 << 10) /* most that one recv() brings, besides one whole frame */
#define RESPONSE_BYTES     1024u               /* more than any frame that is not a message */
#define COMMAND_HEAD_BYTES 128u                /* more than the longest command line with two sizes */
#define FRAME_HEAD_BYTES   8u                  /* size, type */
#define MESSAGE_HEAD_BYTES 26u                 /* timestamp, attempts, id */
#define ID_AT              (FRAME_HEAD_BYTES + 10u)
#define ID_BYTES           16u
#define FIN_BYTES          (4u + ID_BYTES + 1u)
#define OK_BYTES           10u
#define BY_MODE            UINT_MAX
#define SAMPLE             16u /* in a closed loop with depth > 1, one of so many commands carries the time */

enum { FRAME_RESPONSE, FRAME_ERROR, FRAME_MESSAGE };

enum mode { MODE_FULL, MODE_PUBLISH, MODE_CONSUME };

static const char *const MODES[] = {"full", "publish", "consume"};

struct options {
    struct run_options run;
    unsigned mode;
    unsigned producers;
    unsigned consumers;
    unsigned channels;
    unsigned depth;
    unsigned batch;
    unsigned rdy;
    uint64_t max_ready;
    const char *topic;
    int output_buffer_bytes; /* as in IDENTIFY: 0 the server's default, -1 none */
    int output_buffer_ms;
};

struct counts {
    uint64_t published; /* messages answered with OK */
    uint64_t finished;  /* messages whose FIN was sent */
    uint64_t redelivered;
    uint64_t pauses;
};

struct connection {
    struct stream stream; /* must be first: the epoll set has its address */
    bool is_producer;
    struct round_trips commands;
};
_Static_assert(offsetof(struct connection, stream) == 0, "a connection has the address of its stream");

struct load {
    struct options options;
    struct loop loop; /* of commands */
    struct connection *connections;
    unsigned connection_count;
    struct commands commands;
    uint64_t commands_left; /* commands still to be sent */
    int64_t ready;          /* deliveries expected for answered messages, less those that came */
    bool paused;
    unsigned next_producer;
    unsigned closed; /* consumers that have read CLOSE_WAIT */
    char *fins;
    struct counts counts, before; /* `before` the window */
    struct histogram publish_ns;  /* from a command's sending to OK */
    struct histogram message_ns;  /* from when it was sent, or due, to delivery */
};

/* ---- producers ---- */

static char *write_command(const struct options *o, char *at) {
    at += sprintf(at, "%s %s\n", o->batch > 1 ? "MPUB" : "PUB", o->topic);
    if (o->batch > 1) {
        at = write_u32(at, 4 + o->batch * (4 + o->run.body_bytes));
        at = write_u32(at, o->batch);
    }
    for (unsigned i = 0; i < o->batch; i++) {
        at = write_u32(at, o->run.body_bytes);
        write_body(at, o->run.body_bytes);
        at += o->run.body_bytes;
    }
    return at;
}

static void prepare_commands(struct load *load) {
    const struct options *o = &load->options;
    size_t bodies = o->batch * (4 + o->run.body_bytes);
    char *command = allocate(1, COMMAND_HEAD_BYTES + bodies);
    size_t bytes = (size_t)(write_command(o, command) - command);
    free(command);
    unsigned sample = o->depth == 1 || o->run.rate > 0 ? 1 : SAMPLE;
    /* A send may begin at any of the first `sample` commands. */
    size_t count = o->depth + sample;
    commands_open(&load->commands, count, bytes, bytes - bodies + 4, o->run.body_bytes, sample);
    for (size_t i = 0; i < count; i++) write_command(o, commands_at(&load->commands, i));
}

/* Sends `n` prepared commands, stamped already. */
static void send_prepared(struct load *load, struct connection *c, size_t begin, uint64_t n) {
    commands_send(&load->commands, &c->stream, begin, n);
    count_sent(&c->commands, n, load->loop.now_ns);
    load->commands_left -= n;
}

static uint64_t room(const struct load *load, const struct connection *c) {
    uint64_t n = load->options.depth - unanswered(&c->commands);
    return n < load->commands_left ? n : load->commands_left;
}

/* Sends, in a closed loop, as many commands as may be unanswered. */
static void send_commands(struct load *load, struct connection *c) {
    uint64_t n = load->paused ? 0 : room(load, c);
    if (n == 0) return;
    size_t begin = (size_t)(c->commands.sent % load->commands.sample);
    commands_stamp_sample(&load->commands, begin, n, load->loop.now_ns);
    send_prepared(load, c, begin, n);
}

/* Sends what is due, in equal parts over all producers. What finds no room stays due, and its latency grows. */
static void send_due(struct load *load) {
    unsigned producers = load->options.producers;
    uint64_t due = loop_due(&load->loop, (uint64_t)producers * load->options.depth); /* there is no room for more */
    uint64_t share = (due + producers - 1) / producers;
    for (unsigned i = 0; i < producers && due > 0; i++) {
        struct connection *c = &load->connections[load->next_producer];
        load->next_producer = (load->next_producer + 1) % producers;
        uint64_t n = room(load, c);
        if (n > share) n = share;
        if (n > due) n = due;
        if (n == 0) continue;
        for (uint64_t k = 0; k < n; k++) commands_stamp(&load->commands, k, loop_due_ns(&load->loop, k));
        send_prepared(load, c, 0, n);
        load->loop.paced += n;
        due -= n;
    }
}

static void resume_producers(struct load *load) {
    const struct options *o = &load->options;
    if (!load->paused || load->ready > (int64_t)(o->max_ready * o->channels * 3 / 4)) return;
    load->paused = false;
    for (unsigned i = 0; i < o->producers; i++) send_commands(load, &load->connections[i]);
}

static void pause_or_send(struct load *load, struct connection *c) {
    const struct options *o = &load->options;
    if (o->run.rate > 0) return;
    if (!load->paused && o->mode == MODE_FULL && load->ready > (int64_t)(o->max_ready * o->channels)) {
        load->paused = true;
        load->counts.pauses++;
    }
    send_commands(load, c);
}

static void count_answers(struct load *load, struct connection *c, unsigned answers) {
    const struct options *o = &load->options;
    count_answered(&c->commands, answers, load->loop.now_ns, &load->publish_ns);
    load->counts.published += (uint64_t)answers * o->batch;
    load->ready += (int64_t)answers * o->batch * o->channels;
}

/* ---- what the server says ---- */

__attribute__((noreturn)) static void die_of_frame(const struct connection *c, const char *frame) {
    uint32_t type = read_u32(frame + 4), bytes = read_u32(frame) - 4;
    const char *who = c->is_producer ? "producer" : "consumer";
    if (type == FRAME_RESPONSE || type == FRAME_ERROR)
        die("unexpected %s to a %s: %.*s", type == FRAME_ERROR ? "error" : "response", who, (int)bytes,
            frame + FRAME_HEAD_BYTES);
    die("unexpected frame of type %u and %u bytes to a %s", type, bytes, who);
}

static bool says(const char *frame, const char *text) {
    size_t bytes = strlen(text);
    return read_u32(frame) == bytes + 4 && read_u32(frame + 4) == FRAME_RESPONSE &&
           memcmp(frame + FRAME_HEAD_BYTES, text, bytes) == 0;
}

/* Takes a frame that is neither an OK nor a message. */
static void take_rare_frame(struct load *load, struct connection *c, const char *frame) {
    if (says(frame, "_heartbeat_"))
        stream_send(&c->stream, "NOP\n", 4);
    else if (says(frame, "CLOSE_WAIT") && !c->is_producer && load->closed < load->options.consumers)
        load->closed++;
    else
        die_of_frame(c, frame);
}

/* Returns the length of the frame at `at`; 0 if it is not whole. `limit` is the longest that may come. */
static size_t frame_bytes(const char *at, const char *end, size_t limit) {
    if ((size_t)(end - at) < FRAME_HEAD_BYTES) return 0;
    size_t bytes = 4 + (size_t)read_u32(at);
    if (bytes < FRAME_HEAD_BYTES || bytes > limit) die("a frame of %zu bytes", bytes);
    return bytes <= (size_t)(end - at) ? bytes : 0;
}

/* Both parsers return how many bytes of the input they have used. */
static size_t take_answers(struct load *load, struct connection *c, const char *in, size_t bytes) {
    static const char ok[OK_BYTES] = {0, 0, 0, 6, 0, 0, 0, 0, 'O', 'K'};
    const char *at = in, *end = in + bytes;
    unsigned answers = 0;
    for (;;) {
        while (end - at >= (ptrdiff_t)OK_BYTES && memcmp(at, ok, OK_BYTES) == 0) {
            at += OK_BYTES;
            answers++;
        }
        size_t other = frame_bytes(at, end, RESPONSE_BYTES);
        if (other == 0) break;
        take_rare_frame(load, c, at);
        at += other;
    }
    count_answers(load, c, answers);
    return (size_t)(at - in);
}

static void check_message(struct load *load, const char *frame) {
    size_t bytes = load->options.run.body_bytes;
    if (frame[FRAME_HEAD_BYTES + 8] != 0 || frame[FRAME_HEAD_BYTES + 9] != 1) load->counts.redelivered++;
    read_body(frame + FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES, bytes, load->loop.now_ns, &load->message_ns);
}

static size_t take_messages(struct load *load, struct connection *c, const char *in, size_t bytes) {
    const size_t message_bytes = FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES + load->options.run.body_bytes;
    const char *at = in, *end = in + bytes;
    char *fins = load->fins;
    for (;;) {
        size_t frame = frame_bytes(at, end, message_bytes + RESPONSE_BYTES);
        if (frame == 0) break;
        if (read_u32(at + 4) == FRAME_MESSAGE && frame == message_bytes) {
            check_message(load, at);
            memcpy(fins, "FIN ", 4);
            memcpy(fins + 4, at + ID_AT, ID_BYTES);
            fins[FIN_BYTES - 1] = '\n';
            fins += FIN_BYTES;
        } else {
            take_rare_frame(load, c, at);
        }
        at += frame;
    }
    if (fins != load->fins) {
        stream_send(&c->stream, load->fins, (size_t)(fins - load->fins));
        uint64_t messages = (uint64_t)(fins - load->fins) / FIN_BYTES;
        load->counts.finished += messages;
        load->ready -= (int64_t)messages;
    }
    return (size_t)(at - in);
}

/* ---- the loop ---- */

static size_t take(void *owner, struct stream *s, const char *in, size_t bytes) {
    struct load *load = owner;
    struct connection *c = (struct connection *)s;
    if (!c->is_producer) return take_messages(load, c, in, bytes);
    size_t used = take_answers(load, c, in, bytes);
    pause_or_send(load, c);
    return used;
}

static void turn(void *owner) {
    struct load *load = owner;
    loop_turn(&load->loop, take, load);
    if (load->options.run.rate > 0)
        send_due(load);
    else
        resume_producers(load);
}

static void count(void *owner) {
    struct load *load = owner;
    load->before = load->counts;
    memset(&load->publish_ns, 0, sizeof load->publish_ns);
    memset(&load->message_ns, 0, sizeof load->message_ns);
}

static bool is_done(const void *owner) {
    const struct load *load = owner;
    const struct options *o = &load->options;
    return (o->mode == MODE_CONSUME || load->counts.published >= o->run.messages) &&
           (o->mode == MODE_PUBLISH || load->counts.finished >= o->run.messages * o->channels);
}

static void start(void *owner) {
    struct load *load = owner;
    const struct options *o = &load->options;
    char command[COMMAND_HEAD_BYTES];
    int bytes = snprintf(command, sizeof command, "RDY %u\n", o->rdy);
    for (unsigned i = o->producers; i < load->connection_count; i++)
        stream_send(&load->connections[i].stream, command, (size_t)bytes);
    for (unsigned i = 0; i < o->producers && o->run.rate <= 0; i++) send_commands(load, &load->connections[i]);
}

/* Sends CLS and waits for CLOSE_WAIT: a server handles a connection's commands in turn, so it has seen every FIN. */
static void finish(void *owner) {
    struct load *load = owner;
    const struct options *o = &load->options;
    for (unsigned i = o->producers; i < load->connection_count; i++)
        stream_send(&load->connections[i].stream, "CLS\n", 4);
    while (load->closed < o->consumers) turn(load);
}

static const struct run_calls CALLS = {start, turn, count, is_done, finish};

/* ---- connections ---- */

static void receive_whole(int fd, char *to, size_t bytes) {
    for (size_t have = 0; have < bytes;) {
        ssize_t n = recv(fd, to + have, bytes - have, 0);
        if (n <= 0) die("no answer while a connection was opened");
        have += (size_t)n;
    }
}

/* Reads one response on a connection that still blocks, and returns the length of its text. */
static size_t read_response(int fd, char text[RESPONSE_BYTES]) {
    char head[FRAME_HEAD_BYTES];
    receive_whole(fd, head, sizeof head);
    size_t bytes = read_u32(head) - 4;
    if (bytes >= RESPONSE_BYTES) die("a frame of %zu bytes", bytes);
    receive_whole(fd, text, bytes);
    text[bytes] = 0;
    if (read_u32(head + 4) != FRAME_RESPONSE) die("a connection was answered %s", text);
    return bytes;
}

static int connect_and_identify(const struct options *o) {
    int fd = stream_connect(o->run.host, o->run.port);
    char json[256], command[512], answer[RESPONSE_BYTES];
    int json_bytes = snprintf(json, sizeof json,
                              "{\"client_id\":\"load\",\"user_agent\":\"mq-shards-load\",\"feature_negotiation\":true,"
                              "\"output_buffer_size\":%d,\"output_buffer_timeout\":%d}",
                              o->output_buffer_bytes, o->output_buffer_ms);
    int head_bytes = snprintf(command, sizeof command, "  V2IDENTIFY\n");
    char *at = write_u32(command + head_bytes, (size_t)json_bytes);
    memcpy(at, json, (size_t)json_bytes);
    loop_send_whole(fd, command, (size_t)(at + json_bytes - command));
    read_response(fd, answer);
    if (answer[0] != '{') die("IDENTIFY was answered %s", answer);
    return fd;
}

/* Channels are named 0, 1, ... */
static void subscribe(const struct options *o, int fd, unsigned channel) {
    char command[COMMAND_HEAD_BYTES], answer[RESPONSE_BYTES];
    int bytes = snprintf(command, sizeof command, "SUB %s %u\n", o->topic, channel);
    loop_send_whole(fd, command, (size_t)bytes);
    read_response(fd, answer);
    if (strcmp(answer, "OK") != 0) die("SUB was answered %s", answer);
}

/* Creates the channels: each stays when its consumer leaves. */
static void create_channels(const struct options *o) {
    for (unsigned channel = 0; channel < o->channels; channel++) {
        int fd = connect_and_identify(o);
        subscribe(o, fd, channel);
        close(fd);
    }
}

static void open_connection(struct load *load, struct connection *c, bool is_producer, unsigned index) {
    const struct options *o = &load->options;
    int fd = connect_and_identify(o);
    if (!is_producer) subscribe(o, fd, index % o->channels);
    c->is_producer = is_producer;
    /* A message is in flight until its FIN has been sent; besides, there may be a heartbeat to answer. */
    size_t fins = (size_t)o->rdy * 2 * FIN_BYTES + RESPONSE_BYTES;
    size_t output_bytes = is_producer ? o->depth * load->commands.bytes + RESPONSE_BYTES : fins;
    size_t longest = FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES + o->run.body_bytes + RESPONSE_BYTES;
    stream_open(&c->stream, fd, load->loop.epoll_fd, output_bytes, longest);
}

static void open_load(struct load *load) {
    const struct options *o = &load->options;
    size_t in_bytes = IN_BYTES + o->run.body_bytes + 2 * RESPONSE_BYTES;
    loop_open(&load->loop, o->run.rate / o->batch, in_bytes);
    load->commands_left = o->run.messages ? o->run.messages / o->batch : UINT64_MAX;
    prepare_commands(load);
    size_t most_messages = in_bytes / (FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES + o->run.body_bytes) + 1;
    load->fins = allocate(most_messages, FIN_BYTES);
    load->connection_count = o->producers + o->consumers;
    load->connections = allocate(load->connection_count, sizeof *load->connections);
    /* Creates channels before anything is published to them. */
    for (unsigned i = 0; i < o->consumers; i++) open_connection(load, &load->connections[o->producers + i], false, i);
    if (o->consumers == 0) create_channels(o);
    for (unsigned i = 0; i < o->producers; i++) open_connection(load, &load->connections[i], true, i);
}

static void close_load(struct load *load) {
    for (unsigned i = 0; i < load->connection_count; i++) stream_close(&load->connections[i].stream);
    loop_close(&load->loop);
    free(load->connections);
    commands_close(&load->commands);
    free(load->fins);
}

/* ---- options and report ---- */

static void check_options(struct options *o) {
    if (o->mode == MODE_PUBLISH) o->consumers = 0;
    if (o->mode == MODE_CONSUME) o->producers = 0;
    if (o->channels == BY_MODE) o->channels = o->mode == MODE_PUBLISH ? 0 : 1;
    if (o->mode == MODE_CONSUME && o->run.messages == 0) die("--mode consume needs --messages");
    if (o->mode != MODE_CONSUME && o->producers == 0) die("no producers");
    if (o->mode != MODE_PUBLISH && (o->channels == 0 || o->consumers < o->channels))
        die("fewer consumers than channels");
    if (o->run.messages % o->batch != 0) die("--messages is not a multiple of --batch");
    if (o->run.rate > 0 && (o->mode == MODE_CONSUME || o->run.messages > 0)) die("--rate needs producers and a window");
    if (strlen(o->topic) > MAX_NAME_BYTES) die("a topic's name has no more than %d bytes", MAX_NAME_BYTES);
}

static struct options read_options(int argc, char **argv) {
    static struct options o = {
        .run = {RUN_DEFAULTS, .body_bytes = 200},
        .producers = 4,
        .consumers = 4,
        .channels = BY_MODE,
        .depth = 64,
        .batch = 1,
        .rdy = 1000,
        .max_ready = 20000,
        .topic = "load",
    };
    static const struct option_row rows[] = {
        RUN_OPTIONS(o.run, 1, MAX_BODY_BYTES),
        RUN_RATE(o.run),
        RUN_MESSAGES(o.run, "messages"),
        OPTION_WORDS("mode", "MODE", o.mode, MODES,
                     "full: producers and consumers; publish: producers only; consume: consumers only, needs "
                     "--messages"),
        OPTION("producers", "P", o.producers, 0, MAX_CONNECTIONS, "connections that publish"),
        OPTION("consumers", "C", o.consumers, 0, MAX_CONNECTIONS,
               "connections that consume; number i is on channel i % K"),
        OPTION("channels", "K", o.channels, 0, MAX_CHANNELS, "channels of the topic, 0 .. K-1, made first: 1, or none"),
        OPTION_TEXTUAL("topic", "NAME", o.topic, "topic"),
        OPTION("depth", "D", o.depth, 1, MAX_DEPTH, "commands that each producer keeps unanswered"),
        OPTION("batch", "B", o.batch, 1, MAX_BATCH, "messages of each command: 1 is PUB, more is MPUB"),
        OPTION("rdy", "N", o.rdy, 1, MAX_RDY, "RDY of each consumer"),
        OPTION("max-ready", "N", o.max_ready, 1, 1e9, "producers pause while more wait in an average channel"),
        OPTION("output-buffer", "B", o.output_buffer_bytes, -1, 1 << 30,
               "of IDENTIFY; -1: none; 0: the server's default"),
        OPTION("output-timeout", "M", o.output_buffer_ms, -1, 1 << 30, "of IDENTIFY, ms; the same"),
        OPTION_END,
    };
    run_read_options("load_nsq", rows, &o.run, argc, argv);
    check_options(&o);
    return o;
}

static void report(const struct load *load, const struct run *run) {
    const struct options *o = &load->options;
    const struct counts *now = &load->counts, *before = &load->before;
    uint64_t published = now->published - before->published, finished = now->finished - before->finished;
    printf("{\"mode\": \"%s\", \"producers\": %u, \"consumers\": %u, \"channels\": %u, \"depth\": %u, \"batch\": %u, "
           "\"rdy\": %u",
           MODES[o->mode], o->producers, o->consumers, o->channels, o->depth, o->batch, o->rdy);
    run_report(run, &o->run, o->mode == MODE_PUBLISH ? published : finished, "message");
    printf(", \"published\": %" PRIu64 ", \"finished\": %" PRIu64 ", \"redelivered\": %" PRIu64
           ", \"pauses\": %" PRIu64,
           published, finished, now->redelivered - before->redelivered, now->pauses - before->pauses);
    report_histogram("publish_us", &load->publish_ns);
    report_histogram("message_us", &load->message_ns);
    printf("}\n");
}

int main(int argc, char **argv) {
    static struct load load;
    load.options = read_options(argc, argv);
    open_load(&load);
    struct run run = run_load(&load.loop, &load.options.run, &CALLS, &load);
    report(&load, &run);
    close_load(&load);
    return 0;
}

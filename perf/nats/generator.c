/* A load generator for servers of the NATS client protocol: one process, one thread, one epoll set.
 *
 * It exists to measure brokers on a machine that it shares with them, so it must cost little for each message: the
 * commands of a turn go out with one send() straight from a prepared block, and messages are compared and counted where
 * recv() left them. All lines of a run have the same length, so they need not be parsed.
 *
 *   deliver   publishers publish; subscribers receive, each all messages, or all together as one queue group. With
 *             --subjects N each message has the next of N subjects, and subscribers subscribe to `SUBJECT.>`
 *   publish   publishers publish to subjects without subscribers; a PONG confirms that the server has read the messages
 *   request   publishers send requests and wait for the answers; subscribers, a queue group, answer. Replies go to
 *             inboxes as clients make them: one wildcard for a connection, and a subject of its own for each request
 *   idle      subscribers are connected and silent, with --subscriptions shared among them, until the program is ended
 *
 * A NATS server disconnects clients that do not read what they are sent, and does not hold back those that publish too
 * much. So a run is closed-loop by what was delivered: at most `window` messages are between publishers and the slowest
 * subscriber. With --rate it is open-loop instead: messages are due in bursts at fixed times, and a message's latency
 * counts from when it was due, so that a server that falls behind cannot hide it.
 *
 * Any line that is not expected ends the program with a message. The result is one line of JSON on stdout.
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
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "run.h"

#define MAX_CONNECTIONS   60000u
#define MAX_SUBSCRIPTIONS 10000000u
#define MAX_WINDOW        1000000u
#define MAX_BODY_BYTES    (16u << 20)
#define MAX_SUBJECTS      1000000u
#define MAX_NAME_BYTES    64
#define IN_BYTES          ((size_t)512 << 10) /* most that one recv() brings, besides one whole message */
#define WINDOW_BYTES      ((size_t)256 << 10) /* a window of so many bytes of commands, without --window */
#define LINE_BYTES        256u                /* more than any line that is sent */
#define RARE_BYTES        4096u               /* more than any line that is not a message */
#define SAMPLE            16u                 /* in a closed loop one of so many messages carries the time */
#define INTEREST_NS       (NS / 2)
#define INBOX             "_INBOX."
#define INBOX_BYTES       (sizeof INBOX - 1 + 5 + 1) /* with the number of the connection and a dot */
#define TOKEN_BYTES       10u
#define REPLY_BYTES       (INBOX_BYTES + TOKEN_BYTES)

enum mode { MODE_DELIVER, MODE_PUBLISH, MODE_REQUEST, MODE_IDLE };

static const char *const MODES[] = {"deliver", "publish", "request", "idle"};

struct options {
    struct run_options run;
    unsigned mode;
    uint16_t subscribe_port; /* port of another server of the cluster; 0: the same */
    unsigned publishers;
    unsigned subscribers;
    unsigned subjects;
    unsigned subscriptions;
    bool queue;
    unsigned window; /* in messages; 0: WINDOW_BYTES */
    unsigned depth;  /* requests that each publisher keeps unanswered */
    const char *subject;
};

struct counts {
    uint64_t published; /* in mode publish: messages that a PONG has confirmed */
    uint64_t delivered; /* in mode request: answers */
};

/* The first line of a message: only what is between `begin` and `end` differs. */
struct shape {
    char begin[LINE_BYTES], end[LINE_BYTES];
    size_t begin_bytes, end_bytes, line_bytes;
};

enum role { PUBLISHES, SUBSCRIBES, ASKS, ANSWERS };

struct connection {
    struct stream stream; /* must be first: the epoll set has its address */
    enum role role;
    struct shape shape; /* of the messages that it gets */
    uint64_t sent;      /* messages; in mode publish also unconfirmed ones */
    uint64_t delivered;
    unsigned pings; /* PINGs that are not answered yet */
    char *request;  /* `depth` requests, of one length */
};
_Static_assert(offsetof(struct connection, stream) == 0, "a connection has the address of its stream");

struct load {
    struct options options;
    struct loop loop;
    struct connection *connections; /* publishers first */
    unsigned connection_count;
    struct commands commands;
    unsigned cycle;  /* number of commands after which subjects begin again */
    unsigned window; /* in messages */
    unsigned chunk;  /* least number of messages sent at a time, in a closed loop */
    uint64_t left;   /* messages still to send */
    uint64_t sent;
    unsigned next_publisher;
    char *answers;                /* answers to all requests that one recv() brought */
    struct counts counts, before; /* `before` the window */
    struct histogram latency_ns;  /* from when it was sent, or due, to delivery or to the answer */
};

/* ---- what is sent ---- */

static size_t write_command(const struct load *load, char *at, unsigned index) {
    const struct options *o = &load->options;
    char numbered[16] = "";
    if (o->subjects > 1) snprintf(numbered, sizeof numbered, ".%07u", index % o->subjects);
    size_t bytes = (size_t)sprintf(at, "PUB %s%s %zu\r\n", o->subject, numbered, o->run.body_bytes);
    write_body(at + bytes, o->run.body_bytes);
    memcpy(at + bytes + o->run.body_bytes, "\r\n", 2);
    return bytes + o->run.body_bytes + 2;
}

/* Prepares the commands of a cycle and of a window after it, so that each send is of one piece. */
static void prepare_commands(struct load *load) {
    const struct options *o = &load->options;
    char *command = allocate(1, LINE_BYTES + o->run.body_bytes);
    size_t bytes = write_command(load, command, 0), fitting = WINDOW_BYTES / bytes;
    free(command);
    load->window = o->window ? o->window : fitting > 4 ? (unsigned)fitting : 4;
    load->chunk = load->window > 4 ? load->window / 4 : 1;
    unsigned sample = o->run.rate > 0 || load->window < SAMPLE ? 1 : SAMPLE;
    load->cycle = o->subjects > 1 ? o->subjects : sample;
    size_t count = (size_t)load->cycle + load->window;
    commands_open(&load->commands, count, bytes, bytes - o->run.body_bytes - 2, o->run.body_bytes, sample);
    for (size_t i = 0; i < count; i++) write_command(load, commands_at(&load->commands, i), (unsigned)i);
}

/* Sends `n` prepared commands, stamped already, from where the connection is in the cycle. */
static void send_prepared(struct load *load, struct connection *c, uint64_t n) {
    commands_send(&load->commands, &c->stream, (size_t)(c->sent % load->cycle), n);
    c->sent += n;
    load->sent += n;
    load->left -= n;
}

static void send_commands(struct load *load, struct connection *c, uint64_t n) {
    commands_stamp_sample(&load->commands, (size_t)(c->sent % load->cycle), n, load->loop.now_ns);
    send_prepared(load, c, n);
}

/* Returns how many messages have come to all subscribers that are to get them. */
static uint64_t delivered_to_all(const struct load *load) {
    const struct options *o = &load->options;
    if (o->queue) return load->counts.delivered;
    uint64_t least = UINT64_MAX;
    for (unsigned i = o->publishers; i < load->connection_count; i++)
        if (load->connections[i].delivered < least) least = load->connections[i].delivered;
    return least;
}

static uint64_t room(const struct load *load) {
    uint64_t n = load->window - (load->sent - delivered_to_all(load));
    return n < load->left ? n : load->left;
}

/* Sends, in a closed loop, as much as the window allows, in equal parts to all publishers, if it is worth a send. */
static void send_what_may_be(struct load *load) {
    uint64_t n = room(load), publishers = load->options.publishers;
    if (n == 0 || (n < load->chunk && n < load->left)) return;
    uint64_t share = (n + publishers - 1) / publishers;
    for (uint64_t part; n > 0; n -= part) {
        part = share < n ? share : n;
        send_commands(load, &load->connections[load->next_publisher], part);
        load->next_publisher = (load->next_publisher + 1) % load->options.publishers;
    }
}

/* Sends what is due. Messages for which there is no room stay due, and their latency grows. */
static void send_due(struct load *load) {
    uint64_t due = loop_due(&load->loop, room(load)), publishers = load->options.publishers;
    uint64_t share = (due + publishers - 1) / publishers;
    for (uint64_t part; due > 0; due -= part) {
        struct connection *c = &load->connections[load->next_publisher];
        load->next_publisher = (load->next_publisher + 1) % load->options.publishers;
        part = share < due ? share : due;
        size_t begin = (size_t)(c->sent % load->cycle);
        for (uint64_t k = 0; k < part; k++) commands_stamp(&load->commands, begin + k, loop_due_ns(&load->loop, k));
        send_prepared(load, c, part);
        load->loop.paced += part;
    }
}

/* Sends messages that nobody wants, with a PING behind each chunk; four PINGs are on their way. */
static void send_unwanted(struct load *load, struct connection *c) {
    for (; c->pings < 4 && load->left > 0; c->pings++) {
        send_commands(load, c, load->chunk < load->left ? load->chunk : load->left);
        stream_send(&c->stream, "PING\r\n", 6);
    }
}

static void ask(struct load *load, struct connection *c, uint64_t n) {
    const struct options *o = &load->options;
    if (n > load->left) n = load->left;
    if (n == 0) return;
    size_t bytes = load->commands.bytes + 1 + REPLY_BYTES, token_at = 4 + strlen(o->subject) + 1 + INBOX_BYTES;
    for (uint64_t i = 0; i < n; i++) {
        char *at = c->request + i * bytes;
        uint64_t token = c->sent + i;
        for (size_t digit = TOKEN_BYTES; digit-- > 0; token /= 10) at[token_at + digit] = (char)('0' + token % 10);
        if (o->run.body_bytes >= STAMP_BYTES) write_stamp(at + bytes - 2 - o->run.body_bytes, load->loop.now_ns);
    }
    stream_send(&c->stream, c->request, (size_t)n * bytes);
    c->sent += n;
    load->sent += n;
    load->left -= n;
}

/* ---- what the server says ---- */

static bool begins(const char *line, size_t bytes, const char *word) {
    return bytes >= strlen(word) && memcmp(line, word, strlen(word)) == 0;
}

/* Takes a line that is no message; `bytes` includes the line's end. */
static void take_rare_line(struct load *load, struct connection *c, const char *line, size_t bytes) {
    if (begins(line, bytes, "PING\r\n")) {
        stream_send(&c->stream, "PONG\r\n", 6);
    } else if (begins(line, bytes, "PONG\r\n") && c->pings > 0) {
        uint64_t left_open = --c->pings * (uint64_t)load->chunk, told = c->sent > left_open ? c->sent - left_open : 0;
        if (load->left == 0 && c->pings == 0) told = c->sent; /* the last chunk may be smaller */
        if (told <= c->delivered) return;
        load->counts.published += told - c->delivered;
        c->delivered = told;
    } else if (!begins(line, bytes, "INFO ")) {
        die("unexpected: %.*s", (int)(bytes > 200 ? 200 : bytes), line);
    }
}

static void check_message(struct load *load, const struct connection *c, const char *body) {
    size_t bytes = load->options.run.body_bytes;
    if (body[bytes] != '\r' || body[bytes + 1] != '\n') die("a payload that does not end where it should");
    read_body(body, bytes, load->loop.now_ns, c->role == ANSWERS ? NULL : &load->latency_ns);
}

static bool is_message(const struct shape *s, const char *line) {
    return memcmp(line, s->begin, s->begin_bytes) == 0 &&
           memcmp(line + s->line_bytes - s->end_bytes, s->end, s->end_bytes) == 0;
}

/* Writes a service's answer to the request at `line`; returns where it ends. */
static char *put_answer(const struct load *load, const struct connection *c, const char *line, char *to) {
    const struct shape *s = &c->shape;
    memcpy(to, "PUB ", 4);
    to += 4;
    size_t reply_at = s->begin_bytes - (sizeof INBOX - 1), rest = s->line_bytes - reply_at;
    /* The reply subject, the size and the payload are copied as they came. */
    memcpy(to, line + reply_at, rest + load->options.run.body_bytes + 2);
    return to + rest + load->options.run.body_bytes + 2;
}

/* Takes the lines of the input, and returns how many bytes were used. */
static size_t take_lines(struct load *load, struct connection *c, const char *in, size_t bytes) {
    const struct shape *s = &c->shape;
    size_t message_bytes = s->line_bytes + load->options.run.body_bytes + 2;
    const char *at = in, *end = in + bytes;
    char *answers = load->answers;
    uint64_t messages = 0;
    while (at < end) {
        if (*at == 'M' && (size_t)(end - at) < message_bytes) break;
        if (*at == 'M' && s->line_bytes > 0 && is_message(s, at)) {
            check_message(load, c, at + s->line_bytes);
            if (c->role == ANSWERS) answers = put_answer(load, c, at, answers);
            at += message_bytes;
            messages++;
            continue;
        }
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) break;
        take_rare_line(load, c, at, (size_t)(newline + 1 - at));
        at = newline + 1;
    }
    c->delivered += messages;
    if (c->role != ANSWERS) load->counts.delivered += messages;
    if (answers != load->answers) stream_send(&c->stream, load->answers, (size_t)(answers - load->answers));
    if (c->role == ASKS) ask(load, c, messages);
    return (size_t)(at - in);
}

/* ---- the loop ---- */

static size_t take(void *owner, struct stream *s, const char *in, size_t bytes) {
    struct load *load = owner;
    struct connection *c = (struct connection *)s;
    if (load->options.mode == MODE_IDLE) { /* an idle client ignores all else */
        if (memmem(in, bytes, "PING\r\n", 6) != NULL) stream_send(&c->stream, "PONG\r\n", 6);
        return bytes;
    }
    size_t used = take_lines(load, c, in, bytes);
    if (load->options.mode == MODE_PUBLISH) send_unwanted(load, c);
    return used;
}

static void turn(void *owner) {
    struct load *load = owner;
    loop_turn(&load->loop, take, load);
    if (load->options.run.rate > 0)
        send_due(load);
    else if (load->options.mode == MODE_DELIVER)
        send_what_may_be(load);
}

static struct counts counted(const struct load *load) {
    struct counts counts = load->counts;
    if (load->options.mode != MODE_PUBLISH) counts.published = load->sent;
    return counts;
}

static void count(void *owner) {
    struct load *load = owner;
    load->before = counted(load);
    memset(&load->latency_ns, 0, sizeof load->latency_ns);
}

static bool is_done(const void *owner) {
    const struct load *load = owner;
    const struct options *o = &load->options;
    if (o->mode == MODE_PUBLISH) return load->counts.published >= o->run.messages;
    uint64_t copies = o->mode == MODE_REQUEST || o->queue ? 1 : o->subscribers;
    return load->counts.delivered >= o->run.messages * copies;
}

static void start(void *owner) {
    struct load *load = owner;
    const struct options *o = &load->options;
    for (unsigned i = 0; i < o->publishers; i++) {
        if (o->mode == MODE_REQUEST) ask(load, &load->connections[i], o->depth);
        if (o->mode == MODE_PUBLISH) send_unwanted(load, &load->connections[i]);
    }
    if (o->mode == MODE_DELIVER && o->run.rate <= 0) send_what_may_be(load);
}

static const struct run_calls CALLS = {start, turn, count, is_done, NULL};

/* ---- connections ---- */

/* Waits for PONG on a connection that still blocks. Copies what came after it, (a part of) an INFO, to `rest`. */
static size_t await_pong(int fd, char *rest) {
    char text[2 * RARE_BYTES];
    for (size_t have = 0; have < sizeof text - 1;) {
        ssize_t n = recv(fd, text + have, sizeof text - 1 - have, 0);
        if (n <= 0) die("a connection was ended instead of opened%s%.200s", have ? ": " : "", have ? text : "");
        have += (size_t)n;
        text[have] = 0;
        const char *error = strstr(text, "-ERR"), *pong = strstr(text, "PONG\r\n");
        if (error) die("a connection was answered %.200s", error);
        if (pong == NULL) continue;
        size_t after = have - (size_t)(pong + 6 - text);
        memcpy(rest, pong + 6, after);
        return after;
    }
    die("a connection was answered too much");
}

static void set_shape(struct shape *s, size_t between, const char *begin, const char *end) {
    s->begin_bytes = (size_t)snprintf(s->begin, sizeof s->begin, "%s", begin);
    s->end_bytes = (size_t)snprintf(s->end, sizeof s->end, "%s", end);
    s->line_bytes = s->begin_bytes + between + s->end_bytes;
}

/* Writes the SUB of a connection, and notes what its messages look like. */
static int say_subscription(const struct load *load, struct connection *c, unsigned index, char *to) {
    const struct options *o = &load->options;
    char begin[LINE_BYTES], end[LINE_BYTES];
    snprintf(end, sizeof end, "%s%zu\r\n", c->role == ANSWERS ? " " : " 1 ", o->run.body_bytes);
    switch (c->role) {
    case PUBLISHES: return 0;
    case ASKS:
        snprintf(begin, sizeof begin, "MSG " INBOX "%05u.", index);
        set_shape(&c->shape, TOKEN_BYTES, begin, end);
        return sprintf(to, "SUB " INBOX "%05u.* 1\r\n", index);
    case ANSWERS:
        snprintf(begin, sizeof begin, "MSG %s 1 " INBOX, o->subject);
        set_shape(&c->shape, REPLY_BYTES - (sizeof INBOX - 1), begin, end);
        return sprintf(to, "SUB %s group 1\r\n", o->subject);
    case SUBSCRIBES: break;
    }
    snprintf(begin, sizeof begin, o->subjects > 1 ? "MSG %s." : "MSG %s", o->subject);
    set_shape(&c->shape, o->subjects > 1 ? 7 : 0, begin, end);
    return sprintf(to, "SUB %s%s%s 1\r\n", o->subject, o->subjects > 1 ? ".>" : "", o->queue ? " group" : "");
}

static void prepare_requests(struct load *load, struct connection *c, unsigned index) {
    const struct options *o = &load->options;
    size_t bytes = load->commands.bytes + 1 + REPLY_BYTES;
    c->request = allocate(o->depth, bytes + 1);
    for (unsigned i = 0; i < o->depth; i++) {
        char *at = c->request + i * bytes;
        int line = sprintf(at, "PUB %s " INBOX "%05u.%010u %zu\r\n", o->subject, index, 0, o->run.body_bytes);
        memset(at + line, 'x', o->run.body_bytes);
        memcpy(at + line + o->run.body_bytes, "\r\n", 2);
    }
}

/* Subscribes an idle connection to its share of the subscriptions, each of a subject of its own. */
static void subscribe_to_many(const struct options *o, int fd, unsigned index) {
    char *lines = allocate(1, IN_BYTES);
    for (unsigned sid = 2, n = index; n < o->subscriptions;) {
        size_t bytes = 0;
        for (; n < o->subscriptions && bytes < IN_BYTES - LINE_BYTES; n += o->subscribers, sid++)
            bytes += (size_t)sprintf(lines + bytes, "SUB %s.%07u %u\r\n", o->subject, n, sid);
        loop_send_whole(fd, lines, bytes);
    }
    free(lines);
}

static void open_connection(struct load *load, struct connection *c, enum role role, unsigned index) {
    const struct options *o = &load->options;
    static const char connect[] = "CONNECT {\"verbose\":false,\"pedantic\":false,\"name\":\"load\",\"lang\":\"c\","
                                  "\"version\":\"1.0.0\",\"protocol\":1,\"echo\":true,\"headers\":true,"
                                  "\"no_responders\":true}\r\n";
    bool is_elsewhere = o->subscribe_port != 0 && (role == SUBSCRIBES || role == ANSWERS);
    int fd = stream_connect(o->run.host, is_elsewhere ? o->subscribe_port : o->run.port);
    char line[LINE_BYTES], rest[2 * RARE_BYTES];
    c->role = role;
    loop_send_whole(fd, connect, sizeof connect - 1);
    if (o->mode == MODE_IDLE)
        subscribe_to_many(o, fd, index);
    else
        loop_send_whole(fd, line, (size_t)say_subscription(load, c, index, line));
    loop_send_whole(fd, "PING\r\n", 6);
    size_t rest_bytes = await_pong(fd, rest);
    if (role == ASKS) prepare_requests(load, c, index);
    size_t longest = load->commands.bytes + LINE_BYTES + RARE_BYTES;
    size_t unsent = o->mode == MODE_REQUEST ? (size_t)(o->depth * o->publishers + 1) * longest
                                            : (size_t)load->window * 4 * load->commands.bytes + RARE_BYTES;
    if (role == SUBSCRIBES) unsent = RARE_BYTES;
    stream_open(&c->stream, fd, load->loop.epoll_fd, unsent, longest);
    stream_keep(&c->stream, rest, rest_bytes);
}

static void open_load(struct load *load) {
    const struct options *o = &load->options;
    bool asks = o->mode == MODE_REQUEST;
    size_t in_bytes = IN_BYTES + o->run.body_bytes + LINE_BYTES + 2 * RARE_BYTES;
    loop_open(&load->loop, o->run.rate, in_bytes);
    load->left = o->run.messages ? o->run.messages : UINT64_MAX;
    prepare_commands(load);
    load->answers = allocate(1, in_bytes); /* an answer is shorter than its request */
    load->connection_count = o->publishers + o->subscribers;
    load->connections = allocate(load->connection_count, sizeof *load->connections);
    /* Subscribers before publishers. */
    for (unsigned i = 0; i < o->subscribers; i++)
        open_connection(load, &load->connections[o->publishers + i], asks ? ANSWERS : SUBSCRIBES, i);
    /* No server says when it knows the subscriptions of another. */
    if (o->subscribe_port != 0) nanosleep(&(struct timespec){.tv_nsec = INTEREST_NS}, NULL);
    for (unsigned i = 0; i < o->publishers; i++)
        open_connection(load, &load->connections[i], asks ? ASKS : PUBLISHES, i);
}

static void close_load(struct load *load) {
    for (unsigned i = 0; i < load->connection_count; i++) {
        stream_close(&load->connections[i].stream);
        free(load->connections[i].request);
    }
    loop_close(&load->loop);
    free(load->connections);
    commands_close(&load->commands);
    free(load->answers);
}

/* ---- options and report ---- */

static void check_options(struct options *o) {
    if (o->mode == MODE_PUBLISH) o->subscribers = 0;
    if (o->mode == MODE_IDLE) o->publishers = 0;
    if (o->run.rate > 0 && (o->mode != MODE_DELIVER || o->run.messages > 0))
        die("--rate needs mode deliver and a window");
    if (strlen(o->subject) > MAX_NAME_BYTES) die("a subject has no more than %d bytes", MAX_NAME_BYTES);
}

static struct options read_options(int argc, char **argv) {
    static struct options o = {
        .run = {RUN_DEFAULTS, .body_bytes = 128},
        .publishers = 1,
        .subscribers = 1,
        .subjects = 1,
        .depth = 1,
        .subject = "load",
    };
    static const struct option_row rows[] = {
        RUN_OPTIONS(o.run, 0, MAX_BODY_BYTES),
        RUN_RATE(o.run),
        RUN_MESSAGES(o.run, "messages"),
        OPTION_WORDS(
            "mode", "MODE", o.mode, MODES,
            "deliver: publishers and subscribers; publish: publishers only; request: publishers ask, subscribers "
            "answer; idle: subscribers only, until the program is ended"),
        OPTION("subscribe-port", "P", o.subscribe_port, 0, 65535, "another server's, of those who subscribe or answer"),
        OPTION("publishers", "P", o.publishers, 1, MAX_CONNECTIONS, "connections that publish, or ask"),
        OPTION("subscribers", "S", o.subscribers, 1, MAX_CONNECTIONS, "connections that subscribe, or answer"),
        OPTION_TEXTUAL("queue", NULL, o.queue, "subscribers are one queue group (mode request: always)"),
        OPTION_TEXTUAL("subject", "NAME", o.subject, "subject"),
        OPTION("subjects", "N", o.subjects, 1, MAX_SUBJECTS,
               "more than one: NAME.0000000 and so on in turn, and subscribers want NAME.>"),
        OPTION("subscriptions", "M", o.subscriptions, 0, MAX_SUBSCRIPTIONS, "of all subscribers together (mode idle)"),
        OPTION("window", "W", o.window, 0, MAX_WINDOW, "messages that may be on their way; 0: 256 KiB of commands"),
        OPTION("depth", "D", o.depth, 1, MAX_WINDOW, "requests that each publisher keeps unanswered"),
        OPTION_END,
    };
    run_read_options("load_nats", rows, &o.run, argc, argv);
    check_options(&o);
    return o;
}

static void report(const struct load *load, const struct run *run) {
    const struct options *o = &load->options;
    const struct counts now = counted(load), *before = &load->before;
    uint64_t published = now.published - before->published, delivered = now.delivered - before->delivered;
    printf(
        "{\"mode\": \"%s\", \"publishers\": %u, \"subscribers\": %u, \"queue\": %s, \"subjects\": %u, \"window\": %u",
        MODES[o->mode], o->publishers, o->subscribers, o->queue ? "true" : "false", o->subjects, load->window);
    run_report(run, &o->run, o->mode == MODE_PUBLISH ? published : delivered, "message");
    printf(", \"published\": %" PRIu64 ", \"delivered\": %" PRIu64, published, delivered);
    report_histogram("latency_us", &load->latency_ns);
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

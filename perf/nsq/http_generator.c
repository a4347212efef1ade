/* A load generator for nsqd's HTTP API. Its connections are kept; each posts a message to /pub (or a batch to /mpub)
 * and waits for the answer, as every client of HTTP/1.1 does. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define MAX_CONNECTIONS 10000u
#define MAX_BODY_BYTES  (1u << 20)
#define MAX_BATCH       10000u
#define ANSWER_BYTES    4096u
#define INPUT_BYTES     (16u << 10)

struct options {
    struct run_options run;
    const char *topic, *authorization;
    unsigned connections, batch;
};

struct client {
    struct stream stream;
    uint64_t sent_ns;
};

struct load {
    struct options options;
    struct loop loop;
    struct client *clients;
    char *request;
    size_t request_bytes;
    uint64_t answered; /* requests answered */
    struct histogram publish_ns;
};

/* Makes the request, which is always the same. */
static void make_request(struct load *l) {
    const struct options *o = &l->options;
    bool many = o->batch > 1;
    size_t line = o->run.body_bytes + (many ? 1 : 0), body = line * o->batch;
    const char *header = o->authorization[0] != 0 ? "\r\nAuthorization: " : "";
    size_t head = strlen(o->authorization) + strlen(o->topic) + 1024;
    char *at = l->request = allocate(1, body + head);
    at += snprintf(at, head,
                   "POST /%s?topic=%s HTTP/1.1\r\nHost: %s:%u\r\nUser-Agent: load%s%s\r\nContent-Type: "
                   "application/octet-stream\r\nContent-Length: %zu\r\n\r\n",
                   many ? "mpub" : "pub", o->topic, o->run.host, o->run.port, header, o->authorization, body);
    for (unsigned i = 0; i < o->batch; i++, at += line) {
        memset(at, 'x', o->run.body_bytes);
        if (many) at[o->run.body_bytes] = '\n';
    }
    l->request_bytes = (size_t)(at - l->request);
}

static void post(struct load *l, struct client *c) {
    c->sent_ns = now_ns();
    stream_send(&c->stream, l->request, l->request_bytes);
}

/* Returns the bytes of one answer; 0 if it is not whole. Any answer but 200 ends the program. */
static size_t read_answer(const char *in, size_t bytes) {
    static const char begin[] = "HTTP/1.1 200 ", length[] = "\r\ncontent-length:";
    const char *end = memmem(in, bytes, "\r\n\r\n", 4);
    if (end == NULL) return 0;
    if (bytes < sizeof begin || memcmp(in, begin, sizeof begin - 1) != 0)
        die("a publish was answered %.*s", (int)(bytes < 400 ? bytes : 400), in);
    const char *found = strcasestr(in, length);
    if (found == NULL || found > end) die("an answer without its length");
    size_t body = (size_t)strtoul(found + sizeof length - 1, NULL, 10), whole = (size_t)(end + 4 - in) + body;
    if (body > ANSWER_BYTES) die("an answer of %zu bytes", body);
    return bytes < whole ? 0 : whole;
}

static size_t take(void *owner, struct stream *s, const char *in, size_t bytes) {
    struct load *l = owner;
    struct client *c = (struct client *)(void *)s; /* the stream is its first member */
    size_t used = read_answer(in, bytes);
    if (used == 0) return 0;
    if (used < bytes) die("an answer that nobody asked for");
    histogram_add(&l->publish_ns, l->loop.now_ns - c->sent_ns);
    l->answered++;
    post(l, c);
    return used;
}

static void open_load(struct load *l) {
    make_request(l);
    loop_open(&l->loop, 0, INPUT_BYTES);
    l->clients = allocate(l->options.connections, sizeof *l->clients);
    for (unsigned i = 0; i < l->options.connections; i++) {
        int fd = stream_connect(l->options.run.host, l->options.run.port);
        stream_open(&l->clients[i].stream, fd, l->loop.epoll_fd, l->request_bytes, INPUT_BYTES / 2);
    }
}

static void turn(void *owner) {
    struct load *l = owner;
    loop_turn(&l->loop, take, l);
}

static void count(void *owner) {
    struct load *l = owner;
    l->answered = 0;
    l->publish_ns = (struct histogram){0};
}

static void start(void *owner) {
    struct load *l = owner;
    for (unsigned i = 0; i < l->options.connections; i++) post(l, &l->clients[i]);
}

static const struct run_calls CALLS = {start, turn, count, NULL, NULL};

static struct options read_options(int argc, char **argv) {
    static struct options o = {
        .run = {RUN_DEFAULTS, .body_bytes = 200},
        .topic = "load",
        .authorization = "",
        .connections = 1,
        .batch = 1,
    };
    static const struct option_row rows[] = {
        RUN_OPTIONS(o.run, 1, MAX_BODY_BYTES),
        OPTION("connections", "C", o.connections, 1, MAX_CONNECTIONS, "that are kept, each with one request at a time"),
        OPTION("batch", "B", o.batch, 1, MAX_BATCH,
               "messages of each request: 1 is /pub, more is /mpub, a message a line"),
        OPTION_TEXTUAL("topic", "NAME", o.topic, "topic"),
        OPTION_TEXTUAL("authorization", "A", o.authorization, "what the header of that name says"),
        OPTION_END,
    };
    run_read_options("load_http", rows, &o.run, argc, argv);
    return o;
}

static void report(const struct load *l, const struct run *run) {
    const struct options *o = &l->options;
    printf("{\"connections\": %u, \"batch\": %u, \"requests\": %" PRIu64, o->connections, o->batch, l->answered);
    run_report(run, &o->run, l->answered * o->batch, "message");
    report_histogram("publish_us", &l->publish_ns);
    printf("}\n");
}

int main(int argc, char **argv) {
    static struct load load;
    load.options = read_options(argc, argv);
    open_load(&load);
    struct run run = run_load(&load.loop, &load.options.run, &CALLS, &load);
    report(&load, &run);
    for (unsigned i = 0; i < load.options.connections; i++) stream_close(&load.clients[i].stream);
    loop_close(&load.loop);
    return 0;
}

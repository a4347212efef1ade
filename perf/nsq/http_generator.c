/* A load generator for nsqd's HTTP API. Its connections are kept; each posts a message to /pub (or a batch to /mpub)
 * and waits for the answer, as every client of HTTP/1.1 does. */
#define _GNU_SOURCE
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop.h"

#define MAX_CONNECTIONS 10000u
#define MAX_BODY_BYTES  (1u << 20)
#define MAX_BATCH       10000u
#define ANSWER_BYTES    4096u
#define INPUT_BYTES     (16u << 10)

struct options {
    const char *host, *topic, *authorization;
    uint16_t port;
    unsigned connections, batch;
    size_t body_bytes;
    double seconds, warmup;
    struct processes server;
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
    size_t line = o->body_bytes + (many ? 1 : 0), body = line * o->batch;
    const char *header = o->authorization[0] != 0 ? "\r\nAuthorization: " : "";
    size_t head = strlen(o->authorization) + strlen(o->topic) + 1024;
    char *at = l->request = allocate(1, body + head);
    at += snprintf(at, head,
                   "POST /%s?topic=%s HTTP/1.1\r\nHost: %s:%u\r\nUser-Agent: load%s%s\r\nContent-Type: "
                   "application/octet-stream\r\nContent-Length: %zu\r\n\r\n",
                   many ? "mpub" : "pub", o->topic, o->host, o->port, header, o->authorization, body);
    for (unsigned i = 0; i < o->batch; i++, at += line) {
        memset(at, 'x', o->body_bytes);
        if (many) at[o->body_bytes] = '\n';
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

static void on_readable(void *owner, struct stream *s) {
    struct load *l = owner;
    struct client *c = (struct client *)(void *)s; /* the stream is its first member */
    char in[INPUT_BYTES];
    size_t bytes = stream_receive(s, in, sizeof in);
    if (bytes == 0) return;
    size_t used = read_answer(in, bytes);
    stream_keep(s, in + used, bytes - used);
    if (used == 0) return;
    if (used < bytes) die("an answer that nobody asked for");
    l->loop.last_progress_ns = now_ns();
    histogram_add(&l->publish_ns, l->loop.last_progress_ns - c->sent_ns);
    l->answered++;
    post(l, c);
}

static void open_load(struct load *l) {
    make_request(l);
    loop_open(&l->loop, 0);
    l->clients = allocate(l->options.connections, sizeof *l->clients);
    for (unsigned i = 0; i < l->options.connections; i++) {
        int fd = stream_connect(l->options.host, l->options.port);
        stream_open(&l->clients[i].stream, fd, l->loop.epoll_fd, l->request_bytes, INPUT_BYTES / 2);
    }
}

static void run_until(struct load *l, uint64_t end_ns) {
    while (now_ns() < end_ns) loop_turn(&l->loop, on_readable, l);
}

static const char usage[] =
    "usage: load_http --port PORT [options]\n"
    "  --host A            IPv4 address (127.0.0.1)\n"
    "  --connections C     that are kept, each with one request at a time (1)\n"
    "  --batch B           messages of each request: 1 is /pub, more is /mpub, a message a line (1)\n"
    "  --topic NAME        topic (load)\n"
    "  --authorization A   what the header of that name says (there is none)\n"
    "  --body BYTES        of each message (200)\n"
    "  --seconds S         length of the measured window (3)\n"
    "  --warmup W          seconds before the window (0.5)\n"
    "  --pids A,B,...      processes of the server, whose CPU time in the window is reported\n"
    "prints one line of JSON; times in microseconds unless named otherwise\n";

static struct options read_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},  {"port", 1, 0, 'p'}, {"connections", 1, 0, 'c'},   {"batch", 1, 0, 'B'},
        {"topic", 1, 0, 't'}, {"body", 1, 0, 'b'}, {"seconds", 1, 0, 's'},       {"warmup", 1, 0, 'w'},
        {"pids", 1, 0, 'i'},  {"help", 0, 0, 'H'}, {"authorization", 1, 0, 'a'}, {0, 0, 0, 0}};
    struct options o = {.host = "127.0.0.1",
                        .topic = "load",
                        .authorization = "",
                        .connections = 1,
                        .batch = 1,
                        .body_bytes = 200,
                        .seconds = 3,
                        .warmup = 0.5};
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (name) {
        case 'h': o.host = optarg; break;
        case 'p': o.port = (uint16_t)number(optarg, 1, 65535); break;
        case 'c': o.connections = (unsigned)number(optarg, 1, MAX_CONNECTIONS); break;
        case 'B': o.batch = (unsigned)number(optarg, 1, MAX_BATCH); break;
        case 't': o.topic = optarg; break;
        case 'a': o.authorization = optarg; break;
        case 'b': o.body_bytes = (size_t)number(optarg, 1, MAX_BODY_BYTES); break;
        case 's': o.seconds = number(optarg, 0.01, 86400); break;
        case 'w': o.warmup = number(optarg, 0, 3600); break;
        case 'i': read_pids(&o.server, optarg); break;
        case 'H': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc) die("what is %s?\n%s", argv[optind], usage);
    if (o.port == 0) die("--port is missing\n%s", usage);
    return o;
}

static void report(const struct load *l, const struct usage *begin, const struct usage *end) {
    const struct options *o = &l->options;
    double seconds = (double)(end->time_ns - begin->time_ns) / 1e9;
    uint64_t messages = l->answered * o->batch;
    printf("{\"connections\": %u, \"batch\": %u, \"body_bytes\": %zu, \"seconds\": %.4f, \"messages\": %" PRIu64
           ", \"requests\": %" PRIu64 ", \"rate\": %.0f",
           o->connections, o->batch, o->body_bytes, seconds, messages, l->answered, (double)messages / seconds);
    report_cpu(begin, end, o->server.count, messages, "message");
    report_histogram("publish_us", &l->publish_ns);
    printf("}\n");
}

int main(int argc, char **argv) {
    static struct load load;
    load.options = read_options(argc, argv);
    open_load(&load);
    loop_begin(&load.loop);
    for (unsigned i = 0; i < load.options.connections; i++) post(&load, &load.clients[i]);
    run_until(&load, now_ns() + (uint64_t)(load.options.warmup * 1e9));
    load.answered = 0;
    load.publish_ns = (struct histogram){0};
    struct usage begin = usage_now(&load.options.server);
    run_until(&load, begin.time_ns + (uint64_t)(load.options.seconds * 1e9));
    struct usage end = usage_now(&load.options.server);
    report(&load, &begin, &end);
    for (unsigned i = 0; i < load.options.connections; i++) stream_close(&load.clients[i].stream);
    loop_close(&load.loop);
    return 0;
}

/* A load generator for servers of the beanstalkd protocol: one process, one thread, one epoll set.
 *
 * It exists to measure brokers on a machine that it shares with them, so it must cost little for each job: the puts of
 * a turn go out with one send() straight from a prepared block of commands, replies are parsed where recv() left them,
 * and all that a connection has to say after a recv() leaves in one send().
 *
 * Producers keep `depth` puts unanswered. Consumers keep `depth` reserves unanswered: each RESERVED is answered with a
 * delete and the next reserve, in one send; with depth 1 the next reserve waits for DELETED. A run is closed-loop: the
 * rate is what the server can do, and latencies are those of a server at that load.
 *
 * A reserve that waits blocks the later commands of its connection, deletes too. So a timed run ends by the clock, and
 * counts the DELETED (or INSERTED, without consumers) that came inside its window. A run over a number of jobs sends
 * exactly as many reserves as there are jobs, so that no delete can be left behind a reserve. For the same reason
 * producers are held back by the number of jobs not yet reserved, not by the number not yet deleted.
 *
 * Any reply that is not the expected one ends the program with a message. The result is one line of JSON on stdout.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands.h"
#include "run.h"

#define MAX_CONNECTIONS  4096u
#define MAX_DEPTH        65536u
#define MAX_BODY_BYTES   (16u << 20)
#define MAX_TUBES        1024u
#define IN_BYTES         ((size_t)256 << 10) /* most that one recv() brings, besides one whole reply */
#define REPLY_HEAD_BYTES 64u                 /* more than the longest reply line */
#define STATS_BYTES      1024u               /* more than the longest answer to a stats-job */
#define COMMAND_BYTES    96u                 /* more than the longest stats-job, delete and reserve together */
#define PIPELINED_SAMPLE 16u                 /* with depth > 1, one of so many puts carries the time */
#define TTR_SECONDS      3600

enum mode { MODE_FULL, MODE_PUT_ONLY, MODE_DRAIN };

static const char *const MODES[] = {"full", "put-only", "drain"};

struct options {
    struct run_options run;
    unsigned mode;
    unsigned producers;
    unsigned consumers;
    unsigned depth;
    unsigned idle; /* instead of all else: connections that are held */
    uint64_t max_ready;
    const char *tube;
    unsigned tubes;
    bool watch_all;
    bool stats_job; /* consumers ask for the figures of each job that they have reserved */
};

struct counts {
    uint64_t puts;
    uint64_t reserves;
    uint64_t deletes;
    uint64_t pauses;
};

/* Tubes and the consumers that share them: only these can take what the group's producers put. */
struct group {
    uint64_t puts_left; /* puts still to be sent */
    uint64_t reserves_left;
    int64_t ready; /* INSERTED less RESERVED, as they came: a RESERVED may come first */
    bool paused;
};

struct connection {
    struct stream stream; /* must be first: the epoll set has its address */
    bool is_producer;
    struct group *group;
    struct round_trips puts;
};
_Static_assert(offsetof(struct connection, stream) == 0, "a connection has the address of its stream");

struct load {
    struct options options;
    struct loop loop;
    struct connection *connections;
    unsigned connection_count;
    struct group *groups;
    unsigned group_count;
    struct commands puts;
    char *out;
    struct counts counts, before; /* `before` the window */
    struct histogram put_ns;      /* from a put's sending to INSERTED */
    struct histogram job_ns;      /* from a put's sending to RESERVED */
};

/* ---- producers ---- */

static void prepare_puts(struct load *load) {
    const struct options *o = &load->options;
    char head[COMMAND_BYTES];
    size_t body_bytes = o->run.body_bytes;
    size_t body_at = (size_t)snprintf(head, sizeof head, "put 1024 0 %d %zu\r\n", TTR_SECONDS, body_bytes);
    unsigned sample = o->depth == 1 ? 1 : PIPELINED_SAMPLE;
    /* A send may begin at any of the first `sample` commands. */
    size_t count = o->depth + sample;
    commands_open(&load->puts, count, body_at + body_bytes + 2, body_at, body_bytes, sample);
    for (size_t i = 0; i < count; i++) {
        char *put = commands_at(&load->puts, i);
        memcpy(put, head, body_at);
        write_body(put + body_at, body_bytes);
        memcpy(put + body_at + body_bytes, "\r\n", 2);
    }
}

static void send_puts(struct load *load, struct connection *c) {
    struct group *group = c->group;
    if (group->paused) return;
    uint64_t n = load->options.depth - unanswered(&c->puts);
    if (n > group->puts_left) n = group->puts_left;
    if (n == 0) return;
    size_t begin = (size_t)(c->puts.sent % load->puts.sample);
    commands_stamp_sample(&load->puts, begin, n, load->loop.now_ns);
    commands_send(&load->puts, &c->stream, begin, n);
    count_sent(&c->puts, n, load->loop.now_ns);
    group->puts_left -= n;
}

__attribute__((noreturn)) static void die_of_reply(const struct connection *c, const char *reply, size_t bytes) {
    const char *end = memchr(reply, '\r', bytes);
    int shown = (int)(end ? end - reply : (ptrdiff_t)(bytes < 60 ? bytes : 60));
    die("unexpected reply to a %s: %.*s", c->is_producer ? "producer" : "consumer", shown, reply);
}

static const char *skip_digits(const char *at) {
    while (*at >= '0' && *at <= '9') at++;
    return at;
}

/* Both parsers read up to the zero byte after the input, and return how many bytes they have used. */
static size_t take_inserted(struct load *load, struct connection *c, const char *in, size_t bytes) {
    const char *at = in, *end = in + bytes;
    unsigned answers = 0;
    while (end - at >= 12) {
        if (memcmp(at, "INSERTED ", 9) != 0) die_of_reply(c, at, (size_t)(end - at));
        const char *after = skip_digits(at + 9);
        if (after + 2 > end) break;
        if (after == at + 9 || after[0] != '\r' || after[1] != '\n') die_of_reply(c, at, (size_t)(end - at));
        at = after + 2;
        answers++;
    }
    if (end - at >= 9 && memcmp(at, "INSERTED ", 9) != 0) die_of_reply(c, at, (size_t)(end - at));
    count_answered(&c->puts, answers, load->loop.now_ns, &load->put_ns);
    c->group->ready += answers;
    load->counts.puts += answers;
    return (size_t)(at - in);
}

static void pause_or_send(struct load *load, struct connection *c) {
    struct group *group = c->group;
    if (!group->paused && load->options.mode == MODE_FULL &&
        group->ready > (int64_t)(load->options.max_ready / load->group_count)) {
        group->paused = true;
        load->counts.pauses++;
    }
    send_puts(load, c);
}

static void resume_producers(struct load *load) {
    int64_t low = (int64_t)(load->options.max_ready / load->group_count * 3 / 4);
    for (unsigned g = 0; g < load->group_count; g++) {
        struct group *group = &load->groups[g];
        if (!group->paused || group->ready > low) continue;
        group->paused = false;
        for (unsigned i = 0; i < load->connection_count; i++) {
            struct connection *c = &load->connections[i];
            if (c->is_producer && c->group == group) send_puts(load, c);
        }
    }
}

/* ---- consumers ---- */

static size_t add_reserve(struct connection *c, char *out) {
    if (c->group->reserves_left == 0) return 0;
    c->group->reserves_left--;
    memcpy(out, "reserve\r\n", 9);
    return 9;
}

static void check_body(struct load *load, const char *body) {
    size_t bytes = load->options.run.body_bytes;
    if (body[bytes] != '\r' || body[bytes + 1] != '\n') die("a body that does not end where it should");
    read_body(body, bytes, load->loop.now_ns, &load->job_ns);
}

/* Takes one RESERVED, and writes the commands that follow it to *out. Returns its length, or 0 if it is not whole. */
static size_t take_reserved(struct load *load, struct connection *c, const char *at, size_t bytes, char **out) {
    const char *end = at + bytes;
    const char *id = at + 9, *id_end = skip_digits(id);
    if (id_end + 2 > end) return 0;
    const char *length = id_end + 1, *length_end = skip_digits(length);
    if (length_end + 2 > end) return 0;
    uint64_t body_bytes = 0;
    for (const char *digit = length; digit < length_end; digit++)
        body_bytes = body_bytes * 10 + (uint64_t)(*digit - '0');
    size_t id_bytes = (size_t)(id_end - id);
    if (id_bytes == 0 || id_bytes > 20 || *id_end != ' ' || length_end[0] != '\r' || length_end[1] != '\n' ||
        body_bytes != load->options.run.body_bytes)
        die_of_reply(c, at, bytes);
    const char *body = length_end + 2;
    if ((size_t)(end - body) < load->options.run.body_bytes + 2) return 0;
    check_body(load, body);

    char *to = *out;
    if (load->options.stats_job) {
        memcpy(to, "stats-job ", 10);
        memcpy(to + 10, id, id_bytes);
        memcpy(to + 10 + id_bytes, "\r\n", 2);
        to += id_bytes + 12;
    }
    memcpy(to, "delete ", 7);
    memcpy(to + 7, id, id_bytes);
    memcpy(to + 7 + id_bytes, "\r\n", 2);
    to += id_bytes + 9;
    if (load->options.depth > 1) to += add_reserve(c, to);
    *out = to;
    load->counts.reserves++;
    c->group->ready--;
    return (size_t)(body - at) + load->options.run.body_bytes + 2;
}

/* Takes the answer to a stats-job. Returns its length, or 0 if it is not whole. */
static size_t take_stats(const struct connection *c, const char *at, size_t bytes) {
    const char *end = at + bytes, *length = at + 3, *length_end = skip_digits(length);
    if (length_end + 2 > end) return 0;
    size_t whole = (size_t)(length_end + 2 - at) + (size_t)strtoul(length, NULL, 10) + 2;
    if (length_end == length || whole > STATS_BYTES) die_of_reply(c, at, bytes);
    return whole <= bytes ? whole : 0;
}

static size_t take_deliveries(struct load *load, struct connection *c, const char *in, size_t bytes) {
    const char *at = in, *end = in + bytes;
    char *out = load->out;
    while (end - at >= 9) {
        if (memcmp(at, "DELETED\r\n", 9) == 0) {
            at += 9;
            load->counts.deletes++;
            if (load->options.depth == 1) out += add_reserve(c, out);
        } else if (load->options.stats_job && memcmp(at, "OK ", 3) == 0) {
            size_t used = take_stats(c, at, (size_t)(end - at));
            if (used == 0) break;
            at += used;
        } else if (memcmp(at, "RESERVED ", 9) == 0) {
            size_t used = take_reserved(load, c, at, (size_t)(end - at), &out);
            if (used == 0) break;
            at += used;
        } else {
            die_of_reply(c, at, (size_t)(end - at));
        }
    }
    if (out != load->out) stream_send(&c->stream, load->out, (size_t)(out - load->out));
    return (size_t)(at - in);
}

/* ---- the loop ---- */

static size_t take(void *owner, struct stream *s, const char *in, size_t bytes) {
    struct load *load = owner;
    struct connection *c = (struct connection *)s;
    if (!c->is_producer) return take_deliveries(load, c, in, bytes);
    size_t used = take_inserted(load, c, in, bytes);
    pause_or_send(load, c);
    return used;
}

static void turn(void *owner) {
    struct load *load = owner;
    loop_turn(&load->loop, take, load);
    resume_producers(load);
}

static void count(void *owner) {
    struct load *load = owner;
    load->before = load->counts;
    memset(&load->put_ns, 0, sizeof load->put_ns);
    memset(&load->job_ns, 0, sizeof load->job_ns);
}

static bool is_done(const void *owner) {
    const struct load *load = owner;
    const struct options *o = &load->options;
    return (o->mode == MODE_DRAIN || load->counts.puts >= o->run.messages) &&
           (o->mode == MODE_PUT_ONLY || load->counts.deletes >= o->run.messages);
}

static void start(void *owner) {
    struct load *load = owner;
    /* Consumers first, and one reserve at a time on each of them, so that a few jobs are shared evenly. */
    for (unsigned round = 0; round < load->options.depth; round++) {
        for (unsigned i = 0; i < load->connection_count; i++) {
            struct connection *c = &load->connections[i];
            char command[COMMAND_BYTES];
            size_t bytes = c->is_producer ? 0 : add_reserve(c, command);
            if (bytes > 0) stream_send(&c->stream, command, bytes);
        }
    }
    for (unsigned i = 0; i < load->connection_count; i++)
        if (load->connections[i].is_producer) send_puts(load, &load->connections[i]);
}

static const struct run_calls CALLS = {start, turn, count, is_done, NULL};

/* ---- connections ---- */

/* Sends one command on a connection that still blocks, and reads until the reply ends in "\r\n". */
static void ask(int fd, const char *command, char *reply, size_t reply_bytes) {
    size_t bytes = strlen(command), have = 0;
    if (send(fd, command, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) die("send: %s", strerror(errno));
    do {
        ssize_t n = recv(fd, reply + have, reply_bytes - 1 - have, 0);
        if (n <= 0) die("no reply to %s", command);
        have += (size_t)n;
        reply[have] = 0;
    } while (have + 1 < reply_bytes && (have < 2 || memcmp(reply + have - 2, "\r\n", 2) != 0));
}

static void expect(int fd, const char *command, const char *prefix) {
    char reply[512];
    ask(fd, command, reply, sizeof reply);
    if (strncmp(reply, prefix, strlen(prefix)) != 0) die("%s was answered %s", command, reply);
}

static void tube_name(const struct options *o, unsigned index, char name[256]) {
    if (o->tubes == 1)
        snprintf(name, 256, "%s", o->tube);
    else
        snprintf(name, 256, "%s-%u", o->tube, index);
}

/* Tube t belongs to group t % groups, and consumer i to group i % groups. */
static void choose_tubes(const struct load *load, const struct connection *c, int fd, unsigned index) {
    const struct options *o = &load->options;
    char name[256], command[320];
    if (c->is_producer) {
        tube_name(o, index % o->tubes, name);
        snprintf(command, sizeof command, "use %s\r\n", name);
        expect(fd, command, "USING ");
        return;
    }
    for (unsigned t = 0; t < o->tubes; t++) {
        if (t % load->group_count != index % load->group_count) continue;
        tube_name(o, t, name);
        snprintf(command, sizeof command, "watch %s\r\n", name);
        expect(fd, command, "WATCHING ");
    }
    if (strcmp(o->tube, "default") != 0 || o->tubes > 1) expect(fd, "ignore default\r\n", "WATCHING ");
}

/* The longest reply. */
static size_t reply_bytes(const struct options *o) {
    size_t job = o->run.body_bytes + REPLY_HEAD_BYTES;
    return o->stats_job && job < STATS_BYTES ? STATS_BYTES : job;
}

static void open_connection(struct load *load, struct connection *c, bool is_producer, unsigned index) {
    const struct options *o = &load->options;
    c->is_producer = is_producer;
    unsigned tube = is_producer ? index % o->tubes : index;
    c->group = &load->groups[tube % load->group_count];
    size_t output_bytes = is_producer ? o->depth * load->puts.bytes : (size_t)o->depth * 2 * COMMAND_BYTES;
    int fd = stream_connect(o->run.host, o->run.port);
    choose_tubes(load, c, fd, index);
    stream_open(&c->stream, fd, load->loop.epoll_fd, output_bytes, reply_bytes(o));
}

static void share_out_jobs(struct load *load) {
    const struct options *o = &load->options;
    for (unsigned t = 0; t < o->tubes; t++) {
        struct group *group = &load->groups[t % load->group_count];
        uint64_t all = o->run.messages, jobs = all / o->tubes + (t < all % o->tubes);
        group->puts_left = all ? group->puts_left + jobs : UINT64_MAX;
        group->reserves_left = all ? group->reserves_left + jobs : UINT64_MAX;
    }
}

static void open_load(struct load *load) {
    const struct options *o = &load->options;
    size_t in_bytes = IN_BYTES + reply_bytes(o);
    loop_open(&load->loop, 0, in_bytes);
    load->group_count = o->watch_all ? 1 : o->consumers && o->consumers < o->tubes ? o->consumers : o->tubes;
    load->groups = allocate(load->group_count, sizeof *load->groups);
    share_out_jobs(load);
    prepare_puts(load);
    /* Every reply, of at least 9 bytes, causes commands of at most about twice its length. */
    load->out = allocate(3, in_bytes);
    load->connection_count = o->producers + o->consumers;
    load->connections = allocate(load->connection_count, sizeof *load->connections);
    for (unsigned i = 0; i < o->producers; i++) open_connection(load, &load->connections[i], true, i);
    for (unsigned i = 0; i < o->consumers; i++) open_connection(load, &load->connections[o->producers + i], false, i);
}

static void close_load(struct load *load) {
    for (unsigned i = 0; i < load->connection_count; i++) stream_close(&load->connections[i].stream);
    loop_close(&load->loop);
    free(load->connections);
    free(load->groups);
    commands_close(&load->puts);
    free(load->out);
}

/* ---- idle connections ---- */

static void hold_idle(const struct options *o) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) die("getrlimit: %s", strerror(errno));
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* a connect fails if this was not enough */
    for (unsigned i = 0; i < o->idle; i++) {
        int fd = stream_connect(o->run.host, o->run.port);
        /* An answer shows that the server has accepted the connection, and is not merely going to. */
        expect(fd, "use default\r\n", "USING ");
    }
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}

/* ---- options and report ---- */

static void check_options(struct options *o) {
    if (o->mode == MODE_PUT_ONLY) o->consumers = 0;
    if (o->mode == MODE_DRAIN) o->producers = 0;
    if (o->mode == MODE_DRAIN && o->run.messages == 0) die("--mode drain needs --jobs");
    if (o->mode != MODE_DRAIN && o->producers < o->tubes) die("fewer producers than tubes");
    if (o->mode != MODE_PUT_ONLY && o->consumers == 0) die("no consumers");
    if (o->max_ready < o->tubes) die("--max-ready is less than one job a tube");
}

static struct options read_options(int argc, char **argv) {
    static struct options o = {
        .run = {RUN_DEFAULTS, .body_bytes = 200},
        .producers = 20,
        .consumers = 20,
        .depth = 64,
        .max_ready = 20000,
        .tube = "default",
        .tubes = 1,
    };
    static const struct option_row rows[] = {
        RUN_OPTIONS(o.run, 0, MAX_BODY_BYTES),
        RUN_MESSAGES(o.run, "jobs"),
        OPTION_WORDS("mode", "MODE", o.mode, MODES,
                     "full: producers and consumers; put-only; drain: consumers only, needs --jobs"),
        OPTION("producers", "P", o.producers, 0, MAX_CONNECTIONS, "connections that put"),
        OPTION("consumers", "C", o.consumers, 0, MAX_CONNECTIONS, "connections that reserve and delete"),
        OPTION("depth", "D", o.depth, 1, MAX_DEPTH, "commands that each keeps unanswered; 1: reserve, delete in turn"),
        OPTION("max-ready", "N", o.max_ready, 1, 1e12, "producers pause while more jobs than this are not reserved"),
        OPTION_TEXTUAL("tube", "NAME", o.tube, "tube to use and watch"),
        OPTION("tubes", "K", o.tubes, 1, MAX_TUBES,
               "NAME-0 .. NAME-K-1: producer i uses i % K, consumer i watches what has its remainder"),
        OPTION_TEXTUAL("watch-all", NULL, o.watch_all, "every consumer watches all tubes"),
        OPTION_TEXTUAL("stats-job", NULL, o.stats_job,
                       "every consumer asks stats-job for each job before it deletes it"),
        OPTION("idle", "N", o.idle, 1, 1e6, "instead of all that: opens N connections, and holds them until killed"),
        OPTION_END,
    };
    run_read_options("load_beanstalk", rows, &o.run, argc, argv);
    if (o.idle == 0) check_options(&o);
    return o;
}

static void report(const struct load *load, const struct run *run) {
    const struct options *o = &load->options;
    const struct counts *now = &load->counts, *before = &load->before;
    uint64_t puts = now->puts - before->puts, deletes = now->deletes - before->deletes;
    printf("{\"mode\": \"%s\", \"producers\": %u, \"consumers\": %u, \"depth\": %u, \"tubes\": %u", MODES[o->mode],
           o->producers, o->consumers, o->depth, o->tubes);
    run_report(run, &o->run, o->mode == MODE_PUT_ONLY ? puts : deletes, "job");
    printf(", \"puts\": %" PRIu64 ", \"reserves\": %" PRIu64 ", \"deletes\": %" PRIu64 ", \"pauses\": %" PRIu64, puts,
           now->reserves - before->reserves, deletes, now->pauses - before->pauses);
    report_histogram("put_us", &load->put_ns);
    if (o->mode == MODE_FULL) report_histogram("job_us", &load->job_ns);
    printf("}\n");
}

int main(int argc, char **argv) {
    static struct load load;
    load.options = read_options(argc, argv);
    if (load.options.idle > 0) hold_idle(&load.options);
    open_load(&load);
    struct run run = run_load(&load.loop, &load.options.run, &CALLS, &load);
    report(&load, &run);
    close_load(&load);
    return 0;
}

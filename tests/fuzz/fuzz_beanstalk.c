/* Scripts of bytes against the whole message path: connections, an acceptor, workers, their logs, crashes.
 *
 * An input is a script: each byte chooses what happens next (a client connects, sends a command that is mostly sensible,
 * sends garbage, reads, closes; an engine takes a turn; time passes; a disk is full; a process dies), the bytes after it
 * are its parameters. Everything runs in this process, one turn at a time, so a script does the same each time.
 *
 * What is looked for: assertions, and what the address and undefined behaviour sanitizers see; and two things are
 * checked here: each client gets whole replies of known words, and a replay never finds a log damaged.
 *
 * LLVMFuzzerTestOneInput is libFuzzer's. Without it, main() draws scripts itself:
 *
 *   fuzz_beanstalk SECONDS SEED LAST      LAST is a file that holds the script that is being run
 *   fuzz_beanstalk FILE...                runs scripts again
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../csrc/acceptor.h"
#include "../../csrc/ring.h"
#include "../../csrc/worker.h"

enum {
    CLIENTS = 5,
    WORKERS = 2,
    SHARDS = 4,
    SEGMENTS = 4096,
    PENDING = 64,
    MAX_JOB_BYTES = 2000,
    RING_BYTES = 16 << 10,
    MAX_SCRIPT = 2048,
    UNTIL_QUIET = 200000,
};

#define SECOND ((uint64_t)1000000000)

/* --- the world ---------------------------------------------------------------------------------------------------- */

struct remote {
    int fd; /* -1: not connected */
    uint8_t *unsent;
    size_t unsent_bytes, unsent_capacity;
    uint8_t *got;
    size_t got_bytes, got_capacity;
};

struct segment {
    uint32_t shard, number;
    int fd;
};

/* A command that Python would handle. */
struct pending {
    uint32_t conn, missing;
};

static struct {
    struct acceptor *acceptor;
    struct worker *workers[WORKERS];
    int wakes[WORKERS], acceptor_wake, board;
    struct remote clients[CLIENTS];
    struct segment segments[SEGMENTS];
    uint32_t segment_count;
    struct pending pending[PENDING];
    uint64_t now, wall, epoch;
    bool disk_full;
    uint64_t segment_bytes;
} world;

static struct {
    const uint8_t *at, *end;
} script;

static uint8_t byte(void) {
    return script.at < script.end ? *script.at++ : 0;
}

static uint32_t pick(uint32_t below) {
    return below > 256 ? ((uint32_t)byte() << 8 | byte()) % below : byte() % below;
}

/* --- what Python does --------------------------------------------------------------------------------------------- */

static void expect(uint32_t conn, uint32_t answers) {
    for (uint32_t i = 0; i < PENDING; i++) {
        if (world.pending[i].missing) continue;
        world.pending[i] = (struct pending){conn, answers};
        return;
    }
    assert(!"more commands are pending than there are connections");
}

static void done(uint32_t conn, const char *line) {
    acceptor_reply(world.acceptor, conn, line, strlen(line));
    acceptor_resume(world.acceptor, conn);
}

static void ask(uint32_t worker, uint32_t conn, struct message request, const void *body, size_t bytes) {
    expect(conn, 1);
    if (acceptor_request(world.acceptor, worker, conn, &request, body, bytes) < 0) {
        for (uint32_t i = 0; i < PENDING; i++)
            if (world.pending[i].conn == conn) world.pending[i].missing = 0;
    }
}

static bool begins(const struct upcall *u, const char *prefix) {
    return u->bytes_count >= strlen(prefix) && !memcmp(u->bytes, prefix, strlen(prefix));
}

static uint64_t number_after(const struct upcall *u, size_t skip) {
    uint64_t n = 0;
    for (size_t i = skip; i < u->bytes_count && u->bytes[i] >= '0' && u->bytes[i] <= '9'; i++)
        n = n * 10 + (uint64_t)(u->bytes[i] - '0');
    return n;
}

static void ask_id(const struct upcall *u, uint8_t kind, size_t skip) {
    uint64_t id = number_after(u, skip);
    ask((uint32_t)(id % SHARDS % WORKERS), u->conn, (struct message){.kind = kind, .id = id}, NULL, 0);
}

static void ask_used(const struct upcall *u, uint8_t kind, uint64_t id) {
    uint32_t topic = acceptor_used(world.acceptor, u->conn);
    if (!topic) return;
    uint32_t worker = acceptor_worker_of_topic(world.acceptor, topic);
    ask(worker, u->conn, (struct message){.kind = kind, .topic = topic, .id = id}, NULL, 0);
}

static void ask_name(const struct upcall *u, uint8_t kind, size_t skip, uint64_t delay_ns) {
    size_t bytes = 0;
    while (skip + bytes < u->bytes_count && u->bytes[skip + bytes] > ' ') bytes++;
    if (!bytes || bytes > TOPIC_NAME_BYTES) {
        done(u->conn, "BAD_FORMAT\r\n");
        return;
    }
    const char *name = (const char *)u->bytes + skip;
    uint32_t worker = acceptor_shard_of_name(world.acceptor, name, bytes) % WORKERS;
    ask(worker, u->conn, (struct message){.kind = kind, .delay_ns = delay_ns}, name, bytes);
}

static void list_all(const struct upcall *u) {
    expect(u->conn, WORKERS);
    struct message request = {.kind = MSG_LIST};
    for (uint32_t i = 0; i < WORKERS; i++) (void)acceptor_request(world.acceptor, i, u->conn, &request, NULL, 0);
}

static void command(const struct upcall *u) {
    if (begins(u, "peek-ready"))
        ask_used(u, MSG_PEEK_READY, 0);
    else if (begins(u, "peek-delayed"))
        ask_used(u, MSG_PEEK_DELAYED, 0);
    else if (begins(u, "peek-buried"))
        ask_used(u, MSG_PEEK_BURIED, 0);
    else if (begins(u, "peek "))
        ask_id(u, MSG_PEEK_ID, 5);
    else if (begins(u, "kick-job "))
        ask_id(u, MSG_KICK_ID, 9);
    else if (begins(u, "kick "))
        ask_used(u, MSG_KICK, number_after(u, 5) & UINT32_MAX);
    else if (begins(u, "stats-job "))
        ask_id(u, MSG_STATS_ID, 10);
    else if (begins(u, "stats-tube "))
        ask_name(u, MSG_STATS_TOPIC, 11, 0);
    else if (begins(u, "pause-tube "))
        ask_name(u, MSG_PAUSE, 11, (uint64_t)(u->bytes_count % 4) * SECOND / 2 + 1);
    else if (begins(u, "list-tubes"))
        list_all(u);
    else if (begins(u, "quit"))
        acceptor_close(world.acceptor, u->conn);
    else
        done(u->conn, "UNKNOWN_COMMAND\r\n");
}

static void answered(const struct upcall *u) {
    for (uint32_t i = 0; i < PENDING; i++) {
        if (world.pending[i].conn != u->conn || !world.pending[i].missing) continue;
        /* Touch all of it: the sanitizer is to see whether it is ours to read. */
        volatile uint8_t sum = 0;
        for (size_t b = 0; b < u->bytes_count; b++) sum = (uint8_t)(sum + u->bytes[b]);
        if (!--world.pending[i].missing) done(u->conn, u->answer.status == STATUS_OK ? "KICKED\r\n" : "NOT_FOUND\r\n");
        return;
    }
}

static void handle_upcalls(void) {
    struct upcall u;
    while (acceptor_upcall(world.acceptor, &u)) {
        assert(u.kind == UPCALL_COMMAND || u.kind == UPCALL_ANSWER || u.kind == UPCALL_CLOSED);
        if (u.kind == UPCALL_COMMAND) command(&u);
        if (u.kind == UPCALL_ANSWER) answered(&u);
        if (u.kind == UPCALL_CLOSED)
            for (uint32_t i = 0; i < PENDING; i++)
                if (world.pending[i].conn == u.conn) world.pending[i].missing = 0;
    }
}

/* --- engines ------------------------------------------------------------------------------------------------------ */

static void give_segments(struct worker *w) {
    uint64_t bytes;
    uint32_t number;
    int64_t shard;
    while ((shard = worker_wanting_shard(w, &bytes, &number)) >= 0) {
        if (world.disk_full || world.segment_count == SEGMENTS) {
            worker_refuse_segment(w, (uint32_t)shard);
            continue;
        }
        int fd = memfd_create("segment", MFD_CLOEXEC);
        /* Smaller than it asks for, unless for a large job: so logs roll over, are compacted and dropped. */
        uint64_t size = bytes > SEGMENT_BYTES ? bytes : world.segment_bytes;
        world.segments[world.segment_count++] = (struct segment){(uint32_t)shard, number, fd};
        bool added = worker_add_segment(w, (uint32_t)shard, dup(fd), number, size, true, world.wall);
        assert(added);
    }
}

static void forget_segments(struct worker *w, uint32_t shard) {
    while (worker_dead_segments(w, shard)) {
        uint32_t number = worker_first_segment(w, shard);
        worker_drop_first(w, shard);
        for (uint32_t i = 0; i < world.segment_count; i++) {
            if (world.segments[i].shard != shard || world.segments[i].number != number) continue;
            close(world.segments[i].fd);
            memmove(world.segments + i, world.segments + i + 1, (--world.segment_count - i) * sizeof *world.segments);
            break;
        }
    }
}

static void join(uint32_t index) {
    int there = memfd_create("requests", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int back = memfd_create("replies", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    world.epoch++;
    bool joined = !ring_format(there, RING_BYTES, world.epoch) && !ring_format(back, RING_BYTES, world.epoch) &&
                  worker_peer(world.workers[index], 0, back, there, world.acceptor_wake) &&
                  !acceptor_peer(world.acceptor, index, there, back, world.wakes[index]);
    assert(joined);
    close(there);
    close(back);
}

/* As shards/store.py decides. */
static bool never_written(int fd) {
    static const uint8_t zeros[64];
    uint8_t header[64];
    ssize_t bytes = pread(fd, header, sizeof header, 0);
    return bytes < (ssize_t)sizeof header || !memcmp(header, zeros, sizeof header);
}

static void start_worker(uint32_t index) {
    world.wakes[index] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct worker *w = worker_new(index, WORKERS, SHARDS, world.board, world.wakes[index], 42);
    assert(w);
    static struct replay found;
    memset(&found, 0, sizeof found);
    for (uint32_t shard = index; shard < SHARDS; shard += WORKERS) {
        bool owned = worker_own(w, shard);
        assert(owned);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < world.segment_count; i++) {
            struct segment s = world.segments[i];
            if (s.shard == shard && never_written(s.fd)) {
                close(s.fd);
                continue;
            }
            world.segments[kept++] = s;
            if (s.shard != shard) continue;
            bool added = worker_add_segment(w, shard, dup(s.fd), s.number, world.segment_bytes, false, world.wall);
            assert(added);
        }
        world.segment_count = kept;
        bool replayed = worker_replay(w, shard, &found, world.now, world.wall);
        assert(replayed);
    }
    for (uint32_t i = 0; i < found.damages && i < 64; i++)
        fprintf(stderr, "shard %u, segment %u: [%llu, %llu) is damaged\n", found.damage[i].shard,
                found.damage[i].segment, (unsigned long long)found.damage[i].offset,
                (unsigned long long)found.damage[i].until);
    assert(found.damages == 0);
    worker_recovered(w);
    world.workers[index] = w;
    give_segments(w);
}

static void stop_worker(uint32_t index) {
    worker_free(world.workers[index]);
    close(world.wakes[index]);
}

static void start_acceptor(void) {
    world.acceptor_wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    world.acceptor = acceptor_new(0, WORKERS, SHARDS, world.board, world.acceptor_wake);
    assert(world.acceptor);
    int set = acceptor_set(world.acceptor, "beanstalk.max-job-size", MAX_JOB_BYTES);
    assert(set == 0);
    (void)acceptor_set(world.acceptor, "max-outstanding-output", 4096);
    memset(world.pending, 0, sizeof world.pending);
}

static void stop_acceptor(void) {
    acceptor_free(world.acceptor);
    close(world.acceptor_wake);
}

static bool turn_acceptor(void) {
    bool alive = acceptor_turn(world.acceptor) > 0;
    handle_upcalls();
    return alive;
}

static bool turn_worker(uint32_t index) {
    bool alive = worker_turn(world.workers[index], world.now, world.wall);
    give_segments(world.workers[index]);
    return alive;
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

static void append(uint8_t **to, size_t *bytes, size_t *capacity, const void *from, size_t count) {
    if (*bytes + count > *capacity) {
        *capacity = (*bytes + count) * 2;
        *to = realloc(*to, *capacity);
        if (!*to) abort();
    }
    if (count) memcpy(*to + *bytes, from, count);
    *bytes += count;
}

static void disconnect(struct remote *c) {
    if (c->fd >= 0) close(c->fd);
    free(c->unsent);
    free(c->got);
    *c = (struct remote){.fd = -1};
}

static void connect_client(struct remote *c) {
    disconnect(c);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) abort();
    c->fd = pair[0];
    uint32_t number = acceptor_adopt(world.acceptor, pair[1], PROTOCOL_BEANSTALK);
    if (!number) abort();
}

static bool flush(struct remote *c) {
    if (c->fd < 0 || !c->unsent_bytes) return false;
    ssize_t sent = send(c->fd, c->unsent, c->unsent_bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        disconnect(c);
        return false;
    }
    if (sent <= 0) return false;
    c->unsent_bytes -= (size_t)sent;
    memmove(c->unsent, c->unsent + sent, c->unsent_bytes);
    return true;
}

/* A whole reply off the front of what was received: how long it is, or 0 if there is none yet. */
static size_t reply_bytes(const uint8_t *got, size_t bytes) {
    static const char *const words[] = {
        "INSERTED ", "RESERVED ",  "FOUND ",      "DELETED",       "RELEASED",      "BURIED",         "KICKED",
        "TOUCHED",   "USING ",     "WATCHING ",   "NOT_FOUND",     "NOT_IGNORED",   "TIMED_OUT",      "DEADLINE_SOON",
        "DRAINING",  "BAD_FORMAT", "JOB_TOO_BIG", "EXPECTED_CRLF", "OUT_OF_MEMORY", "INTERNAL_ERROR", "UNKNOWN_COMMAND",
    };
    const uint8_t *end = memmem(got, bytes, "\r\n", 2);
    if (!end) {
        assert(bytes < 300 && "a reply line is never so long");
        return 0;
    }
    size_t line = (size_t)(end - got);
    bool known = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        known |= line >= strlen(words[i]) && !memcmp(got, words[i], strlen(words[i]));
    assert(known && "a client was sent something that is no reply");
    if (memcmp(got, "RESERVED ", 9) && memcmp(got, "FOUND ", 6)) return line + 2;
    char text[64];
    assert(line < sizeof text);
    memcpy(text, got, line);
    text[line] = 0;
    unsigned long long id, body;
    int fields = sscanf(text, "%*s %llu %llu", &id, &body);
    assert(fields == 2 && body <= MAX_JOB_BYTES);
    size_t whole = line + 2 + body + 2;
    if (bytes < whole) return 0;
    assert(!memcmp(got + whole - 2, "\r\n", 2) && "a body ends where its reply said");
    return whole;
}

static bool receive(struct remote *c) {
    if (c->fd < 0) return false;
    uint8_t buffer[4096];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
        disconnect(c);
        return true;
    }
    if (got < 0) return false;
    append(&c->got, &c->got_bytes, &c->got_capacity, buffer, (size_t)got);
    size_t taken = 0, one;
    while ((one = reply_bytes(c->got + taken, c->got_bytes - taken)) != 0) taken += one;
    c->got_bytes -= taken;
    memmove(c->got, c->got + taken, c->got_bytes);
    return true;
}

static void run_until_quiet(void) {
    for (int turns = 0, quiet = 0; quiet < 3; turns++) {
        assert(turns < UNTIL_QUIET && "the engines keep each other busy for ever");
        bool alive = turn_acceptor();
        for (uint32_t i = 0; i < WORKERS; i++) alive |= turn_worker(i);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            alive |= flush(&world.clients[i]);
            alive |= receive(&world.clients[i]);
        }
        quiet = alive ? 0 : quiet + 1;
    }
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static void say(struct remote *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct remote *c, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    assert(bytes >= 0 && (size_t)bytes < sizeof line);
    append(&c->unsent, &c->unsent_bytes, &c->unsent_capacity, line, (size_t)bytes);
}

static unsigned long long some_id(void) {
    return (unsigned long long)(1 + pick(24)) * SHARDS + pick(SHARDS);
}

static unsigned some_number(void) {
    static const unsigned numbers[] = {0, 0, 0, 1, 1, 2, 3, 5, 1023, 1024, 4294967295u};
    return numbers[pick(sizeof numbers / sizeof *numbers)];
}

static void put(struct remote *c) {
    static const uint32_t sizes[] = {0, 1, 3, 40, 300, 1200, MAX_JOB_BYTES, MAX_JOB_BYTES + 1, 9000};
    uint32_t pri = some_number(), delay = some_number() % 8, ttr = some_number() % 8, size = sizes[pick(9)],
             ending = pick(32);
    uint8_t body[9002];
    memset(body, (int)('a' + pick(26)), size);
    memcpy(body + size, ending ? "\r\n" : "xy", 2);
    say(c, "put %u %u %u %u\r\n", pri, delay, ttr, size);
    append(&c->unsent, &c->unsent_bytes, &c->unsent_capacity, body, size + 2);
}

static void some_command(struct remote *c) {
    switch (pick(32)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: put(c); break;
    case 5:
    case 6:
    case 7: say(c, "reserve-with-timeout %u\r\n", pick(4) ? 0 : pick(6)); break;
    case 8: say(c, "reserve\r\n"); break;
    case 9: say(c, "reserve-job %llu\r\n", some_id()); break;
    case 10:
    case 11: say(c, "delete %llu\r\n", some_id()); break;
    case 12: say(c, "release %llu %u %u\r\n", some_id(), some_number(), some_number() % 8); break;
    case 13: say(c, "bury %llu %u\r\n", some_id(), some_number()); break;
    case 14: say(c, "kick %u\r\n", some_number()); break;
    case 15: say(c, "kick-job %llu\r\n", some_id()); break;
    case 16: say(c, "touch %llu\r\n", some_id()); break;
    case 17: say(c, "peek %llu\r\n", some_id()); break;
    case 18: say(c, "peek-%s\r\n", (const char *const[]){"ready", "delayed", "buried"}[pick(3)]); break;
    case 19: say(c, "stats-job %llu\r\n", some_id()); break;
    case 20: say(c, "stats-tube t%u\r\n", pick(9)); break;
    case 21:
    case 22: say(c, "use t%u\r\n", pick(9)); break;
    case 23:
    case 24: say(c, "watch t%u\r\n", pick(9)); break;
    case 25: say(c, "ignore t%u\r\n", pick(9)); break;
    case 26: say(c, "pause-tube t%u %u\r\n", pick(9), pick(3)); break;
    case 27: say(c, "list-tubes\r\n"); break;
    case 28: say(c, pick(4) ? "ignore default\r\n" : "quit\r\n"); break;
    case 29: say(c, "%*s\r\n", (int)(200 + pick(60)), "line"); break;
    case 30: say(c, "watch %0*u\r\n", (int)(197 + pick(6)), pick(3)); break;
    default: say(c, "reserve\r\nput 0 0 1 1\r\nx\r\npeek-ready\r\nreserve-with-timeout 0\r\n"); break;
    }
}

static void garbage(struct remote *c) {
    uint8_t bytes[64];
    size_t count = pick(sizeof bytes);
    for (size_t i = 0; i < count; i++) bytes[i] = byte();
    append(&c->unsent, &c->unsent_bytes, &c->unsent_capacity, bytes, count);
    if (pick(2)) say(c, "\r\n");
}

/* --- a script ----------------------------------------------------------------------------------------------------- */

static void pass_time(void) {
    static const uint64_t spans[] = {1, SECOND / 1000, SECOND / 2, SECOND, 2 * SECOND, 5 * SECOND};
    uint64_t until = world.now + spans[pick(6)];
    for (uint32_t i = 0; i < WORKERS; i++) {
        uint64_t due = worker_next_ns(world.workers[i]);
        if (pick(2) && due < until) until = due > world.now ? due : world.now;
    }
    world.wall += until - world.now;
    world.now = until;
}

static void crash_worker(uint32_t index) {
    acceptor_peer_gone(world.acceptor, index);
    handle_upcalls();
    stop_worker(index);
    if (pick(2)) turn_acceptor(); /* while it is away */
    start_worker(index);
    join(index);
}

static void crash_acceptor(void) {
    stop_acceptor();
    for (uint32_t i = 0; i < CLIENTS; i++) disconnect(&world.clients[i]);
    for (uint32_t i = 0; i < WORKERS; i++) worker_peer_gone(world.workers[i], 0);
    if (pick(2)) turn_worker(0);
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) join(i);
}

static void step(void) {
    struct remote *c = &world.clients[pick(CLIENTS)];
    if (c->fd < 0) connect_client(c);
    switch (pick(32)) {
    case 0: disconnect(c); break;
    case 1: (void)shutdown(c->fd, SHUT_WR); break;
    case 2: garbage(c); break;
    case 3:
    case 4:
    case 5: run_until_quiet(); break;
    case 6:
    case 7: (void)turn_acceptor(); break;
    case 8:
    case 9: (void)turn_worker(pick(WORKERS)); break;
    case 10:
    case 11: pass_time(); break;
    case 12: (void)receive(c); break;
    case 13: crash_worker(pick(WORKERS)); break;
    case 14: crash_acceptor(); break;
    case 15:
        world.disk_full = pick(4) == 0;
        if (!world.disk_full)
            for (uint32_t i = 0; i < WORKERS; i++) worker_retry_segments(world.workers[i]);
        break;
    case 16:
    case 17: {
        uint32_t shard = pick(SHARDS);
        (void)worker_compact(world.workers[shard % WORKERS], shard, 1 + pick(4) * 3000);
        forget_segments(world.workers[shard % WORKERS], shard);
        break;
    }
    case 18:
        for (uint32_t n = pick(40); n; n--) put(c);
        break;
    case 19: (void)flush(c); break;
    default:
        for (uint32_t n = pick(4); n < 4; n++) some_command(c);
        (void)flush(c);
        break;
    }
}

static void begin(void) {
    memset(&world, 0, sizeof world);
    for (uint32_t i = 0; i < CLIENTS; i++) world.clients[i].fd = -1;
    world.now = 1000 * SECOND;
    world.wall = 1700000000 * SECOND;
    world.segment_bytes = (uint64_t)(8 + 8 * pick(8)) << 10;
    world.board = memfd_create("board", MFD_CLOEXEC);
    bool formatted = board_format(world.board);
    assert(formatted);
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) {
        start_worker(i);
        join(i);
    }
}

static void end(void) {
    for (uint32_t i = 0; i < CLIENTS; i++) disconnect(&world.clients[i]);
    stop_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) {
        stop_worker(i);
        start_worker(i); /* what is left can be read back */
        stop_worker(i);
    }
    close(world.board);
    for (uint32_t i = 0; i < world.segment_count; i++) close(world.segments[i].fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    script.at = data;
    script.end = data + size;
    begin();
    while (script.at < script.end) step();
    world.disk_full = false;
    for (uint32_t i = 0; i < WORKERS; i++) worker_retry_segments(world.workers[i]);
    run_until_quiet();
    end();
    return 0;
}

/* --- without libFuzzer -------------------------------------------------------------------------------------------- */

#ifndef WITH_LIBFUZZER
static uint64_t random_state;

static uint64_t draw(void) {
    /* splitmix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

/* A new script, or the one before with a part of it changed. */
static size_t draw_script(uint8_t *bytes, size_t before) {
    size_t from = 0, to = before;
    if (!before || draw() % 4 == 0) {
        to = 20 + draw() % (MAX_SCRIPT - 20);
        before = to;
    } else {
        from = draw() % before;
        to = from + 1 + draw() % 30;
        if (to > before) to = before;
    }
    for (size_t i = from; i < to; i++) bytes[i] = (uint8_t)draw();
    return before;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int run_file(const char *path) {
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    /* In the file of the script that is being run, its length comes first. */
    uint64_t length;
    if (size >= sizeof length && (memcpy(&length, bytes, sizeof length), length <= MAX_SCRIPT))
        return LLVMFuzzerTestOneInput(bytes + sizeof length, (size_t)length);
    return LLVMFuzzerTestOneInput(bytes, size);
}

int main(int count, char **arguments) {
    if (count != 4 || !strtod(arguments[1], NULL)) {
        int failed = 0;
        for (int i = 1; i < count; i++) failed |= run_file(arguments[i]);
        return failed;
    }
    random_state = strtoull(arguments[2], NULL, 10);
    int fd = open(arguments[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, MAX_SCRIPT + 8)) {
        perror(arguments[3]);
        return 1;
    }
    uint8_t *last = mmap(NULL, MAX_SCRIPT + 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (last == MAP_FAILED) return 1;
    double until = seconds() + strtod(arguments[1], NULL);
    size_t size = 0;
    unsigned long scripts = 0;
    for (; seconds() < until; scripts++) {
        size = draw_script(last + 8, size);
        uint64_t length = size;
        memcpy(last, &length, sizeof length);
        LLVMFuzzerTestOneInput(last + 8, size);
    }
    printf("%lu scripts\n", scripts);
    return 0;
}
#endif

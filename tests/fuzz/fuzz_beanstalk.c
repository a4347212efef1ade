/* Scripts of bytes against the whole message path: connections, an acceptor, workers, their logs, crashes.
 *
 * An input is a script: each byte chooses what happens next (a client connects, sends a command that is mostly
 * sensible, sends garbage, reads, closes; an engine takes a turn; time passes; a disk is full; a process dies), the
 * bytes after it are its parameters. Everything runs in this process, one turn at a time, so a script does the same
 * each time.
 *
 * What is looked for: assertions, and what the address and undefined behaviour sanitizers see; and two things are
 * checked here: each client gets whole replies of known words, and a replay never finds a log damaged.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "remote.h"
#include "script.h"
#include "world.h"

enum { CLIENTS = 5, PENDING = 64, MAX_JOB_BYTES = 2000 };

/* A command that Python would handle. */
struct pending {
    uint32_t conn, missing;
};

static struct remote clients[CLIENTS];
static struct pending pending[PENDING];

/* --- what Python does --------------------------------------------------------------------------------------------- */

static void expect(uint32_t conn, uint32_t answers) {
    for (uint32_t i = 0; i < PENDING; i++) {
        if (pending[i].missing) continue;
        pending[i] = (struct pending){conn, answers};
        return;
    }
    assert(!"more commands are pending than there are connections");
}

static void done(uint32_t conn, const char *line) {
    acceptor_reply(world.acceptor, conn, line, strlen(line));
    acceptor_resume(world.acceptor, conn);
}

static bool begins(const uint8_t *line, size_t bytes, const char *word) {
    return bytes >= strlen(word) && !memcmp(line, word, strlen(word));
}

static void list_all(const struct upcall *u) {
    expect(u->conn, WORKERS);
    struct message request = {.kind = MSG_LIST};
    for (uint32_t i = 0; i < WORKERS; i++) (void)acceptor_request(world.acceptor, i, u->conn, &request, NULL, 0);
}

static void command(const struct upcall *u) {
    if (begins(u->bytes, u->bytes_count, "list-tubes"))
        list_all(u);
    else if (begins(u->bytes, u->bytes_count, "quit"))
        acceptor_close(world.acceptor, u->conn);
    else
        done(u->conn, "NOT_FOUND\r\n");
}

static void answered(const struct upcall *u) {
    for (uint32_t i = 0; i < PENDING; i++) {
        if (pending[i].conn != u->conn || !pending[i].missing) continue;
        /* Touch all of it: the sanitizer is to see whether it is ours to read. */
        volatile uint8_t sum = 0;
        for (size_t b = 0; b < u->bytes_count; b++) sum = (uint8_t)(sum + u->bytes[b]);
        if (!--pending[i].missing) done(u->conn, u->answer.status == STATUS_OK ? "KICKED\r\n" : "NOT_FOUND\r\n");
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
                if (pending[i].conn == u.conn) pending[i].missing = 0;
    }
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

/* A whole reply off the front of what was received: how long it is, or 0 if there is none yet. */
static size_t reply_bytes(const uint8_t *got, size_t bytes) {
    static const char *const words[] = {
        "INSERTED ",     "RESERVED ",      "FOUND ",          "DELETED",    "RELEASED",    "BURIED",
        "KICKED",        "TOUCHED",        "USING ",          "WATCHING ",  "NOT_FOUND",   "NOT_IGNORED",
        "TIMED_OUT",     "DEADLINE_SOON",  "DRAINING",        "BAD_FORMAT", "JOB_TOO_BIG", "EXPECTED_CRLF",
        "OUT_OF_MEMORY", "INTERNAL_ERROR", "UNKNOWN_COMMAND", "PAUSED",     "OK ",
    };
    const uint8_t *end = memmem(got, bytes, "\r\n", 2);
    if (!end) {
        assert(bytes < 300 && "a reply line is never so long");
        return 0;
    }
    size_t line = (size_t)(end - got);
    bool known = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) known |= begins(got, line, words[i]);
    assert(known && "a client was sent something that is no reply");
    bool is_figures = begins(got, line, "OK ");
    if (!begins(got, line, "RESERVED ") && !begins(got, line, "FOUND ") && !is_figures) return line + 2;
    char text[64];
    assert(line < sizeof text);
    memcpy(text, got, line);
    text[line] = 0;
    unsigned long long id, body;
    int fields = is_figures ? 1 + sscanf(text, "OK %llu", &body) : sscanf(text, "%*s %llu %llu", &id, &body);
    assert(fields == 2 && body <= MAX_JOB_BYTES);
    size_t whole = line + 2 + body + 2;
    if (bytes < whole) return 0;
    assert(!memcmp(got + whole - 2, "\r\n", 2) && "a body ends where its reply said");
    return whole;
}

static bool receive(struct remote *c) {
    if (!remote_receive(c)) return false;
    size_t taken = 0, one;
    while (taken < c->got.count && (one = reply_bytes(c->got.at + taken, c->got.count - taken)) != 0) taken += one;
    bytes_drop(&c->got, taken);
    return true;
}

static bool turn_acceptor(void) {
    bool alive = acceptor_turn(world.acceptor) > 0;
    handle_upcalls();
    return alive;
}

static void run_until_quiet(void) {
    for (int turns = 0, quiet = 0; quiet < 3; turns++) {
        assert(turns < UNTIL_QUIET && "the engines keep each other busy for ever");
        bool alive = turn_acceptor();
        for (uint32_t i = 0; i < WORKERS; i++) alive |= worker_takes_turn(i);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            alive |= remote_flush(&clients[i], SIZE_MAX);
            alive |= receive(&clients[i]);
        }
        quiet = alive ? 0 : quiet + 1;
    }
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

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
    remote_say(c, "put %u %u %u %u\r\n", pri, delay, ttr, size);
    bytes_add(&c->unsent, body, size + 2);
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
    case 7: remote_say(c, "reserve-with-timeout %u\r\n", pick(4) ? 0 : pick(6)); break;
    case 8: remote_say(c, "reserve\r\n"); break;
    case 9: remote_say(c, "reserve-job %llu\r\n", some_id()); break;
    case 10:
    case 11: remote_say(c, "delete %llu\r\n", some_id()); break;
    case 12: remote_say(c, "release %llu %u %u\r\n", some_id(), some_number(), some_number() % 8); break;
    case 13: remote_say(c, "bury %llu %u\r\n", some_id(), some_number()); break;
    case 14: remote_say(c, "kick %u\r\n", some_number()); break;
    case 15: remote_say(c, "kick-job %llu\r\n", some_id()); break;
    case 16: remote_say(c, "touch %llu\r\n", some_id()); break;
    case 17: remote_say(c, "peek %llu\r\n", some_id()); break;
    case 18: remote_say(c, "peek-%s\r\n", (const char *const[]){"ready", "delayed", "buried"}[pick(3)]); break;
    case 19: remote_say(c, "stats-job %llu\r\n", some_id()); break;
    case 20: remote_say(c, "stats-tube t%u\r\n", pick(9)); break;
    case 21:
    case 22: remote_say(c, "use t%u\r\n", pick(9)); break;
    case 23:
    case 24: remote_say(c, "watch t%u\r\n", pick(9)); break;
    case 25: remote_say(c, "ignore t%u\r\n", pick(9)); break;
    case 26: remote_say(c, "pause-tube t%u %u\r\n", pick(9), pick(3)); break;
    case 27: remote_say(c, "list-tubes\r\n"); break;
    case 28: remote_say(c, pick(4) ? "ignore default\r\n" : "quit\r\n"); break;
    case 29: remote_say(c, "%*s\r\n", (int)(200 + pick(60)), "line"); break;
    case 30: remote_say(c, "watch %0*u\r\n", (int)(197 + pick(6)), pick(3)); break;
    default: remote_say(c, "reserve\r\nput 0 0 1 1\r\nx\r\npeek-ready\r\nreserve-with-timeout 0\r\n"); break;
    }
}

static void garbage(struct remote *c) {
    uint8_t bytes[64];
    size_t count = pick(sizeof bytes);
    for (size_t i = 0; i < count; i++) bytes[i] = byte();
    bytes_add(&c->unsent, bytes, count);
    if (pick(2)) remote_say(c, "\r\n");
}

/* --- a script ----------------------------------------------------------------------------------------------------- */

static void pass_time(void) {
    static const uint64_t spans[] = {1, SECOND / 1000, SECOND / 2, SECOND, 2 * SECOND, 5 * SECOND};
    world_pass_time(spans[pick(6)]);
}

static void start_acceptor(void) {
    acceptor_start();
    int set = acceptor_set(world.acceptor, "beanstalk.max-job-size", MAX_JOB_BYTES);
    assert(set == 0);
    (void)acceptor_set(world.acceptor, "max-outstanding-output", 4096);
    memset(pending, 0, sizeof pending);
}

static void crash_worker(uint32_t index) {
    acceptor_peer_gone(world.acceptor, index);
    handle_upcalls();
    worker_stop(index);
    if (pick(2)) turn_acceptor(); /* while it is away */
    worker_start(index);
    worker_join(index);
}

static void crash_acceptor(void) {
    acceptor_stop();
    for (uint32_t i = 0; i < CLIENTS; i++) remote_disconnect(&clients[i]);
    for (uint32_t i = 0; i < WORKERS; i++) worker_peer_gone(world.workers[i], 0);
    if (pick(2)) worker_takes_turn(0);
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) worker_join(i);
}

static void step(void) {
    struct remote *c = &clients[pick(CLIENTS)];
    if (c->fd < 0) (void)remote_connect(c, table_protocol("beanstalk"));
    switch (pick(32)) {
    case 0: remote_disconnect(c); break;
    case 1: (void)shutdown(c->fd, SHUT_WR); break;
    case 2: garbage(c); break;
    case 3:
    case 4:
    case 5: run_until_quiet(); break;
    case 6:
    case 7: (void)turn_acceptor(); break;
    case 8:
    case 9: (void)worker_takes_turn(pick(WORKERS)); break;
    case 10:
    case 11: pass_time(); break;
    case 12: (void)receive(c); break;
    case 13: crash_worker(pick(WORKERS)); break;
    case 14: crash_acceptor(); break;
    case 15: disk_set_full(pick(4) == 0); break;
    case 16:
    case 17: {
        uint32_t shard = pick(SHARDS), budget = 1 + pick(4) * 3000;
        shard_moves_live(shard, budget);
        if (pick(2)) shard_passes_over(shard);
        shard_drops_dead(shard);
        break;
    }
    case 18:
        for (uint32_t n = pick(40); n; n--) put(c);
        break;
    case 19: (void)remote_flush(c, SIZE_MAX); break;
    default:
        for (uint32_t n = pick(4); n < 4; n++) some_command(c);
        (void)remote_flush(c, SIZE_MAX);
        break;
    }
}

void run_script(void) {
    world_begin((uint64_t)(8 + 8 * pick(8)) << 10);
    for (uint32_t i = 0; i < CLIENTS; i++) clients[i] = (struct remote){.fd = -1};
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_start(i);
        worker_join(i);
    }
    while (script_goes_on()) step();
    disk_set_full(false);
    run_until_quiet();
    for (uint32_t i = 0; i < CLIENTS; i++) remote_disconnect(&clients[i]);
    acceptor_stop();
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_stop(i);
        worker_start(i); /* what is left can be read back */
        worker_stop(i);
    }
    world_end();
}

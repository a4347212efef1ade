/* The message path of an acceptor and a worker in one process, one turn at a time, whose instructions are counted:
 * other programs on the machine change times, but not a count. Connections are socket pairs, segments are memfds.
 *
 * Each load is repeated in rounds; a round is the work that 20 (or 4) clients with their outstanding commands cause. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acceptor/acceptor.h"
#include "acceptor/protocols/nats/nats.h"
#include "acceptor/protocols/pulsar/pulsar.h"
#include "acceptor/protocols/table.h"
#include "measure.h"
#include "pulsar_block.h"
#include "pulsar_frames.h"
#include "ringbuf/ring.h"
#include "shards/worker.h"

enum { SHARDS = 4, MAX_REMOTES = 64, BODY_BYTES = 200, OUT_BYTES = 1 << 20, RING_BYTES = 1 << 20, TURNS = 1000 };
#define SEGMENT_TOTAL ((uint64_t)64 << 20)

struct remote {
    int fd;
    char *got;
    size_t got_bytes;
};

static struct worker *worker;
static struct acceptor *acceptor;
static uint64_t now_then = 1000 * NS;
static struct remote remotes[MAX_REMOTES];
static uint64_t done;
static uint32_t nats_protocol, pulsar_protocol;

/* Only these two functions are counted: --toggle-collect names them. */
__attribute__((noipa)) static int acceptor_counted(void) {
    int upcalls = acceptor_turn(acceptor);
    __asm__ volatile("" ::: "memory"); /* forces a call, no tail jump: the count ends where this returns */
    return upcalls;
}

__attribute__((noipa)) static bool worker_counted(void) {
    bool busy = worker_turn(worker, now_then, now_then + 1700000000 * NS);
    __asm__ volatile("" ::: "memory");
    return busy;
}

static void give_segments(void) {
    uint64_t bytes;
    uint32_t number;
    int64_t shard;
    while ((shard = worker_wanting_shard(worker, &bytes, &number)) >= 0) {
        while (worker_dead_segments(worker, (uint32_t)shard) && worker_drop_first(worker, (uint32_t)shard)) continue;
        uint64_t size = bytes > SEGMENT_TOTAL ? bytes : SEGMENT_TOTAL;
        int fd = memfd_create("segment", MFD_CLOEXEC);
        if (!worker_add_segment(worker, (uint32_t)shard, fd, number, size, true, now_then)) die("no segment");
    }
}

/* Does what Python does for a SUB, which is all that Python is asked for. */
static void subscribe(const struct upcall *u) {
    static const char topic[] = "load", channel[] = "channel";
    if (u->kind == UPCALL_ANSWER) {
        acceptor_reply(acceptor, u->conn, "\0\0\0\6\0\0\0\0OK", 10);
        acceptor_resume(acceptor, u->conn);
        return;
    }
    if (u->bytes_count < 4 || memcmp(u->bytes, "SUB ", 4) != 0) die("Python is asked for something");
    struct subscribe s = {.timeout_ns = 60 * NS, .timeout_max_ns = 900 * NS, .name_bytes = sizeof channel - 1};
    char body[sizeof s + sizeof channel];
    memcpy(body, &s, sizeof s);
    memcpy(body + sizeof s, channel, sizeof channel - 1);
    struct message request = {.kind = MSG_SUBSCRIBE, .topic = acceptor_bind(acceptor, topic, sizeof topic - 1)};
    acceptor_request(acceptor, 0, u->conn, &request, body, sizeof s + sizeof channel - 1);
}

/* Sends INFO, and lets the acceptor know that a client has said CONNECT, and who it is. */
static void greet_nats(const struct upcall *u) {
    static const char info[] = "INFO {}\r\n";
    if (u->bytes_count == 0) acceptor_reply(acceptor, u->conn, info, sizeof info - 1);
    if (u->bytes_count > 0 && *u->bytes == 'C')
        acceptor_call(acceptor, u->conn, "flags", NATS_ECHO | NATS_HEADERS | NATS_NO_RESPONDERS, NULL, 0, NULL, 0);
    acceptor_resume(acceptor, u->conn);
}

/* Does what Python does for a CONNECT and a PRODUCER; the client sends only the first. */
static void greet_pulsar(const struct upcall *u) {
    static const char topic[] = "load";
    static const struct producer_terms terms; /* no policies */
    if (u->bytes_count == 0 || *u->bytes != PULSAR_DO) return;
    acceptor_call(acceptor, u->conn, "connected", 0, NULL, 0, NULL, 0);
    acceptor_call(acceptor, u->conn, "done", 0, NULL, 0, NULL, 0);
    acceptor_call(acceptor, u->conn, "add-producer", 0, topic, sizeof topic - 1, NULL, 0);
    if (acceptor_call(acceptor, u->conn, "open-producer", 0, &terms, sizeof terms, NULL, 0) != CALL_DONE)
        die("no producer");
    acceptor_resume(acceptor, u->conn);
}

static void greet(const struct upcall *u) {
    if (u->protocol == nats_protocol)
        greet_nats(u);
    else if (u->protocol == pulsar_protocol)
        greet_pulsar(u);
    else
        subscribe(u);
}

static void turns(void) {
    for (int i = 0; i < 4; i++) {
        now_then += 20000;
        acceptor_set_now(acceptor, now_then);
        struct upcall u;
        if (acceptor_counted() != 0)
            while (acceptor_upcall(acceptor, &u)) greet(&u);
        worker_counted();
        give_segments();
    }
}

static void begin(void) {
    int board = memfd_create("board", MFD_CLOEXEC);
    int there = memfd_create("requests", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int back = memfd_create("replies", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int worker_wake = eventfd(0, EFD_NONBLOCK), acceptor_wake = eventfd(0, EFD_NONBLOCK);
    if (!board_format(board) || ring_format(there, RING_BYTES, 1) || ring_format(back, RING_BYTES, 1)) die("no rings");
    worker = worker_new(0, 1, SHARDS, board, worker_wake, 42);
    for (uint32_t shard = 0; shard < SHARDS; shard++) worker_own(worker, shard);
    worker_recovered(worker);
    give_segments();
    acceptor = acceptor_new(table_protocols(), 0, 1, SHARDS, board, acceptor_wake);
    acceptor_set_now(acceptor, now_then);
    if (!worker_peer(worker, 0, back, there, acceptor_wake) || acceptor_peer(acceptor, 0, there, back, worker_wake))
        die("no channel");
}

/* ---- clients ---- */

static void connect_as(struct remote *c, uint32_t protocol) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) die("%s", strerror(errno));
    int size = OUT_BYTES;
    for (int i = 0; i < 2; i++) setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    c->fd = pair[0];
    c->got = allocate(1, OUT_BYTES);
    if (!acceptor_adopt(acceptor, pair[1], protocol)) die("no connection");
}

static void say(struct remote *c, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t n = send(c->fd, bytes, count, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) die("%s", strerror(errno));
        if (n < 0) {
            turns();
            continue;
        }
        bytes += n;
        count -= (size_t)n;
    }
}

static void hear(struct remote *c) {
    ssize_t n;
    while ((n = recv(c->fd, c->got + c->got_bytes, OUT_BYTES - 1 - c->got_bytes, 0)) > 0) c->got_bytes += (size_t)n;
    c->got[c->got_bytes] = 0;
}

/* ---- beanstalk: 20 put, 20 reserve and delete ---- */

static void answer_reserved(struct remote *c, unsigned depth, size_t body_bytes) {
    char out[64 << 10], *to = out;
    const char *at = c->got, *end = c->got + c->got_bytes;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) break;
        if (memcmp(at, "RESERVED ", 9) != 0) {
            if (memcmp(at, "DELETED\r\n", 9) != 0) die("answered %.40s", at);
            if (depth == 1) to += sprintf(to, "reserve\r\n");
            at = line_end + 1;
            continue;
        }
        if ((size_t)(end - line_end) < body_bytes + 3) break;
        done++; /* counted here, since its delete may have to wait behind a reserve that waits */
        to += sprintf(to, "delete %llu\r\n%s", strtoull(at + 9, NULL, 10), depth == 1 ? "" : "reserve\r\n");
        at = line_end + 1 + body_bytes + 2;
    }
    c->got_bytes = (size_t)(end - at);
    memmove(c->got, at, c->got_bytes);
    say(c, out, (size_t)(to - out));
}

static void beanstalk(unsigned rounds, unsigned depth, size_t body_bytes) {
    char *puts = allocate(depth, 64 + body_bytes);
    size_t head = (size_t)sprintf(puts, "put 1024 0 60 %zu\r\n", body_bytes), put_bytes = head + body_bytes + 2;
    memset(puts + head, 'x', body_bytes);
    memcpy(puts + head + body_bytes, "\r\n", 2);
    for (unsigned i = 1; i < depth; i++) memcpy(puts + i * put_bytes, puts, put_bytes);
    for (unsigned i = 0; i < 40; i++) connect_as(&remotes[i], table_protocol("beanstalk"));
    for (unsigned i = 20; i < 40; i++)
        for (unsigned n = 0; n < depth; n++) say(&remotes[i], "reserve\r\n", 9);
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < 20; i++) say(&remotes[i], puts, depth * put_bytes);
        uint64_t wanted = done + 20 * depth;
        for (int turn = 0; done < wanted; turn++) {
            if (turn == TURNS) die("stuck");
            turns();
            for (unsigned i = 0; i < 40; i++) hear(&remotes[i]);
            for (unsigned i = 0; i < 20; i++) remotes[i].got_bytes = 0;
            for (unsigned i = 20; i < 40; i++) answer_reserved(&remotes[i], depth, body_bytes);
        }
    }
}

/* ---- NSQ ---- */

static size_t command(char *to, unsigned batch) {
    uint8_t *at = (uint8_t *)to + sprintf(to, batch > 1 ? "MPUB load\n" : "PUB load\n");
    if (batch > 1) at = put_u32(put_u32(at, 4 + batch * (4 + BODY_BYTES)), batch);
    for (unsigned i = 0; i < batch; i++) {
        at = put_u32(at, BODY_BYTES);
        memset(at, 'x', BODY_BYTES);
        at += BODY_BYTES;
    }
    return (size_t)(at - (uint8_t *)to);
}

/* Takes frames; messages are finished. */
static void answer_frames(struct remote *c) {
    static char out[1 << 20];
    char *to = out;
    const char *at = c->got, *end = c->got + c->got_bytes;
    while (end - at >= 8) {
        uint32_t size;
        memcpy(&size, at, sizeof size);
        size = __builtin_bswap32(size);
        if ((size_t)(end - at) < 4 + (size_t)size) break;
        if (at[7] == 1) die("answered %.40s", at + 8);
        if (at[7] == 2) {
            memcpy(to, "FIN ", 4);
            memcpy(to + 4, at + 18, 16);
            to[20] = '\n';
            to += 21;
            done++;
        }
        at += 4 + size;
    }
    c->got_bytes = (size_t)(end - at);
    memmove(c->got, at, c->got_bytes);
    say(c, out, (size_t)(to - out));
}

static void nsq(unsigned rounds, unsigned batch, unsigned depth, unsigned consumers) {
    unsigned producers = 4;
    char *block = allocate(depth, batch * (BODY_BYTES + 4u) + 32);
    size_t bytes = 0;
    for (unsigned i = 0; i < depth; i++) bytes += command(block + bytes, batch);
    for (unsigned i = 0; i < producers + consumers; i++) {
        connect_as(&remotes[i], table_protocol("nsq"));
        say(&remotes[i], "  V2", 4);
        if (i >= producers) say(&remotes[i], "SUB load channel\nRDY 1000\n", 26);
        turns();
    }
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t messages = (uint64_t)producers * depth * batch, wanted = done + messages;
        for (unsigned i = 0; i < producers; i++) say(&remotes[i], block, bytes);
        for (int turn = 0; turn < (consumers ? TURNS : 4); turn++) {
            turns();
            for (unsigned i = 0; i < producers + consumers; i++) hear(&remotes[i]);
            for (unsigned i = 0; i < producers + consumers; i++) answer_frames(&remotes[i]);
            if (consumers && done >= wanted) break;
        }
        if (!consumers) done += messages;
    }
    turns();
}

/* ---- NATS ---- */

static void connect_nats(struct remote *c, const char *said) {
    connect_as(c, nats_protocol);
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n";
    say(c, hello, sizeof hello - 1);
    say(c, said, strlen(said));
    turns();
    hear(c);
    c->got_bytes = 0;
}

/* Publishes payloads of 128 bytes; subscribers count messages by their first line. */
static void nats_publish(unsigned rounds, unsigned subjects, unsigned subscribers, const char *said) {
    enum { DEPTH = 200, PAYLOAD = 128 };
    unsigned copies = subscribers > 0 && strstr(said, "group") == NULL ? subscribers : 1;
    char *block = allocate(DEPTH, PAYLOAD + 64);
    size_t bytes = 0;
    for (unsigned i = 0; i < DEPTH; i++) {
        unsigned number = subjects > 1 ? i * 7919 % subjects : 0;
        bytes += (size_t)sprintf(block + bytes, "PUB load.%07u %d\r\n%0*d\r\n", number, PAYLOAD, PAYLOAD, 0);
    }
    for (unsigned i = 0; i <= subscribers; i++) connect_nats(&remotes[i], i ? said : "");
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t wanted = done + DEPTH * copies;
        say(&remotes[0], block, bytes);
        for (int turn = 0; turn < (subscribers ? TURNS : 4) && done < wanted; turn++) {
            turns();
            for (unsigned i = 1; i <= subscribers; i++) {
                struct remote *c = &remotes[i];
                hear(c);
                for (const char *at = c->got; (at = memmem(at, (size_t)(c->got + c->got_bytes - at), "MSG ", 4)); at++)
                    done++;
                c->got_bytes = 0;
            }
        }
        if (subscribers == 0) done = wanted;
        if (done != wanted) die("%llu messages instead of %llu", (unsigned long long)done, (unsigned long long)wanted);
    }
}

/* ---- Pulsar ---- */

/* Sends SENDs of one message, or of a batch, until each has its receipt. */
static void pulsar(unsigned rounds, size_t body_bytes, unsigned batch, unsigned depth) {
    struct remote *c = &remotes[0];
    struct block block;
    uint8_t hello[COMMAND_BYTES], body[16];
    connect_as(c, pulsar_protocol);
    uint8_t *end = put_frame(hello, CONNECT, body, (size_t)(put_text(body, 1, "load") - body));
    say(c, (const char *)hello, (size_t)(end - hello));
    turns();
    hear(c);
    c->got_bytes = 0;
    block_open(&block, body_bytes, batch, 0, depth);
    uint64_t sequence = FIRST_SEQUENCE;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < block.count; i++) block_write(&block, i, 0, sequence++, now_then);
        say(c, (const char *)block.frames, block.count * block.frame_bytes);
        unsigned receipts = 0;
        for (int turn = 0; receipts < block.count; turn++) {
            if (turn == TURNS) die("stuck");
            turns();
            hear(c);
            struct frame frame;
            const uint8_t *at = (const uint8_t *)c->got, *stop = at + c->got_bytes;
            for (size_t bytes; (bytes = read_frame(at, stop, COMMAND_BYTES, &frame)) > 0; at += bytes, receipts++)
                if (frame.type != SEND_RECEIPT) die("answered with a command of type %d", (int)frame.type);
            c->got_bytes = (size_t)(stop - at);
            memmove(c->got, at, c->got_bytes);
        }
        done += (uint64_t)block.count * batch;
    }
    block_close(&block);
}

int main(int argc, char **argv) {
    if (argc != 3) die("usage: instructions LOAD ROUNDS");
    unsigned rounds = (unsigned)number(argv[2], 1, 1e9);
    begin();
    nats_protocol = table_protocol("nats");
    pulsar_protocol = table_protocol("pulsar");
    if (strcmp(argv[1], "pipelined") == 0)
        beanstalk(rounds, 64, BODY_BYTES);
    else if (strcmp(argv[1], "unpipelined") == 0)
        beanstalk(rounds, 1, BODY_BYTES);
    else if (strcmp(argv[1], "bodies-16k") == 0)
        beanstalk(rounds, 4, 16 << 10);
    else if (strcmp(argv[1], "bodies-64k") == 0)
        beanstalk(rounds, 2, 60000);
    else if (strcmp(argv[1], "nsq-pub") == 0)
        nsq(rounds, 1, 64, 0);
    else if (strcmp(argv[1], "nsq-mpub") == 0)
        nsq(rounds, 200, 4, 0);
    else if (strcmp(argv[1], "nsq-mpub-consumed") == 0)
        nsq(rounds, 200, 4, 4);
    else if (strcmp(argv[1], "nats-unwanted") == 0)
        nats_publish(rounds, 1, 0, "");
    else if (strcmp(argv[1], "nats-one") == 0)
        nats_publish(rounds, 1, 1, "SUB load.0000000 1\r\n");
    else if (strcmp(argv[1], "nats-fan-out") == 0)
        nats_publish(rounds, 1, 8, "SUB load.0000000 1\r\n");
    else if (strcmp(argv[1], "nats-queue") == 0)
        nats_publish(rounds, 1, 8, "SUB load.0000000 group 1\r\n");
    else if (strcmp(argv[1], "nats-subjects") == 0)
        nats_publish(rounds, 100000, 1, "SUB load.> 1\r\n");
    else if (strcmp(argv[1], "pulsar-publish") == 0)
        pulsar(rounds, 1024, 1, 64);
    else if (strcmp(argv[1], "pulsar-batch") == 0)
        pulsar(rounds, 100, 100, 10);
    else
        die("no load %s", argv[1]);
    printf("%llu\n", (unsigned long long)done);
    return 0;
}

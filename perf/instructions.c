#define _GNU_SOURCE
#include "instructions.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acceptor/protocols/table.h"
#include "measure.h"
#include "ringbuf/ring.h"
#include "shards/worker_state.h"

enum { SHARDS = 4, RING_BYTES = 1 << 20 };
#define SEGMENT_TOTAL ((uint64_t)64 << 20)

struct acceptor *its_acceptor;
struct remote remotes[MAX_REMOTES];
uint64_t now_then = 1000 * NS;
uint64_t done;

#define PROTOCOL(name) &counted_##name,
static const struct counted *const protocols[] = {PROTOCOLS};
#undef PROTOCOL

static struct worker *its_worker;
static void (*answer)(const struct upcall *);

/* Only these two functions are counted: --toggle-collect names them. */
__attribute__((noipa)) static int acceptor_counted(void) {
    int upcalls = acceptor_turn(its_acceptor);
    __asm__ volatile("" ::: "memory"); /* forces a call, no tail jump: the count ends where this returns */
    return upcalls;
}

__attribute__((noipa)) static bool worker_counted(void) {
    bool busy = worker_turn(its_worker, now_then, now_then + 1700000000 * NS);
    __asm__ volatile("" ::: "memory");
    return busy;
}

static void give_segments(void) {
    uint64_t bytes;
    uint32_t number;
    int64_t shard;
    while ((shard = worker_wanting_shard(its_worker, &bytes, &number)) >= 0) {
        while (worker_dead_segments(its_worker, (uint32_t)shard) && worker_drop_first(its_worker, (uint32_t)shard))
            continue;
        uint64_t size = bytes > SEGMENT_TOTAL ? bytes : SEGMENT_TOTAL;
        int fd = memfd_create("segment", MFD_CLOEXEC);
        if (!worker_add_segment(its_worker, (uint32_t)shard, fd, number, size, true, now_then)) die("no segment");
    }
}

void turns(void) {
    for (int i = 0; i < 4; i++) {
        now_then += 20000;
        acceptor_set_now(its_acceptor, now_then);
        struct upcall u;
        if (acceptor_counted() != 0)
            while (acceptor_upcall(its_acceptor, &u)) {
                if (answer == NULL) die("Python is asked for something");
                answer(&u);
            }
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
    its_worker = worker_new(0, 1, SHARDS, board, worker_wake, 42);
    for (uint32_t shard = 0; shard < SHARDS; shard++) worker_own(its_worker, shard);
    worker_recovered(its_worker);
    give_segments();
    its_acceptor = acceptor_new(table_protocols(), 0, 1, SHARDS, board, acceptor_wake);
    acceptor_set_now(its_acceptor, now_then);
    if (!worker_peer(its_worker, 0, back, there, acceptor_wake) ||
        acceptor_peer(its_acceptor, 0, there, back, worker_wake))
        die("no channel");
}

/* ---- clients ---- */

void connect_as(struct remote *c, const char *protocol) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) die("%s", strerror(errno));
    int size = OUT_BYTES;
    for (int i = 0; i < 2; i++) setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    c->fd = pair[0];
    c->got = allocate(1, OUT_BYTES);
    if (!acceptor_adopt(its_acceptor, pair[1], table_protocol(protocol))) die("no connection");
}

void say_to_acceptor(struct remote *c, const char *bytes, size_t count) {
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

void hear_acceptor(struct remote *c) {
    ssize_t n;
    while ((n = recv(c->fd, c->got + c->got_bytes, OUT_BYTES - 1 - c->got_bytes, 0)) > 0) c->got_bytes += (size_t)n;
    c->got[c->got_bytes] = 0;
}

int main(int argc, char **argv) {
    if (argc != 3) die("usage: instructions LOAD ROUNDS");
    const struct counted_load *load = NULL;
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols && load == NULL; i++) {
        answer = protocols[i]->answer;
        for (const struct counted_load *each = protocols[i]->loads; each->name != NULL; each++)
            if (strcmp(argv[1], each->name) == 0) load = each;
    }
    if (load == NULL) die("no load %s", argv[1]);
    begin();
    load->run((unsigned)number(argv[2], 1, 1e9));
    printf("%llu\n", (unsigned long long)done);
    return 0;
}

/* Loads of beanstalkd's protocol: 20 clients put, 20 reserve and delete. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "instructions.h"
#include "measure.h"

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
    say_to_acceptor(c, out, (size_t)(to - out));
}

static void put_and_reserve(unsigned rounds, unsigned depth, size_t body_bytes) {
    char *puts = allocate(depth, 64 + body_bytes);
    size_t head = (size_t)sprintf(puts, "put 1024 0 60 %zu\r\n", body_bytes), put_bytes = head + body_bytes + 2;
    memset(puts + head, 'x', body_bytes);
    memcpy(puts + head + body_bytes, "\r\n", 2);
    for (unsigned i = 1; i < depth; i++) memcpy(puts + i * put_bytes, puts, put_bytes);
    for (unsigned i = 0; i < 40; i++) connect_as(&remotes[i], "beanstalk");
    for (unsigned i = 20; i < 40; i++)
        for (unsigned n = 0; n < depth; n++) say_to_acceptor(&remotes[i], "reserve\r\n", 9);
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < 20; i++) say_to_acceptor(&remotes[i], puts, depth * put_bytes);
        uint64_t wanted = done + 20 * depth;
        for (int turn = 0; done < wanted; turn++) {
            if (turn == TURNS) die("stuck");
            turns();
            for (unsigned i = 0; i < 40; i++) hear_acceptor(&remotes[i]);
            for (unsigned i = 0; i < 20; i++) remotes[i].got_bytes = 0;
            for (unsigned i = 20; i < 40; i++) answer_reserved(&remotes[i], depth, body_bytes);
        }
    }
}

static void pipelined(unsigned rounds) {
    put_and_reserve(rounds, 64, BODY_BYTES);
}

static void unpipelined(unsigned rounds) {
    put_and_reserve(rounds, 1, BODY_BYTES);
}

static void bodies_16k(unsigned rounds) {
    put_and_reserve(rounds, 4, 16 << 10);
}

static void bodies_64k(unsigned rounds) {
    put_and_reserve(rounds, 2, 60000);
}

static const struct counted_load loads[] = {{"pipelined", pipelined},
                                            {"unpipelined", unpipelined},
                                            {"bodies-16k", bodies_16k},
                                            {"bodies-64k", bodies_64k},
                                            {0}};

const struct counted counted_beanstalk = {loads, .answer = NULL};

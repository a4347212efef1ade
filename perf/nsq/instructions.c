/* Loads of NSQ's protocol: 4 producers, and as many consumers or none. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "big_endian.h"
#include "instructions.h"
#include "measure.h"

/* Does what Python does for a SUB, which is all that Python is asked for. */
static void answer(const struct upcall *u) {
    static const char topic[] = "load", channel[] = "channel";
    if (u->kind == UPCALL_ANSWER) {
        acceptor_reply(its_acceptor, u->conn, "\0\0\0\6\0\0\0\0OK", 10);
        acceptor_resume(its_acceptor, u->conn);
        return;
    }
    if (u->bytes_count < 4 || memcmp(u->bytes, "SUB ", 4) != 0) die("Python is asked for something");
    struct subscribe s = {.timeout_ns = 60 * NS, .timeout_max_ns = 900 * NS, .name_bytes = sizeof channel - 1};
    char body[sizeof s + sizeof channel];
    memcpy(body, &s, sizeof s);
    memcpy(body + sizeof s, channel, sizeof channel - 1);
    struct message request = {.kind = MSG_SUBSCRIBE, .topic = acceptor_bind(its_acceptor, topic, sizeof topic - 1)};
    acceptor_request(its_acceptor, 0, u->conn, &request, body, sizeof s + sizeof channel - 1);
}

static size_t command(char *to, unsigned batch) {
    uint8_t *at = (uint8_t *)to + sprintf(to, batch > 1 ? "MPUB load\n" : "PUB load\n");
    if (batch > 1) at = write_u32(write_u32(at, 4 + batch * (4 + BODY_BYTES)), batch);
    for (unsigned i = 0; i < batch; i++) {
        at = write_u32(at, BODY_BYTES);
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
        uint32_t size = read_u32(at);
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
    say_to_acceptor(c, out, (size_t)(to - out));
}

static void publish(unsigned rounds, unsigned batch, unsigned depth, unsigned consumers) {
    unsigned producers = 4;
    char *block = allocate(depth, batch * (BODY_BYTES + 4u) + 32);
    size_t bytes = 0;
    for (unsigned i = 0; i < depth; i++) bytes += command(block + bytes, batch);
    for (unsigned i = 0; i < producers + consumers; i++) {
        connect_as(&remotes[i], "nsq");
        say_to_acceptor(&remotes[i], "  V2", 4);
        if (i >= producers) say_to_acceptor(&remotes[i], "SUB load channel\nRDY 1000\n", 26);
        turns();
    }
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t messages = (uint64_t)producers * depth * batch, wanted = done + messages;
        for (unsigned i = 0; i < producers; i++) say_to_acceptor(&remotes[i], block, bytes);
        for (int turn = 0; turn < (consumers ? TURNS : 4); turn++) {
            turns();
            for (unsigned i = 0; i < producers + consumers; i++) hear_acceptor(&remotes[i]);
            for (unsigned i = 0; i < producers + consumers; i++) answer_frames(&remotes[i]);
            if (consumers && done >= wanted) break;
        }
        if (!consumers) done += messages;
    }
    turns();
}

static void pub(unsigned rounds) {
    publish(rounds, 1, 64, 0);
}

static void mpub(unsigned rounds) {
    publish(rounds, 200, 4, 0);
}

static void mpub_consumed(unsigned rounds) {
    publish(rounds, 200, 4, 4);
}

static const struct counted_load loads[] = {
    {"nsq-pub", pub}, {"nsq-mpub", mpub}, {"nsq-mpub-consumed", mpub_consumed}, {0}};

const struct counted counted_nsq = {loads, answer};

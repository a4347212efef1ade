/* Loads of Pulsar's protocol: one producer. */
#define _GNU_SOURCE
#include <string.h>

#include "acceptor/protocols/pulsar/pulsar_state.h"
#include "instructions.h"
#include "measure.h"
#include "pulsar/block.h"
#include "pulsar/frames.h"

/* Does what Python does for a CONNECT and a PRODUCER; the client sends only the first. */
static void answer(const struct upcall *u) {
    static const char topic[] = "load";
    static const struct {
        struct producer_place place;
        struct producer_terms terms; /* no policies */
    } opened;
    if (u->bytes_count == 0 || *u->bytes != PULSAR_DO) return;
    acceptor_call(its_acceptor, u->conn, "connected", 0, NULL, 0, NULL, 0);
    acceptor_call(its_acceptor, u->conn, "done", 0, NULL, 0, NULL, 0);
    acceptor_call(its_acceptor, u->conn, "add-producer", 0, topic, sizeof topic - 1, NULL, 0);
    if (acceptor_call(its_acceptor, u->conn, "open-producer", 0, &opened, sizeof opened, NULL, 0) != CALL_DONE)
        die("no producer");
    acceptor_resume(its_acceptor, u->conn);
}

/* Sends SENDs of one message, or of a batch, until each has its receipt. */
static void publish(unsigned rounds, size_t body_bytes, unsigned batch, unsigned depth) {
    struct remote *c = &remotes[0];
    struct block block;
    uint8_t hello[COMMAND_BYTES], body[16];
    connect_as(c, "pulsar");
    uint8_t *end = put_frame(hello, CONNECT, body, (size_t)(put_text(body, 1, "load") - body));
    say_to_acceptor(c, (const char *)hello, (size_t)(end - hello));
    turns();
    hear_acceptor(c);
    c->got_bytes = 0;
    block_open(&block, body_bytes, batch, 0, depth);
    uint64_t sequence = FIRST_SEQUENCE;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < block.count; i++) block_write(&block, i, 0, sequence++, now_then);
        say_to_acceptor(c, (const char *)block.frames, block.count * block.frame_bytes);
        unsigned receipts = 0;
        for (int turn = 0; receipts < block.count; turn++) {
            if (turn == TURNS) die("stuck");
            turns();
            hear_acceptor(c);
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

static void single(unsigned rounds) {
    publish(rounds, 1024, 1, 64);
}

static void batch(unsigned rounds) {
    publish(rounds, 100, 100, 10);
}

static const struct counted_load loads[] = {{"pulsar-publish", single}, {"pulsar-batch", batch}, {0}};

const struct counted counted_pulsar = {loads, answer};

/* Loads of NATS's protocol: one client publishes, none, one or eight subscribe. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acceptor/protocols/nats/nats_state.h"
#include "instructions.h"
#include "measure.h"

/* Sends INFO, and lets the acceptor know that a client has said CONNECT, and who it is. */
static void answer(const struct upcall *u) {
    static const char info[] = "INFO {}\r\n";
    if (u->bytes_count == 0) acceptor_reply(its_acceptor, u->conn, info, sizeof info - 1);
    if (u->bytes_count > 0 && *u->bytes == 'C')
        acceptor_call(its_acceptor, u->conn, "flags", NATS_ECHO | NATS_HEADERS | NATS_NO_RESPONDERS, NULL, 0, NULL, 0);
    acceptor_resume(its_acceptor, u->conn);
}

static void introduce(struct remote *c, const char *said) {
    connect_as(c, "nats");
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n";
    say_to_acceptor(c, hello, sizeof hello - 1);
    say_to_acceptor(c, said, strlen(said));
    turns();
    hear_acceptor(c);
    c->got_bytes = 0;
}

/* Publishes payloads of 128 bytes; subscribers count messages by their first line. */
static void publish(unsigned rounds, unsigned subjects, unsigned subscribers, const char *said) {
    enum { DEPTH = 200, PAYLOAD = 128 };
    unsigned copies = subscribers > 0 && strstr(said, "group") == NULL ? subscribers : 1;
    char *block = allocate(DEPTH, PAYLOAD + 64);
    size_t bytes = 0;
    for (unsigned i = 0; i < DEPTH; i++) {
        unsigned number = subjects > 1 ? i * 7919 % subjects : 0;
        bytes += (size_t)sprintf(block + bytes, "PUB load.%07u %d\r\n%0*d\r\n", number, PAYLOAD, PAYLOAD, 0);
    }
    for (unsigned i = 0; i <= subscribers; i++) introduce(&remotes[i], i ? said : "");
    for (unsigned round = 0; round < rounds; round++) {
        uint64_t wanted = done + DEPTH * copies;
        say_to_acceptor(&remotes[0], block, bytes);
        for (int turn = 0; turn < (subscribers ? TURNS : 4) && done < wanted; turn++) {
            turns();
            for (unsigned i = 1; i <= subscribers; i++) {
                struct remote *c = &remotes[i];
                hear_acceptor(c);
                for (const char *at = c->got; (at = memmem(at, (size_t)(c->got + c->got_bytes - at), "MSG ", 4)); at++)
                    done++;
                c->got_bytes = 0;
            }
        }
        if (subscribers == 0) done = wanted;
        if (done != wanted) die("%llu messages instead of %llu", (unsigned long long)done, (unsigned long long)wanted);
    }
}

static void unwanted(unsigned rounds) {
    publish(rounds, 1, 0, "");
}

static void one(unsigned rounds) {
    publish(rounds, 1, 1, "SUB load.0000000 1\r\n");
}

static void fan_out(unsigned rounds) {
    publish(rounds, 1, 8, "SUB load.0000000 1\r\n");
}

static void queue(unsigned rounds) {
    publish(rounds, 1, 8, "SUB load.0000000 group 1\r\n");
}

static void subjects(unsigned rounds) {
    publish(rounds, 100000, 1, "SUB load.> 1\r\n");
}

static const struct counted_load loads[] = {{"nats-unwanted", unwanted}, {"nats-one", one},
                                            {"nats-fan-out", fan_out},   {"nats-queue", queue},
                                            {"nats-subjects", subjects}, {0}};

const struct counted counted_nats = {loads, answer};

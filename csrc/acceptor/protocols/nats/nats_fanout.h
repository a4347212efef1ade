/* Messages for very many plain subscribers of one pattern, which are not all given it in the turn of its arrival.
 *
 * A turn gives a message to as many as its share allows, and the rest follow in later turns. Who was subscribed when
 * the message came, and still is, gets it; who subscribes later does not. Until the last has it, the publisher's
 * further input waits, and so does all that comes from an acceptor or a server that sent such a message. So the order
 * of one publisher's messages is kept, and its next PONG comes after the message.
 *
 * Messages that are traced, and those that the server publishes itself, are handed out in one turn.
 */
#ifndef MQ_NATS_FANOUT_H
#define MQ_NATS_FANOUT_H

#include "acceptor/protocols/nats/nats_delivery.h"
#include "acceptor/protocols/nats/nats_message.h"
#include "base/subject_tail.h"

struct blocks;
struct shared_bytes;
struct subject_entries;
struct subject_pattern;

enum {
    NATS_FEW = 1024,        /* so many subscribers of a pattern are always given a message in one turn */
    NATS_MOST_FANOUTS = 64, /* at this many, or this many bytes, publishers wait for a later turn */
    NATS_MOST_FANOUT_BYTES = 16 << 20,
};

/* A message, and who is still to be given it. */
struct nats_fanout {
    struct nats_fanout *next;
    struct subject_tail tail;
    uint64_t origin;
    uint32_t account;
    uint32_t from; /* the publisher, if it is a client here */
    bool answers;  /* as in struct nats_delivery */
    size_t bytes;
    struct nats_message message;
    struct shared_bytes *shared; /* has its payload; NULL: that is in `texts` */
    struct blocks *blocks;       /* of `shared` */
    uint8_t texts[];
};

/* As origin of a message another acceptor, or else a connection by its number. */
static inline uint64_t nats_origin_of_acceptor(uint32_t other) {
    return (uint64_t)1 << 32 | other;
}

/* Gives a message to the plain subscribers of a pattern that has more than NATS_FEW, to some of them later. */
void nats_give_many(struct nats_delivery *d, struct subject_pattern *pattern);
/* Gives the message to entries from `begin` on, until that has cost `most` or many connections have something to send
 * that had nothing. Returns where it stopped. */
uint32_t nats_give_some(struct nats_delivery *d, struct subject_entries *entries, uint32_t begin, uint32_t end,
                        size_t most);
void nats_fanout_count(struct nats_server *server, const struct nats_fanout *fanout, bool more);
/* If it came from another acceptor, all that comes from that one waits: see hear() in mesh.c. */
void nats_fanout_pause(struct acceptor *a, uint64_t origin, bool pause);

bool nats_fanout_holds(const struct nats_server *server, uint64_t origin);

/* Whether the connection's input may go on; else it is stalled until all have its last message. */
static inline bool nats_fanout_may_go_on(const struct nats_server *server, struct connection *c) {
    if (__builtin_expect(server->fanouts.first == NULL, 1) || !nats_fanout_holds(server, c->number)) return true;
    return c->closed || c->stall != STALL_NONE || stalled(c, STALL_TURN);
}

#endif

/* What the files of the target fuzz_shard share: fuzz_shard.c says what is looked for.
 *
 *   shard_says.c    what acceptors send to workers, right and wrong
 *   shard_heard.c   what workers send back, and whether they may
 */
#ifndef MQ_FUZZ_SHARD_PLAY_H
#define MQ_FUZZ_SHARD_PLAY_H

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "ringbuf/channel.h"
#include "ringbuf/message.h"
#include "script.h"
#include "world.h"

enum {
    ACCEPTORS = 2,
    CONNECTIONS = 6, /* of each */
    TOPICS = 8,
    CHANNELS = 4,
    RECENT = 64,
    AWAITED = 64, /* of one connection and worker */
    MAX_BODY = 20000,
    NAME_BYTES = 16,
    CONSUMERS = 3, /* of one connection and worker */
    TRANSACTIONS = 3,
};

/* Of the consumers of a connection. */
extern const uint32_t consumer_numbers[CONSUMERS];

struct consuming {
    bool subscribed;
    uint64_t credit, highest_credit; /* the last that was sent; the highest that may be in force */
    uint32_t in_flight;              /* at least */
};

/* Of a connection, what concerns one worker. */
struct relation {
    struct {
        uint32_t slot, consumer;
        uint8_t kind;
    } awaited[AWAITED];
    uint32_t awaited_count;
    struct consuming as[CONSUMERS];
};

struct connection {
    uint32_t number;
    uint32_t next_slot;
    struct relation with[WORKERS];
};

/* All acceptors. */
extern struct side {
    struct channel *channels[ACCEPTORS][WORKERS];
    struct connection connections[ACCEPTORS][CONNECTIONS];
    uint64_t next_id;
    uint64_t recent[RECENT];
    uint32_t recent_count;
    bool ephemerals;
    bool unsure; /* what comes may have been sent before something that ended its flight */
} side;

/* --- shard_says.c: what a connection of an acceptor says, with parameters out of the script ----------------------- */

void say_publish(uint32_t acceptor, struct connection *c);
void say_publish_each(uint32_t acceptor, struct connection *c);
void say_attach(uint32_t acceptor, struct connection *c);
void say_detach(uint32_t acceptor, struct connection *c);
void say_publish_many(uint32_t acceptor, struct connection *c);
void say_subscribe(uint32_t acceptor, struct connection *c);
void say_unsubscribe(uint32_t acceptor, struct connection *c);
void say_change(uint32_t acceptor, struct connection *c);
void say_consume(uint32_t acceptor, struct connection *c);
void say_credit(uint32_t acceptor, struct connection *c);
void say_sent(uint32_t acceptor, struct connection *c);
void say_catalog(uint32_t acceptor, struct connection *c);
void say_stage(uint32_t acceptor, struct connection *c);
void say_acknowledge(uint32_t acceptor, struct connection *c);
void say_end(uint32_t acceptor, struct connection *c);
void say_of_queue(uint32_t acceptor, struct connection *c);
void say_anything(uint32_t acceptor, struct connection *c);
void say_gone(uint32_t acceptor, struct connection *c);
void say_together(uint32_t acceptor, struct connection *c);
void say_damaged_requests(uint32_t acceptor, struct connection *c);

/* A message of the kind, with these flags beside its own, whether the kind knows them or not. */
void say_with_flags(uint32_t acceptor, struct connection *c, uint8_t kind, uint16_t flags);
/* By kind of message: those that it was sent with since the program began. */
extern uint16_t flags_sent[256];

/* The names of all topics, for a worker that an acceptor is newly joined to. */
void say_open(uint32_t acceptor, uint32_t worker);
/* What is in flight may end without a word. */
void forget_in_flight(void);

/* --- shard_heard.c ------------------------------------------------------------------------------------------------ */

/* False: the worker has said nothing. */
bool hear_worker(uint32_t acceptor, uint32_t worker);

#endif

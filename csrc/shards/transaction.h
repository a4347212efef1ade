/* Transactions of a worker: messages and acknowledgements of one topic that do not take effect before the commit.
 *
 * A message of a transaction gets its seq at once, and a STAGED record. When the transaction commits it enters the
 * topic by a PUBLISH record like any other. Until then nothing from its seq on is delivered (topic.blocked_seq), so
 * that deliveries stay in the order of seqs. An acknowledgement in a transaction gets a PENDING record, and its message
 * waits as a delivery that is deferred for ever (DELIVERY_PENDING_NS). Both records keep their segments until the
 * transaction ends.
 *
 * The decision is made elsewhere: a TXN_END brings it, perhaps more than once.
 */
#ifndef MQ_SHARDS_TRANSACTION_H
#define MQ_SHARDS_TRANSACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/map.h"
#include "log/log.h"

struct worker;
struct topic;
struct parts_left;
struct shard;
struct record;

enum { WORKER_MAX_TRANSACTIONS = 1 << 16, WORKER_MAX_IN_TRANSACTIONS = 1 << 22 };
#define DELIVERY_PENDING_NS UINT64_MAX
/* The latest time to which a message can be deferred, below that of one waiting for a transaction. */
#define DELIVERY_LATEST_NS (DELIVERY_PENDING_NS - 1)
struct staged_message {
    uint64_t seq;
    log_position position; /* of its STAGED record */
};

struct acknowledgement {
    uint32_t arena_link;
    uint32_t transaction;
    uint32_t previous, next;           /* in the transaction's list */
    uint32_t same_previous, same_next; /* in the list for the same message */
    uint32_t subscription;             /* its number in the shard's log */
    bool upto;                         /* cumulative; no other transaction may have one until this ends */
    bool over;                         /* void: its channel was moved back, and the message acknowledged again since */
    uint64_t seq;
    log_position position;   /* of its PENDING record */
    struct parts_left *left; /* if only parts of the message are acknowledged: those that would be left, with no room
                                for more; else NULL */
};

enum transaction_state { TRANSACTION_OPEN = 0, TRANSACTION_COMMITTING, TRANSACTION_ABORTING };

struct transaction {
    uint32_t arena_link;
    uint32_t topic, previous, next; /* its topic, and its place in the topic's list */
    uint32_t earlier, later;        /* in the topic's list of those that publish, by their first seq still staged */
    struct shard *shard;
    uint64_t era, number;
    enum transaction_state state;
    struct staged_message *staged; /* by seq */
    size_t count, capacity, done;  /* done: how many have been committed or dropped */
    uint32_t first, last;          /* list of acknowledgements */
    uint32_t acknowledged;
};

struct transactions {
    struct arena arena, acknowledgements;
    struct map by_number;  /* by era and number */
    struct map by_message; /* by era and seq: the first acknowledgement of that message */
    uint64_t items;
    uint64_t in_parts, in_many_parts; /* acknowledgements that have `left`, of few words and of many */
    /* A topic's transactions share an era while there are any. It tells them from those of a deleted topic, not freed
     * yet, whose number another topic may have by now. */
    uint64_t eras;
    uint32_t forgotten; /* lists to be freed: the first of a list; its `later` is the first of the next list */
};

static inline struct transaction *transaction_at(const struct transactions *all, uint32_t n) {
    return arena_at(&all->arena, n);
}
static inline struct acknowledgement *acknowledgement_at(const struct transactions *all, uint32_t n) {
    return arena_at(&all->acknowledgements, n);
}
/* Whether all of it is done. */
static inline bool transaction_is_empty(const struct transaction *of) {
    return !of->first && of->done == of->count;
}
/* The seq of the first message that is still staged. */
static inline uint64_t transaction_first_seq(const struct transaction *of) {
    return of->staged[of->done].seq;
}

#endif

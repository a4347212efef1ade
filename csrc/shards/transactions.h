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
#ifndef MQ_TRANSACTIONS_H
#define MQ_TRANSACTIONS_H

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
/* The longest attributes and body of a PENDING. */
#define PENDING_BYTES (17 * sizeof(uint64_t))

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
    struct parts_left *left; /* if only parts of the message are acknowledged: those that would be left; else NULL */
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
    uint64_t in_parts; /* acknowledgements that have `left` */
    /* A topic's transactions share an era while there are any. It tells them from those of a deleted topic, not freed
     * yet, whose number another topic may have by now. */
    uint64_t eras;
    uint32_t forgotten; /* lists to be freed: the first of a list; its `later` is the first of the next list */
};

bool transactions_open(struct transactions *all);
void transactions_close(struct transactions *all);

static inline struct transaction *transaction_at(const struct transactions *all, uint32_t n) {
    return arena_at(&all->arena, n);
}
static inline struct acknowledgement *acknowledgement_at(const struct transactions *all, uint32_t n) {
    return arena_at(&all->acknowledgements, n);
}

/* The topic's transaction of that number, made if need be, with room for one more item. 0 when there is no room, or it
 * is ending. */
uint32_t transaction_take(struct worker *w, uint32_t topic, uint64_t number);
/* The topic's transaction of that number, or 0. */
uint32_t transaction_find(const struct worker *w, uint32_t topic, uint64_t number);
/* Whether all of it is done. */
static inline bool transaction_is_empty(const struct transaction *of) {
    return !of->first && of->done == of->count;
}
/* The seq of the first message that is still staged. */
static inline uint64_t transaction_first_seq(const struct transaction *of) {
    return of->staged[of->done].seq;
}
/* Adds a message that was staged; transaction_take has made sure that there is room. */
void transaction_staged(struct worker *w, uint32_t transaction, uint64_t seq, log_position position);
/* The next staged message is done. */
void transaction_pass(struct worker *w, uint32_t transaction);
/* Puts a transaction into its topic's list behind another one; 0: first. Takes it out. */
void transaction_link_behind(struct worker *w, uint32_t transaction, uint32_t previous);
void transaction_unlink(struct worker *w, uint32_t transaction);
/* Frees one that is empty and in no list; takes it out of its list and frees it. */
void transaction_free(struct worker *w, uint32_t transaction);
void transaction_remove(struct worker *w, uint32_t transaction);
bool transaction_is_there(const struct worker *w, const struct transaction *of);

/* --- commit.c ----------------------------------------------------------------------------------------------------- */

/* The topic is gone: its transactions are to be freed, piece by piece. */
void transactions_forget(struct worker *w, uint32_t topic);
/* Frees a piece. True if there is more. */
bool transactions_clear(struct worker *w);

/* --- acknowledge.c ------------------------------------------------------------------------------------------------ */

/* A transaction ends: its acknowledgement takes effect, or the message is delivered again. */
void acknowledgement_end(struct worker *w, uint32_t acknowledgement, bool commit);
/* Frees an acknowledgement. */
void acknowledgement_forget(struct worker *w, uint32_t acknowledgement);

/* The parts of a message that are not pending in transactions. False: none is pending, or all are. */
__attribute__((cold)) bool transactions_hide(const struct worker *w, uint32_t delivery, struct parts_left *out);

/* To be asked when a message is to be delivered again. True: all its remaining parts are pending, or some are and it
 * would have to be split; then it waits for the end of the transactions. */
bool transactions_keep(struct worker *w, uint32_t delivery, bool splits);

/* A message is about to be copied to the head of the log: ends acknowledgements of it in transactions that are ending.
 * A PENDING record behind the TXN_END would belong to an open transaction when the log is read back. */
void transactions_settle(struct worker *w, uint32_t topic, uint64_t seq);
/* A message is copied to the head of the log: how many PENDING records, of PENDING_BYTES each, have to go with it; and
 * writes them. */
uint32_t transactions_pending(const struct worker *w, const struct topic *t, uint64_t seq);
void transactions_moved(struct worker *w, struct shard *s, const struct topic *t, uint64_t seq);

/* --- while the log is read back ----------------------------------------------------------------------------------- */

/* As transaction_take, but there is always room, or the worker dies. */
uint32_t replay_take(struct worker *w, uint32_t topic, uint64_t number);
void replay_staged(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);
void replay_pending(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);
void replay_end(struct worker *w, uint32_t topic, const struct record *r);
/* A PUBLISH record has a seq before the topic's next: the message was staged, in a segment that may be gone. Removes it
 * from its transaction; subscriptions whose cursor is behind it do not refer to it. */
void transactions_published(struct worker *w, uint32_t topic, uint64_t seq);

#endif

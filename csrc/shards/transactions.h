/* Transactions of a worker: what was published and acknowledged in each, of one topic, and does not count yet.
 *
 * A message of a transaction has its seq at once, and a STAGED record. It comes into the topic when the transaction is
 * committed, by a PUBLISH record like any other; until then nothing from its seq on is delivered to anybody (topic.blocked_seq), so
 * that the order of the seqs is that of deliveries. An acknowledgement in a transaction has a PENDING record, and its message
 * waits as a delivery that is deferred for ever (DELIVERY_PENDING_NS). Both records keep their segments until the end.
 *
 * Who decides is elsewhere: an END says what was decided, and may come again.
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
/* Attributes and body of a PENDING, at most. */
#define PENDING_BYTES (17 * sizeof(uint64_t))

struct staged_message {
    uint64_t seq;
    log_position position; /* of its STAGED */
};

struct acknowledgement {
    uint32_t arena_link;
    uint32_t transaction;
    uint32_t previous, next;           /* of the transaction's */
    uint32_t same_previous, same_next; /* of those of the same message */
    uint32_t subscription;             /* its number in the shard's log */
    bool upto;                         /* with all before it: nobody else may do so until the end */
    bool over; /* its channel was moved back, and the message acknowledged anew since: nothing of it counts */
    uint64_t seq;
    log_position position;   /* of its PENDING */
    struct parts_left *left; /* of a message of which only parts are acknowledged: what would be left; else NULL */
};

enum transaction_state { TRANSACTION_OPEN = 0, TRANSACTION_COMMITTING, TRANSACTION_ABORTING };

struct transaction {
    uint32_t arena_link;
    uint32_t topic, previous, next; /* of the topic's */
    uint32_t earlier, later;        /* of those of the topic's that publish, by the first seq that is not over */
    struct shard *shard;
    uint64_t era, number;
    enum transaction_state state;
    struct staged_message *staged; /* by seq */
    size_t count, capacity, done;  /* done: those before it are over */
    uint32_t first, last;          /* acknowledgements */
    uint32_t acknowledged;
};

struct transactions {
    struct arena arena, acknowledgements;
    struct map by_number;  /* by era and number */
    struct map by_message; /* by era and seq: the first acknowledgement of it */
    uint64_t items;
    uint64_t in_parts; /* acknowledgements that have `left` */
    /* A topic's have an era of their own as long as there are any: its number may be another's before those of a topic that is gone
     * are let go. */
    uint64_t eras;
    uint32_t forgotten; /* the first of a list; its `later` is that of the next list */
};

bool transactions_open(struct transactions *all);
void transactions_close(struct transactions *all);

static inline struct transaction *transaction_at(const struct transactions *all, uint32_t n) {
    return arena_at(&all->arena, n);
}
static inline struct acknowledgement *acknowledgement_at(const struct transactions *all, uint32_t n) {
    return arena_at(&all->acknowledgements, n);
}

/* There is room for one more item in a transaction of the topic, which is made if there is none: 0 if there is not, or if it is
 * ending. */
uint32_t transaction_take(struct worker *w, uint32_t topic, uint64_t number);
/* 0: there is none. */
uint32_t transaction_find(const struct worker *w, uint32_t topic, uint64_t number);
/* Of a topic that is gone: piece by piece. */
void transactions_forget(struct worker *w, uint32_t topic);
/* True if there is more. */
bool transactions_clear(struct worker *w);
bool transaction_is_there(const struct worker *w, const struct transaction *of);

/* --- acknowledge.c ------------------------------------------------------------------------------------------------ */

/* A transaction ends: what is acknowledged counts, or comes again. */
void acknowledgement_end(struct worker *w, uint32_t acknowledgement, bool commit);
/* It is no more. */
void acknowledgement_forget(struct worker *w, uint32_t acknowledgement);

/* Some parts of a message are pending: the others. False: none is, or all are. */
__attribute__((cold)) bool transactions_hide(const struct worker *w, uint32_t delivery, struct parts_left *out);

/* A delivery is to be delivered again. True: parts of it are pending, and all that are left are, or it would have to be split. Then it
 * waits for the end of that. */
bool transactions_keep(struct worker *w, uint32_t delivery, bool splits);

/* A message is about to be copied to the head of the log: of transactions that are ending, what is acknowledged of it is ended now.
 * A PENDING behind the TXN_END would make it an open transaction's when the log is read back. */
void transactions_settle(struct worker *w, uint32_t topic, uint64_t seq);
/* A message is copied to the head of the log, and what is pending of it: so many records of PENDING_BYTES. */
uint32_t transactions_pending(const struct worker *w, const struct topic *t, uint64_t seq);
void transactions_moved(struct worker *w, struct shard *s, const struct topic *t, uint64_t seq);

/* --- while the log is read back ----------------------------------------------------------------------------------- */

/* As transaction_take: there is always room, or the worker dies. */
uint32_t replay_take(struct worker *w, uint32_t topic, uint64_t number);
void replay_staged(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);
void replay_pending(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);
void replay_end(struct worker *w, uint32_t topic, const struct record *r);
/* A PUBLISH came into the topic at a seq before its next: it was staged, in a segment that is there or gone. It is no more, and
 * who stands behind it does not hold it. */
void transactions_published(struct worker *w, uint32_t topic, uint64_t seq);

#endif

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

struct transaction_item {
    uint64_t seq;
    log_position position;   /* of its STAGED or PENDING; 0: what it comes to is done (transactions_settle) */
    uint32_t subscription;   /* its number in the shard's log, of what is acknowledged; 0: of what is published */
    struct parts_left *left; /* of a message of which only parts are acknowledged: what would be left; else NULL */
};

enum transaction_state { TRANSACTION_OPEN = 0, TRANSACTION_COMMITTING, TRANSACTION_ABORTING };

struct transaction {
    uint32_t arena_link;
    uint32_t topic, previous, next; /* of the topic's */
    uint64_t number;
    enum transaction_state state;
    size_t count, capacity, done; /* done: those before it are over */
    size_t partial;               /* of the items, those that have `left` */
    struct transaction_item *items;
};

struct transactions {
    struct arena arena;
    struct map by_key; /* by topic and number */
    uint64_t items;
};

bool transactions_open(struct transactions *all);
void transactions_close(struct transactions *all);

static inline struct transaction *transaction_at(const struct transactions *all, uint32_t n) {
    return arena_at(&all->arena, n);
}

/* There is room for one more item in a transaction of the topic, which is made if there is none: 0 if there is not, or if it is
 * ending. */
uint32_t transaction_take(struct worker *w, uint32_t topic, uint64_t number);
void transaction_add(struct worker *w, uint32_t transaction, uint64_t seq, log_position position,
                     uint32_t subscription);
/* Of a topic that is gone. */
void transactions_forget(struct worker *w, uint32_t topic);

/* Some parts of a message are pending: the others. False: none is, or all are. */
__attribute__((cold)) bool transactions_hide(const struct worker *w, uint32_t delivery, struct parts_left *out);

/* A message is about to be copied to the head of the log: of transactions that are ending, what is acknowledged of it is ended now.
 * A PENDING behind the TXN_END would make it an open transaction's when the log is read back. */
void transactions_settle(struct worker *w, uint32_t topic, uint64_t seq);
/* A message is copied to the head of the log, and what is pending of it: so many records of PENDING_BYTES. */
uint32_t transactions_pending(const struct worker *w, const struct topic *t, uint64_t seq);
void transactions_moved(struct worker *w, struct shard *s, const struct topic *t, uint64_t seq);

/* While the log is read back. */
void replay_staged(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);
void replay_pending(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);
void replay_end(struct worker *w, uint32_t topic, const struct record *r);
/* A PUBLISH came into the topic at a seq before its next: it was staged, in a segment that is there or gone. It is no more, and
 * who stands behind it does not hold it. */
void transactions_published(struct worker *w, uint32_t topic, uint64_t seq);

#endif

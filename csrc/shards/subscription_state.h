/* Subscriptions: cursors over a topic's stream, the state of messages behind the cursor, and the consumers that share
 * it.
 *
 * Messages at or ahead of the cursor cost a subscription nothing. A message that the cursor has passed and that is not
 * finished has a delivery: in flight with a consumer, to be delivered again, or deferred. The stream forgets a message
 * when its last subscription, or the topic's job queue, has released it.
 *
 * Memory only, from the ground up:
 *
 *   due.c            which subscriptions are to be visited
 *   redelivery.c     redeliveries
 *   rotation.c       which consumer's turn it is
 *   keys_in_flight.c keys of which a consumer has messages in flight
 *   key_owners.c     which consumer has a key
 *   delivery.c       the states of deliveries, and their timers
 *   split.c          batches delivered message by message to consumers that do not know them
 *   consumer.c       consumers: made, removed, what they give back
 *   policy.c         which consumer gets the next message, if they do not take turns
 *   unheld.c         what a subscription that was set back does not hold
 *   subscription.c   the cursor, and what it passes
 *   finished_ahead.c what is finished before the cursor comes to it
 *   seek.c           where a subscription may begin, and how it is moved
 *
 * What is done with these, and logged:
 *
 *   finish.c         finished messages go to the log
 *   dispatch.c       messages to consumers, in turn; dispatch_keyed.c, by key
 *   dispatch_message.c what becomes of one message
 *   chunks.c         chunks of one message go to one consumer
 *   deliver.c        a message is sent to a consumer
 *   non_persistent.c messages that are not stored
 *   consume.c        a consumer's requests
 *   dismiss.c        consumers leave
 *   compacted.c      the view that has only the last message of each key
 *   upto.c           finishing everything up to a seq at once
 *   position.c       requests: where a subscription stands, and to move it
 *   retain.c         messages that a topic retains after they are finished
 *   durable.c        topics become durable
 *   topic_life.c     how tubes and subscriptions of durable topics are made, emptied and deleted
 *   change.c         CHANGE: topics and channels are made, paused, emptied, deleted
 *   pause.c          messages that a paused topic keeps, and their way to its subscriptions afterwards
 *   catalog.c        figures of all these
 */
#ifndef MQ_SHARDS_SUBSCRIPTION_STATE_H
#define MQ_SHARDS_SUBSCRIPTION_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/index.h"
#include "base/map.h"
#include "base/treap.h"
#include "ringbuf/message.h"
#include "shards/topic.h"

struct worker;
struct shard;
struct record;

/* Most finished messages of a subscription that wait for their log record. */
enum { ACK_BATCH = 256 };

enum { TOPIC_MAX_SUBSCRIPTIONS = 16384, CHANNEL_NAME_MAX = 255, UPTO_ALL = UINT16_MAX };

/* POLICY_KEY: how far the list of redeliveries has been searched. None before `from` can be delivered now; those from
 * `began` to there have been looked at in order since any of them may last have become deliverable. */
struct redelivery_look {
    uint64_t from, began; /* seqs */
    uint64_t round;       /* counts the times at which every struct redelivery_own became void */
};

/* Of a consumer: none of its redeliveries comes before `from`, if `round` is that of the subscription. */
struct redelivery_own {
    uint64_t from, round;
    bool is_there; /* the one at `from` has been seen, and the consumer could not take it */
};

struct subscription {
    uint32_t arena_link;
    uint32_t topic;
    uint32_t number; /* its number in the shard's log; 0: it is ephemeral */
    uint32_t next;   /* in the topic's list */
    char *name;
    uint32_t name_bytes;
    bool paused, due, touched, redelivery_next;
    bool rechoose;      /* POLICY_FAILOVER: the active consumer has to be chosen again */
    bool counted;       /* POLICY_FAILOVER: it was chosen by counting up to the pick */
    bool blocked;       /* it had most_inflight in flight, and has not finished half of them since */
    bool reader;        /* it refers to no message: neither ahead of the cursor nor in flight */
    bool passed_by_age; /* of a topic's RETENTION_NAME: messages it has passed are gone unless others refer to them */
    bool pinned;        /* in the shard's list of subscriptions that retention waits for */
    bool gone;          /* it cannot be found any more, and releases its messages piece by piece (leave.c) */
    bool lets_go;       /* it is emptied or deleted piece by piece (drain.c), as the log says already */
    bool view_known;    /* of a compacted view: view_last is known */
    bool admitted;      /* it has, or has had, consumers */
    bool gave_early;    /* it has delivered messages before their time, to one consumer who got all */
    uint8_t policy;     /* enum policy of its present consumers, or else of the last ones; ... */
    bool again_first;   /* ... and with POLICY_TURNS whether redeliveries come first */
    uint16_t upto_part; /* see upto_seq */
    uint32_t next_pinned;
    uint32_t active; /* POLICY_FAILOVER: the active consumer; 0: none */
    uint64_t mix;    /* mixed into the keys of its deliveries, so that they differ from other subscriptions' */

    uint64_t cursor, logged_cursor; /* seq of the next message; the same as last logged */
    uint64_t held_from;             /* it was moved back: it refers to no message between the cursor and here */
    uint64_t over_until; /* its deliveries before this seq are finished and being released (upto.c); 0: none */
    uint64_t taken;      /* how many of topic.ahead the cursor has passed */
    uint64_t joined;     /* topic.messages when it was made, less those that waited for it */

    uint32_t redelivery_first, redelivery_last,
        redeliveries;             /* the list of redeliveries, oldest first, and its length */
    uint32_t redelivery_near;     /* the last one put in: the next is seldom far from it */
    uint32_t redelivery_root;     /* the treap over those in the order of seqs ... */
    uint32_t redelivery_unsorted; /* ... which end here; 0: all are in order */
    struct redelivery_look look;  /* POLICY_KEY */
    /* POLICY_KEY: the round in which owners of slots were found; 0: not since a consumer came or went. */
    uint64_t owners;
    uint32_t deferred_first, deferred;
    uint32_t inflight, most_inflight; /* see subscribe_policy.most_in_flight */
    uint64_t inflight_parts;          /* messages of batches in flight, see delivery.parts */
    uint32_t consumer_first, consumers;
    uint32_t giving_back;      /* consumers that left or yield, whose messages are still being given back */
    uint32_t turn;             /* the next in the ring of consumers that may take a message */
    uint32_t reads;            /* how often there was nothing more to read: where the order counts, reads end then */
    bool overdrawn;            /* a consumer without permits may be sent messages of its read */
    struct rotation *rotation; /* if consumers have priorities: a ring for each; `turn` is in the first one */

    uint32_t next_due, next_touched, next_over;
    uint32_t ack_count;
    union {
        uint64_t still;      /* the turn in which nothing is delivered, because a request is releasing messages */
        uint64_t referenced; /* during recovery: behind the last message that records say it has ahead of it */
    };
    uint64_t ack_base;
    int32_t *acks; /* ack_count finished messages that are not logged yet, relative to ack_base */

    uint64_t requeues, timeouts, delivered, finished; /* since this process began */
    uint64_t read_back;                               /* as in struct topic */
    union {
        uint64_t view_last;    /* of a compacted view, if view_known: its last message; NO_PLACE: it has none */
        uint64_t passed_until; /* during recovery: it had passed all before this, though it now has some ahead again */
    };
    uint64_t upto; /* 1 + the number of the last transaction with a cumulative acknowledgement; 0: none */
    /* The seq of that acknowledgement, NO_PLACE: it is not done yet; and the first part of the message that it leaves,
     * UPTO_ALL: it leaves none. */
    uint64_t upto_seq;
    /* What is finished ahead of it (finished_ahead.c): the first in the list, and when that was begun. */
    uint32_t ahead_first;
    uint64_t ahead_round;
};

struct finished_message {
    uint32_t arena_link;
    uint32_t previous, next; /* in its subscription's list */
    uint32_t later;          /* of the first in a list that was forgotten: the first in the next such list */
    uint64_t round, seq;     /* subscription.ahead_round of its list */
};

struct finished_ahead {
    struct arena arena;
    struct map by_seq; /* by round and seq */
    uint64_t rounds;
    uint32_t forgotten; /* lists to be freed: the first in a list */
};

struct consumer {
    uint32_t arena_link;
    uint32_t client;
    uint32_t number; /* chosen by its acceptor, unique on its connection */
    uint32_t next_of_client;
    uint32_t topic_number; /* its acceptor's number for the topic, from SUBSCRIBE */
    bool wants_headers;
    uint32_t subscription;
    uint32_t previous, next;           /* in the subscription's list */
    uint32_t previous_turn, next_turn; /* in the ring of those that may take a message; 0: it may not */
    uint32_t priority;                 /* POLICY_TURNS: see struct subscribe_policy */
    uint32_t credit, inflight;
    uint64_t inflight_parts; /* messages of batches in flight, see delivery.parts */
    int64_t permits;         /* messages it may still be sent (see MSG_PERMITS); INT64_MAX: not counted */
    uint32_t entries_left;   /* of a read begun with permits: messages it may be sent though none are left, ... */
    uint32_t read;           /* ... if it is the read that is under way: see subscription.reads */
    bool uncounted;          /* see SUBSCRIBE_UNCOUNTED */
    bool compacted;          /* see SUBSCRIBE_COMPACTED */
    bool leaving;            /* it takes no more messages (see MSG_LEAVING) */
    bool blocked; /* it had all in flight that it may, and has not finished half of them since (MSG_PERMITS) */
    bool yields;  /* another has become active: its messages in flight are being given back */
    uint32_t previous_yielding, next_yielding;
    uint32_t window_bytes;                  /* bytes on their way to the client's socket */
    uint32_t inflight_first, inflight_last; /* its deliveries in the order in which their timeouts began */
    uint32_t flight_place;                  /* in the worker's heap of flights */
    uint32_t sample_percent;
    uint64_t timeout_ns, timeout_max_ns;
    uint64_t messages, finishes, requeues;
    uint8_t *description;
    uint32_t description_bytes;
    struct consumer_rank *rank; /* NULL with POLICY_TURNS */
};

/* What a policy other than POLICY_TURNS needs to know of a consumer. */
struct consumer_rank {
    struct redelivery_own own; /* POLICY_KEY */
    uint64_t seed;             /* determines its share of the slots */
    uint32_t priority, order, pick;
    uint32_t namesake; /* which one it is of those with its name */
    uint32_t range_count;
    uint32_t name_bytes;
    const struct key_range *ranges; /* range_count of them, behind this struct, and behind them the name */
    const char *name;
};

/* SPLIT: a batch whose messages have deliveries of their own. */
enum delivery_state { DELIVERY_IN_FLIGHT = 1, DELIVERY_REDELIVERED, DELIVERY_DEFERRED, DELIVERY_SPLIT };

struct delivery {
    uint32_t next;  /* in the index's chain, or the arena's free list */
    uint32_t place; /* in the worker's heap of deadlines */
    uint64_t key;   /* message id ^ subscription.mix */
    uint64_t seq;
    union {
        struct {
            uint64_t deadline_ns; /* in flight and deferred */
            uint64_t limit : 48;  /* in flight: the latest deadline it may be extended to, in units of LIMIT_NS, ... */
            uint64_t parts : 16;  /* ... and what it is to its consumer: unfinished messages of a batch; else 1 */
        };
        struct treap_node in_order; /* to be delivered again: in the treap by seq */
    };
    uint32_t subscription;
    uint32_t consumer;            /* the one that has it in flight */
    uint32_t previous, following; /* in its consumer's or subscription's list */
    uint16_t attempts;
    uint8_t state : 5;    /* enum delivery_state; 0: none */
    uint8_t sorted : 1;   /* to be delivered again, and in the order of seqs */
    uint8_t in_parts : 1; /* some of its parts are finished: see parts_of */
    uint8_t keyed : 1;    /* in flight, and counted for its slot */
    uint16_t slot;
    uint16_t part; /* a message of a split batch: its number in it, from 1 on; else 0 */
};
_Static_assert(sizeof(struct delivery) == 64, "a cache line");
_Static_assert(offsetof(struct delivery, key) == offsetof(struct indexed, key), "the index finds it by its key");

/* All ones: there is no limit. */
enum { LIMIT_NS = 1024, LIMIT_BITS = 48 };

/* Which parts of a batch are left when some are finished. Words behind the last one that has a bit are neither set nor
 * read. What is kept of most batches ends behind PARTS_FEW_WORDS of them. */
struct parts_left {
    uint32_t arena_link;
    uint32_t words;
    uint64_t bits[PARTS_MAX_WORDS];
};
enum { PARTS_FEW_WORDS = 16 };

/* Words of a bitmap of parts, as the log has them: `count` from number `first` on. Others are as they were, or, if
 * is_all, 0. */
struct parts_span {
    uint32_t first, count;
    bool is_all;
};

/* A key's slot of which a consumer has messages in flight. */
struct slot_use {
    uint32_t arena_link;
    uint32_t consumer, count;
    bool awaited; /* a message of another consumer was held back because of it */
};

struct subscriptions {
    struct arena arena, consumers, deliveries, slots;
    struct arena parts, many_parts; /* of batches with few parts, and with many */
    struct map slot_uses;           /* by subscription and slot */
    struct map parts_of;            /* by delivery */
    struct map numbers;             /* of consumers: by client and number */
    struct finished_ahead finished_ahead;
    struct index index;
    struct heap flights;   /* consumers, by a time not later than the first deadline of their deliveries */
    struct heap deadlines; /* deliveries that are deferred, or in flight for less than their consumer's timeout */
    uint32_t due_first, due_last;
    uint32_t touched_first;
    uint32_t over_first;  /* list of subscriptions with over_until */
    struct owner *owners; /* KEY_SLOTS of them; see key_owners.c. NULL: no subscription needed it yet */
    uint64_t owner_rounds;
    uint32_t parts_limit; /* WORKER_MAX_IN_PARTS, or less in tests; of those with many parts so much less */
    uint64_t random;
};

static inline struct subscription *subscription_at(const struct subscriptions *all, uint32_t subscription) {
    return arena_at(&all->arena, subscription);
}
static inline struct consumer *consumer_at(const struct subscriptions *all, uint32_t consumer) {
    return arena_at(&all->consumers, consumer);
}
/* How many messages a consumer may still be sent of a read, though its permits are used up. */
static inline uint32_t consumer_entries_left(const struct subscription *s, const struct consumer *c) {
    return c->read == s->reads ? c->entries_left : 0;
}
/* Whether one that has permits has as many messages in flight as it may. */
static inline bool consumer_is_full(const struct consumer *c) {
    return c->permits != INT64_MAX && c->inflight_parts >= c->credit;
}
static inline struct delivery *delivery_at(const struct subscriptions *all, uint32_t delivery) {
    return arena_at(&all->deliveries, delivery);
}
/* A random number that nobody outside can foresee. */
static inline uint64_t subscriptions_random(struct subscriptions *all) {
    all->random ^= all->random << 13;
    all->random ^= all->random >> 7;
    all->random ^= all->random << 17;
    return all->random;
}
static inline uint64_t delivery_id(const struct subscriptions *all, const struct delivery *d) {
    return d->key ^ subscription_at(all, d->subscription)->mix;
}

/* The names of subscriptions that are a topic's compacted view, and what its messages are retained for. */
static inline bool compacted_is_name(const char *name, size_t name_bytes) {
    return name_bytes == sizeof COMPACTION_NAME - 1 && memcmp(name, COMPACTION_NAME, name_bytes) == 0;
}
static inline bool retention_is_name(const char *name, size_t name_bytes) {
    return name_bytes == sizeof RETENTION_NAME - 1 && memcmp(name, RETENTION_NAME, name_bytes) == 0;
}
/* Subscriptions of the topic may take messages before this seq. */
static inline uint64_t subscription_horizon(const struct topic *t) {
    uint64_t horizon = topic_given_until(t);
    return t->blocked && t->blocked_seq < horizon ? t->blocked_seq : horizon;
}
/* Whether redeliveries come before new messages, in the order of their seqs. */
static inline bool subscription_is_ordered(const struct subscription *s) {
    return s->policy != POLICY_TURNS || s->again_first;
}
/* Whether its subscription's policy lets a consumer take messages at all. */
static inline bool policy_lets(const struct subscription *s, uint32_t consumer) {
    return s->policy != POLICY_FAILOVER || s->active == consumer;
}

#endif

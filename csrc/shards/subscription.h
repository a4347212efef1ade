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
 *   again.c          redeliveries
 *   rotation.c       which consumer's turn it is
 *   slots.c          keys of which a consumer has messages in flight
 *   delivery.c       the states of deliveries, and their timers
 *   split.c          batches delivered message by message to consumers that do not know them
 *   consumer.c       consumers: made, removed, what they give back
 *   policy.c         which consumer gets the next message, if they do not take turns
 *   cold.c           what a subscription that was set back does not hold
 *   subscription.c   the cursor, and what it passes
 *   seek.c           where a subscription may begin, and how it is moved
 *
 * What is done with these, and logged:
 *
 *   finish.c         finished messages go to the log
 *   dispatch.c       messages to consumers
 *   consume.c        a consumer's requests
 *   dismiss.c        consumers leave
 *   compacted.c      the view that has only the last message of each key
 *   upto.c           finishing everything up to a seq at once
 *   position.c       requests: where a subscription stands, and to move it
 *   retain.c         messages that a topic retains after they are finished
 *   durable.c        topics become durable
 *   topic_life.c     how tubes and subscriptions of durable topics are made, emptied and deleted
 *   pause.c          messages that a paused topic keeps, and their way to its subscriptions afterwards
 *   catalog.c        figures of all these
 */
#ifndef MQ_SUBSCRIPTION_H
#define MQ_SUBSCRIPTION_H

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

enum { TOPIC_MAX_SUBSCRIPTIONS = 16384, CHANNEL_NAME_MAX = 255 };

/* POLICY_KEY: how far the list of redeliveries has been searched. None before `from` can be delivered now; those from
 * `began` to there have been looked at in order since any of them may last have become deliverable. */
struct again_look {
    uint64_t from, began; /* seqs */
    uint64_t round;       /* counts the times at which every struct again_own became void */
};

/* Of a consumer: none of its redeliveries comes before `from`, if `round` is that of the subscription. */
struct again_own {
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
    bool paused, due, touched, again_next;
    bool rechoose;      /* POLICY_FAILOVER: the active consumer has to be chosen again */
    bool counted;       /* POLICY_FAILOVER: it was chosen by counting up to the pick */
    bool blocked;       /* it had most_inflight in flight, and has not finished half of them since */
    bool reader;        /* it refers to no message: neither ahead of the cursor nor in flight */
    bool passed_by_age; /* of a topic's RETENTION_NAME: messages it has passed are gone unless others refer to them */
    bool pinned;        /* in the shard's list of subscriptions that retention waits for */
    bool gone;          /* it cannot be found any more, and releases its messages piece by piece (leave.c) */
    bool view_known;    /* of a compacted view: view_last is known */
    uint8_t policy;     /* enum policy of its present consumers */
    uint32_t next_pinned;
    uint32_t active; /* POLICY_FAILOVER: the active consumer; 0: none */
    uint64_t mix;    /* mixed into the keys of its deliveries, so that they differ from other subscriptions' */

    uint64_t cursor, logged_cursor; /* seq of the next message; the same as last logged */
    uint64_t cold;                  /* it was moved back: it refers to no message between the cursor and here */
    uint64_t over_until; /* its deliveries before this seq are finished and being released (upto.c); 0: none */
    uint64_t taken;      /* how many of topic.ahead the cursor has passed */
    uint64_t joined;     /* topic.messages when it was made, less those that waited for it */

    uint32_t again_first, again_last, again; /* the list of redeliveries, oldest first, and its length */
    uint32_t again_near;                     /* the last one put in: the next is seldom far from it */
    uint32_t again_root;                     /* the treap over those in the order of seqs ... */
    uint32_t again_unsorted;                 /* ... which end here; 0: all are in order */
    struct again_look look;                  /* POLICY_KEY */
    uint32_t deferred_first, deferred;
    uint32_t inflight, most_inflight; /* see subscribe_policy.most_in_flight */
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
    uint64_t view_last; /* of a compacted view, if view_known: its last message; NO_PLACE: it has none */
    uint64_t upto;      /* 1 + the number of the last transaction with a cumulative acknowledgement; 0: none */
    uint64_t upto_seq;  /* the seq of that acknowledgement */
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
    int64_t permits;       /* messages it may still be sent (see MSG_PERMITS); INT64_MAX: not counted */
    uint32_t entries_left; /* of a read begun with permits: messages it may be sent though none are left, ... */
    uint32_t read;         /* ... if it is the read that is under way: see subscription.reads */
    bool uncounted;        /* see SUBSCRIBE_UNCOUNTED */
    bool compacted;        /* see SUBSCRIBE_COMPACTED */
    bool leaving;          /* it takes no more messages (see MSG_LEAVING) */
    bool yields;           /* another has become active: its messages in flight are being given back */
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
    struct again_own own; /* POLICY_KEY */
    uint64_t seed;        /* determines its share of the slots */
    uint32_t priority, order, pick;
    uint32_t range_count;
    struct key_range ranges[KEY_MAX_RANGES];
    size_t name_bytes;
    char name[]; /* followed by the consumer's number */
};

/* SPLIT: a batch whose messages have deliveries of their own. */
enum delivery_state { DELIVERY_IN_FLIGHT = 1, DELIVERY_AGAIN, DELIVERY_DEFERRED, DELIVERY_SPLIT };

struct delivery {
    uint32_t next;  /* in the index's chain, or the arena's free list */
    uint32_t place; /* in the worker's heap of deadlines */
    uint64_t key;   /* message id ^ subscription.mix */
    uint64_t seq;
    union {
        struct {
            uint64_t deadline_ns; /* in flight and deferred */
            uint64_t limit_ns;    /* the latest deadline it may be extended to */
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

/* Which parts of a batch are left when some are finished. */
struct parts_left {
    uint32_t arena_link;
    uint32_t words;
    uint64_t bits[PARTS_MAX_WORDS];
};

/* A key's slot of which a consumer has messages in flight. */
struct slot_use {
    uint32_t arena_link;
    uint32_t consumer, count;
    bool awaited; /* a message of another consumer was held back because of it */
};

struct subscriptions {
    struct arena arena, consumers, deliveries, parts, slots;
    struct map slot_uses; /* by subscription and slot */
    struct map parts_of;  /* by delivery */
    struct map numbers;   /* of consumers: by client and number */
    struct index index;
    struct heap flights;   /* consumers, by a time not later than the first deadline of their deliveries */
    struct heap deadlines; /* deliveries that are deferred, or in flight for less than their consumer's timeout */
    uint32_t due_first, due_last;
    uint32_t touched_first;
    uint32_t over_first;  /* list of subscriptions with over_until */
    uint32_t parts_limit; /* WORKER_MAX_IN_PARTS, or less in tests */
    uint64_t random;
};

bool subscriptions_open(struct subscriptions *all, uint32_t limit, uint32_t consumer_limit, uint32_t delivery_limit,
                        uint32_t shards, uint64_t seed);
void subscriptions_close(struct subscriptions *all);

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

/* --- memory only: the caller writes the log --- */

/* The names of subscriptions that are a topic's compacted view, and what its messages are retained for. */
static inline bool compacted_is_name(const char *name, size_t name_bytes) {
    return name_bytes == sizeof COMPACTION_NAME - 1 && memcmp(name, COMPACTION_NAME, name_bytes) == 0;
}
static inline bool retention_is_name(const char *name, size_t name_bytes) {
    return name_bytes == sizeof RETENTION_NAME - 1 && memcmp(name, RETENTION_NAME, name_bytes) == 0;
}
uint32_t subscription_find(const struct worker *w, uint32_t topic, const char *name, size_t name_bytes);
/* Makes a subscription with its cursor at the end; the first one of a topic takes over the messages that waited for it.
 * `number` 0: ephemeral. Returns 0 when a limit is reached or memory is short. */
uint32_t subscription_make(struct worker *w, uint32_t topic, const char *name, size_t name_bytes, uint32_t number);
/* Makes a reader, with its cursor at the end. */
uint32_t subscription_make_reader(struct worker *w, uint32_t topic, const char *name, size_t name_bytes);
/* Removes a subscription and releases all its messages. Its consumers must have left. */
void subscription_remove(struct worker *w, uint32_t subscription);
/* The subscription can no longer be found; its messages are not released yet. */
void subscription_unlink(struct worker *w, uint32_t subscription);
/* Releases all its messages before this seq, those in flight included. */
void subscription_empty(struct worker *w, uint32_t subscription, uint64_t until);
/* For recovery: moves the cursor there. Each message passed becomes a delivery with one attempt made. */
void subscription_advance(struct worker *w, uint32_t subscription, uint64_t cursor);
/* Subscriptions of the topic may take messages before this seq. */
static inline uint64_t subscription_horizon(const struct topic *t) {
    uint64_t horizon = topic_given_until(t);
    return t->blocked && t->blocked_seq < horizon ? t->blocked_seq : horizon;
}
/* The next message to deliver; moves the cursor past gaps. False: none may be delivered now. */
bool subscription_front(struct worker *w, uint32_t subscription, uint64_t *seq);
/* Moves the cursor past that message. */
void subscription_pass(struct worker *w, uint32_t subscription);
/* Whether it refers to a message of its topic's stream: one ahead of the cursor, or passed and not finished. */
bool subscription_holds(const struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id, bool delayed);
/* How many messages it could deliver now, if there were credit and no pause. */
uint64_t subscription_depth(const struct worker *w, const struct subscription *s);

/* The delivery of a message, or 0. */
uint32_t delivery_find(const struct worker *w, uint32_t subscription, uint64_t id);
/* Makes a delivery in no state; 0 when the limit is reached. */
uint32_t delivery_make(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id);
/* These put a delivery that is in no state into one: in flight, to be delivered again, deferred. */
void delivery_fly(struct worker *w, uint32_t delivery, uint32_t consumer);
void delivery_again(struct worker *w, uint32_t delivery);
void delivery_defer(struct worker *w, uint32_t delivery, uint64_t deadline_ns);
/* Takes a delivery out of the state it is in. */
void delivery_take(struct worker *w, uint32_t delivery);
/* Frees a delivery that is in no state. The message is not released. */
void delivery_forget(struct worker *w, uint32_t delivery);
/* Makes a deferred delivery of a message published with a delay, until the time that its record says. */
void subscription_defer(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id);
/* Starts a delivery's timeout anew. */
void delivery_extend(struct worker *w, uint32_t delivery);

/* A client's consumer by its number, or 0. */
uint32_t consumer_find(const struct worker *w, uint32_t client, uint32_t number);
/* Makes a consumer, whose number must be free. 0 when a limit is reached or memory is short. */
uint32_t consumer_make(struct worker *w, uint32_t client, uint32_t number, uint32_t subscription);
/* Removes a consumer. Its messages in flight are to be delivered again; if they are many, the last of them in later
 * turns. */
void consumer_remove(struct worker *w, uint32_t consumer);
/* The same, but the consumer stays, and is sent nothing before all of its messages have been given back. */
void consumer_yield(struct worker *w, uint32_t consumer);
/* Each turn: gives back messages of consumers that left or yield. True if there is more. */
bool consumers_leave(struct worker *w);
/* Whether consumers that left or yield are still giving back messages of this subscription. */
bool consumers_give_back(const struct worker *w, uint32_t subscription);
/* Gives back at once all messages of consumers that left or yield this subscription. */
void consumers_have_left(struct worker *w, uint32_t subscription);

/* --- rotation.c: which consumer's turn it is --- */

/* To be called when a consumer's messages in flight, credit or window have changed: adds it to those that take turns,
 * or removes it. */
void consumer_settle(struct worker *w, uint32_t consumer);
/* Sets a consumer's priority, before it may first take a message. The lowest goes first; all above 63 are equal. False:
 * no memory. */
bool rotation_prefer(struct worker *w, uint32_t consumer, uint32_t priority);
/* Adds a consumer behind the others of its priority, or removes it. */
void rotation_join(struct worker *w, uint32_t consumer);
void rotation_leave(struct worker *w, uint32_t consumer);
/* The next consumer whose acceptor takes messages; 0: none. */
uint32_t rotation_next(const struct worker *w, struct subscription *s);

/* --- due.c --- */

/* The subscription may have a message to deliver now, or a consumer to deliver one to. */
void subscription_due(struct worker *w, uint32_t subscription);
void topic_due(struct worker *w, uint32_t topic);
/* The subscription has finished messages or a moved cursor to log. */
void subscription_touched(struct worker *w, uint32_t subscription);
/* The subscription no longer finishes messages up to a seq (upto.c), ... */
void subscription_over_forget(struct worker *w, uint32_t subscription);
/* ... and stands in none of these lists. */
void subscription_leave_lists(struct worker *w, uint32_t subscription);

/* --- subscription.c --- */

/* Finishes messages it has passed up to a seq, `most` at most. Returns how many. */
uint32_t subscription_finish_upto(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t most);

/* --- upto.c: finishing all messages passed up to a seq at once --- */

/* Logs that, for which there must be room, and begins the releasing. No other may be under way for this subscription.
 * */
void subscription_finish_all(struct worker *w, uint32_t subscription, uint64_t seq);
/* Releases a piece of those deliveries and returns how many. All have been released when `over_until` is 0. */
uint32_t subscription_finish_some(struct worker *w, uint32_t subscription);
/* Each turn: goes on releasing. True if there was anything to release. */
bool upto_goes_on(struct worker *w);

/* --- policy.c: which consumer gets the next message --- */

struct policy_wish {
    struct subscribe_policy policy;
    const char *name;
    const uint8_t *ranges;
    uint32_t range_count;
};
static inline bool subscription_is_ordered(const struct subscription *s) {
    return s->policy != POLICY_TURNS;
}
/* To be called before policy_admit until it returns true: brings the redeliveries into the order the policy needs,
 * piece by piece. */
bool policy_prepare(struct worker *w, uint32_t subscription, const struct policy_wish *wish);
/* Whether a consumer with that policy may join; returns a status. The first consumer's policy becomes the
 * subscription's. */
uint8_t policy_admit(struct worker *w, uint32_t subscription, const struct policy_wish *wish);
/* Gives a consumer that has joined its rank. False when memory is short; it must leave then. */
bool policy_joined(struct worker *w, uint32_t consumer, const struct policy_wish *wish);
/* A consumer has left. policy_choose chooses the active one again, before anything is delivered. */
void policy_left(struct worker *w, uint32_t subscription, uint32_t consumer);
void policy_choose(struct worker *w, uint32_t subscription);
/* Whether its subscription's policy lets a consumer take messages at all. */
static inline bool policy_lets(const struct subscription *s, uint32_t consumer) {
    return s->policy != POLICY_FAILOVER || s->active == consumer;
}
uint16_t policy_slot(const struct record *r);
/* The consumer to which a slot belongs; 0: none. */
uint32_t policy_owner(const struct worker *w, const struct subscription *s, uint16_t slot);

/* --- slots.c: keys of which a consumer has messages in flight --- */

/* The consumer that has messages of a slot in flight; 0: none. */
uint32_t policy_slot_user(const struct worker *w, uint32_t subscription, uint16_t slot);
/* Whether no other consumer has messages of a slot in flight. */
bool policy_slot_free(const struct worker *w, uint32_t subscription, uint16_t slot, uint32_t consumer);
/* Counts a delivery in flight for its slot, and takes it out of the count. False: the limit is reached. */
bool policy_slot_take(struct worker *w, uint32_t delivery, uint16_t slot, uint32_t consumer);
void policy_slot_release(struct worker *w, uint32_t delivery);

/* --- again.c: what is to be delivered again --- */

void again_put(struct worker *w, struct subscription *s, uint32_t delivery);
void again_take(struct worker *w, struct subscription *s, uint32_t delivery);
/* POLICY_KEY: where to go on searching for one that can be delivered; 0: there is none. */
uint32_t again_to_look_at(const struct worker *w, const struct subscription *s);
/* One of this consumer's redeliveries was seen, at that seq. */
void again_saw(const struct subscription *s, struct consumer_rank *rank, uint64_t seq, bool sent);
/* The consumer may take messages from now on. */
void again_look_for(struct subscription *s, struct consumer_rank *rank);
/* Any redelivery may be another consumer's by now. */
void again_look_anew(struct subscription *s);
/* All redeliveries from this seq on are to be looked at. */
void again_look_from(struct subscription *s, uint64_t seq);
/* Brings `most` more redeliveries into the order of seqs. True: all are. */
bool again_order(struct worker *w, struct subscription *s, uint32_t most);

/* --- parts.c: deliveries of which parts are finished --- */

/* The parts left of a delivery; NULL: none is finished. */
const struct parts_left *delivery_parts(const struct worker *w, uint32_t delivery);
/* The parts that would be left: those left now that are also set in `bits`. False: none. */
bool delivery_parts_after(const struct worker *w, uint32_t delivery, const void *bits, uint32_t words,
                          struct parts_left *out);
/* Whether one more delivery with finished parts is allowed, beside those that transactions will need. */
bool parts_fit(const struct worker *w);
/* Sets the parts that are left. False when a limit is reached or memory is short. */
bool delivery_parts_set(struct worker *w, uint32_t delivery, const struct parts_left *left);
void delivery_parts_forget(struct worker *w, uint32_t delivery);

/* --- split.c: deliveries of batches to consumers that know no batches --- */

/* The split delivery that a part belongs to. */
uint32_t split_of(const struct worker *w, uint32_t delivery);
/* Whether `parts` more deliveries are allowed. */
bool split_fits(const struct worker *w, uint32_t parts);
/* Splits a delivery that is in no state: its unfinished parts become deliveries to be made. False, with nothing
 * changed, when a limit is reached or memory is short. */
bool delivery_split(struct worker *w, uint32_t delivery, uint32_t parts);
/* Frees a part, and the split delivery with its last part: true then; the message is not released. */
bool split_part_over(struct worker *w, uint32_t delivery);
/* The parts left of a message without this one; no words if there are none. */
void split_without(const struct worker *w, uint32_t delivery, struct parts_left *left);
/* Frees all parts but those in `left`, which are some. */
void split_leave(struct worker *w, uint32_t split, const struct parts_left *left);
/* Gives back the parts that a consumer has in flight, to be delivered again. */
void split_again(struct worker *w, uint32_t split, uint32_t consumer);
/* Frees a split delivery and all its parts. The message is not released. */
void split_over(struct worker *w, uint32_t split);

/* Drops a reference to a message, and forgets the message with the last one. */
void message_release(struct worker *w, uint32_t topic, uint64_t seq);
/* Drops a subscription's reference to a message that it has passed. */
void subscription_release(struct worker *w, uint32_t subscription, uint64_t seq);
/* Frees a delivery in any state, and drops the subscription's reference to its message. */
void delivery_drop(struct worker *w, uint32_t delivery);
/* The first seq from which on a subscription refers to all messages. */
static inline uint64_t subscription_held_from(const struct subscription *s) {
    return s->cursor > s->cold ? s->cursor : s->cold;
}
/* Drops a subscription's references to messages ahead of it before `until`, and moves its cursor there. */
void subscription_release_ahead(struct worker *w, uint32_t subscription, uint64_t until);
/* The same in at most `most` steps. False: there are more. */
bool subscription_skip(struct worker *w, uint32_t subscription, uint64_t until, uint32_t most);
/* Whether only this subscription refers to its topic's messages, all of which lie before `until`, and they are enough
 * to be buried (tomb.c). */
bool subscription_owns_stream(const struct worker *w, const struct subscription *s, uint64_t until);

/* --- leave.c --- */

/* Unlinks a subscription with many messages now, and releases them in later turns. False: they are few, or this is
 * recovery. */
bool subscription_leave(struct worker *w, uint32_t subscription);
/* subscription.c: an unlinked subscription whose topic has no record of its messages any more only has its deliveries
 * left to be freed. */
void subscription_orphan(struct worker *w, uint32_t subscription);
/* Frees some of those deliveries. True if there are more. */
bool subscriptions_clear_orphans(struct worker *w);
/* Frees a subscription that is unlinked and has nothing left. */
void subscription_free(struct worker *w, uint32_t subscription);

/* --- tomb.c --- */

/* Empties a topic's stream at once; its messages are released in the next turns, whoever held them. */
void stream_bury(struct worker *w, uint32_t topic);
/* The same, with the topic's jobs. */
void topic_bury(struct worker *w, uint32_t topic);
/* Each turn: releases some of these. True if there are more. */
bool tombs_clear(struct worker *w);
void tombs_free(struct worker *w);

/* --- cold.c: what a subscription that was set back does not hold --- */

/* As subscription_front, for messages before `until` that the subscription does not hold. */
__attribute__((cold)) bool position_front(struct worker *w, uint32_t subscription, uint64_t until, uint64_t *seq);
/* As subscription_pass, for a message that it does not hold. */
__attribute__((cold)) void position_pass(struct worker *w, uint32_t subscription);
/* Pins the subscription, if segments with messages that it does not hold must stay; and unpins it. */
void subscription_pin(struct worker *w, uint32_t subscription);
void subscription_unpin(struct worker *w, uint32_t subscription);
/* How many messages of its depth it does not hold. */
uint64_t position_depth(const struct worker *w, const struct subscription *s);

/* --- seek.c: where it begins, and how it is moved --- */

/* The seq that a start position means. `keeps`: the topic's subscription RETENTION_NAME, before which nothing is found;
 * 0: every message in the segments is. */
uint64_t position_find(const struct worker *w, const struct topic *t, uint32_t start, uint64_t seq, uint32_t keeps);
/* Moves a subscription: all from `seq` on is to be delivered, and nothing else. */
void subscription_seek(struct worker *w, uint32_t subscription, uint64_t seq);
/* Does the same to one of its deliveries: most are dropped. */
void delivery_reset(struct worker *w, uint32_t delivery, uint64_t from);

/* --- compacted.c: a topic's view with only the last message of each key --- */

/* Whether the view has passed a message and does not have it any more. */
__attribute__((cold)) bool compacted_hides(const struct worker *w, uint32_t topic, uint64_t seq);
/* Leaves in a consumer's delivery only the parts that are in the view. False: none is. */
__attribute__((cold)) bool compacted_leaves(struct worker *w, uint32_t topic, uint32_t delivery);

/* --- delivery.c: time --- */

/* Forgets the deadlines of a consumer. */
void delivery_forget_flights(struct worker *w, uint32_t consumer);
/* Lets time pass up to w->now_ns. True if anything happened. */
bool subscriptions_tick(struct worker *w);
uint64_t subscriptions_next_ns(const struct worker *w);

/* --- dispatch.c --- */

/* Delivers what is due. True if there is more for the next turn. */
bool dispatch(struct worker *w);

/* --- finish.c --- */

/* Notes that a message is finished, which is to be written by the end of the turn. False, with nothing changed, if too
 * many are noted already and cannot be written. */
bool subscription_finished(struct worker *w, uint32_t subscription, uint64_t seq);
/* Logs finished messages and the cursor. False while there is no room. */
bool subscription_write(struct worker *w, uint32_t subscription);
void subscriptions_write(struct worker *w);

#endif

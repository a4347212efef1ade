/* Subscriptions: cursors over a topic's stream, each with what departs from it, and the consumers that share it.
 *
 * What lies at or ahead of the cursor costs a subscription nothing. A message the cursor has passed and that is not
 * finished has a delivery: in flight with a consumer, to be delivered again, or deferred. A message is let go by the
 * stream when its last subscription (or the topic's job queue) has released it.
 *
 *   subscription.c   what it is a cursor over, the states of deliveries, timers: memory only
 *   again.c          what is to be delivered again: memory only
 *   split.c          deliveries of what is several messages to who knows no batches: memory only
 *   consumer.c       who shares it and may take one: memory only
 *   rotation.c       whose turn it is of those: memory only
 *   dispatch.c       messages to consumers, and what of that goes to the log
 *   consume.c        what a consumer's requests ask for
 *   compacted.c      the view in which only the last message of each key is
 *   upto.c           all that it has passed up to a seq is finished at once
 *   position.c       where a subscription begins and goes on
 *   retain.c         what its topic retains
 *   topic_life.c     durable topics: how they and their subscriptions are made, emptied and deleted
 *   pause.c          what a topic that is paused keeps, and how that comes to its subscriptions
 *   catalog.c        the figures of all that
 */
#ifndef MQ_SUBSCRIPTION_H
#define MQ_SUBSCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Finished messages whose record has not been appended yet. */
enum { ACK_BATCH = 256 };

enum { TOPIC_MAX_SUBSCRIPTIONS = 16384, CHANNEL_NAME_MAX = 255 };

struct subscription {
    uint32_t arena_link;
    uint32_t topic;
    uint32_t number; /* in the shard's log; 0: it is ephemeral */
    uint32_t next;   /* of the topic */
    char *name;
    uint32_t name_bytes;
    bool paused, due, touched, again_next;
    bool rechoose;      /* of POLICY_FAILOVER: who is first is to be found out anew, ... */
    bool counted;       /* ... and was by counting up to the one who is picked */
    bool blocked;       /* it has most_inflight, and not finished half of them yet */
    bool reader;        /* it holds nothing: neither what it has not passed nor what it has in flight */
    bool passed_by_age; /* of what keeps a topic's messages: what it has passed is not there, if nobody else holds it */
    bool pinned;        /* in the shard's list of those that retention waits for */
    bool gone;          /* nobody can find it any more: what it had is let go piece by piece (leave.c) */
    uint32_t next_pinned;
    bool view_known; /* of a compacted view */
    uint8_t policy;  /* enum policy, of those who consume from it now */
    uint32_t active; /* of POLICY_FAILOVER: the consumer that gets all; 0: there is none */
    uint64_t mix;    /* makes the keys of its deliveries differ from those of others */

    uint64_t cursor, logged_cursor; /* the next message's seq */
    uint64_t cold;                  /* what lies before, and is not passed, it does not hold: it was set back there */
    uint64_t over_until;            /* its deliveries of what lies before are over, and let go of (upto.c); 0: none */
    uint64_t taken;                 /* of topic.ahead: what the cursor has passed */
    uint64_t joined;                /* topic.messages when it was made, less what waited for it */

    uint32_t again_first, again_last, again; /* deliveries to be made again, oldest first */
    uint32_t again_near;                     /* where one came to stand last: the next is seldom far from it */
    uint32_t again_root;                     /* of the treap over those that stand by seq, ... */
    uint32_t again_unsorted;                 /* ... up to here; 0: all do */
    uint32_t again_looked;                   /* by key: those before cannot go, as far as is known; 0: begin anew */
    uint32_t deferred_first, deferred;
    uint32_t inflight, most_inflight; /* see subscribe_policy.most_in_flight */
    uint32_t consumer_first, consumers;
    uint32_t giving_back;      /* those that left, or yield, and still give back what they had */
    uint32_t turn;             /* of those consumers that may take a message, a ring: whose turn it is */
    struct rotation *rotation; /* where consumers have priorities: a ring for each, of which `turn` is the first's */

    uint32_t next_due, next_touched, next_over;
    union {
        uint64_t still;      /* the turn in which nothing is delivered, as a request is letting go of what there is; */
        uint64_t referenced; /* while the log is read back: behind the last that it was said to have ahead of it */
    };
    uint64_t ack_base;
    int32_t *acks; /* finished, from ack_base */
    uint32_t ack_count;

    uint64_t requeues, timeouts, delivered, finished; /* in this process */
    uint64_t read_back;                               /* as its topic's */
    uint64_t view_last; /* of one, if it is known: the seq of the last message in it; NO_PLACE: none is */
    uint64_t upto;      /* 1 + the number of the transaction that acknowledged all up to a message last; 0: none has */
    uint64_t upto_seq;  /* ... and up to which */
};

struct consumer {
    uint32_t arena_link;
    uint32_t client;
    uint32_t number; /* its acceptor's, among the connection's consumers */
    uint32_t next_of_client;
    uint32_t topic_number; /* its acceptor's, as it came with SUBSCRIBE */
    bool wants_headers;
    uint32_t subscription;
    uint32_t previous, next;           /* of the subscription */
    uint32_t previous_turn, next_turn; /* of those that may take a message; 0: it may not */
    uint32_t priority;                 /* of POLICY_TURNS: see struct subscribe_policy */
    uint32_t credit, inflight;
    int64_t permits; /* parts that it may yet be sent; INT64_MAX: they are not counted */
    bool uncounted;  /* see SUBSCRIBE_UNCOUNTED */
    bool compacted;  /* see SUBSCRIBE_COMPACTED */
    bool leaving;    /* for good, once what it has is done with */
    bool yields;     /* what it has in flight is on its way to the next */
    uint32_t previous_yielding, next_yielding;
    uint32_t window_bytes;                  /* on their way to the client's socket */
    uint32_t inflight_first, inflight_last; /* deliveries, by when their timeout began */
    uint32_t flight_place;                  /* in the worker's heap of flights */
    uint32_t sample_percent;
    uint64_t timeout_ns, timeout_max_ns;
    uint64_t messages, finishes, requeues;
    uint8_t *description;
    uint32_t description_bytes;
    struct consumer_rank *rank; /* NULL: of POLICY_TURNS */
};

/* What its policy goes by. */
struct consumer_rank {
    uint64_t seed; /* of its share of the slots */
    uint32_t priority, order, pick;
    uint32_t range_count;
    struct key_range ranges[KEY_MAX_RANGES];
    size_t name_bytes;
    char name[]; /* then the number */
};

/* SPLIT: its parts are deliveries of their own. */
enum delivery_state { DELIVERY_IN_FLIGHT = 1, DELIVERY_AGAIN, DELIVERY_DEFERRED, DELIVERY_SPLIT };

struct delivery {
    uint32_t next;  /* in the index's chain, or the arena's free list */
    uint32_t place; /* in the worker's heap of deadlines */
    uint64_t key;   /* message id ^ subscription.mix */
    uint64_t seq;
    union {
        struct {
            uint64_t deadline_ns; /* of those in flight and deferred */
            uint64_t limit_ns;    /* beyond which it cannot be extended */
        };
        struct treap_node in_order; /* of those to be delivered again, by seq */
    };
    uint32_t subscription;
    uint32_t consumer;            /* that has it in flight */
    uint32_t previous, following; /* in its consumer's or subscription's list */
    uint16_t attempts;
    uint8_t state : 5;    /* enum delivery_state; 0: none */
    uint8_t sorted : 1;   /* to be delivered again, and stands in the order of seqs */
    uint8_t in_parts : 1; /* some are finished: see parts_of */
    uint8_t keyed : 1;    /* in flight, and counted for its slot */
    uint16_t slot;
    uint16_t part; /* of one that is split: which, from 1 on */
};
_Static_assert(sizeof(struct delivery) == 64, "a cache line");
_Static_assert(offsetof(struct delivery, key) == offsetof(struct indexed, key), "the index finds it by its key");

/* What is left of a message of which parts are finished. */
struct parts_left {
    uint32_t arena_link;
    uint32_t words;
    uint64_t bits[PARTS_MAX_WORDS];
};

/* A slot of which a consumer has messages in flight. */
struct slot_use {
    uint32_t arena_link;
    uint32_t consumer, count;
};

struct subscriptions {
    struct arena arena, consumers, deliveries, parts, slots;
    struct map slot_uses; /* by subscription and slot */
    struct map parts_of;  /* by delivery */
    struct map numbers;   /* of consumers: by client and number */
    struct index index;
    struct heap flights;   /* consumers, by a time no later than their first deadline */
    struct heap deadlines; /* deliveries that are deferred, or in flight for less than their consumer's timeout */
    uint32_t due_first, due_last;
    uint32_t touched_first;
    uint32_t over_first;  /* of those that let go of what is over */
    uint32_t parts_limit; /* WORKER_MAX_IN_PARTS, or as few as a test says */
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
static inline struct delivery *delivery_at(const struct subscriptions *all, uint32_t delivery) {
    return arena_at(&all->deliveries, delivery);
}
/* Nobody outside can foresee it. */
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

uint32_t subscription_find(const struct worker *w, uint32_t topic, const char *name, size_t name_bytes);
/* Its cursor stands at the end of what may be delivered now; the first of a topic takes over what has waited. `number`
 * 0: ephemeral. 0 when a limit or memory is reached. */
uint32_t subscription_make(struct worker *w, uint32_t topic, const char *name, size_t name_bytes, uint32_t number);
/* One that holds nothing, at the end. */
uint32_t subscription_make_reader(struct worker *w, uint32_t topic, const char *name, size_t name_bytes);
/* Releases all that it holds. Its consumers must have left. */
void subscription_remove(struct worker *w, uint32_t subscription);
/* Nobody finds it any more; what it holds it still does. */
void subscription_unlink(struct worker *w, uint32_t subscription);
/* Releases all that it holds before this seq; what is in flight too. */
void subscription_empty(struct worker *w, uint32_t subscription, uint64_t until);
/* Passes over everything before `cursor`: each message becomes a delivery with one attempt made. For recovery. */
void subscription_advance(struct worker *w, uint32_t subscription, uint64_t cursor);
/* The seq before which its topic lets its subscriptions take messages. */
uint64_t subscription_horizon(const struct topic *t);
/* The next message of the cursor, which is moved past what there is to skip. False: none may be delivered now. */
bool subscription_front(struct worker *w, uint32_t subscription, uint64_t *seq);
/* The cursor goes past its front. */
void subscription_pass(struct worker *w, uint32_t subscription);
/* Of a message that its topic's stream has: it is ahead of it, or passed and not finished. */
bool subscription_holds(const struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id, bool delayed);
/* Messages it could deliver now, were there credit and no pause. */
uint64_t subscription_depth(const struct worker *w, const struct subscription *s);

/* 0: none. */
uint32_t delivery_find(const struct worker *w, uint32_t subscription, uint64_t id);
/* In no state; 0 when the limit is reached. */
uint32_t delivery_make(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id);
/* From no state into one, ... */
void delivery_fly(struct worker *w, uint32_t delivery, uint32_t consumer);
void delivery_again(struct worker *w, uint32_t delivery);
void delivery_defer(struct worker *w, uint32_t delivery, uint64_t deadline_ns);
/* ... out of whichever it is in, ... */
void delivery_take(struct worker *w, uint32_t delivery);
/* ... and gone, from no state. The message is not released. */
void delivery_forget(struct worker *w, uint32_t delivery);
/* One that was published with a delay, for as long as its record says. */
void subscription_defer(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id);
/* Its time begins anew. */
void delivery_extend(struct worker *w, uint32_t delivery);

/* The consumer of a client that goes by this number; 0: there is none. */
uint32_t consumer_find(const struct worker *w, uint32_t client, uint32_t number);
/* 0 when a limit or memory is reached. The number must be free. */
uint32_t consumer_make(struct worker *w, uint32_t client, uint32_t number, uint32_t subscription);
/* What it has in flight is to be delivered again: the last of much of it in the next turns. */
void consumer_remove(struct worker *w, uint32_t consumer);
/* The same of one that stays, to be sent nothing before all of it has been given back. */
void consumer_yield(struct worker *w, uint32_t consumer);
/* In each turn. True if there is more. */
bool consumers_leave(struct worker *w);
/* Consumers that left, or yield, still give back what they had of this subscription. */
bool consumers_give_back(const struct worker *w, uint32_t subscription);
/* All that consumers who left, or yield, had of this subscription is to be delivered again now. */
void consumers_have_left(struct worker *w, uint32_t subscription);
/* After a change of what it has in flight, of its credit or its window: it comes to take turns, or does so no more. */
void consumer_settle(struct worker *w, uint32_t consumer);

/* --- rotation.c: whose turn it is --- */

/* Before it may take a message for the first time; the lowest number goes first, and all above 63 are one. False: no memory. */
bool rotation_prefer(struct worker *w, uint32_t consumer, uint32_t priority);
/* It may take a message from now on, and comes behind those of its priority; or it may not. */
void rotation_join(struct worker *w, uint32_t consumer);
void rotation_leave(struct worker *w, uint32_t consumer);
/* The next one whose acceptor takes messages; 0: none. */
uint32_t rotation_next(const struct worker *w, struct subscription *s);

/* It may have something to deliver, or somebody to deliver it to. */
void subscription_due(struct worker *w, uint32_t subscription);
void topic_due(struct worker *w, uint32_t topic);
/* What was finished or how far it came has to be written. */
void subscription_touched(struct worker *w, uint32_t subscription);

/* Finishes what it has passed up to a seq, so many at most; returns how many those were. */
uint32_t subscription_finish_upto(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t most);

/* --- upto.c: all that it has passed up to a seq is finished at once --- */

/* It is in the log, for which there is room, and over; nothing else of the kind must be under way. */
void subscription_finish_all(struct worker *w, uint32_t subscription, uint64_t seq);
/* A piece of that is let go of: so many. All is when `over_until` is 0. */
uint32_t subscription_finish_some(struct worker *w, uint32_t subscription);
/* It is unlinked. */
void subscription_over_forget(struct worker *w, uint32_t subscription);
/* In each turn. True if there was any. */
bool finishes_go_on(struct worker *w);

/* --- policy.c: who gets the next message --- */

struct policy_wish {
    struct subscribe_policy policy;
    const char *name;
    const uint8_t *ranges;
    uint32_t range_count;
};
static inline bool subscription_is_ordered(const struct subscription *s) {
    return s->policy != POLICY_TURNS;
}
/* Before that, piece by piece: what is to be delivered again comes to stand as the policy wants it. True: it does. */
bool policy_prepare(struct worker *w, uint32_t subscription, const struct policy_wish *wish);
/* Whether such a consumer may join: a status. The subscription comes to have its policy if it is the first. */
uint8_t policy_admit(struct worker *w, uint32_t subscription, const struct policy_wish *wish);
/* It has joined, and gets its rank: false without memory, and it must leave. */
bool policy_joined(struct worker *w, uint32_t consumer, const struct policy_wish *wish);
/* It is not among the consumers any more. Who comes to be the first is chosen before anything is delivered. */
void policy_left(struct worker *w, uint32_t subscription, uint32_t consumer);
void policy_choose(struct worker *w, uint32_t subscription);
/* Whether its subscription's policy lets a consumer take messages at all. */
static inline bool policy_lets(const struct subscription *s, uint32_t consumer) {
    return s->policy != POLICY_FAILOVER || s->active == consumer;
}
uint16_t policy_slot(const struct record *r);
/* Who has a slot; 0: nobody. */
uint32_t policy_owner(const struct worker *w, const struct subscription *s, uint16_t slot);
/* Who has messages of it in flight; 0: nobody. */
uint32_t policy_slot_user(const struct worker *w, uint32_t subscription, uint16_t slot);
/* Nobody else has messages of it in flight. */
bool policy_slot_free(const struct worker *w, uint32_t subscription, uint16_t slot, uint32_t consumer);
/* A delivery flies, and is counted for its slot, or does so no more. False: there are too many. */
bool policy_slot_take(struct worker *w, uint32_t delivery, uint16_t slot, uint32_t consumer);
void policy_slot_release(struct worker *w, uint32_t delivery);

/* --- again.c: what is to be delivered again --- */

void again_put(struct worker *w, struct subscription *s, uint32_t delivery);
void again_take(struct worker *w, struct subscription *s, uint32_t delivery);
/* So many of those that do not stand in the order of seqs yet come to do so. True: all do. */
bool again_order(struct worker *w, struct subscription *s, uint32_t most);

/* --- parts.c: deliveries of which parts are finished --- */

/* NULL: none is. */
const struct parts_left *delivery_parts(const struct worker *w, uint32_t delivery);
/* What would be left: of what is left now, what is set in `bits` too. False: nothing. */
bool delivery_parts_after(const struct worker *w, uint32_t delivery, const void *bits, uint32_t words,
                          struct parts_left *out);
/* There is room for one more, beside those that transactions will need. */
bool parts_fit(const struct worker *w);
/* False when a limit or memory is reached. */
bool delivery_parts_set(struct worker *w, uint32_t delivery, const struct parts_left *left);
void delivery_parts_forget(struct worker *w, uint32_t delivery);

/* --- split.c: deliveries that are several messages to who knows no batches --- */

/* What a part is a part of. */
uint32_t split_of(const struct worker *w, uint32_t delivery);
/* There is room for so many more deliveries. */
bool split_fits(const struct worker *w, uint32_t parts);
/* One in no state comes to be split: those of its parts that are not finished are to be delivered. False, and it is not, when
 * a limit or memory is reached. */
bool delivery_split(struct worker *w, uint32_t delivery, uint32_t parts);
/* A part is over, and so is what it was a part of if it was the last; true then, and the message is not released. */
bool split_part_over(struct worker *w, uint32_t delivery);
/* What is left of a message when this part of it is over: no words if nothing is. */
void split_without(const struct worker *w, uint32_t delivery, struct parts_left *left);
/* The parts that are not left are over; some are left. */
void split_leave(struct worker *w, uint32_t split, const struct parts_left *left);
/* Those of its parts that a consumer has in flight are to be delivered again. */
void split_again(struct worker *w, uint32_t split, uint32_t consumer);
/* All of its parts are over, and so is it. The message is not released. */
void split_over(struct worker *w, uint32_t split);

/* One hold on a message is gone; with the last, the message. */
void message_release(struct worker *w, uint32_t topic, uint64_t seq);
/* A subscription is done with a message that it had passed. */
void subscription_release(struct worker *w, uint32_t subscription, uint64_t seq);
/* A delivery, in whatever state, is over, and with it the subscription's hold. */
void delivery_drop(struct worker *w, uint32_t delivery);
/* A subscription holds what it has not passed from here on. */
static inline uint64_t subscription_held_from(const struct subscription *s) {
    return s->cursor > s->cold ? s->cursor : s->cold;
}
/* It holds nothing ahead of it before this seq, and its cursor does not stand before it. */
void subscription_release_ahead(struct worker *w, uint32_t subscription, uint64_t until);
/* So many steps on the way there. False: there are more. */
bool subscription_skip(struct worker *w, uint32_t subscription, uint64_t until, uint32_t most);
/* All that its topic has before `until` nobody else holds, there is nothing behind that, and it is worth burying. */
bool subscription_owns_stream(const struct worker *w, const struct subscription *s, uint64_t until);

/* --- leave.c --- */

/* One that goes with much is unlinked now, and lets go of it in the next turns. False: it has not much, or the log is read back. */
bool subscription_leave(struct worker *w, uint32_t subscription);
/* It is unlinked, and its topic knows nothing of what it had any more: only its deliveries are left. */
void subscription_orphan(struct worker *w, uint32_t subscription);
/* Some of what those have. True if there is more. */
bool orphans_clear(struct worker *w);
/* One that is unlinked and has nothing left. */
void subscription_free(struct worker *w, uint32_t subscription);

/* --- handover.c --- */

/* Channels that are unlinked let go of what they had: nobody can say of a message whether it is held or waits. */
bool handover_leaves(const struct topic *t);
/* A channel comes to have the topic's jobs. */
bool handover_adopts(const struct topic *t);
/* One of these is done before the channel is there: it is none of the channel's. */
void handover_job_done(struct worker *w, uint32_t topic, uint64_t seq, uint64_t id);

/* --- tomb.c --- */

/* A topic's stream is empty from now on; what was in it is let go in the next turns, whoever held it. */
void stream_bury(struct worker *w, uint32_t topic);
/* The same of its jobs too. */
void topic_bury(struct worker *w, uint32_t topic);
/* Some of that. True if there is more. */
bool tombs_clear(struct worker *w);
void tombs_free(struct worker *w);

/* --- retain.c --- */

/* What is retained, and not below, is there to be read. */
uint64_t retained_oldest(const struct shard *s);

/* --- position.c --- */

bool retention_is_name(const char *name, size_t name_bytes);
/* As subscription_front, of what comes before `until` and the subscription does not hold. */
__attribute__((cold)) bool position_front(struct worker *w, uint32_t subscription, uint64_t until, uint64_t *seq);
/* As subscription_pass, of what it does not hold. */
__attribute__((cold)) void position_pass(struct worker *w, uint32_t subscription);
/* All from `seq` on is to be delivered, and nothing else. Memory only. */
void subscription_seek(struct worker *w, uint32_t subscription, uint64_t seq);
/* What that means for one of its deliveries: most are dropped. */
void delivery_reset(struct worker *w, uint32_t delivery, uint64_t from);
/* Whether the segments with what it does not hold are to stay; and they need no more. */
void subscription_pin(struct worker *w, uint32_t subscription);
void subscription_unpin(struct worker *w, uint32_t subscription);
/* What of its depth it does not hold. */
uint64_t position_depth(const struct worker *w, const struct subscription *s);

/* --- compacted.c: the topic's view in which only the last message of each key is --- */

bool compacted_is_name(const char *name, size_t name_bytes);
/* The view has passed a message and has it no more. */
__attribute__((cold)) bool compacted_hides(const struct worker *w, uint32_t topic, uint64_t seq);
/* A consumer's delivery is of the parts that are in the view. False: none is. */
__attribute__((cold)) bool compacted_leaves(struct worker *w, uint32_t topic, uint32_t delivery);

/* No deadline of a consumer's is waited for any more. */
void flights_forget(struct worker *w, uint32_t consumer);
/* Lets time pass up to w->now_ns. True if anything happened. */
bool subscriptions_tick(struct worker *w);
uint64_t subscriptions_next_ns(const struct worker *w);

/* --- dispatch.c --- */

/* Delivers what is due. True if there is more for the next turn. */
bool dispatch(struct worker *w);
/* Notes that a message is finished, which is to be written by the end of the turn. False, with nothing changed, if too
 * many are noted already and cannot be written. */
bool subscription_finished(struct worker *w, uint32_t subscription, uint64_t seq);
/* Appends what was finished and how far the cursor came. False while there is no room. */
bool subscription_write(struct worker *w, uint32_t subscription);
void subscriptions_write(struct worker *w);

#endif

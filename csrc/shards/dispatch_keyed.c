#include "shards/dispatch_keyed.h"

#include "shards/client.h"
#include "shards/delivery.h"
#include "shards/dispatch_message.h"
#include "shards/key_owners.h"
#include "shards/keys_in_flight.h"
#include "shards/policy.h"
#include "shards/redelivery.h"
#include "shards/subscription.h"
#include "shards/unreadable.h"

/* Most messages held back because their key's consumer cannot take them now. With that many, no others pass them. */
enum { KEY_HELD_BACK = 1024 };
/* What finding a slot's consumer costs, in addition to a look at each consumer; how many pieces of looks a turn has. */
enum { LOOKED_FOR_ONE = 8, LOOKED_PIECES = 4 };

/* The state of one turn: what was found for one message holds for later ones with the same key. */
struct keyed {
    uint16_t slot;
    uint32_t consumer;
    uint32_t looked;   /* looks at messages, and for each at all consumers */
    uint64_t full_seq; /* the first message whose acceptor takes no more; UINT64_MAX: none */
};

static bool may_go(struct worker *w, uint32_t subscription, uint64_t seq, const struct record *r, struct keyed *k) {
    k->slot = policy_slot(r);
    k->consumer = key_owners_find(w, subscription, k->slot, &k->looked);
    const struct consumer *c = worker_consumer(w, k->consumer);
    if (!k->consumer || !c->next_turn || !policy_slot_free(w, subscription, k->slot, k->consumer)) return false;
    bool full = w->peers[client_at(&w->clients, c->client)->acceptor].full;
    if (full && seq < k->full_seq) k->full_seq = seq;
    return !full;
}

/* Moves the cursor past the next message, and makes a delivery in no state. */
static uint32_t pass_keyed(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, worker_subscription(w, subscription)->topic);
    uint32_t delivery = delivery_make(w, subscription, seq, message_record(w, t, seq)->id);
    if (delivery) subscription_pass(w, subscription);
    return delivery;
}

static enum dispatched send_keyed(struct worker *w, uint32_t subscription, uint32_t delivery, const struct keyed *k) {
    enum dispatched outcome = dispatch_again(w, subscription, delivery, k->consumer);
    const struct delivery *d = worker_delivery(w, delivery);
    bool flies = outcome == ONE && d->state == DELIVERY_IN_FLIGHT && d->consumer == k->consumer;
    if (flies && !policy_slot_take(w, delivery, k->slot, k->consumer))
        process_die("more keys in flight than there may be");
    return outcome;
}

/* Notes that the message at `seq` has been seen among the redeliveries, or has just been added to them. */
static void saw(const struct worker *w, uint32_t subscription, uint64_t seq, const struct keyed *k, bool sent) {
    struct consumer_rank *rank = k->consumer ? worker_consumer(w, k->consumer)->rank : NULL;
    if (rank) redelivery_saw(worker_subscription(w, subscription), rank, seq, sent);
}

/* Whether a batch was not sent but split: its parts have just been added to the redeliveries, none seen yet. */
static bool is_split(const struct worker *w, uint32_t delivery) {
    return worker_delivery(w, delivery)->state == DELIVERY_SPLIT;
}

/* Sends messages held back, from the first on that was not looked at. False: no more in this turn, see *outcome. */
static bool dispatch_held_back(struct worker *w, uint32_t subscription, struct keyed *k, int *left,
                               enum dispatched *outcome) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint32_t n = redelivery_to_look_at(w, s), next;
    uint64_t last_seq = UINT64_MAX;
    for (; n && *left && s->turn; n = next) {
        const struct delivery *d = worker_delivery(w, n);
        const uint64_t seq = s->look.from = d->seq;
        *outcome = ONE;
        /* Never among the parts of a batch, since the next turn begins with the first of them. */
        if (seq != last_seq && k->looked >= LOOKED_PIECES * w->piece) return false;
        last_seq = seq;
        next = d->following;
        k->looked += LOOKED_FOR_ONE;
        /* What has come before may come again. */
        if (s->blocked && !d->attempts) continue;
        *outcome = STUCK;
        const struct record *r = message_record(w, t, seq);
        enum readable readable = r ? message_readable(w, t, r) : READ_WHOLE;
        if (readable == READ_MORE) {
            *outcome = ONE;
            return false;
        }
        if (!r) {
            delivery_drop(w, n);
        } else if (readable == READ_FAILS) {
            if (dispatch_unreadable(w, subscription, seq, n) != ONE) return false;
            --*left;
        } else {
            bool goes = may_go(w, subscription, seq, r, k);
            saw(w, subscription, seq, k, goes);
            if (goes && send_keyed(w, subscription, n, k) != ONE) return false;
            *left -= goes;
            if (!goes && d->part) next = redelivery_after(w, s, seq); /* nor do the others, which have its key */
            /* The rest of a batch may have gone with it. */
            if (next && worker_delivery(w, next)->state != DELIVERY_REDELIVERED) next = s->redelivery_first;
            if (goes && is_split(w, n)) next = redelivery_to_look_at(w, s);
        }
        /* A consumer may take messages now that this pass has skipped. */
        if (s->look.from < seq) next = redelivery_to_look_at(w, s);
    }
    s->look.from = n ? worker_delivery(w, n)->seq : UINT64_MAX;
    return true;
}

/* Sends new messages. */
static enum dispatched dispatch_new_keyed(struct worker *w, uint32_t subscription, struct keyed *k, int *left) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint64_t seq;
    while (*left && s->turn && !s->blocked && s->redeliveries < KEY_HELD_BACK &&
           subscription_front(w, subscription, &seq)) {
        if (k->looked >= LOOKED_PIECES * w->piece) return ONE;
        k->looked += LOOKED_FOR_ONE;
        enum dispatched passed = dispatch_pass_by(w, subscription, seq);
        if (passed == STUCK) return STUCK;
        if (passed == ONE) continue;
        const struct record *r = message_record(w, t, seq);
        enum readable readable = message_readable(w, t, r);
        if (readable == READ_MORE) return ONE;
        if (readable == READ_FAILS) {
            if (dispatch_unreadable(w, subscription, seq, 0) != ONE) return STUCK;
            --*left;
            continue;
        }
        bool goes = may_go(w, subscription, seq, r, k);
        const uint64_t looked_from = s->look.from;
        uint32_t delivery = pass_keyed(w, subscription, seq);
        if (!delivery) return STUCK;
        delivery_again(w, delivery);
        saw(w, subscription, seq, k, goes);
        if (goes && send_keyed(w, subscription, delivery, k) != ONE) return STUCK;
        const bool is_seen = looked_from == UINT64_MAX && s->look.from == seq && !(goes && is_split(w, delivery));
        if (is_seen) s->look.from = looked_from;
        *left -= goes;
    }
    return *left ? NOTHING : ONE;
}

/* First messages held back, then new ones; both in order, so that no message overtakes one with its key. */
enum dispatched dispatch_keyed(struct worker *w, uint32_t subscription, int most) {
    struct subscription *s = worker_subscription(w, subscription);
    struct keyed k = {.full_seq = UINT64_MAX};
    enum dispatched outcome;
    int left = most;
    if (s->paused || !s->turn) return NOTHING;
    if (dispatch_held_back(w, subscription, &k, &left, &outcome)) {
        /* However much was held back, new messages are looked at too: otherwise each turn would end here. */
        k.looked = 0;
        outcome = dispatch_new_keyed(w, subscription, &k, &left);
    }
    if (k.full_seq == UINT64_MAX) return outcome;
    /* What was skipped because an acceptor takes no more may go as soon as it does. */
    redelivery_look_from(s, k.full_seq);
    return outcome == ONE && !left ? ONE : STUCK;
}

/* Which consumer gets the next message of a subscription, if the policy is not to take turns: the only one, the first
 * of those that stand by, or the one that has the slot of the message's key. */
#include "shards/policy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mix.h"
#include "shards/answers.h"
#include "shards/consumer.h"
#include "shards/due.h"
#include "shards/redelivery.h"
#include "shards/rotation.h"

/* --- who may join ------------------------------------------------------------------------------------------------- */

static struct key_range range_of(const struct policy_wish *wish, uint32_t i) {
    struct key_range range;
    memcpy(&range, wish->ranges + i * sizeof range, sizeof range);
    return range;
}

static bool overlaps(const struct consumer_rank *rank, struct key_range range) {
    for (uint32_t i = 0; i < rank->range_count; i++)
        if (range.first <= rank->ranges[i].last && rank->ranges[i].first <= range.last) return true;
    return false;
}

static uint8_t admit_key(const struct worker *w, const struct subscription *s, const struct policy_wish *wish) {
    /* Either the slots are shared out, or each consumer names its ranges. */
    const struct consumer_rank *other = s->consumer_first ? worker_consumer(w, s->consumer_first)->rank : NULL;
    if (other && (!other->range_count != !wish->range_count || other->order != wish->policy.order)) return STATUS_FULL;
    for (uint32_t i = 0; i < wish->range_count; i++) {
        struct key_range range = range_of(wish, i);
        if (range.first > range.last) return STATUS_INVALID;
        for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next)
            if (overlaps(worker_consumer(w, c)->rank, range)) return STATUS_INVALID;
    }
    return STATUS_OK;
}

static void limit_inflight(struct worker *w, uint32_t subscription, uint32_t most) {
    struct subscription *s = worker_subscription(w, subscription);
    s->most_inflight = most;
    s->blocked = most && s->inflight_parts >= most;
    if (!s->blocked && s->turn) subscription_due(w, subscription);
}

bool policy_prepare(struct worker *w, uint32_t subscription, const struct policy_wish *wish) {
    struct subscription *s = worker_subscription(w, subscription);
    bool any_order = wish->policy.policy == POLICY_TURNS && !wish->again_first;
    return s->consumers || any_order || redelivery_order(w, s, w->piece / 2 + 1);
}

uint8_t policy_admit(struct worker *w, uint32_t subscription, const struct policy_wish *wish) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->consumers && (s->policy != wish->policy.policy || s->policy == POLICY_EXCLUSIVE)) return STATUS_FULL;
    uint8_t status = wish->policy.policy == POLICY_KEY ? admit_key(w, s, wish) : STATUS_OK;
    if (status == STATUS_OK) limit_inflight(w, subscription, wish->policy.most_in_flight);
    if (status != STATUS_OK || s->consumers) return status;
    s->admitted = true;
    s->policy = (uint8_t)wish->policy.policy;
    s->again_first = wish->again_first;
    s->active = 0;
    return STATUS_OK;
}

/* --- who is first ------------------------------------------------------------------------------------------------- */

static void tell(struct worker *w, uint32_t consumer, bool active) {
    const struct consumer *c = worker_consumer(w, consumer);
    struct message m = {
        .kind = MSG_ACTIVE, .conn = client_at(&w->clients, c->client)->conn, .consumer = c->number, .active = active};
    request_send(w, c->client, &m, NULL, 0);
}

static bool is_before(const struct consumer *a, const struct consumer *b) {
    const struct consumer_rank *x = a->rank, *y = b->rank;
    if (x->priority != y->priority) return x->priority < y->priority;
    if (x->order != y->order) return x->order < y->order;
    int order = memcmp(x->name, y->name, x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes);
    if (order) return order < 0;
    if (x->name_bytes != y->name_bytes) return x->name_bytes < y->name_bytes;
    return a->number < b->number;
}

/* A consumer is no longer active: its messages in flight go to the next one. */
static void stand_by(struct worker *w, uint32_t consumer) {
    consumer_yield(w, consumer);
    tell(w, consumer, false);
    consumer_settle(w, consumer);
}

static void swap(uint32_t *a, uint32_t *b) {
    uint32_t one = *a;
    *a = *b;
    *b = one;
}

/* Finds the consumer with `n` others before it, by quickselect with a random pivot. */
static uint32_t nth(struct worker *w, uint32_t *all, uint32_t count, uint32_t n) {
    while (count > 1) {
        swap(&all[subscriptions_random(&w->subscriptions) % count], &all[count - 1]);
        uint32_t lower = 0;
        for (uint32_t i = 0; i + 1 < count; i++)
            if (is_before(worker_consumer(w, all[i]), worker_consumer(w, all[count - 1]))) swap(&all[i], &all[lower++]);
        swap(&all[lower], &all[count - 1]);
        worker_walk(w, count);
        if (n == lower) return all[lower];
        if (n < lower) {
            count = lower;
        } else {
            all += lower + 1;
            n -= lower + 1;
            count -= lower + 1;
        }
    }
    return all[0];
}

/* Of the consumers with the lowest priority, the one that the newest consumer's `pick` chooses. */
static uint32_t first_by(struct worker *w, const struct subscription *s, uint32_t pick) {
    uint32_t first = s->consumer_first, equals = 0;
    for (uint32_t c = first; c; c = worker_consumer(w, c)->next)
        if (is_before(worker_consumer(w, c), worker_consumer(w, first))) first = c;
    worker_walk(w, s->consumers);
    if (!first || !pick) return first;
    uint32_t priority = worker_consumer(w, first)->rank->priority;
    uint32_t *all = malloc(s->consumers * sizeof *all);
    if (!all) process_die("out of memory");
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next)
        if (worker_consumer(w, c)->rank->priority == priority) all[equals++] = c;
    first = nth(w, all, equals, pick % equals);
    free(all);
    return first;
}

static uint32_t pick_of(const struct worker *w, const struct subscription *s) {
    return s->consumer_first ? worker_consumer(w, s->consumer_first)->rank->pick : 0;
}

static void make_first(struct worker *w, uint32_t subscription, uint32_t first, uint32_t joined) {
    struct subscription *s = worker_subscription(w, subscription);
    uint32_t before = s->active;
    s->rechoose = false;
    s->counted = pick_of(w, s) != 0;
    s->active = first;
    if (joined && joined != first) tell(w, joined, false);
    if (first == before) return;
    if (before) stand_by(w, before);
    if (first) tell(w, first, true);
    if (first) consumer_settle(w, first);
}

/* If nothing has to be counted, either the newcomer or the present active one is first. */
static void choose_beside(struct worker *w, uint32_t subscription, uint32_t joined) {
    const struct subscription *s = worker_subscription(w, subscription);
    uint32_t pick = pick_of(w, s), first = joined;
    if (pick || s->counted || s->rechoose || !s->active)
        first = first_by(w, s, pick);
    else if (is_before(worker_consumer(w, s->active), worker_consumer(w, joined)))
        first = s->active;
    make_first(w, subscription, first, joined);
}

void policy_choose(struct worker *w, uint32_t subscription) {
    const struct subscription *s = worker_subscription(w, subscription);
    if (!s->rechoose || s->policy != POLICY_FAILOVER) return;
    make_first(w, subscription, first_by(w, s, pick_of(w, s)), 0);
}

/* Of consumers with one name each has a number. Theirs are the same in all subscriptions to which they came in the same
 * order, so that who consumes from several topics has the same keys of each. */
static uint32_t namesake_of(const struct worker *w, const struct subscription *s, const struct policy_wish *wish) {
    uint32_t number = 0;
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next) {
        const struct consumer_rank *rank = worker_consumer(w, c)->rank;
        if (!rank || rank->name_bytes != wish->policy.name_bytes || rank->namesake < number) continue;
        if (!memcmp(rank->name, wish->name, rank->name_bytes)) number = rank->namesake + 1;
    }
    return number;
}

static struct consumer_rank *rank_of(const struct policy_wish *wish, uint32_t namesake) {
    uint32_t name_bytes = wish->policy.name_bytes, range_count = wish->range_count;
    struct consumer_rank *rank = malloc(sizeof *rank + range_count * sizeof(struct key_range) + name_bytes);
    if (!rank) return NULL;
    struct key_range *ranges = (struct key_range *)(rank + 1);
    char *name = (char *)(ranges + range_count);
    *rank = (struct consumer_rank){.priority = wish->policy.priority,
                                   .order = wish->policy.order,
                                   .pick = wish->policy.pick,
                                   .namesake = namesake,
                                   .range_count = range_count,
                                   .name_bytes = name_bytes,
                                   .ranges = ranges,
                                   .name = name};
    for (uint32_t i = 0; i < range_count; i++) ranges[i] = range_of(wish, i);
    memcpy(name, wish->name, name_bytes);
    rank->seed = mix_bits(namesake);
    for (uint32_t i = 0; i < name_bytes; i++) rank->seed = mix_bits(rank->seed ^ (uint8_t)wish->name[i]);
    return rank;
}

uint32_t policy_order(const struct worker *w, uint32_t subscription) {
    uint32_t first = worker_subscription(w, subscription)->consumer_first;
    return first && worker_consumer(w, first)->rank ? worker_consumer(w, first)->rank->order : 0;
}

bool policy_joined(struct worker *w, uint32_t consumer, const struct policy_wish *wish) {
    struct consumer *c = worker_consumer(w, consumer);
    struct subscription *s = worker_subscription(w, c->subscription);
    if (s->policy == POLICY_TURNS) return rotation_prefer(w, consumer, wish->policy.priority);
    if (!(c->rank = rank_of(wish, namesake_of(w, s, wish)))) return false;
    redelivery_look_anew(s);
    if (s->policy == POLICY_FAILOVER) choose_beside(w, c->subscription, consumer);
    subscription_due(w, c->subscription);
    return true;
}

void policy_left(struct worker *w, uint32_t subscription, uint32_t consumer) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->policy == POLICY_TURNS) return;
    redelivery_look_anew(s);
    s->rechoose = true;
    if (s->active == consumer) s->active = 0;
    subscription_due(w, subscription);
}

/* --- by key ------------------------------------------------------------------------------------------------------- */

uint16_t policy_slot_of(const struct headers *h, uint64_t id) {
    /* Without a key any slot will do. */
    return (uint16_t)((h->key_hash ? h->key_hash : mix_bits(id)) % KEY_SLOTS);
}

uint16_t policy_slot(const struct record *r) {
    struct headers h = {0};
    if (message_headers_bytes(r)) memcpy(&h, record_body(r), sizeof h);
    return policy_slot_of(&h, r->id);
}

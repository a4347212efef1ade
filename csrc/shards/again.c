/* What is to be delivered again: a list, oldest first. Where the policy keeps an order that is the order of their seqs, and
 * a treap over the list finds a place in it, whatever order they are given back in.
 */
#include <assert.h>
#include <stdlib.h>

#include "shards/subscription.h"
#include "shards/worker.h"

/* One is seldom far from the one before it: so near is looked for along the list first. */
enum { NEAR_STEPS = 4 };

static struct delivery *delivery_of(const struct worker *w, uint32_t delivery) {
    return delivery_at(&w->subscriptions, delivery);
}

static struct treap_nodes nodes_of(const struct worker *w) {
    return (struct treap_nodes){w->subscriptions.deliveries.base + offsetof(struct delivery, in_order),
                                sizeof(struct delivery)};
}

static uint32_t next_of(const struct worker *w, const struct subscription *s, uint32_t before) {
    return before ? delivery_of(w, before)->following : s->again_first;
}

static bool stands_between(const struct worker *w, uint32_t before, uint32_t after, uint64_t seq) {
    return (!before || delivery_of(w, before)->seq <= seq) && (!after || delivery_of(w, after)->seq > seq);
}

/* The last whose seq is no higher. */
static uint32_t look_up(const struct worker *w, const struct subscription *s, uint64_t seq) {
    uint32_t before = 0;
    for (uint32_t n = s->again_root; n;) {
        const struct delivery *d = delivery_of(w, n);
        if (d->seq <= seq) before = n;
        n = d->seq <= seq ? d->in_order.right : d->in_order.left;
    }
    return before;
}

/* Behind which one a message stands; those of the same seq stay in the order in which they come. */
static uint32_t place(const struct worker *w, const struct subscription *s, uint64_t seq) {
    if (!s->again || delivery_of(w, s->again_last)->seq <= seq) return s->again_last;
    uint32_t before = s->again_near;
    for (uint32_t steps = NEAR_STEPS; steps; steps--) {
        uint32_t after = next_of(w, s, before);
        if (stands_between(w, before, after, seq)) return before;
        before = !before || delivery_of(w, before)->seq <= seq ? after : delivery_of(w, before)->previous;
    }
    return look_up(w, s, seq);
}

static void enter(struct worker *w, struct subscription *s, uint32_t delivery, uint32_t before) {
    uint32_t priority = (uint32_t)(subscriptions_random(&w->subscriptions) >> 32);
    treap_insert(nodes_of(w), &s->again_root, delivery, priority, before, next_of(w, s, before));
}

void again_put(struct worker *w, struct subscription *s, uint32_t delivery) {
    struct delivery *d = delivery_of(w, delivery);
    bool ordered = subscription_is_ordered(s);
    uint32_t before = ordered ? place(w, s, d->seq) : s->again_last;
    if (ordered) enter(w, s, delivery, before);
    d->previous = before;
    d->following = next_of(w, s, before);
    *(before ? &delivery_of(w, before)->following : &s->again_first) = delivery;
    *(d->following ? &delivery_of(w, d->following)->previous : &s->again_last) = delivery;
    s->again_near = delivery;
    s->again++;
}

void again_take(struct worker *w, struct subscription *s, uint32_t delivery) {
    const struct delivery *d = delivery_of(w, delivery);
    if (subscription_is_ordered(s)) treap_remove(nodes_of(w), &s->again_root, delivery);
    if (s->again_near == delivery) s->again_near = d->previous ? d->previous : d->following;
    *(d->previous ? &delivery_of(w, d->previous)->following : &s->again_first) = d->following;
    *(d->following ? &delivery_of(w, d->following)->previous : &s->again_last) = d->previous;
    s->again--;
}

/* --- when the policy changes -------------------------------------------------------------------------------------- */

struct place {
    uint64_t seq;
    uint32_t delivery;
};

static int by_seq(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static struct place *sorted(const struct worker *w, const struct subscription *s) {
    struct place *all = malloc(s->again * sizeof *all);
    if (!all) return NULL;
    uint32_t count = 0;
    for (uint32_t n = s->again_first; n; n = delivery_of(w, n)->following)
        all[count++] = (struct place){delivery_of(w, n)->seq, n};
    assert(count == s->again);
    qsort(all, count, sizeof *all, by_seq);
    return all;
}

bool again_order(struct worker *w, struct subscription *s, bool ordered) {
    if (ordered == subscription_is_ordered(s)) return true;
    s->again_root = 0;
    if (!ordered || !s->again) return true;
    struct place *all = sorted(w, s);
    if (!all) return false;
    const uint32_t count = s->again;
    s->again_first = s->again_last = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t delivery = all[i].delivery, before = s->again_last;
        enter(w, s, delivery, before);
        delivery_of(w, delivery)->previous = before;
        delivery_of(w, delivery)->following = 0;
        *(before ? &delivery_of(w, before)->following : &s->again_first) = delivery;
        s->again_last = delivery;
    }
    free(all);
    return true;
}

/* A subscription's redeliveries: a list, oldest first. If the policy keeps an order, that is the order of their seqs,
 * and a treap over the list finds the place of a redelivery, whatever order they come in. Redeliveries from before the
 * policy kept an order are at the end of the list, from redelivery_unsorted on, until they are put in their places,
 * piece by piece.
 */
#include "shards/redelivery.h"

#include <assert.h>

/* A redelivery's place is usually near that of the previous one: this many steps along the list are tried first. */
enum { NEAR_STEPS = 4 };

static struct treap_nodes nodes_of(const struct worker *w) {
    return (struct treap_nodes){w->subscriptions.deliveries.base + offsetof(struct delivery, in_order),
                                sizeof(struct delivery)};
}

static uint32_t next_of(const struct worker *w, const struct subscription *s, uint32_t before) {
    return before ? worker_delivery(w, before)->following : s->redelivery_first;
}

/* --- in order ----------------------------------------------------------------------------------------------------- */

/* The next one in the ordered part of the list. */
static uint32_t next_in_order(const struct worker *w, const struct subscription *s, uint32_t before) {
    uint32_t next = next_of(w, s, before);
    return next == s->redelivery_unsorted ? 0 : next;
}

static uint32_t last_in_order(const struct worker *w, const struct subscription *s) {
    return s->redelivery_unsorted ? worker_delivery(w, s->redelivery_unsorted)->previous : s->redelivery_last;
}

static bool stands_between(const struct worker *w, uint32_t before, uint32_t after, uint64_t seq) {
    return (!before || worker_delivery(w, before)->seq <= seq) && (!after || worker_delivery(w, after)->seq > seq);
}

/* The last redelivery whose seq is not higher. */
static uint32_t look_up(const struct worker *w, const struct subscription *s, uint64_t seq) {
    uint32_t before = 0;
    for (uint32_t n = s->redelivery_root; n;) {
        const struct delivery *d = worker_delivery(w, n);
        if (d->seq <= seq) before = n;
        n = d->seq <= seq ? d->in_order.right : d->in_order.left;
    }
    return before;
}

/* The redelivery behind which one with this seq belongs. Equal seqs stay in the order in which they came. */
static uint32_t place(const struct worker *w, const struct subscription *s, uint64_t seq) {
    uint32_t last = last_in_order(w, s);
    if (!last || worker_delivery(w, last)->seq <= seq) return last;
    uint32_t before = s->redelivery_near;
    for (uint32_t steps = NEAR_STEPS; steps; steps--) {
        uint32_t after = next_in_order(w, s, before);
        if (stands_between(w, before, after, seq)) return before;
        before = !before || worker_delivery(w, before)->seq <= seq ? after : worker_delivery(w, before)->previous;
    }
    return look_up(w, s, seq);
}

/* --- what has been looked at (POLICY_KEY) ------------------------------------------------------------------------- */

void redelivery_look_anew(struct subscription *s) {
    s->look.from = s->look.began = 0;
    s->look.round++;
}

void redelivery_look_from(struct subscription *s, uint64_t seq) {
    if (seq < s->look.from) s->look.from = s->look.began = seq;
}

/* A redelivery has been added to the list. If it is the last one, no consumer's first can come after it. */
static void redelivery_look_at(struct subscription *s, uint64_t seq, bool is_last) {
    if (is_last)
        redelivery_look_from(s, seq);
    else
        redelivery_look_anew(s);
}

void redelivery_look_for(struct subscription *s, struct consumer_rank *rank) {
    rank->own.is_there = false;
    redelivery_look_from(s, rank->own.round == s->look.round ? rank->own.from : 0);
}

void redelivery_saw(const struct subscription *s, struct consumer_rank *rank, uint64_t seq, bool sent) {
    struct redelivery_own *own = &rank->own;
    if (own->round != s->look.round) *own = (struct redelivery_own){.round = s->look.round};
    if (seq < own->from || (!own->is_there && own->from >= s->look.began)) own->from = seq;
    own->is_there = !sent || (own->is_there && own->from != seq);
}

uint32_t redelivery_to_look_at(const struct worker *w, const struct subscription *s) {
    return s->look.from ? redelivery_after(w, s, s->look.from - 1) : s->redelivery_first;
}

uint32_t redelivery_after(const struct worker *w, const struct subscription *s, uint64_t seq) {
    return next_of(w, s, look_up(w, s, seq));
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

static void link_behind(struct worker *w, struct subscription *s, uint32_t delivery, uint32_t before) {
    struct delivery *d = worker_delivery(w, delivery);
    d->previous = before;
    d->following = next_of(w, s, before);
    *(before ? &worker_delivery(w, before)->following : &s->redelivery_first) = delivery;
    *(d->following ? &worker_delivery(w, d->following)->previous : &s->redelivery_last) = delivery;
    s->redeliveries++;
}

static void put_in_order(struct worker *w, struct subscription *s, uint32_t delivery) {
    struct delivery *d = worker_delivery(w, delivery);
    uint32_t before = place(w, s, d->seq), priority = (uint32_t)(subscriptions_random(&w->subscriptions) >> 32);
    treap_insert(nodes_of(w), &s->redelivery_root, delivery, priority, before, next_in_order(w, s, before));
    link_behind(w, s, delivery, before);
    d->sorted = true;
    s->redelivery_near = delivery;
    redelivery_look_at(s, d->seq, d->following == 0);
}

void redelivery_put(struct worker *w, struct subscription *s, uint32_t delivery) {
    if (subscription_is_ordered(s)) {
        put_in_order(w, s, delivery);
        return;
    }
    link_behind(w, s, delivery, s->redelivery_last);
    if (!s->redelivery_unsorted) s->redelivery_unsorted = delivery;
}

void redelivery_take(struct worker *w, struct subscription *s, uint32_t delivery) {
    struct delivery *d = worker_delivery(w, delivery);
    if (d->sorted) {
        treap_remove(nodes_of(w), &s->redelivery_root, delivery);
        if (s->redelivery_near == delivery)
            s->redelivery_near = d->previous ? d->previous : next_in_order(w, s, delivery);
        d->sorted = false;
    }
    if (s->redelivery_unsorted == delivery) s->redelivery_unsorted = d->following;
    *(d->previous ? &worker_delivery(w, d->previous)->following : &s->redelivery_first) = d->following;
    *(d->following ? &worker_delivery(w, d->following)->previous : &s->redelivery_last) = d->previous;
    s->redeliveries--;
}

bool redelivery_order(struct worker *w, struct subscription *s, uint32_t most) {
    for (; s->redelivery_unsorted && most; most--) {
        uint32_t delivery = s->redelivery_unsorted;
        redelivery_take(w, s, delivery);
        put_in_order(w, s, delivery);
        worker_step(w);
    }
    return !s->redelivery_unsorted;
}

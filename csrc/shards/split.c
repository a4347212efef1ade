/* A batch is one message to some consumers, and many to others: its delivery is split for these. It stays, in a state
 * of its own, with the bits of the parts that are not finished. Each of these parts is a delivery by itself, with an id
 * and attempts, in flight, deferred or to be delivered again.
 *
 * The log does not know that: it says which parts of a message are finished, and after recovery a delivery is whole
 * again.
 */
#include "shards/split.h"

#include <assert.h>

#include "shards/delivery.h"
#include "shards/parts.h"

static uint64_t part_id(const struct worker *w, uint64_t id, uint32_t part) {
    return id + (uint64_t)part * w->shards;
}

uint32_t split_of(const struct worker *w, uint32_t delivery) {
    const struct delivery *d = worker_delivery(w, delivery);
    uint64_t id = delivery_id(&w->subscriptions, d);
    uint32_t split = delivery_find(w, d->subscription, id - (uint64_t)d->part * w->shards);
    assert(d->part && split && worker_delivery(w, split)->state == DELIVERY_SPLIT);
    return split;
}

bool split_fits(const struct worker *w, uint32_t parts) {
    return deliveries_fit(w, parts) && parts_fit(w, (parts + 63) / 64);
}

static void make_part(struct worker *w, uint32_t split, uint32_t number) {
    const struct delivery *d = worker_delivery(w, split);
    uint64_t id = part_id(w, delivery_id(&w->subscriptions, d), number);
    uint32_t part = delivery_make(w, d->subscription, d->seq, id);
    if (!part) process_die("more deliveries than a worker can hold");
    worker_delivery(w, part)->part = (uint16_t)number;
    worker_delivery(w, part)->attempts = d->attempts;
    delivery_again(w, part);
    worker_step(w);
}

bool delivery_split(struct worker *w, uint32_t delivery, uint32_t parts) {
    struct delivery *d = worker_delivery(w, delivery);
    struct parts_left all, left;
    assert(!d->state && parts > 1 && parts <= PACKED_MAX_PARTS);
    if (!split_fits(w, parts)) return false;
    parts_first(&all, parts);
    if (!delivery_parts_after(w, delivery, all.bits, all.words, &left)) return false; /* none of these parts is left */
    if (!delivery_parts_set(w, delivery, &left)) process_die("out of memory");
    d->state = DELIVERY_SPLIT;
    for (uint32_t i = 0; i < left.words; i++)
        for (uint64_t rest = left.bits[i]; rest; rest &= rest - 1)
            make_part(w, delivery, i * 64 + (uint32_t)__builtin_ctzll(rest) + 1);
    return true;
}

void split_without(const struct worker *w, uint32_t delivery, struct parts_left *left) {
    uint32_t place = worker_delivery(w, delivery)->part - 1u;
    parts_copy(left, delivery_parts(w, split_of(w, delivery)));
    left->bits[place / 64] &= ~((uint64_t)1 << place % 64);
    parts_trim(left);
}

static void forget(struct worker *w, uint32_t delivery) {
    if (worker_delivery(w, delivery)->state) delivery_take(w, delivery);
    delivery_forget(w, delivery);
}

bool split_part_over(struct worker *w, uint32_t delivery) {
    struct parts_left left;
    uint32_t split = split_of(w, delivery);
    split_without(w, delivery, &left);
    forget(w, delivery);
    if (left.words) {
        (void)delivery_parts_set(w, split, &left); /* its parts have a place */
        return false;
    }
    worker_delivery(w, split)->state = 0;
    delivery_forget(w, split);
    return true;
}

/* The part of the lowest bit set in a word. */
static uint32_t part_at(const struct worker *w, uint32_t split, uint32_t word, uint64_t bits) {
    const struct delivery *d = worker_delivery(w, split);
    uint32_t part = word * 64 + (uint32_t)__builtin_ctzll(bits) + 1;
    return delivery_find(w, d->subscription, part_id(w, delivery_id(&w->subscriptions, d), part));
}

void split_again(struct worker *w, uint32_t split, uint32_t consumer) {
    const struct parts_left *left = delivery_parts(w, split);
    for (uint32_t i = 0; i < left->words; i++) {
        for (uint64_t rest = left->bits[i]; rest; rest &= rest - 1) {
            uint32_t part = part_at(w, split, i, rest);
            if (worker_delivery(w, part)->consumer != consumer) continue;
            delivery_take(w, part);
            delivery_again(w, part);
        }
    }
}

void split_leave(struct worker *w, uint32_t split, const struct parts_left *left) {
    const struct parts_left *now = delivery_parts(w, split);
    for (uint32_t i = 0; i < now->words; i++)
        for (uint64_t over = now->bits[i] & ~(i < left->words ? left->bits[i] : 0); over; over &= over - 1)
            forget(w, part_at(w, split, i, over));
    (void)delivery_parts_set(w, split, left); /* its parts have a place */
}

void split_over(struct worker *w, uint32_t split) {
    const struct parts_left *left = delivery_parts(w, split);
    for (uint32_t i = 0; i < left->words; i++)
        for (uint64_t rest = left->bits[i]; rest; rest &= rest - 1) forget(w, part_at(w, split, i, rest));
    worker_delivery(w, split)->state = 0;
    delivery_forget(w, split);
}

/* Deliveries of batches some of whose parts are finished: a consumer may finish the parts of a batch one by one. Such
 * deliveries are few, so the parts that are left are stored beside them. */
#include "shards/parts.h"

#include <assert.h>
#include <string.h>

#include "shards/calls.h"

const struct parts_left *delivery_parts(const struct worker *w, uint32_t delivery) {
    const struct subscriptions *all = &w->subscriptions;
    if (!delivery_at(all, delivery)->in_parts) return NULL;
    return arena_at(&all->parts, map_find(&all->parts_of, delivery));
}

bool delivery_parts_after(const struct worker *w, uint32_t delivery, const void *bits, uint32_t words,
                          struct parts_left *out) {
    const struct parts_left *now = delivery_parts(w, delivery);
    uint64_t any = 0;
    assert(words <= PARTS_MAX_WORDS);
    *out = (struct parts_left){.words = words};
    memcpy(out->bits, bits, words * sizeof *out->bits);
    for (uint32_t i = 0; i < words; i++) {
        if (now) out->bits[i] &= now->bits[i]; /* words beyond its own are 0 */
        any |= out->bits[i];
    }
    while (out->words && !out->bits[out->words - 1]) out->words--;
    return any != 0;
}

bool parts_fit(const struct worker *w) {
    return w->subscriptions.parts.live + w->transactions.in_parts < w->subscriptions.parts_limit;
}

void worker_limit_parts(struct worker *w, uint32_t limit) {
    assert(limit <= WORKER_MAX_IN_PARTS);
    w->subscriptions.parts_limit = limit;
}

bool delivery_parts_set(struct worker *w, uint32_t delivery, const struct parts_left *left) {
    struct subscriptions *all = &w->subscriptions;
    struct delivery *d = delivery_at(all, delivery);
    if (!d->in_parts && !parts_fit(w)) return false;
    uint32_t number = d->in_parts ? map_find(&all->parts_of, delivery) : arena_take(&all->parts);
    if (!number) return false;
    if (!d->in_parts && !map_insert(&all->parts_of, delivery, number)) {
        arena_give(&all->parts, number);
        return false;
    }
    struct parts_left *place = arena_at(&all->parts, number);
    uint32_t link = place->arena_link;
    *place = *left;
    place->arena_link = link;
    d->in_parts = true;
    return true;
}

void delivery_parts_forget(struct worker *w, uint32_t delivery) {
    struct subscriptions *all = &w->subscriptions;
    uint32_t number = map_find(&all->parts_of, delivery);
    assert(number);
    map_remove(&all->parts_of, delivery);
    arena_give(&all->parts, number);
    delivery_at(all, delivery)->in_parts = false;
}

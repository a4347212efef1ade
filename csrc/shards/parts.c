/* Deliveries of batches some of whose parts are finished: a consumer may finish the parts of a batch one by one. Such
 * deliveries are few, so the parts that are left are stored beside them: those of a batch with few parts in one arena,
 * and those of one with many in another, with as much less room for them as they are larger.
 */
#include "shards/parts.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "shards/calls.h"
#include "shards/unreadable.h"

/* In a number of parts_of: it is one of `many_parts`. */
#define MANY           ((uint32_t)1 << 31)
#define FEW_BYTES      (offsetof(struct parts_left, bits) + PARTS_FEW_WORDS * sizeof(uint64_t))
#define MANY_ARE_FEWER (PARTS_MAX_WORDS / PARTS_FEW_WORDS)

bool parts_open(struct subscriptions *all) {
    all->parts_limit = WORKER_MAX_IN_PARTS;
    return arena_open(&all->parts, FEW_BYTES, WORKER_MAX_IN_PARTS + 1) &&
           arena_open(&all->many_parts, sizeof(struct parts_left), WORKER_MAX_IN_PARTS / MANY_ARE_FEWER + 1);
}

static struct parts_left *place_of(const struct subscriptions *all, uint32_t number) {
    return number & MANY ? arena_at(&all->many_parts, number & ~MANY) : arena_at(&all->parts, number);
}

const struct parts_left *delivery_parts(const struct worker *w, uint32_t delivery) {
    const struct subscriptions *all = &w->subscriptions;
    if (!delivery_at(all, delivery)->in_parts) return NULL;
    return place_of(all, map_find(&all->parts_of, delivery));
}

void parts_copy(struct parts_left *to, const struct parts_left *from) {
    to->words = from->words;
    memcpy(to->bits, from->bits, from->words * sizeof *to->bits);
}

void parts_trim(struct parts_left *left) {
    while (left->words && !left->bits[left->words - 1]) left->words--;
}

void parts_first(struct parts_left *out, uint32_t count) {
    out->words = (count + 63) / 64;
    memset(out->bits, 0xff, out->words * sizeof *out->bits);
    if (count % 64) out->bits[count / 64] = ((uint64_t)1 << count % 64) - 1;
}

uint32_t parts_count(const struct parts_left *left) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < left->words; i++) count += (uint32_t)__builtin_popcountll(left->bits[i]);
    return count;
}

void delivery_all_parts(const struct worker *w, uint32_t delivery, struct parts_left *out) {
    const struct delivery *d = worker_delivery(w, delivery);
    const struct parts_left *now = delivery_parts(w, delivery);
    if (now) {
        parts_copy(out, now);
        return;
    }
    const struct topic *t = topic_at(&w->topics, worker_subscription(w, d->subscription)->topic);
    const struct record *r = message_head(w, t, d->seq);
    struct headers h = {0};
    if (r && message_headers_bytes(r)) memcpy(&h, record_body(r), sizeof h);
    uint32_t parts = h.parts ? h.parts : 1;
    parts_first(out, parts < PARTS_MAX_WORDS * 64 ? parts : PARTS_MAX_WORDS * 64);
}

bool delivery_parts_after(const struct worker *w, uint32_t delivery, const void *bits, uint32_t words,
                          struct parts_left *out) {
    const struct parts_left *now = delivery_parts(w, delivery);
    assert(words <= PARTS_MAX_WORDS);
    out->words = now && now->words < words ? now->words : words;
    memcpy(out->bits, bits, out->words * sizeof *out->bits);
    for (uint32_t i = 0; now && i < out->words; i++) out->bits[i] &= now->bits[i];
    parts_trim(out);
    return out->words > 0;
}

bool parts_fit(const struct worker *w, uint32_t words) {
    const struct subscriptions *all = &w->subscriptions;
    if (words > PARTS_FEW_WORDS)
        return all->many_parts.live + w->transactions.in_many_parts < all->parts_limit / MANY_ARE_FEWER;
    return all->parts.live + w->transactions.in_parts < all->parts_limit;
}

void worker_limit_parts(struct worker *w, uint32_t limit) {
    assert(limit <= WORKER_MAX_IN_PARTS);
    w->subscriptions.parts_limit = limit;
}

static void give(struct subscriptions *all, uint32_t number) {
    if (number & MANY)
        arena_give(&all->many_parts, number & ~MANY);
    else
        arena_give(&all->parts, number);
}

/* Where there is no room for few parts any more, they may be among the many: a transaction that had many to leave, and
 * leaves few in the end, has reserved room there. */
static uint32_t take(struct worker *w, uint32_t delivery, uint32_t words) {
    struct subscriptions *all = &w->subscriptions;
    bool many = words > PARTS_FEW_WORDS || !parts_fit(w, words);
    if (many && !parts_fit(w, PARTS_MAX_WORDS)) return 0;
    uint32_t number = arena_take(many ? &all->many_parts : &all->parts);
    if (!number) return 0;
    if (many) number |= MANY;
    if (map_insert(&all->parts_of, delivery, number)) return number;
    give(all, number);
    return 0;
}

bool delivery_parts_set(struct worker *w, uint32_t delivery, const struct parts_left *left) {
    struct subscriptions *all = &w->subscriptions;
    struct delivery *d = delivery_at(all, delivery);
    uint32_t number = d->in_parts ? map_find(&all->parts_of, delivery) : take(w, delivery, left->words);
    if (!number) return false;
    assert(number & MANY || left->words <= PARTS_FEW_WORDS);
    parts_copy(place_of(all, number), left);
    d->in_parts = true;
    return true;
}

struct parts_span parts_changed(const struct worker *w, uint32_t delivery, const struct parts_left *left) {
    const struct parts_left *now = delivery_parts(w, delivery);
    const struct parts_span all = {.count = left->words, .is_all = true};
    if (!now || left->words <= PARTS_FEW_WORDS || left->words != now->words) return all;
    uint32_t first = 0, end = left->words;
    while (first < end && left->bits[first] == now->bits[first]) first++;
    while (end > first && left->bits[end - 1] == now->bits[end - 1]) end--;
    if (end < PARTS_FEW_WORDS + 1) end = PARTS_FEW_WORDS + 1;
    if (first > end - (PARTS_FEW_WORDS + 1)) first = end - (PARTS_FEW_WORDS + 1);
    return (struct parts_span){.first = first, .count = end - first};
}

bool delivery_parts_without(const struct worker *w, uint32_t delivery, struct parts_span span, const void *bits,
                            struct parts_left *out) {
    if (span.is_all) return delivery_parts_after(w, delivery, bits, span.count, out);
    delivery_all_parts(w, delivery, out);
    for (uint32_t i = 0; i < span.count && span.first + i < out->words; i++) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)bits + i * sizeof word, sizeof word);
        out->bits[span.first + i] &= word;
    }
    parts_trim(out);
    return out->words > 0;
}

void delivery_parts_forget(struct worker *w, uint32_t delivery) {
    struct subscriptions *all = &w->subscriptions;
    uint32_t number = map_find(&all->parts_of, delivery);
    assert(number);
    map_remove(&all->parts_of, delivery);
    give(all, number);
    delivery_at(all, delivery)->in_parts = false;
}

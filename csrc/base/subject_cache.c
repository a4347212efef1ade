/* Earlier matches of subjects. */
#include "base/subject_cache.h"

#include <string.h>

/* Makes more slots. Without memory they stay as they are. */
static void grow(struct subject_cache *cache) {
    const size_t count = (size_t)1 << cache->bits;
    struct cached_match *old = cache->slots, *slots = calloc(count << CACHED_GROWS_BITS, sizeof *slots);
    cache->crowded = 0;
    if (!slots) return;
    cache->slots = slots;
    cache->bits += CACHED_GROWS_BITS;
    for (size_t i = 0; i < count; i++)
        if (old[i].generation == cache->generation) *subject_cache_slot(cache, old[i].subject, old[i].bytes) = old[i];
    free(old);
}

/* Counts a subject that finds its slot with another. True if there should be more slots. */
static bool is_crowded(struct subject_cache *cache, const struct cached_match *slot) {
    if (cache->bits == CACHED_MOST_BITS || !slot->found) return false;
    return ++cache->crowded >= (1u << cache->bits) / 4;
}

void subject_cache_keep(struct subject_cache *cache, struct cached_match *slot, const char *text, size_t bytes,
                        struct subject_pattern *const *patterns, size_t count) {
    if (slot->generation == cache->generation && is_crowded(cache, slot)) {
        grow(cache);
        slot = subject_cache_slot(cache, text, bytes);
    }
    if (slot->generation == cache->generation && cache->looked % CACHED_REPLACE_ONE_IN != 0) return;
    slot->generation = cache->generation;
    slot->bytes = (uint32_t)bytes;
    slot->count = (uint16_t)count;
    slot->found = false;
    memcpy(slot->subject, text, bytes);
    memcpy(slot->patterns, patterns, count * sizeof *patterns);
}

void subject_cache_shrink(struct subject_cache *cache) {
    subject_cache_forget_all(cache);
    cache->crowded = 0;
    if (cache->bits == CACHED_FIRST_BITS) return;
    free(cache->slots);
    cache->slots = NULL;
}

void subject_cache_close(struct subject_cache *cache) {
    free(cache->slots);
}

const struct cached_match *subject_cache_next(const struct subject_cache *cache, uint32_t *place, size_t *left) {
    while (cache->slots && *place < CACHED_MOST && *left > 0) {
        const uint32_t unit = CACHED_MOST_BITS - cache->bits;
        const struct cached_match *slot = &cache->slots[*place >> unit];
        *place = ((*place >> unit) + 1) << unit;
        if (slot->generation == cache->generation) return slot;
        --*left;
    }
    return NULL;
}

/* Earlier matches: which patterns a subject matches. For short subjects that match few patterns.
 *
 * A subject has one slot. The cache begins small, since there may be a set of subjects for each of thousands of
 * accounts; it grows when subjects that come again and again keep losing their slots to others. A slot that another
 * subject holds is given away only one time in CACHED_REPLACE_ONE_IN, because with more subjects than slots few are
 * worth caching.
 *
 * Owns its slots. Must be told when a match is no longer true.
 */
#ifndef MQ_SUBJECT_CACHE_H
#define MQ_SUBJECT_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/subject.h"

enum {
    CACHED_FIRST_BITS = 4,
    CACHED_MOST_BITS = 10,
    CACHED_MOST = 1 << CACHED_MOST_BITS,
    CACHED_SUBJECT_BYTES = 64,
    CACHED_PATTERNS = 6,
    CACHED_REPLACE_ONE_IN = 8,
    CACHED_GROWS_BITS = 2, /* four times as many slots each time */
};

struct cached_match {
    uint64_t generation; /* differs from that of the cache: the slot is empty */
    uint32_t bytes;
    uint16_t count;
    bool found; /* since it was cached it has been looked for again */
    struct subject_pattern *patterns[CACHED_PATTERNS];
    char subject[CACHED_SUBJECT_BYTES];
};
_Static_assert(sizeof(struct cached_match) == 128, "two cache lines");

struct subject_cache {
    struct cached_match *slots; /* NULL: there are none yet */
    uint32_t bits;              /* there are 2^bits slots: a slot is some bits of a hash */
    uint32_t crowded;           /* how often another subject wanted the slot of one that is looked for */
    uint64_t generation;        /* never 0 */
    uint64_t looked, hits;
};

static inline void subject_cache_open(struct subject_cache *cache) {
    *cache = (struct subject_cache){.generation = 1};
}

static inline struct cached_match *subject_cache_slot(const struct subject_cache *cache, const char *text,
                                                      size_t bytes) {
    return &cache->slots[subject_mix(text, bytes) >> (64 - cache->bits)];
}

/* The slot of a subject of at most CACHED_SUBJECT_BYTES; NULL when memory is short. */
static inline struct cached_match *subject_cache_look(struct subject_cache *cache, const char *text, size_t bytes) {
    if (!cache->slots) {
        cache->slots = calloc((size_t)1 << CACHED_FIRST_BITS, sizeof *cache->slots);
        if (!cache->slots) return NULL;
        cache->bits = CACHED_FIRST_BITS;
    }
    cache->looked++;
    return subject_cache_slot(cache, text, bytes);
}

/* Whether the slot has the subject's match. */
static inline bool subject_cache_has(struct subject_cache *cache, struct cached_match *slot, const char *text,
                                     size_t bytes) {
    if (slot->generation != cache->generation || slot->bytes != bytes || !subject_equal(slot->subject, text, bytes))
        return false;
    cache->hits++;
    slot->found = true;
    return true;
}

/* Caches a match of at most CACHED_PATTERNS patterns; `slot` is the subject's, and does not have it. */
void subject_cache_keep(struct subject_cache *cache, struct cached_match *slot, const char *text, size_t bytes,
                        struct subject_pattern *const *patterns, size_t count);

/* The match of this subject is no longer true. */
static inline void subject_cache_forget(struct subject_cache *cache, const char *text, size_t bytes) {
    if (cache->slots && bytes <= CACHED_SUBJECT_BYTES) subject_cache_slot(cache, text, bytes)->generation = 0;
}

/* No match is true any more. */
static inline void subject_cache_forget_all(struct subject_cache *cache) {
    cache->generation++;
}

/* No subject has a match any more. Gives the slots back if they are more than at first; those few stay, as a set may
 * have a pattern for the time of one request only. */
void subject_cache_shrink(struct subject_cache *cache);
void subject_cache_close(struct subject_cache *cache);

/* The next cached match from *place on, which begins as 0 and counts in slots of a cache of CACHED_MOST, so that it
 * stays right when the cache grows between two calls. Subtracts from *left the empty slots; NULL at the end or when
 * *left is 0. */
const struct cached_match *subject_cache_next(const struct subject_cache *cache, uint32_t *place, size_t *left);

#endif

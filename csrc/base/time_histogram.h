/* A histogram of durations: bucket limits double from 8 us to 34 s, with one more bucket for all beyond.
 *
 * It has one writer; others read it word by word while it is written to.
 */
#ifndef MQ_TIME_HISTOGRAM_H
#define MQ_TIME_HISTOGRAM_H

#include <stdint.h>

/* The first bucket ends at 2^13 ns. */
enum { HISTOGRAM_BUCKETS = 24, HISTOGRAM_FIRST_SHIFT = 13 };

struct time_histogram {
    uint64_t counts[HISTOGRAM_BUCKETS]; /* each counts what fits in no earlier bucket */
    uint64_t sum_ns;
};

static inline void time_histogram_word_add(uint64_t *word, uint64_t n) {
    __atomic_store_n(word, *word + n, __ATOMIC_RELAXED);
}

static inline void time_histogram_add(struct time_histogram *h, uint64_t took_ns, uint64_t times) {
    const uint64_t over = took_ns ? (took_ns - 1) >> HISTOGRAM_FIRST_SHIFT : 0;
    const uint32_t bucket = over ? 64u - (uint32_t)__builtin_clzll(over) : 0;
    time_histogram_word_add(&h->counts[bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1], times);
    time_histogram_word_add(&h->sum_ns, took_ns * times);
}

#endif

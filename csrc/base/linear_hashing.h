/* A hash table of chains that grows by a single bucket at a time, so that no insertion pays for all that is there. The
 * number of buckets need not be a power of two: those that the last doubling has not reached yet also hold what will
 * move to the buckets behind. The user has the heads of the chains, for the next power of two of buckets. */
#ifndef MQ_LINEAR_HASHING_H
#define MQ_LINEAR_HASHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For `buckets` above 2^k, and up to 2^(k+1): 2^(k+1) - 1. */
static inline size_t linear_mask(size_t buckets) {
    return buckets > 1 ? SIZE_MAX >> __builtin_clzll((unsigned long long)buckets - 1) : 0;
}

/* The bucket of a hash; `mask` is that of `buckets`. */
static inline size_t linear_bucket(size_t buckets, size_t mask, uint64_t hash) {
    const size_t at = (size_t)hash & mask;
    return at < buckets ? at : at & mask >> 1;
}

/* Whether there is no head for one more bucket. */
static inline bool linear_is_full(size_t buckets) {
    return (buckets & (buckets - 1)) == 0;
}

/* The bucket that is split when one is added; the new one is number `buckets`. */
static inline size_t linear_split(size_t buckets) {
    return buckets & linear_mask(buckets + 1) >> 1;
}

#endif

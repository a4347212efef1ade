/* SipHash-1-3, a keyed 64-bit hash: strangers who choose names cannot choose collisions, as they do not know the key.
 *
 * Everything in memory that a stranger can name is found by it. What is on disk, and a name's shard, goes by CRC-32C:
 * that has to be the same in every process.
 */
#ifndef MQ_SIPHASH_H
#define MQ_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
    uint64_t words[2];
};

/* A key derived from a seed, for tests; seed 0: a random key. */
struct siphash_key siphash_key(uint64_t seed);

uint64_t siphash(struct siphash_key key, const void *data, size_t bytes);

#endif

/* A number of which each bit depends on all bits of another. */
#ifndef MQ_SHARDS_MIX_H
#define MQ_SHARDS_MIX_H

#include <stdint.h>

static inline uint64_t mix_bits(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#endif

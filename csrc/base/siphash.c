#define _GNU_SOURCE
#include "base/siphash.h"

#include <string.h>
#include <sys/random.h>

struct siphash_key siphash_key(uint64_t seed) {
    struct siphash_key key = {{seed, seed * 0x9e3779b97f4a7c15ULL}};
    /* The kernel may have no randomness yet while a machine boots; then addresses serve, which are a little random
     * too. */
    if (!seed && getrandom(&key, sizeof key, GRND_NONBLOCK) != (ssize_t)sizeof key)
        key = (struct siphash_key){{(uint64_t)(uintptr_t)&key, (uint64_t)(uintptr_t)&siphash_key}};
    return key;
}

static uint64_t rotate(uint64_t x, int bits) {
    return x << bits | x >> (64 - bits);
}

static void round_of(uint64_t v[4]) {
    v[0] += v[1], v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

uint64_t siphash(struct siphash_key key, const void *data, size_t bytes) {
    uint64_t v[4] = {key.words[0] ^ 0x736f6d6570736575ULL, key.words[1] ^ 0x646f72616e646f6dULL,
                     key.words[0] ^ 0x6c7967656e657261ULL, key.words[1] ^ 0x7465646279746573ULL};
    const uint8_t *at = data;
    uint64_t word;
    for (size_t left = bytes; left >= sizeof word; left -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        v[3] ^= word;
        round_of(v);
        v[0] ^= word;
    }
    word = (uint64_t)bytes << 56;
    for (size_t i = 0; i < bytes % sizeof word; i++) word |= (uint64_t)at[i] << (8 * i);
    v[3] ^= word;
    round_of(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) round_of(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

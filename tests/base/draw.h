/* Random numbers of the models in C: the same ones after each random_seed(). */
#ifndef TESTS_DRAW_H
#define TESTS_DRAW_H

#include <stdint.h>

static uint64_t random_state;

static inline void random_seed(uint64_t seed) {
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
}

/* One of 0 .. below - 1. */
static inline uint64_t draw(uint64_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

#endif

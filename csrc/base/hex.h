/* A number as sixteen lower-case hexadecimal digits, without a loop over them. */
#ifndef MQ_HEX_H
#define MQ_HEX_H

#include <stdint.h>
#include <string.h>

/* The eight digits of four bytes, most significant first: each nibble is spread to a byte, then all become digits at
 * once. */
static inline uint64_t hex_digits(uint32_t value) {
    uint64_t v = __builtin_bswap32(value);
    v = (v | v << 16) & 0x0000ffff0000ffffULL;
    v = (v | v << 8) & 0x00ff00ff00ff00ffULL;
    v = (v >> 4 & 0x000f000f000f000fULL) | (v & 0x000f000f000f000fULL) << 8;
    uint64_t letters = (v + 0x0606060606060606ULL) >> 4 & 0x0101010101010101ULL;
    return v + 0x3030303030303030ULL + letters * ('a' - '0' - 10);
}

static inline void hex_put(uint8_t *out, uint64_t value) {
    uint64_t high = hex_digits((uint32_t)(value >> 32)), low = hex_digits((uint32_t)value);
    memcpy(out, &high, sizeof high);
    memcpy(out + sizeof high, &low, sizeof low);
}

#endif

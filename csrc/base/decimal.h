/* Unsigned decimal numbers in protocol text, where strtoul and printf would cost more than the rest of a command. */
#ifndef MQ_DECIMAL_H
#define MQ_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DECIMAL_MAX_BYTES 20 /* of UINT64_MAX */

/* Writes `value` and returns where it ends. */
static inline uint8_t *decimal_put(uint8_t *out, uint64_t value) {
    uint8_t digits[DECIMAL_MAX_BYTES];
    uint8_t *first = digits + sizeof digits;
    do {
        *--first = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    size_t n = (size_t)(digits + sizeof digits - first);
    memcpy(out, first, n);
    return out + n;
}

/* Reads digits from *at, at most `max`. False, and *at is not moved, when there is none or the number is larger. */
static inline bool decimal_get(const uint8_t **at, const uint8_t *end, uint64_t max, uint64_t *value) {
    const uint8_t *p = *at;
    uint64_t v = 0;
    for (; p < end && (uint8_t)(*p - '0') <= 9; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (max - digit) / 10) return false;
        v = v * 10 + digit;
    }
    if (p == *at) return false;
    *at = p;
    *value = v;
    return true;
}

#endif

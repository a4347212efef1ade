/* Unsigned decimal numbers in protocol text, where strtoul and printf would cost more than the rest of a command. */
#ifndef MQ_DECIMAL_H
#define MQ_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DECIMAL_MAX_BYTES 20       /* digits of UINT64_MAX */
enum { DECIMAL_SAFE_DIGITS = 19 }; /* that many digits always fit into 64 bits */

/* How many digits a number has. */
static inline uint32_t decimal_digits(uint64_t value) {
    static const uint64_t powers[DECIMAL_MAX_BYTES] = {
        UINT64_C(0),
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    /* 1233 / 4096 is the logarithm of 2 to base 10: right, or one digit too few. */
    uint32_t digits = ((64 - (uint32_t)__builtin_clzll(value | 1)) * 1233) >> 12;
    return digits + (value >= powers[digits]);
}

/* Writes `value` and returns where it ends. */
static inline uint8_t *decimal_put(uint8_t *out, uint64_t value) {
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    uint8_t *end = out + decimal_digits(value), *at = end;
    for (; value >= 100; value /= 100) memcpy(at -= 2, pairs + value % 100 * 2, 2);
    if (value >= 10)
        memcpy(at - 2, pairs + value * 2, 2);
    else
        at[-1] = (uint8_t)('0' + value);
    return end;
}

/* Reads a number from *at and moves *at behind it. False, with *at unmoved, when there is no digit or the number
 * exceeds `max`. */
static inline bool decimal_get(const uint8_t **at, const uint8_t *end, uint64_t max, uint64_t *value) {
    const uint8_t *p = *at, *safe = end - p > DECIMAL_SAFE_DIGITS ? p + DECIMAL_SAFE_DIGITS : end;
    uint64_t v = 0;
    uint8_t digit;
    for (; p < safe && (digit = (uint8_t)(*p - '0')) <= 9; p++) v = v * 10 + digit;
    for (; p < end && (digit = (uint8_t)(*p - '0')) <= 9; p++) {
        if (v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    if (p == *at || v > max) return false;
    *at = p;
    *value = v;
    return true;
}

/* As decimal_get, where a byte that is no digit can be read behind the number: nothing else ends it. */
static inline bool decimal_get_ended(const uint8_t **at, uint64_t max, uint64_t *value) {
    const uint8_t *p = *at;
    uint64_t v = 0;
    for (uint8_t digit; (digit = (uint8_t)(*p - '0')) <= 9; p++) v = v * 10 + digit;
    if (p - *at > DECIMAL_SAFE_DIGITS) return decimal_get(at, p, max, value);
    if (p == *at || v > max) return false;
    *at = p;
    *value = v;
    return true;
}

/* Reads a leading number as `(int)strtol(...)` does: white space and a sign may stand before the digits, and where
 * there are none it is 0. False when no long holds it. */
static inline bool decimal_get_int(const uint8_t *at, const uint8_t *end, int32_t *number) {
    while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r'))) at++;
    bool minus = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) at++;
    uint64_t value = 0;
    if (at < end && *at >= '0' && *at <= '9' && !decimal_get(&at, end, (uint64_t)INT64_MAX + minus, &value))
        return false;
    uint32_t low = (uint32_t)(minus ? 0 - value : value);
    memcpy(number, &low, sizeof low);
    return true;
}

#endif

/* Characters of UTF-8 text. */
#ifndef MQ_UTF8_H
#define MQ_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character of more than one byte that begins at `at`, and its length; false if these bytes are not valid
 * UTF-8. */
static inline bool utf8_decode(const uint8_t *at, size_t bytes, uint32_t *character, size_t *length) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    if (*at < 0xc0 || *at > 0xf4 || n > bytes) return false;
    uint32_t value = *at & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) return false;
        value = value << 6 | (at[i] & 0x3fu);
    }
    if (value < least[n] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return false;
    *character = value;
    *length = n;
    return true;
}

#endif

/* The body of a PUBLISH_MANY: for each message its size, uint32_t big-endian, and then its body.
 *
 * The bytes are untrusted: nothing in them is believed before it has been checked. Has no state and allocates nothing.
 */
#ifndef MQ_MANY_H
#define MQ_MANY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint32_t many_size(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* How many messages there are; -1 if one is not whole or has more than `max_bytes`. */
int64_t many_count(const uint8_t *at, size_t bytes, uint32_t max_bytes);

/* For whole messages: whether each begins with a struct headers and the bytes that it announces, and is not packed. */
bool many_have_headers(const uint8_t *at, size_t bytes);

#endif

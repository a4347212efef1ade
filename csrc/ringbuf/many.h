/* What a PUBLISH_MANY brings: for each message its size, uint32_t big-endian, and then its body.
 *
 * The bytes are anybody's: nothing in them is believed before it was checked. Keeps nothing, allocates nothing.
 */
#ifndef MQ_MANY_H
#define MQ_MANY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline uint32_t many_size(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* How many messages there are, if there is nothing but whole ones of `max_bytes` at most each; else -1. */
int64_t many_count(const uint8_t *at, size_t bytes, uint32_t max_bytes);

/* Of messages that are all whole: whether each begins with a struct headers and so many bytes as that says, and is one message. */
bool many_have_headers(const uint8_t *at, size_t bytes);

#endif

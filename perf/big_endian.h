/* Numbers of four bytes, the highest first. */
#ifndef MQ_PERF_BIG_ENDIAN_H
#define MQ_PERF_BIG_ENDIAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t read_u32(const void *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

/* Returns where the number ends. */
static inline void *write_u32(void *to, size_t value) {
    uint32_t swapped = __builtin_bswap32((uint32_t)value);
    memcpy(to, &swapped, sizeof swapped);
    return (char *)to + sizeof swapped;
}

#endif

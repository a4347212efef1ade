/* The remainder of a division by what is nearly always a power of two, as are the numbers of shards and of workers: a
 * division proper takes the processor as long as some twenty other instructions. */
#ifndef MQ_MODULO_H
#define MQ_MODULO_H

#include <stdint.h>

static inline uint32_t modulo(uint64_t value, uint32_t by) {
    return (by & (by - 1)) == 0 ? (uint32_t)value & (by - 1) : (uint32_t)(value % by);
}

#endif

#include "ringbuf/many.h"

int64_t many_count(const uint8_t *at, size_t bytes, uint32_t max_bytes) {
    int64_t count = 0;
    for (size_t left = bytes; left > 0; count++) {
        if (left < sizeof(uint32_t)) return -1;
        uint32_t size = many_size(at);
        left -= sizeof(uint32_t);
        if (size > max_bytes || size > left) return -1;
        left -= size;
        at += sizeof(uint32_t) + size;
    }
    return count;
}

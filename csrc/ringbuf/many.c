#include "ringbuf/many.h"

#include <string.h>

#include "ringbuf/message.h"

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

bool many_have_headers(const uint8_t *at, size_t bytes) {
    for (const uint8_t *const end = at + bytes; at < end;) {
        struct headers h;
        const size_t size = many_size(at);
        if (size < sizeof h) return false;
        memcpy(&h, at + sizeof(uint32_t), sizeof h);
        if (h.bytes > HEADERS_MAX_BYTES || h.bytes > size - sizeof h || h.parts || h.packed_bytes) return false;
        at += sizeof(uint32_t) + size;
    }
    return true;
}

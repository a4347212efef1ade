#include "base/s2.h"

#include <stdbool.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers lie as they are read");

enum { MAX_SIZE_BYTES = 5, LITERAL = 0, COPY_NEAR = 1, COPY_FAR = 2, COPY_FARTHEST = 3 };

struct reader {
    const uint8_t *at, *end;
    size_t distance; /* distance of the previous copy; 0: there was none */
};

static bool get_size(struct reader *r, uint64_t *size) {
    *size = 0;
    for (unsigned shift = 0; shift < 7 * MAX_SIZE_BYTES; shift += 7) {
        if (r->at == r->end) return false;
        uint8_t byte = *r->at++;
        *size |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return *size <= UINT32_MAX;
    }
    return false;
}

/* Reads a little-endian number of at most four bytes. */
static inline bool get(struct reader *r, size_t bytes, size_t *value) {
    size_t left = (size_t)(r->end - r->at);
    if (left < bytes) return false;
    if (left >= sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, r->at, sizeof word);
        *value = word & (uint32_t)((1ull << 8 * bytes) - 1);
        r->at += bytes;
        return true;
    }
    *value = 0;
    for (size_t i = 0; i < bytes; i++) *value |= (size_t)r->at[i] << (8 * i);
    r->at += bytes;
    return true;
}

/* The length of a literal: up to 60 it is in the tag, else in the bytes that follow. */
static inline bool literal_bytes(struct reader *r, uint8_t tag, size_t *length) {
    size_t most = 59, n = tag >> 2;
    *length = n;
    if (n > most && !get(r, n - most, length)) return false;
    ++*length;
    return true;
}

/* The length of a repeat: 4 to 8 from the code, or more as the next bytes say. */
static bool repeat_bytes(struct reader *r, size_t code, size_t *length) {
    static const size_t base[] = {4, 1u << 8, 1u << 16};
    *length = code;
    if (code >= 5) {
        if (!get(r, code - 4, length)) return false;
        *length += base[code - 5];
    }
    *length += 4;
    return true;
}

static inline bool copy_bytes(struct reader *r, uint8_t tag, size_t *length) {
    size_t distance = 0;
    *length = (size_t)(tag >> 2) + 1;
    switch (tag & 3) {
    case COPY_NEAR:
        if (!get(r, 1, &distance)) return false;
        distance |= (size_t)(tag & 0xe0) << 3;
        if (distance == 0) return repeat_bytes(r, tag >> 2 & 7, length);
        *length = (size_t)(tag >> 2 & 7) + 4;
        break;
    case COPY_FAR:
        if (!get(r, 2, &distance)) return false;
        break;
    default:
        if (!get(r, 4, &distance)) return false;
        break;
    }
    r->distance = distance;
    return true;
}

/* Copied in pieces of this size where there is room: what is written too far is overwritten later. */
enum { PIECE = 16 };

/* The source may overlap the output: then the copy repeats bytes that it has just written. */
static inline void copy(uint8_t *out, size_t distance, size_t length, size_t room) {
    if (distance >= PIECE && room - length >= PIECE) {
        for (size_t at = 0; at < length; at += PIECE) memcpy(out + at, out + at - distance, PIECE);
        return;
    }
    if (distance >= length) {
        memcpy(out, out - distance, length);
        return;
    }
    for (size_t i = 0; i < length; i++) out[i] = out[i - distance];
}

static inline void copy_literal(uint8_t *out, size_t room, const struct reader *r, size_t length) {
    if (length <= PIECE && room >= PIECE && (size_t)(r->end - r->at) >= PIECE)
        memcpy(out, r->at, PIECE);
    else
        memcpy(out, r->at, length);
}

int64_t s2_decoded_bytes(const uint8_t *block, size_t bytes) {
    struct reader r = {block, block + bytes, 0};
    uint64_t size;
    return get_size(&r, &size) ? (int64_t)size : S2_CORRUPT;
}

int64_t s2_decode(const uint8_t *block, size_t bytes, uint8_t *out, size_t room) {
    struct reader r = {block, block + bytes, 0};
    uint64_t size;
    if (!get_size(&r, &size) || size != room) return S2_CORRUPT;
    size_t made = 0, length;
    while (r.at < r.end) {
        uint8_t tag = *r.at++;
        bool is_literal = (tag & 3) == LITERAL;
        if (is_literal ? !literal_bytes(&r, tag, &length) : !copy_bytes(&r, tag, &length)) return S2_CORRUPT;
        if (length > room - made) return S2_CORRUPT;
        if (is_literal) {
            if (length > (size_t)(r.end - r.at)) return S2_CORRUPT;
            copy_literal(out + made, room - made, &r, length);
            r.at += length;
        } else {
            if (r.distance == 0 || r.distance > made) return S2_CORRUPT;
            copy(out + made, r.distance, length, room - made);
        }
        made += length;
    }
    return made == room ? (int64_t)made : S2_CORRUPT;
}

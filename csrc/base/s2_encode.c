/* Encodes S2 blocks. Bytes that occurred before become copies, the rest literals; the levels differ in how they search.
 *
 *   fast     one place for each six bytes, and wider steps the longer nothing is found
 *   better   one for each seven and one for each four; the next position is looked at before a copy is taken
 *   best     all places of the same four bytes, the last ones first, so many of them; what saves most is taken
 *
 * A block is short enough for places of 16 bits, so no copy is farther than two bytes of distance say.
 */
#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "base/s2.h"

_Static_assert(S2_MAX_ENCODED <= UINT16_MAX + 1, "places have 16 bits");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte that differs is found in the lowest bits");

enum { LOAD_BYTES = 8, LEAST_BYTES = 16, MIN_COPY = 4 };
enum { FAST_BITS = 14, BETTER_BITS = 15, BEST_BITS = 15, FEWEST_BITS = 8 };
/* How many places level `best` tries, and the length of a copy that is long enough to stop. */
enum { BEST_PLACES = 48, LONG_ENOUGH = 512 };

struct encoder {
    const uint8_t *in;
    size_t bytes;
    size_t put;                          /* input before this has been encoded */
    size_t distance;                     /* of the previous copy; 0: there was none */
    uint8_t *out;                        /* where the next element goes */
    unsigned bits;                       /* in a hash */
    uint16_t *by_few, *by_many, *before; /* places by hash; before[n]: the last place before n with the same hash */
    size_t noted;                        /* places up to here have been entered into `before` */
};

struct copy {
    size_t at, length, distance;
    size_t saved; /* bytes saved compared with literals; 0: no copy was found */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE uint64_t load(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

ALWAYS_INLINE uint32_t load_4(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* A hash of the first `count` bytes of a word. */
ALWAYS_INLINE size_t hash(uint64_t word, unsigned count, unsigned bits) {
    return (size_t)((word << (64 - 8 * count)) * 0x9E3779B185EBCA87u >> (64 - bits));
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* Writes a tag, then `bytes` bytes of a number, lowest first. */
static uint8_t *put_number(uint8_t *out, size_t tag, size_t number, size_t bytes) {
    *out++ = (uint8_t)tag;
    for (size_t i = 0; i < bytes; i++) *out++ = (uint8_t)(number >> (8 * i));
    return out;
}

ALWAYS_INLINE void put_literals(struct encoder *e, size_t end) {
    size_t count = end - e->put;
    if (count == 0) return;
    const uint8_t *from = e->in + e->put;
    e->put = end;
    if (count <= 16 && e->bytes - (end - count) >= 16) {
        *e->out++ = (uint8_t)((count - 1) << 2);
        memcpy(e->out, from, 16); /* what is written too far is overwritten later */
    } else {
        size_t more = count <= 60 ? 0 : count <= 256 ? 1 : 2;
        e->out = put_number(e->out, (more == 0 ? count - 1 : 59 + more) << 2, count - 1, more);
        memcpy(e->out, from, count);
    }
    e->out += count;
}

/* A copy with the same distance as the previous one. */
static void put_repeat(struct encoder *e, size_t length) {
    size_t more = length < 9 ? 0 : length < 264 ? 1 : 2;
    size_t code = more == 0 ? length - 4 : 4 + more;
    *e->out++ = (uint8_t)(1 | code << 2);
    *e->out++ = 0;
    size_t rest = more == 2 ? length - 260 : length - 8;
    for (size_t i = 0; i < more; i++) *e->out++ = (uint8_t)(rest >> (8 * i));
}

ALWAYS_INLINE void put_copy(struct encoder *e, size_t length, size_t distance) {
    e->put += length;
    if (distance == e->distance) {
        put_repeat(e, length);
        return;
    }
    e->distance = distance;
    bool near = distance < 2048;
    size_t first = length;
    if (length > 64) first = near ? 8 : 60;
    if (near && first <= 11)
        e->out = put_number(e->out, 1 | (first - 4) << 2 | distance >> 8 << 5, distance, 1);
    else
        e->out = put_number(e->out, 2 | (first - 1) << 2, distance, 2);
    if (first < length) put_repeat(e, length - first);
}

/* --- what stands before ------------------------------------------------------------------------------------------- */

ALWAYS_INLINE size_t same_bytes(const struct encoder *e, size_t at, size_t place) {
    size_t length = 0;
    for (; at + length + LOAD_BYTES <= e->bytes; length += LOAD_BYTES) {
        uint64_t differ = load(e->in + at + length) ^ load(e->in + place + length);
        if (differ != 0) return length + (size_t)__builtin_ctzll(differ) / 8;
    }
    while (at + length < e->bytes && e->in[at + length] == e->in[place + length]) length++;
    return length;
}

ALWAYS_INLINE size_t cost(const struct encoder *e, size_t length, size_t distance) {
    if (distance == e->distance) return length < 9 ? 2 : 3;
    return (distance < 2048 && length <= 11 ? 2u : 3u) + (length > 64 ? 2u : 0u);
}

/* Bytes that the head of the pending literals takes if a copy at `at` ends them. */
ALWAYS_INLINE size_t literals_head(const struct encoder *e, size_t at) {
    size_t count = at - e->put;
    return count == 0 ? 0 : count <= 60 ? 1 : count <= 256 ? 2 : 3;
}

/* Whether a copy of the bytes at `place` saves more than the best one so far, and at least what it costs to end the
 * literals before it. So a block exceeds its input by its first bytes and the head of its last literals at most. */
ALWAYS_INLINE bool is_better(const struct encoder *e, size_t at, size_t place, struct copy *known) {
    size_t length = same_bytes(e, at, place);
    if (length < MIN_COPY) return false;
    size_t saved = length - cost(e, length, at - place);
    if (saved <= known->saved || saved < literals_head(e, at)) return false;
    *known = (struct copy){at, length, at - place, saved};
    return true;
}

ALWAYS_INLINE bool looks_same(const struct encoder *e, size_t at, size_t place) {
    return load_4(e->in + at) == load_4(e->in + place);
}

ALWAYS_INLINE struct copy find_repeated(const struct encoder *e, size_t at) {
    struct copy found = {0};
    if (e->distance > 0 && looks_same(e, at, at - e->distance)) is_better(e, at, at - e->distance, &found);
    return found;
}

/* --- fast --------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE struct copy find_fast(struct encoder *e, size_t at) {
    uint16_t *slot = &e->by_many[hash(load(e->in + at), 6, e->bits)];
    size_t place = *slot;
    *slot = (uint16_t)at;
    struct copy found = find_repeated(e, at);
    if (found.saved == 0 && looks_same(e, at, place)) is_better(e, at, place, &found);
    return found;
}

ALWAYS_INLINE void note_fast(struct encoder *e, size_t end) {
    e->by_many[hash(load(e->in + end - 2), 6, e->bits)] = (uint16_t)(end - 2);
}

/* --- better ------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE struct copy find_better(struct encoder *e, size_t at) {
    uint64_t word = load(e->in + at);
    uint16_t *many = &e->by_many[hash(word, 7, e->bits)], *few = &e->by_few[hash(word, 4, e->bits)];
    size_t far = *many, near = *few;
    *many = *few = (uint16_t)at;
    struct copy found = find_repeated(e, at);
    if (looks_same(e, at, far)) is_better(e, at, far, &found);
    if (near != far && looks_same(e, at, near)) is_better(e, at, near, &found);
    return found;
}

/* Enters some places of a copy into the hash tables: its end, and every fourth place. */
ALWAYS_INLINE void note_better(struct encoder *e, size_t begin, size_t end) {
    for (size_t at = begin + 2; at + 1 < end; at += 4) {
        uint64_t word = load(e->in + at);
        e->by_many[hash(word, 7, e->bits)] = (uint16_t)at;
        e->by_few[hash(word >> 8, 4, e->bits)] = (uint16_t)(at + 1);
    }
}

/* --- best --------------------------------------------------------------------------------------------------------- */

static void note_all(struct encoder *e, size_t end) {
    for (; e->noted < end; e->noted++) {
        uint16_t *head = &e->by_few[hash(load(e->in + e->noted), 4, e->bits)];
        e->before[e->noted] = *head;
        *head = (uint16_t)e->noted;
    }
}

static struct copy find_best(struct encoder *e, size_t at) {
    note_all(e, at);
    struct copy found = find_repeated(e, at);
    size_t place = e->by_few[hash(load(e->in + at), 4, e->bits)];
    for (unsigned n = 0; n < BEST_PLACES && found.length < LONG_ENOUGH; n++) {
        size_t last = at + found.length < e->bytes ? found.length : 0;
        if (looks_same(e, at, place) && e->in[at + last] == e->in[place + last]) is_better(e, at, place, &found);
        if (place == 0) break;
        place = e->before[place];
    }
    return found;
}

/* --- a block ------------------------------------------------------------------------------------------------------ */

ALWAYS_INLINE struct copy find(struct encoder *e, size_t at, enum s2_level level) {
    return level == S2_FAST ? find_fast(e, at) : level == S2_BETTER ? find_better(e, at) : find_best(e, at);
}

/* Every load of eight bytes stays within the input. */
ALWAYS_INLINE void encode(struct encoder *e, enum s2_level level) {
    unsigned skip_shift = level == S2_FAST ? 5 : level == S2_BETTER ? 7 : 10;
    for (size_t at = 1, end = e->bytes - LOAD_BYTES; at <= end;) {
        struct copy found = find(e, at, level);
        if (found.saved == 0) {
            at += 1 + ((at - e->put) >> skip_shift);
            continue;
        }
        for (bool goes_on = level != S2_FAST; goes_on && at < end && found.length < LONG_ENOUGH;) {
            struct copy next = find(e, ++at, level);
            if ((goes_on = next.saved > found.saved)) found = next;
        }
        const uint8_t *in = e->in;
        while (found.at > e->put && found.at > found.distance && in[found.at - 1] == in[found.at - 1 - found.distance])
            found.at--, found.length++;
        put_literals(e, found.at);
        put_copy(e, found.length, found.distance);
        at = found.at + found.length;
        if (at > end) break;
        if (level == S2_FAST) note_fast(e, at);
        if (level == S2_BETTER) note_better(e, found.at, at);
    }
}

static void encode_fast(struct encoder *e) {
    uint16_t by_many[1 << FAST_BITS];
    e->by_many = by_many;
    memset(by_many, 0, sizeof *by_many << e->bits);
    encode(e, S2_FAST);
}

static void encode_better(struct encoder *e) {
    uint16_t by_many[1 << BETTER_BITS], by_few[1 << BETTER_BITS];
    e->by_many = by_many, e->by_few = by_few;
    memset(by_many, 0, sizeof *by_many << e->bits);
    memset(by_few, 0, sizeof *by_few << e->bits);
    encode(e, S2_BETTER);
}

static void encode_best(struct encoder *e) {
    uint16_t by_few[1 << BEST_BITS], before[S2_MAX_ENCODED];
    e->by_few = by_few, e->before = before;
    memset(by_few, 0, sizeof *by_few << e->bits);
    encode(e, S2_BEST);
}

/* A table no larger than the input needs: for a short block, clearing the table is the largest cost. */
static unsigned bits_for(size_t bytes, unsigned most) {
    unsigned bits = FEWEST_BITS;
    while (bits < most && (size_t)1 << bits < bytes) bits++;
    return bits;
}

size_t s2_encode(const uint8_t *in, size_t bytes, uint8_t *out, size_t room, enum s2_level level) {
    assert(bytes <= S2_MAX_ENCODED && room >= bytes + S2_ENCODED_EXTRA);
    struct encoder e = {.in = in, .bytes = bytes, .out = out};
    size_t size = bytes;
    for (; size >= 0x80; size >>= 7) *e.out++ = (uint8_t)(size | 0x80);
    *e.out++ = (uint8_t)size;
    if (bytes >= LEAST_BYTES) {
        e.bits = bits_for(bytes, level == S2_FAST ? FAST_BITS : BETTER_BITS);
        if (level == S2_BEST)
            encode_best(&e);
        else if (level == S2_BETTER)
            encode_better(&e);
        else
            encode_fast(&e);
    }
    put_literals(&e, bytes);
    return (size_t)(e.out - out);
}

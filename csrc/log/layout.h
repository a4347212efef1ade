/* What is on disk.
 *
 * A segment is a 64-byte header followed by records, each 8-byte aligned:
 *
 *   0        4        8     9          10      12        16       24       32       40
 *   | bytes  | crc    | kind| attr_len | flags | topic   | seq    | time_ns| id     | attributes, body, zero padding
 *
 * Everything is little-endian. `bytes` is the record's length without padding. `crc` is the CRC-32C of those bytes with
 * the segment's number in the place of `crc`, so that stale bytes of another segment never look valid; in Python
 * crc32c(record[8:bytes], crc32c(record[0:4] + segment.to_bytes(4, "little"))). A record never spans segments. `bytes`
 * 0 where a record should begin marks the end of what was written: the rest of the file is zeros, as far as it has been
 * allocated ahead. A segment that is full is cut to its records.
 */
#ifndef MQ_LAYOUT_H
#define MQ_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_MAGIC   0x31304752535148ULL /* "HQSRG01" and a zero byte */
#define SEGMENT_VERSION 2u
#define SEGMENT_OLDEST  1u /* the oldest version that can be read; nothing is appended to it */
#define SEGMENT_BYTES   ((uint64_t)64 << 20)

struct segment_header {
    uint64_t magic;
    uint32_t version;
    uint32_t shard;
    uint32_t shards; /* how many the data directory has */
    uint32_t segment;
    uint64_t time_ns;
    uint32_t previous_end; /* where the records of the previous segment end; 0: there was none */
    uint32_t missing;      /* for how many missing segments it was put there; 0: for none */
    uint64_t log_began_ns; /* wall clock, the same in all segments; 0: from a version without this field */
    uint32_t reserved[3];
    uint32_t crc; /* of the 60 bytes before */
};
_Static_assert(sizeof(struct segment_header) == 64, "on-disk layout");

struct record {
    uint32_t bytes;
    uint32_t crc;
    uint8_t kind; /* not 0 */
    uint8_t attribute_bytes;
    uint16_t flags;
    uint32_t topic;
    uint64_t seq;
    uint64_t time_ns; /* wall clock */
    uint64_t id;
    /* attributes, then body */
};
_Static_assert(sizeof(struct record) == 40, "on-disk layout");

/* Where a record begins: segment << 32 | offset. 0 is nowhere. */
typedef uint64_t log_position;

static inline const void *record_attributes(const struct record *r) {
    return r + 1;
}
static inline const void *record_body(const struct record *r) {
    return (const uint8_t *)(r + 1) + r->attribute_bytes;
}
static inline size_t record_body_bytes(const struct record *r) {
    return r->bytes - sizeof *r - r->attribute_bytes;
}
/* Whether it may be one where `left` bytes are left, by its lengths: its CRC says if it is. */
static inline bool record_fits(const struct record *r, uint64_t left) {
    return r->kind && r->bytes >= sizeof *r + r->attribute_bytes && r->bytes <= left;
}
/* The distance from one record to the next. */
static inline uint64_t record_stride(const struct record *r) {
    return ((uint64_t)r->bytes + 7) & ~(uint64_t)7;
}

#endif

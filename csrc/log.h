/* The log of one shard: an append-only sequence of records in segments, and the only thing that survives a crash.
 *
 * Owns: the segments' descriptors and mappings, the staging buffer, the CRCs. Must never: know what a record means, block
 * on anything but pwrite, or call fdatasync (see sync.h).
 *
 * Segments come from outside (the process's Python opens files or memfds and hands them over with log_add_segment):
 * the log says through log_wants_segment() when it needs the next one, early enough that appending does not wait.
 *
 * On disk, a segment is a 64-byte header, then records, each 8-byte aligned:
 *
 *   0        4        8     9          10      12        16       24       32       40
 *   | bytes  | crc    | kind| attr_len | flags | topic   | seq    | time_ns| id     | attributes, body, zero padding
 *
 * little-endian. `bytes` is the record without padding. `crc` is CRC-32C over everything but itself and `padding`,
 * starting from a state seeded with the segment number, so that stale bytes of another segment never look valid.
 * A record never spans segments. `bytes` 0 where a record should begin is the end of what was written.
 */
#ifndef MQ_LOG_H
#define MQ_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_MAGIC 0x31304752535148ULL /* any 8 bytes that are not text by accident */
#define SEGMENT_VERSION 1u
#define SEGMENT_BYTES ((uint64_t)64 << 20)

struct segment_header {
    uint64_t magic;
    uint32_t version;
    uint32_t shard;
    uint32_t shards; /* in the data directory this belongs to */
    uint32_t segment;
    uint64_t time_ns;
    uint32_t reserved[7];
    uint32_t crc; /* of the 60 bytes before */
};
_Static_assert(sizeof(struct segment_header) == 64, "on-disk layout");

struct record {
    uint32_t bytes;
    uint32_t crc;
    uint8_t kind;
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

enum log_result {
    LOG_OK = 0,
    LOG_NO_SPACE, /* the disk (or a quota) has no room: the caller's append was not done */
    LOG_FAILING,  /* writes fail; what was appended is kept and tried again by log_flush */
};

struct log;

struct log *log_new(uint32_t shard, uint32_t shards);
void log_free(struct log *log);

/* Hands over the descriptor of a segment. `segment` must be one more than the last; `is_new` says that the file is empty
 * and gets a header; else its header must be there and right (false if not) and it ends at `end_offset`. The last segment
 * added becomes active when the one before is full (or at once if it is the first). `bytes` is its capacity. */
bool log_add_segment(struct log *log, int fd, uint32_t segment, uint64_t bytes, bool is_new, uint64_t end_offset,
                     uint64_t now_wall_ns);
/* The capacity that the next segment must have for the log to go on, or 0 if it needs none now. */
uint64_t log_wants_segment(const struct log *log);

/* Makes room in memory and on disk (fallocate ahead) for `records` records of `bytes` in all, so that the appends that follow
 * cannot fail. `keep_bytes` is how much must be left afterwards: publishes pass what acks will need, acks pass 0. */
enum log_result log_reserve(struct log *log, size_t records, size_t bytes, uint64_t keep_bytes, uint64_t now_wall_ns);

/* Appends; the caller has reserved. Returns where it begins. `attributes` and `body` are copied and checksummed. */
log_position log_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                        size_t body_bytes);

/* Writes out what was appended (one pwrite as a rule). Called at the end of a turn, before its replies leave. */
enum log_result log_flush(struct log *log);

/* The record at a position, in the staging buffer or a segment's mapping: valid until the next append or flush. */
const struct record *log_read(const struct log *log, log_position position);
static inline const void *record_attributes(const struct record *r) { return r + 1; }
static inline const void *record_body(const struct record *r) { return (const uint8_t *)(r + 1) + r->attribute_bytes; }
static inline size_t record_body_bytes(const struct record *r) { return r->bytes - sizeof *r - r->attribute_bytes; }

/* Walks a segment at recovery. Start with offset 0; returns 1 and the record; 0 at the end (*offset is where to append); -1 at
 * a place that is damaged, when later records of the segment are whole (*offset is where it goes on, *bad the place). */
int log_scan(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record, uint64_t *bad);

uint32_t log_first_segment(const struct log *log);
uint32_t log_active_segment(const struct log *log);
/* Forgets the oldest segment (unmaps and closes). Its file is the caller's to remove. */
void log_drop_first(struct log *log);

/* For the syncer: appended and flushed so far (a byte count over all segments), and the fd to sync. */
uint64_t log_flushed(const struct log *log);
int log_active_fd(const struct log *log);

#endif

/* The log of one shard: an append-only sequence of records in segments, and the only thing that survives a crash.
 *
 * Owns: the segments' descriptors and mappings, the staging buffer, the CRCs. Must never: know what a record means,
 * block on anything but pwrite, read the clock, or call fdatasync (see sync.h).
 *
 * Segments come from outside (the process's Python opens files or memfds and hands them over with log_add_segment):
 * the log says through log_wants_segment() when it needs the next one, early enough that appending does not wait.
 *
 * On disk, a segment is a 64-byte header, then records, each 8-byte aligned:
 *
 *   0        4        8     9          10      12        16       24       32       40
 *   | bytes  | crc    | kind| attr_len | flags | topic   | seq    | time_ns| id     | attributes, body, zero padding
 *
 * little-endian. `bytes` is the record without padding. `crc` is the CRC-32C of those bytes with the segment's number
 * standing in the place of `crc`, so that stale bytes of another segment never look valid; in Python
 * crc32c(record[8:bytes], crc32c(record[0:4] + segment.to_bytes(4, "little"))).
 * A record never spans segments. `bytes` 0 where a record should begin is the end of what was written: the file goes on
 * with zeros as far as it has been allocated ahead. A segment that is full is cut to what it holds.
 */
#ifndef MQ_LOG_H
#define MQ_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_MAGIC   0x31304752535148ULL /* any 8 bytes that are not text by accident */
#define SEGMENT_VERSION 2u
#define SEGMENT_OLDEST  1u /* a version that is read, and not written to any more */
#define SEGMENT_BYTES   ((uint64_t)64 << 20)

/* A segment is larger than SEGMENT_BYTES only for one reservation that is. */
#define SEGMENT_MAX_BYTES ((uint64_t)3 << 30)
/* One reservation, and what it keeps, each at most: the largest message with all that is written beside its body. */
#define LOG_RESERVE_BYTES   (((uint64_t)1 << 30) + ((uint64_t)16 << 20))
#define LOG_STAGING_BYTES   ((size_t)4 << 20) /* gathered in memory at most (or one reservation, if that is more) */
#define LOG_MAX_SEGMENTS    65536u
#define LOG_ROOMY           64u
#define LOG_RECORD_OVERHEAD 48u /* header and padding: a record takes at most so much beside attributes and body */

struct segment_header {
    uint64_t magic;
    uint32_t version;
    uint32_t shard;
    uint32_t shards; /* in the data directory this belongs to */
    uint32_t segment;
    uint64_t time_ns;
    uint32_t previous_end; /* where the records of the segment before end; 0: there was none */
    uint32_t unused;
    uint64_t log_began_ns; /* wall clock, the same in all segments of a log; 0: begun by a version that did not say */
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

enum log_result {
    LOG_OK = 0,
    LOG_NO_SPACE, /* the disk (or a quota) has no room: the caller's append was not done */
    LOG_FAILING,  /* writes fail; what was appended is kept and tried again by log_flush */
};

struct log;
struct copies_read;

/* NULL without memory. */
struct log *log_new(uint32_t shard, uint32_t shards);
/* Closes the segments. What was not flushed is gone. */
void log_free(struct log *log);

/* Hands over the descriptor of a segment; the log closes it. `segment` must be one more than the last. `bytes` is its
 * capacity (SEGMENT_BYTES, or what log_wants_segment said).
 *
 * `is_new`: the file is empty. The first segment becomes active at once, another when the one before is full; one may
 * wait at a time. Its header goes out with its first records. Else, at recovery: its header must be there and right,
 * and it becomes active at once. Its records end at `end_offset`, which log_scan has told; or UINT64_MAX: that is not
 * known, so log_scan and log_truncate must come before log_reserve.
 *
 * One of an older version is read; what is appended goes to the next. One of an unknown version is refused: EPROTO.
 *
 * False, and the descriptor remains the caller's, if any of this does not hold or there is no memory. */
bool log_add_segment(struct log *log, int fd, uint32_t segment, uint64_t bytes, bool is_new, uint64_t end_offset,
                     uint64_t now_wall_ns);
/* Hands over the descriptor of the file in which copies of some of a segment's records are kept (copies.h); the log closes it.
 * Without one none are kept. False, and it remains the caller's, if the log does not hold the segment. */
bool log_keep_copies(struct log *log, int fd, uint32_t segment);
/* Keeps a copy of the record that was appended last. */
void log_copy(struct log *log, log_position position);
/* At recovery, before log_truncate: the copies of a segment's records, to be freed by the caller. */
struct copies_read log_copies(const struct log *log, uint32_t segment);
/* The capacity that the next segment must have for the log to go on, or 0 if it needs none now. Is not 0 from the
 * moment the active segment is half full (counting what is kept) or a reservation did not fit. */
uint64_t log_wants_segment(const struct log *log);

/* Blocks for a file that is to become a segment, behind its end: what log_reserve allocates there it then has. Nothing on a disk
 * of which that were more than a part in LOG_ROOMY of what is free. For another thread than the log's: it may wait for the disk. */
bool log_allocate_ahead(int fd, uint64_t bytes);
/* A segment that is full is cut to its length by somebody else, who may wait for the disk; log_roll does it nevertheless. */
void log_leave_uncut(struct log *log);

/* Much is written, and synced now and then: pages are prepared for it (pages.h). Not where each write is synced: what is prepared
 * would be too. */
void log_prepare_pages(struct log *log);

/* Goes on in the segment that waits, though the active one has room; if none waits, it is wanted from now on. True if
 * done. */
bool log_roll(struct log *log, uint64_t now_wall_ns);

/* Makes room in memory and on disk (fallocate ahead) for `records` records, so that the appends that follow cannot
 * fail. `bytes` is the sum of their attributes and bodies; headers and padding are counted here. Reservations do not
 * add up: the last one counts. They are for one segment, so what is appended under one reservation lies in one segment.
 *
 * `keep_bytes` is how much must be left afterwards, allocated on disk, for reservations that keep less: publishes pass
 * what acks will need (48 and the attributes for each), acks pass 0. All of it lies in the active segment or all of it
 * in the next, so a reservation that fits into what was kept never fails for want of disk.
 *
 * LOG_NO_SPACE: the disk is full, or the active segment is and no next one has been added, or more than
 * LOG_RESERVE_BYTES was asked for; nothing has changed. LOG_FAILING: the staging buffer is full and cannot be written.
 */
enum log_result log_reserve(struct log *log, size_t records, size_t bytes, uint64_t keep_bytes, uint64_t now_wall_ns);

/* Appends; the caller has reserved. Returns where it begins. `attributes` and `body` are copied and checksummed; head's
 * `bytes` and `crc` are not looked at. */
log_position log_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                        size_t body_bytes);

/* As log_append, for a body that stays where it is until log_flush has been called next, whatever that says: it is not copied, but
 * written from there. */
log_position log_append_lent(struct log *log, const struct record *head, const void *attributes, const void *body,
                             size_t body_bytes);

/* --- large.c: one record whose body is written in pieces, while others are appended --- */

/* Room for it in the segment that waits, which is then not to be had for anything else. `before`: the most that records before it
 * in that segment will take, headers and padding included. LOG_NO_SPACE: as log_reserve. */
enum log_result log_large_begin(struct log *log, uint64_t before, uint8_t attribute_bytes, uint64_t body_bytes,
                                uint64_t keep_bytes);
/* The next piece of its body. False: see log_errno(). */
bool log_large_write(struct log *log, const void *data, size_t bytes);
/* One has been begun, and is neither appended nor cleared away: meanwhile there is no other segment. */
bool log_large_goes_on(const struct log *log);
uint64_t log_large_left(const struct log *log);
/* The body is whole: the log goes on in its segment. Up to the record, log_large_room() bytes are to be filled by appends under one
 * reservation, which has the record too, without its body. */
enum log_result log_large_switch(struct log *log, uint64_t now_wall_ns);
bool log_large_switched(const struct log *log);
uint64_t log_large_room(const struct log *log);
/* Appends it, and writes out what was appended before. 0: that cannot be done, nor anything else be appended. */
log_position log_large_append(struct log *log, const struct record *head, const void *attributes);
/* It is not wanted any more. What is there of it is taken away by log_large_clear, piece by piece; true: there is more. */
void log_large_drop(struct log *log);
bool log_large_clear(struct log *log);

/* --- group.c: records that count together, written as such a body is --- */

/* `bytes`: what they take, heads and padding included. */
enum log_result log_group_begin(struct log *log, uint64_t before, uint64_t bytes, uint64_t keep_bytes);
/* Where the next one will be. */
log_position log_group_next(const struct log *log);
/* The next one, which takes LOG_GROUP_PIECE bytes at most. It may be gathered with others until log_group_write, which is to be called before
 * the turn ends. False, for both: see log_errno(). */
#define LOG_GROUP_PIECE ((size_t)256 << 10)
bool log_group_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                      size_t body_bytes);
bool log_group_write(struct log *log);
/* The same of a larger one: its body is what log_large_write is given between these. */
bool log_group_open(struct log *log, uint8_t attribute_bytes);
bool log_group_close(struct log *log, const struct record *head, const void *attributes, size_t body_bytes);
/* After log_large_switch, and when log_large_room() is filled: so many records count from now on. False: nothing else can be appended. */
bool log_group_end(struct log *log, uint64_t records);

/* A mapping of its own of what lies in a segment's, which outlives the segment: where it begins, how long it is, and where these bytes
 * are in it. False: they lie in no segment, or it cannot be had. */
bool log_map_apart(const struct log *log, const void *bytes, size_t count, uint8_t **map, size_t *map_bytes,
                   const uint8_t **at);

/* Writes out what was appended (one pwrite as a rule). Called at the end of a turn, before its replies leave. The log
 * flushes earlier by itself when the staging buffer or the segment is full. LOG_FAILING: see log_errno(). */
enum log_result log_flush(struct log *log);

/* The record at a position, in the staging buffer or a segment's mapping: valid until the next reservation, append or
 * flush. NULL if the position is outside of what the log holds; it must otherwise be one that log_append or log_scan
 * told. */
const struct record *log_read(const struct log *log, log_position position);
/* As log_read, but for a body that was lent: that is to be looked for with log_body, or not looked at. */
const struct record *log_find(const struct log *log, log_position position);
const void *log_body(const struct log *log, const struct record *r);
/* Whether that record can be read, all of it: if its medium fails, whoever reads it nevertheless is ended by SIGBUS. Of what log_read
 * has just told; may be asked again, as media come back. */
bool log_readable(const struct log *log, const struct record *r);
/* As log_read; NULL too if not even the record's head, its attributes and the first LOG_PEEK_BYTES of its body can be read. */
enum { LOG_PEEK_BYTES = 64 };
const struct record *log_read_head(const struct log *log, log_position position);
static inline const void *record_attributes(const struct record *r) {
    return r + 1;
}
static inline const void *record_body(const struct record *r) {
    return (const uint8_t *)(r + 1) + r->attribute_bytes;
}
static inline size_t record_body_bytes(const struct record *r) {
    return r->bytes - sizeof *r - r->attribute_bytes;
}
/* From one record to the next. */
static inline uint64_t record_stride(const struct record *r) {
    return ((uint64_t)r->bytes + 7) & ~(uint64_t)7;
}

/* Walks a segment at recovery. Start with offset 0.
 *   1: *record is the next one; it begins at *offset - record_stride(*record).
 *   0: the end. *offset is where to append, and what to pass to log_truncate. *bad is 0 if nothing but zeros follows,
 * else *offset again: a record torn by a crash in the middle of a write, or damage that nothing whole comes after. -1:
 * damage from *bad to *offset, where it goes on: with a whole record, or at the end, if the header of the next segment
 * says that this one was longer. (Add all segments before scanning the first, then.) Takes time linear in the segment's
 * size, whatever is in it. What cannot be read is damage too, and at the end of a log it is none that a crash has left: the log
 * goes on behind it, in a new segment. */
int log_scan(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record, uint64_t *bad);
/* The same of a sealed segment that is in use. -1: something there cannot be read, or is damage, and *offset is behind it: a record of which
 * the head can be read, or all up to the next whole one. The record that is told can be read. */
int log_scan_sealed(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record);
/* Cuts a segment at recovery where log_scan said that it ends, so that nothing stale can follow what is appended.
 * If the file cannot be cut (XFS reads its last block for that, which may fail), zeros are written there instead, and the log goes on
 * in a new segment: log_uncut. False with errno if that fails too. */
bool log_truncate(struct log *log, uint32_t segment, uint64_t offset);
/* The errno of it; 0: the segment was cut. */
int log_uncut(const struct log *log, uint32_t segment);

/* 0: there is none. */
uint32_t log_first_segment(const struct log *log);
uint32_t log_active_segment(const struct log *log);
/* Where the records of a segment end, those in the staging buffer included. 0 if the log does not hold it, or it has
 * been added and is not active yet. */
uint64_t log_segment_end(const struct log *log, uint32_t segment);
/* Forgets the oldest segment (unmaps and closes). Its file is the caller's to remove. Never the active one. If its live
 * records were copied to the head of the log, they must have been synced before, or a power failure takes both. */
void log_drop_first(struct log *log);

/* Bytes that the segments hold, headers included; allocated ahead beyond that; records appended by this process. */
uint64_t log_bytes(const struct log *log);
uint64_t log_ahead_bytes(const struct log *log);
uint64_t log_records(const struct log *log);
/* The errno of the last write or allocation that failed, 0 if the last one succeeded. */
int log_errno(const struct log *log);

/* For the syncer. Appended, and flushed, so far: byte counts over all segments, those found at recovery included
 * (whether they were synced is not known, so they are to sync once more). A reply may go out once log_synced() has
 * reached what log_appended() was after its append. */
uint64_t log_appended(const struct log *log);
uint64_t log_flushed(const struct log *log);
uint64_t log_synced(const struct log *log);
/* The descriptors to sync: of the segments that were written to since they were last synced, and of their copies, oldest
 * first, `max` at most, which is 2 or more. *upto is what to pass to log_mark_synced when all of them are synced. 0 if everything flushed is synced. */
size_t log_unsynced_fds(const struct log *log, int *fds, size_t max, uint64_t *upto);
void log_mark_synced(struct log *log, uint64_t upto);

#endif

/* The log of one shard: an append-only sequence of records in segments. It is the only thing that survives a crash.
 *
 * Owns: the segments' descriptors and mappings, the staging buffer, the CRCs. Must never: know what a record means,
 * block on anything but pwrite, read the clock, or call fdatasync (see sync.h).
 *
 * Segments are made outside: the process's Python opens files or memfds and hands them over with log_add_segment. The
 * log says through log_wants_segment() when it needs the next one, early enough that appending does not wait.
 *
 * On disk, a segment is a 64-byte header followed by records, each 8-byte aligned:
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
#ifndef MQ_LOG_H
#define MQ_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_MAGIC   0x31304752535148ULL /* "HQSRG01" and a zero byte */
#define SEGMENT_VERSION 2u
#define SEGMENT_OLDEST  1u /* the oldest version that can be read; nothing is appended to it */
#define SEGMENT_BYTES   ((uint64_t)64 << 20)

/* A segment is larger than SEGMENT_BYTES only if one reservation needs that. */
#define SEGMENT_MAX_BYTES ((uint64_t)3 << 30)
/* The most that one reservation may ask for, and may keep: the largest message and all that is written beside it. */
#define LOG_RESERVE_BYTES   (((uint64_t)1 << 30) + ((uint64_t)16 << 20))
#define LOG_STAGING_BYTES   ((size_t)4 << 20) /* the most gathered in memory; more only for one larger reservation */
#define LOG_MAX_SEGMENTS    65536u
#define LOG_ROOMY           64u
#define LOG_RECORD_OVERHEAD 48u /* the most that header and padding of a record take */

struct segment_header {
    uint64_t magic;
    uint32_t version;
    uint32_t shard;
    uint32_t shards; /* how many the data directory has */
    uint32_t segment;
    uint64_t time_ns;
    uint32_t previous_end; /* where the records of the previous segment end; 0: there was none */
    uint32_t unused;
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

enum log_result {
    LOG_OK = 0,
    LOG_NO_SPACE, /* the disk (or a quota) has no room: the caller's append was not done */
    LOG_FAILING,  /* writes fail; what was appended is kept and tried again by log_flush */
};

struct log;
struct copies_read;
struct spares;

/* NULL: no memory. */
struct log *log_new(uint32_t shard, uint32_t shards);
/* Closes the segments. What was not flushed is lost. */
void log_free(struct log *log);

/* Hands over the descriptor of a segment; the log closes it. `segment` must be one more than the last. `bytes` is its
 * capacity (SEGMENT_BYTES, or what log_wants_segment said).
 *
 * `is_new`: the file is empty, or is a spare's (spares.h). The first segment becomes active at once, any other when the one before it is full; one
 * segment may wait at a time. The header is written with the first records. Not `is_new`, at recovery: the file must
 * have a header of this log (a damaged one is written anew), and the segment becomes active at once. Its records end at
 * `end_offset`, as log_scan has returned it; UINT64_MAX: that is not known, so log_scan and log_truncate must be called
 * before log_reserve.
 *
 * A segment of an older version is read only: records are appended to the next one. An unknown version is refused
 * (EPROTO).
 *
 * False if any of this does not hold or there is no memory; the descriptor then remains the caller's. */
bool log_add_segment(struct log *log, int fd, uint32_t segment, uint64_t bytes, bool is_new, uint64_t end_offset,
                     uint64_t now_wall_ns);
/* Hands over the descriptor of the file in which copies of some of a segment's records are kept (copies.h); the log
 * closes it. Without such a file no copies are kept. False if the log does not have the segment; the descriptor remains
 * the caller's. */
bool log_keep_copies(struct log *log, int fd, uint32_t segment);
/* Keeps a copy of the record that was appended last. */
void log_copy(struct log *log, log_position position);
/* At recovery, before log_truncate: the copies of a segment's records, to be freed by the caller. */
struct copies_read log_copies(const struct log *log, uint32_t segment);
/* The capacity that the next segment must have, or 0 if none is needed now. One is needed from the moment the active
 * segment is half full (counting what is kept) or a reservation did not fit. */
uint64_t log_wants_segment(const struct log *log);

/* Allocates disk blocks beyond the end of a file that is to become a segment, so that log_reserve finds them there.
 * False, with nothing allocated, if `bytes` is more than 1/LOG_ROOMY of the disk's free space. May wait for the disk,
 * so it is not to be called on the log's thread. */
bool log_allocate_ahead(int fd, uint64_t bytes);
/* From now on the caller cuts full segments to their length, as that may wait for the disk; log_roll still cuts. */
void log_leave_uncut(struct log *log);

/* From now on segments in memory that are dropped become spares, and new ones may be made of these (spares.h). Several
 * logs may share them. */
void log_use_spares(struct log *log, struct spares *spares);

/* From now on pages are prepared ahead of writes (pages.h). For logs that are synced now and then; where each write is
 * synced the prepared pages would be written to the disk too. */
void log_prepare_pages(struct log *log);

/* Switches to the segment that waits, though the active one still has room. False if none waits (log_wants_segment then
 * asks for one) or the switch failed. */
bool log_roll(struct log *log, uint64_t now_wall_ns);

/* Makes room in memory and on disk (fallocate ahead) for `records` records, so that the appends that follow cannot
 * fail. `bytes` is the sum of their attributes and bodies; headers and padding are added here. Reservations do not add
 * up: only the last one counts. All records appended under one reservation lie in one segment.
 *
 * `keep_bytes` must still be allocated on disk afterwards, for reservations that keep less: publishes pass what acks
 * will need (48 bytes and the attributes for each), acks pass 0. What is kept lies entirely in the active segment or
 * entirely in the next one, so a reservation that fits into it never fails for lack of disk space.
 *
 * LOG_NO_SPACE: the disk is full, or the active segment is full and no next one has been added, or more than
 * LOG_RESERVE_BYTES was asked for; nothing has changed. LOG_FAILING: the staging buffer is full and cannot be written.
 */
enum log_result log_reserve(struct log *log, size_t records, size_t bytes, uint64_t keep_bytes, uint64_t now_wall_ns);

/* Appends a record, for which the caller has made a reservation. Returns where the record begins. `attributes` and
 * `body` are copied and checksummed; `bytes` and `crc` of `head` are ignored. */
log_position log_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                        size_t body_bytes);

/* As log_append, but the body is not copied: it is written from where it lies, and must stay there until the next
 * log_flush has returned, whatever its result. */
log_position log_append_lent(struct log *log, const struct record *head, const void *attributes, const void *body,
                             size_t body_bytes);

/* --- large.c: one record whose body is written in pieces, while others are appended --- */

/* Makes room for the record in the segment that waits, which is then used for nothing else until the record is appended
 * or cleared away. `before`: the most that the records before it in that segment will take, headers and padding
 * included. LOG_NO_SPACE: as log_reserve. */
enum log_result log_large_begin(struct log *log, uint64_t before, uint8_t attribute_bytes, uint64_t body_bytes,
                                uint64_t keep_bytes);
/* Writes the next piece of the body. False: see log_errno(). */
bool log_large_write(struct log *log, const void *data, size_t bytes);
/* Whether a large record (or a group) has been begun and is not appended or cleared away: no segment can be added. */
bool log_large_goes_on(const struct log *log);
uint64_t log_large_left(const struct log *log);
uint64_t log_large_written(const struct log *log);
/* Switches the log to the segment of the body, which must be whole. The caller then fills log_large_room() bytes before
 * the record with appends, under one reservation that includes the record without its body. */
enum log_result log_large_switch(struct log *log, uint64_t now_wall_ns);
bool log_large_switched(const struct log *log);
uint64_t log_large_room(const struct log *log);
/* Appends the record, and writes out all appended before it. 0: writing failed; nothing else can be appended. */
log_position log_large_append(struct log *log, const struct record *head, const void *attributes);
/* Gives the record up. log_large_clear then cuts off what was written of it, a piece at a time; true: there is more. */
void log_large_drop(struct log *log);
bool log_large_clear(struct log *log);

/* --- group.c: records that count together, written as the body of a large record is --- */

/* As log_large_begin. `bytes`: what the records of the group take, heads and padding included. */
enum log_result log_group_begin(struct log *log, uint64_t before, uint64_t bytes, uint64_t keep_bytes);
/* Where the next record of the group will begin. */
log_position log_group_next(const struct log *log);
/* Appends the next record of the group, which takes LOG_GROUP_PIECE bytes at most. It may be gathered in memory until
 * log_group_write, which must be called before the turn ends. False, for both: see log_errno(). */
#define LOG_GROUP_PIECE ((size_t)256 << 10)
bool log_group_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                      size_t body_bytes);
bool log_group_write(struct log *log);
/* The same for a larger record: its body is passed to log_large_write between these two calls. */
bool log_group_open(struct log *log, uint8_t attribute_bytes);
bool log_group_close(struct log *log, const struct record *head, const void *attributes, size_t body_bytes);
/* Writes the header of the segment, so that the `records` records of the group count. Called after log_large_switch,
 * when log_large_room() has been filled. False: nothing else can be appended. */
bool log_group_end(struct log *log, uint64_t records);

/* Maps bytes that lie in a segment once more, apart, so that the mapping outlives the segment. Returns in *map and
 * *map_bytes the mapping, and in *at where the bytes are in it. False: they lie in no segment, or mmap failed. */
bool log_map_apart(const struct log *log, const void *bytes, size_t count, uint8_t **map, size_t *map_bytes,
                   const uint8_t **at);

/* Writes out what was appended (usually with one pwrite). Called at the end of a turn, before its replies leave. The
 * log flushes by itself earlier when the staging buffer or the segment is full. LOG_FAILING: see log_errno(). */
enum log_result log_flush(struct log *log);

/* Returns the record at a position, in the staging buffer or a segment's mapping: valid until the next reservation,
 * append or flush. NULL if the position is outside of what the log holds; any other must have come from log_append or
 * log_scan. */
const struct record *log_read(const struct log *log, log_position position);
/* As log_read, but a lent body may not be in its place yet: it must be read through log_body, or not at all. */
const struct record *log_find(const struct log *log, log_position position);
const void *log_body(const struct log *log, const struct record *r);
/* Whether the whole of a record that log_read has just returned can be read. If its medium fails, reading the record
 * all the same ends the process with SIGBUS. May be asked again later, as media come back. */
bool log_readable(const struct log *log, const struct record *r);
/* The same for at least one byte of the body, `from` on, when log_read_head has found the head readable. */
bool log_readable_part(const struct log *log, const struct record *r, uint64_t from, uint64_t bytes);
/* As log_read; also NULL if the record's head, attributes or the first LOG_PEEK_BYTES of its body cannot be read. */
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
/* The distance from one record to the next. */
static inline uint64_t record_stride(const struct record *r) {
    return ((uint64_t)r->bytes + 7) & ~(uint64_t)7;
}

/* Walks a segment at recovery. Start with offset 0.
 *    1: *record is the next record; it begins at *offset - record_stride(*record).
 *    0: the end. *offset is where to append, and what to pass to log_truncate. *bad is 0 if only zeros follow, else
 *       equal to *offset: a record torn by a crash in the middle of a write, or damage with no whole record after it.
 *   -1: damage from *bad to *offset. The segment continues at *offset with a whole record, or ends there, if the header
 *       of the next segment says that this one was longer. (So all segments are added before the first is scanned.)
 * Takes time linear in the segment's size, whatever it contains. What cannot be read is damage too. At the end of a log
 * such damage is not taken for the trace of a crash: the log continues behind it, in a new segment. */
int log_scan(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record, uint64_t *bad);
/* The same for a sealed segment while the log is in use. A record that is returned can be read. -1: something cannot be
 * read or is damaged, and *offset is behind it: behind one record, if its head can be read, else at the next whole
 * record. 2: LOG_SCAN_PIECE bytes of a larger record have been checked; call again for the next ones. Once the record
 * has been returned, it is not checked again until another one is, or log_check_again was called. */
#define LOG_SCAN_PIECE ((uint32_t)1 << 20)
int log_scan_sealed(struct log *log, uint32_t segment, uint64_t *offset, const struct record **record);
void log_check_again(struct log *log);
/* Cuts a segment at recovery where log_scan said that it ends, so that nothing stale can follow what is appended. If
 * the file cannot be cut (XFS reads its last block for that, which may fail), zeros are written there instead, and the
 * log continues in a new segment (see log_uncut). False with errno if that fails too. */
bool log_truncate(struct log *log, uint32_t segment, uint64_t offset);
/* Why the segment could not be cut, an errno; 0: it was cut. */
int log_uncut(const struct log *log, uint32_t segment);

/* Numbers of segments; 0: there is none. */
uint32_t log_first_segment(const struct log *log);
uint32_t log_active_segment(const struct log *log);
/* `log_began_ns` of its segments' headers. */
uint64_t log_began(const struct log *log);
/* Where the records of a segment end, those in the staging buffer included. 0 if the log does not have the segment, or
 * it is not active yet. */
uint64_t log_segment_end(const struct log *log, uint32_t segment);
/* Unmaps and closes the oldest segment, or makes it a spare. It must not be the active one. The caller removes its file. If its live
 * records were appended to the log again, these must have been synced before, or a power failure would destroy both. */
void log_drop_first(struct log *log);

/* Bytes in the segments, headers included; bytes allocated ahead beyond these; records appended by this process. */
uint64_t log_bytes(const struct log *log);
uint64_t log_ahead_bytes(const struct log *log);
uint64_t log_records(const struct log *log);
/* The errno of the last write or allocation that failed, 0 if the last one succeeded. */
int log_errno(const struct log *log);

/* For the syncer: the bytes appended, flushed and synced so far, over all segments, those found at recovery included
 * (whether they were synced is not known, so they are synced once more). A reply may leave once log_synced() has
 * reached what log_appended() was after its append. */
uint64_t log_appended(const struct log *log);
uint64_t log_flushed(const struct log *log);
uint64_t log_synced(const struct log *log);
/* The descriptors to sync: of the segments written to since they were last synced, and of the files with their copies,
 * oldest first, `max` at most, which is 2 or more. Returns how many; 0: everything flushed is synced. *upto is what to
 * pass to log_mark_synced when all of them are synced. */
size_t log_unsynced_fds(const struct log *log, int *fds, size_t max, uint64_t *upto);
void log_mark_synced(struct log *log, uint64_t upto);

#endif

/* The log of one shard: an append-only sequence of records in segments. It is the only thing that survives a crash.
 *
 * Owns: the segments' descriptors and mappings, the staging buffer, the CRCs. Must never: know what a record means,
 * block on anything but pwrite, read the clock, or call fdatasync (see sync.h).
 *
 * Segments are made outside: the process's Python opens files or memfds and hands them over with log_add_segment. The
 * log says through log_wants_segment() when it needs the next one, early enough that appending does not wait.
 */
#ifndef MQ_LOG_H
#define MQ_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log/layout.h"

/* A segment is larger than SEGMENT_BYTES only if one reservation needs that. */
#define SEGMENT_MAX_BYTES ((uint64_t)3 << 30)
/* The most that one reservation may ask for, and may keep: the largest message and all that is written beside it. */
#define LOG_RESERVE_BYTES   (((uint64_t)1 << 30) + ((uint64_t)16 << 20))
#define LOG_STAGING_BYTES   ((size_t)4 << 20) /* the most gathered in memory; more only for one larger reservation */
#define LOG_MAX_SEGMENTS    65536u
#define LOG_ROOMY           64u
#define LOG_RECORD_OVERHEAD 48u /* the most that header and padding of a record take */

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
 * `is_new`: the file is empty, or is a spare's (spares.h). The first segment becomes active at once, any other when the
 * one before it is full; one segment may wait at a time. The header is written with the first records. Not `is_new`, at
 * recovery: the file must have a header of this log (a damaged one is written anew), and the segment becomes active at
 * once. Its records end at `end_offset`, as log_scan has returned it; UINT64_MAX: that is not known, so log_scan and
 * log_truncate must be called before log_reserve.
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
/* How much more can be written to the current segment without allocating. */
uint64_t log_spare(const struct log *log);

/* Appends a record, for which the caller has made a reservation. Returns where the record begins. `attributes` and
 * `body` are copied and checksummed; `bytes` and `crc` of `head` are ignored. */
log_position log_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                        size_t body_bytes);

/* As log_append, but the body is not copied: it is written from where it lies, and must stay there until the next
 * log_flush has returned, whatever its result. */
log_position log_append_lent(struct log *log, const struct record *head, const void *attributes, const void *body,
                             size_t body_bytes);

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
/* The same without looking at more than LOG_LOOK_BYTES. Of a longer record only the head is looked at; in memory, which
 * has no medium, that is enough. */
enum log_look { LOG_FAILS, LOG_READS, LOG_READS_HEAD };
enum { LOG_LOOK_BYTES = 8 << 20 };
enum log_look log_look(const struct log *log, const struct record *r);
/* The same for at least one byte of the body, `from` on, when log_read_head has found the head readable. */
bool log_readable_part(const struct log *log, const struct record *r, uint64_t from, uint64_t bytes);
/* As log_read; also NULL if the record's head, attributes or the first LOG_PEEK_BYTES of its body cannot be read. */
enum { LOG_PEEK_BYTES = 64 };
const struct record *log_read_head(const struct log *log, log_position position);
/* Numbers of segments; 0: there is none. */
uint32_t log_first_segment(const struct log *log);
uint32_t log_active_segment(const struct log *log);
/* `log_began_ns` of its segments' headers. */
uint64_t log_began(const struct log *log);
/* Where the records of a segment end, those in the staging buffer included. 0 if the log does not have the segment, or
 * it is not active yet. */
uint64_t log_segment_end(const struct log *log, uint32_t segment);
/* Unmaps and closes the oldest segment, or makes it a spare. It must not be the active one. The caller removes its
 * file. If its live records were appended to the log again, these must have been synced before, or a power failure
 * would destroy both. */
void log_drop_first(struct log *log);

/* Bytes in the segments, headers included; bytes allocated ahead beyond these; records appended by this process. */
uint64_t log_bytes(const struct log *log);
uint64_t log_ahead_bytes(const struct log *log);
uint64_t log_records(const struct log *log);
/* The errno of the last write or allocation that failed, 0 if the last one succeeded. */
int log_errno(const struct log *log);
/* The segment that log_flush writes to; -1: there is none. */
int log_fd(const struct log *log);

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

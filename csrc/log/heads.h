/* The heads of a sealed segment's records, in a file beside it: all that recovery needs of them, which is everything
 * but the bodies of messages. So a start reads the segment of large messages in a small part of the time.
 *
 * A header of 64 bytes, then for each record, in order, a struct head and the beginning of the record, up to a multiple
 * of 8; then HEADS_BEHIND zeros, so that who looks at what a message begins with never looks behind the file. The file
 * says of which segment it is, and where the records of that end. It is written once, when the segment is sealed, and
 * made of nothing but the segment: without it, or if it does not fit, the segment is read.
 *
 * Owns: the layout of the file, its mapping. Must never: decide how much of a record is needed (records.h does).
 */
#ifndef MQ_HEADS_H
#define MQ_HEADS_H

#include <stdbool.h>
#include <stdint.h>

#include "log/layout.h"

#define HEADS_MAGIC   0x3153444145485148ULL /* "HQHEADS1" */
#define HEADS_VERSION 1u

struct heads_header {
    uint64_t magic;
    uint32_t version;
    uint32_t shard;
    uint32_t shards;
    uint32_t segment;
    uint64_t time_ns;      /* as in the segment's header */
    uint64_t log_began_ns; /* likewise */
    uint32_t end;          /* where the records of the segment end */
    uint32_t count;        /* how many they are, at least one */
    uint64_t bytes;        /* of what follows this header */
    uint32_t heads_crc;    /* of that */
    uint32_t crc;          /* of the 60 bytes before */
};
_Static_assert(sizeof(struct heads_header) == 64, "on-disk layout");

enum { HEADS_BEHIND = 64 };
struct head {
    uint32_t offset; /* of the record in the segment */
    uint32_t kept;   /* so many bytes of it follow */
};

enum heads_written { HEADS_WRITTEN, HEADS_UNFIT, HEADS_FAILED };

/* Writes the heads of a sealed segment, whose records end at `end`, to an empty file. Reads the segment by its
 * descriptor, so any thread may. HEADS_UNFIT: it is damaged, or of another version; it has a record that is too large
 * to be looked at at once; or its heads take more than `most` bytes. HEADS_FAILED: see errno. */
enum heads_written heads_write(int segment_fd, int heads_fd, uint64_t end, uint64_t most);

/* HEADS_OTHER: they are whole, and not those of the segment that has this header and ends there. */
enum heads_found { HEADS_FOUND, HEADS_OTHER, HEADS_DAMAGED };
struct heads;
/* The descriptor remains the caller's. */
enum heads_found heads_open(int fd, const struct segment_header *of, uint64_t end, struct heads **heads);
void heads_close(struct heads *heads);
/* The next record from *at on (0: the first one), and where it begins in the segment; NULL: there is none. Of a message
 * it has no body, but all that record_kept_bytes says. */
const struct record *heads_next(const struct heads *heads, uint64_t *at, uint32_t *offset);
/* The one that begins at this offset; NULL: none does. Quick for rising offsets. */
const struct record *heads_find(struct heads *heads, uint64_t offset);
/* They will be asked for rarely: gives back the memory that they took, until then. */
void heads_rest(const struct heads *heads);
/* The last one. */
const struct record *heads_last(const struct heads *heads, uint32_t *offset);

#endif

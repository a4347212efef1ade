/* The state of a log, which its files share. */
#ifndef MQ_LOG_STATE_H
#define MQ_LOG_STATE_H

#include <sys/types.h>

#include "base/crc32c.h"
#include "log/copies.h"
#include "log/log.h"
#include "log/spares.h"

#define LOG_HEADER_BYTES ((uint64_t)sizeof(struct segment_header))

struct segment {
    int fd;
    uint32_t number;
    uint32_t missing;    /* as its header says */
    bool header_damaged; /* it was damaged when the segment was added */
    bool copied;         /* written through the mapping */
    bool is_old;         /* nothing is appended to it: an older version, or damaged */
    bool is_lent;        /* it was mapped apart */
    int uncut;           /* why it could not be cut at recovery, an errno; 0: it could */
    bool end_known;      /* `end` is where its records end, with nothing stale beyond */
    uint64_t capacity;
    uint64_t end;       /* written up to here */
    uint64_t allocated; /* the disk has room up to here */
    uint64_t prepared;  /* there are pages up to here; see pages.h */
    uint64_t stale;     /* up to here the file has what it had before, from `allocated` on; see spares.h */
    uint64_t mark;      /* the log's `flushed` after the last write to it; 0: none was written yet */
    uint64_t readable;  /* at recovery: pages up to here have been checked, and replaced with zeros if unreadable */
    uint64_t unreadable_until; /* the end of the last unreadable page; 0: all can be read */
    uint8_t *map;              /* the whole capacity; readable only below `end` */
    uint64_t map_bytes;
    struct copies copies;      /* kept for the active and waiting segments, and at recovery */
    struct unproven *unproven; /* of one that recovery has not read; else NULL */
};

/* A record that is written in pieces to the segment that waits, which is used for nothing else meanwhile. */
struct large {
    uint64_t at;             /* where its body begins; 0: there is no such record */
    uint64_t bytes, written; /* of the body */
    uint64_t end;            /* of the body and what is kept behind it */
    uint32_t crc;            /* of the bytes written so far */
    uint8_t attribute_bytes;
    bool switched; /* its segment is the active one */
    bool dropped;  /* given up: its bytes are being cut off */
    /* group.c: not a body, but records that count together. */
    bool is_group;
    uint8_t *gathering; /* LOG_GROUP_PIECE bytes for those that are not written yet, ... */
    size_t gathered;    /* ... and how many they are */
    uint64_t record_at; /* where the head of the open record goes, which is written after its body */
};

/* How much of a record log_scan_sealed has checked, and the CRC of that. */
struct checked {
    log_position at; /* 0: of none */
    uint32_t crc;
    uint32_t total, bytes;
};

/* How far a sealed segment was searched for where it continues behind damage. */
struct sought {
    log_position at; /* the damage; 0: of none */
    uint64_t next;   /* where the next record may begin */
    uint64_t effort; /* how many bytes of what only looks like a record may yet be checked */
};

/* Bodies that lie elsewhere and have a gap in the staging buffer, in the order of the gaps. */
enum { LOG_LENT_MOST = 32, LOG_LENT_PARTS = 2 * LOG_LENT_MOST + 1 };
struct lent_bodies {
    uint32_t count;
    struct lent_body {
        size_t at, count; /* offset and length of the gap */
        const uint8_t *bytes;
    } items[LOG_LENT_MOST];
};

/* CRC registers at every PREFIX_STEP bytes of one segment, from a register of 0 at its beginning. */
struct prefixes {
    uint32_t segment;
    uint64_t limit;
    uint32_t *state;
};

struct log {
    /* What every append and read looks at. */
    struct segment *current; /* segments[active]; NULL while there is none */
    struct segment *segments;
    uint32_t first; /* number of segments[0] */
    uint32_t count;
    uint32_t active; /* index; segments before it are sealed, one may wait behind it */
    uint32_t room;   /* of the table of segments */

    /* staging[0] is for offset `base` of the current segment; [from, to) is not written yet. */
    uint8_t *staging;
    size_t staging_bytes;
    size_t from;
    size_t to;
    uint64_t base;
    size_t touched; /* the most that has been used of the buffer since it was last trimmed */
    uint32_t calm;  /* small flushes in a row */

    uint64_t reserved; /* bytes of the last reservation that are not appended yet */
    uint64_t keep;     /* what a publish asked last to keep */
    uint64_t wanted; /* the capacity that a refused reservation needs; 0: none was refused since a segment was added */

    uint64_t flushed;
    uint64_t synced;
    uint64_t records;
    int error;

    bool leaves_uncut, prepares;
    /* Where the record looked for last was among the segments; NULL: none of these is unproven (unproven.h). A pointer
     * as reading takes a const log. */
    uint32_t *proving;
    uint64_t looked_ns, looked_at; /* when spares_trim_log last looked, and `flushed` then */
    bool is_slow;                  /* little had been added since the look before */
    struct spares *spares;         /* NULL: segments are not made of earlier ones */
    struct large large;
    struct checked checked;
    struct sought sought;
    struct prefixes *prefixes; /* of log_scan; a pointer so that scanning can take a const log */
    struct lent_bodies *lent;  /* a pointer, as log_read of a const log fills gaps */
    uint32_t shard;
    uint32_t shards;
    uint64_t began_ns; /* when its first segment was made: tells this log from an earlier or later one */
};

static inline uint64_t tail_of(const struct log *log) {
    return log->base + log->to;
}

static inline struct segment *segment_find(const struct log *log, uint32_t number) {
    uint32_t i = number - log->first; /* wraps below the first */
    return i < log->count ? &log->segments[i] : NULL;
}

/* The CRC of bytes whose CRC is `a`, followed by `b_bytes` bytes whose own CRC is `b`. */
static inline uint32_t crc_joined(uint32_t a, uint32_t b, uint64_t b_bytes) {
    return crc32c_advance(a, b_bytes) ^ b;
}

/* --- segment.c --- */

bool log_cut(int fd, uint64_t offset);
/* Maps whole pages of the file again, in place of the zeros that reads_touch has left there. */
void segment_map_again(const struct segment *s, uint64_t from, uint64_t bytes);

/* --- large.c --- */

/* Writes at once, past the staging buffer. False: log->error says why. */
bool log_write_at(struct log *log, const struct segment *s, const void *data, size_t bytes, uint64_t offset);
/* Moves the log's end behind the body, when all before the body has been flushed. */
void log_large_join(struct log *log);

/* --- log.c --- */

/* Allocates disk space at least up to `upto`: in growing chunks while there is room, else just as far as needed. */
enum log_result log_allocate(struct log *log, struct segment *s, uint64_t upto);
/* Returns the segment that waits, made as large as `upto` if it is smaller: nobody reads it yet. NULL: none waits, or
 * it cannot be made so large. */
struct segment *log_waiting_for(struct log *log, uint64_t upto);
/* Seals the current segment and switches to the one that waits. `may_leave`: the sealed one need not be cut. */
enum log_result log_switch_segment(struct log *log, bool may_leave, uint64_t now_wall_ns);

/* --- staging.c --- */

ssize_t log_write_out(const struct segment *s, const uint8_t *data, size_t bytes, uint64_t offset);
/* Makes room in memory for a reservation. */
enum log_result log_stage_room(struct log *log, uint64_t need);
/* Copies the lent body of a record in the staging buffer into its gap. */
void log_fill(const struct log *log, const struct record *staged);

/* --- log_scan.c --- */

void prefixes_forget(struct prefixes *p);
/* Where the header of the next segment says that this one ends, or 0. */
uint64_t log_expected_end(const struct log *log, uint32_t segment);

#endif

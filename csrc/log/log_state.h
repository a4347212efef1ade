/* What log.c, staging.c, large.c and log_scan.c share: the state of a log. */
#ifndef MQ_LOG_STATE_H
#define MQ_LOG_STATE_H

#include <sys/types.h>

#include "base/crc32c.h"
#include "log/copies.h"
#include "log/log.h"

#define LOG_HEADER_BYTES ((uint64_t)sizeof(struct segment_header))

struct segment {
    int fd;
    uint32_t number;
    bool header_damaged; /* it was, when the segment was added */
    bool copied;         /* written through the mapping */
    bool is_old;         /* of a version that is not written any more */
    int uncut;           /* why it could not be cut at recovery */
    bool end_known;      /* `end` is where records end, and nothing stale lies beyond it */
    uint64_t capacity;
    uint64_t end;       /* written up to here */
    uint64_t allocated; /* the disk has room up to here */
    uint64_t prepared;  /* there are pages up to here; see pages.h */
    uint64_t mark;      /* what `flushed` was after the last write to it; 0 if there was none yet */
    uint64_t readable;  /* while it is read back: up to here its pages can be read, or are zeros in their place ... */
    uint64_t unreadable_until; /* ... up to here at most; 0: all can */
    uint8_t *map;              /* of the whole capacity; to be read below `end` only */
    uint64_t map_bytes;
    struct copies copies; /* of the active one, those that wait, and while a log is read back */
};

/* A record that is written in pieces to the segment that waits, which is not to be had for anything else until it is whole. */
struct large {
    uint64_t at;             /* where its body begins; 0: there is none */
    uint64_t bytes, written; /* of the body */
    uint64_t end;            /* with what is kept behind it */
    uint32_t crc;            /* of what is written */
    uint8_t attribute_bytes;
    bool switched; /* its segment is the active one */
    bool dropped;  /* its bytes are being taken away */
    /* group.c: it is no body, but records that count together. */
    bool is_group;
    size_t gathered;    /* of those, not written yet */
    uint64_t record_at; /* where the head of one is to be written, behind its body */
};

/* Where bodies are that have a gap in the staging buffer, in the order of the gaps. */
enum { LOG_LENT_MOST = 32, LOG_LENT_PARTS = 2 * LOG_LENT_MOST + 1 };
struct lent_bodies {
    uint32_t count;
    struct lent_body {
        size_t at, count; /* the gap */
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
    uint32_t active; /* those before it are sealed; one may wait after it */
    uint32_t room;   /* of the table */

    /* staging[0] belongs at offset `base` of the current segment; [from, to) is not written yet. */
    uint8_t *staging;
    size_t staging_bytes;
    size_t from;
    size_t to;
    uint64_t base;
    size_t touched; /* the most that has been used of the buffer since it was last trimmed */
    uint32_t calm;  /* flushes since then that were small */

    uint64_t reserved; /* of the last reservation, not appended yet */
    uint64_t keep;     /* what publishes have last asked to keep */
    uint64_t wanted;   /* the capacity that a refused reservation needs, 0 if none was refused since a segment came */

    uint64_t flushed;
    uint64_t synced;
    uint64_t records;
    int error;

    bool leaves_uncut, prepares;
    struct large large;
    struct prefixes *prefixes; /* scan's, apart so that scanning leaves the log const */
    struct lent_bodies *lent;  /* apart, as a record that is read is filled */
    uint32_t shard;
    uint32_t shards;
    uint64_t began_ns; /* with its first segment: tells this log from one that was there before, or comes later */
};

static inline uint64_t tail_of(const struct log *log) {
    return log->base + log->to;
}

static inline struct segment *segment_find(const struct log *log, uint32_t number) {
    uint32_t i = number - log->first; /* wraps below the first */
    return i < log->count ? &log->segments[i] : NULL;
}

/* The file itself, in the place of zeros that a touch has left (reads.h): they would be taken for what was written. Whole pages. */
void segment_map_again(const struct segment *s, uint64_t from, uint64_t bytes);

/* Of `a`, and behind that of what `b` alone is the CRC of. */
static inline uint32_t crc_joined(uint32_t a, uint32_t b, uint64_t b_bytes) {
    return crc32c_advance(a, b_bytes) ^ b;
}

/* --- large.c --- */

/* At once, whatever is staged. */
bool log_write_at(struct log *log, const struct segment *s, const void *data, size_t bytes, uint64_t offset);
/* All before the body has been flushed: the log has its end behind it. */
void log_large_join(struct log *log);

/* --- log.c --- */

/* Room up to there. */
enum log_result log_allocate(struct log *log, struct segment *s, uint64_t upto);
/* The segment that waits, which is made larger if it must: nobody reads it yet. NULL: there is none, or it cannot be made so large. */
struct segment *log_waiting_for(struct log *log, uint64_t upto);
/* Seals the current segment and goes on in the one that waits. `may_leave`: it need not be cut to its length here. */
enum log_result log_switch_segment(struct log *log, bool may_leave, uint64_t now_wall_ns);
bool log_cut(int fd, uint64_t offset);

/* --- staging.c --- */

ssize_t log_write_out(const struct segment *s, const uint8_t *data, size_t bytes, uint64_t offset);
/* Room in memory for a reservation. */
enum log_result log_stage_room(struct log *log, uint64_t need);
/* A record in the staging buffer has its body there too. */
void log_fill(const struct log *log, const struct record *staged);

/* --- log_scan.c --- */

void prefixes_forget(struct prefixes *p);

#endif

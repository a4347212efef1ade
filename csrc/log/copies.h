/* Second copies of the records without which others mean nothing (names, cursors), in a file beside each segment: what takes a
 * sector or a block of the segment does not take them too.
 *
 * The file is a sequence of entries, each 8-byte aligned: where the record begins in the segment, a check of that, and the
 * record as it stands there. They are in the order of the segment, so that recovery can put them where it finds damage. Copies
 * are written behind the records themselves and are not waited for: one that is missing is missed only beside damage.
 *
 * Knows nothing of what a record means. Whatever fails here is not an error: the segment has it all.
 */
#ifndef MQ_COPIES_H
#define MQ_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log/log.h"

/* Of one segment. All zeros: none are kept. */
struct copies {
    uint64_t mark; /* what the log's `flushed` was after the last write to the file; 0 if there was none yet */
    bool written;  /* since the mark was set */
    int fd;        /* 0: none */
    bool cut;      /* nothing of an earlier process lies behind `end` */
    uint64_t end;
    uint8_t *staged;
    size_t bytes, capacity;
};

/* Takes the descriptor. */
void copies_open(struct copies *c, int fd);
void copies_close(struct copies *c);
/* Of a record that begins at `offset`; copies_flush writes what was added. */
void copies_add(struct copies *c, uint32_t offset, const struct record *record);
void copies_flush(struct copies *c);

/* What was read back, to look into. */
struct copies_read {
    uint8_t *base;
    size_t bytes;
};
void copies_read_free(struct copies_read *all);
/* Nothing when the file cannot be read. */
struct copies_read copies_read(const struct copies *c);
/* The next whole copy from *at on, which begins at *offset in the segment; NULL: there is no further. */
const struct record *copies_next(const struct copies_read *all, size_t *at, uint32_t segment, uint32_t *offset);
/* From now on it goes on behind the copies of what lies before `offset`. */
void copies_end_at(struct copies *c, const struct copies_read *all, uint32_t segment, uint64_t offset);

#endif

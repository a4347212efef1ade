/* Second copies of the records without which others mean nothing (names, cursors), in a file beside each segment.
 * Damage to a sector or a block of the segment then does not destroy them.
 *
 * The file is a sequence of entries, each 8-byte aligned: the record's offset in the segment, a checksum of that
 * offset, and the record itself. Entries are in the order of the segment, so that recovery can insert them where it
 * finds damage. Copies are written after the records themselves, and nothing waits for them: a missing copy matters
 * only where there is damage.
 *
 * Knows nothing of what a record means. A failure here is not an error, as the segment contains every record.
 */
#ifndef MQ_COPIES_H
#define MQ_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log/layout.h"

/* The copies of one segment. All zeros: none are kept. */
struct copies {
    uint64_t mark; /* the log's `flushed` after the last write to the file; 0: nothing was written yet */
    bool written;  /* something was written since the mark was set */
    int fd;        /* 0: no copies are kept */
    bool cut;      /* the file has nothing of an earlier process behind `end` */
    uint64_t end;
    uint8_t *staged;
    size_t bytes, capacity;
};

/* The descriptor belongs to `c` from then on. */
void copies_open(struct copies *c, int fd);
void copies_close(struct copies *c);
/* Adds a copy of a record that begins at `offset` of the segment; copies_flush writes it. */
void copies_add(struct copies *c, uint32_t offset, const struct record *record);
void copies_flush(struct copies *c);

/* A file of copies, read back into memory. */
struct copies_read {
    uint8_t *base;
    size_t bytes;
};
void copies_read_free(struct copies_read *all);
/* Empty if the file cannot be read. */
struct copies_read copies_read(const struct copies *c);
/* Returns the next whole copy from *at on, and in *offset where its record begins in the segment; NULL: none. */
const struct record *copies_next(const struct copies_read *all, size_t *at, uint32_t segment, uint32_t *offset);
/* Whether bytes of such a file begin with the whole copy of a record of that segment. */
bool copies_are_of(const void *bytes, size_t count, uint32_t segment);
/* Further copies are written behind those of the records before `offset`; the ones of later records are dropped. */
void copies_end_at(struct copies *c, const struct copies_read *all, uint32_t segment, uint64_t offset);

#endif

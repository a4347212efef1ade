/* Reads records in processes other than the worker that writes them, for instance from bytes that came over a network.
 * The bytes are untrusted: nothing in them is believed before it has been checked.
 *
 * Knows the frame of a record (layout.h) and nothing else. Has no state and allocates nothing.
 */
#ifndef MQ_SCAN_H
#define MQ_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arrays that receive the fields of the records, one array for each field; NULL: not wanted. */
struct scan_columns {
    uint8_t *kind;
    uint8_t *attribute_bytes;
    uint16_t *flags;
    uint32_t *topic;
    uint64_t *seq;
    uint64_t *time_ns;
    uint64_t *id;
    uint64_t *offset; /* from `base` on; the body begins 40 + attribute_bytes later */
    uint32_t *bytes;  /* of the record, without padding */
};

enum scan_stop {
    SCAN_END = 0, /* a length of 0: nothing has been written here yet; damage, if anything follows */
    SCAN_FULL,    /* the arrays are full */
    SCAN_PART,    /* the record at `offset` ends beyond the given bytes: it needs `needs` bytes */
    SCAN_BAD,     /* no whole record begins at `offset` */
};

struct scan_result {
    uint64_t records; /* how many were put into the arrays */
    uint64_t offset;  /* where it stopped; a multiple of 8 */
    uint64_t needs;
    uint32_t stop;
};

/* Walks the records of `bytes` bytes, of which the first begins at `base` (of any alignment). Records whose kind's bit
 * is set in `kinds` are put into the arrays, `room` at most. `check`: checks each record's CRC, whose seed is
 * `segment`; without it only lengths are checked. */
void scan_records(const uint8_t *base, size_t bytes, uint32_t segment, bool check, uint64_t kinds,
                  const struct scan_columns *out, size_t room, struct scan_result *result);

/* Whether a worker can have written such a record, where `left` bytes are left. Few random bytes look like one, so few
 * CRCs are computed in vain. */
struct record;
bool scan_plausible(const struct record *r, size_t left);
/* So many times the bytes that are searched, CRCs are computed over what only looks like records. */
enum { SCAN_EFFORT = 16 };
/* Returns where the first whole record, with a right CRC, begins at or after `from` (a multiple of 8); `bytes` if there
 * is none. Also `bytes` when it gives up, after SCAN_EFFORT. */
size_t scan_find(const uint8_t *base, size_t bytes, size_t from, uint32_t segment);

/* Copies `count` pieces of a file, in rising order of offset, to `out`, one behind the other. Pieces that lie close
 * together are read with one call, through `scratch`. False with errno; EIO if the file ends before a piece does. */
bool scan_gather_file(int fd, const uint64_t *offset, const uint32_t *length, size_t count, uint8_t *out,
                      uint8_t *scratch, size_t scratch_bytes);

#endif

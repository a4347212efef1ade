/* Records read by others than the worker that writes them: in a process beside it, or far away, out of bytes that came
 * over a network. The bytes are anybody's: nothing in them is believed before it was checked.
 *
 * Knows the frame of a record (log.h) and nothing else; keeps nothing, allocates nothing.
 */
#ifndef MQ_SCAN_H
#define MQ_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where what is known of each record goes, one array a field; NULL: not wanted. */
struct scan_columns {
    uint8_t *kind;
    uint8_t *attribute_bytes;
    uint16_t *flags;
    uint32_t *topic;
    uint64_t *seq;
    uint64_t *time_ns;
    uint64_t *id;
    uint64_t *offset; /* from the beginning of the stretch; the body begins 40 + attribute_bytes later */
    uint32_t *bytes;  /* of the record, without padding */
};

enum scan_stop {
    SCAN_END = 0, /* a length of 0: nothing has been written here yet, or it is damage if something follows */
    SCAN_FULL,    /* the arrays are */
    SCAN_PART,    /* the record at `offset` does not end within the stretch: it needs `needs` bytes */
    SCAN_BAD,     /* no whole record begins at `offset` */
};

struct scan_result {
    uint64_t records; /* that were put into the arrays */
    uint64_t offset;  /* how far it came; a multiple of 8 */
    uint64_t needs;
    uint32_t stop;
};

/* Goes through the records of a stretch, of which the first begins at `base` (of any alignment). Those whose kind's bit
 * is set in `kinds` get a place in the arrays, `room` at most. `check`: each record's CRC, in which `segment` is the
 * seed; without it only lengths are looked at. */
void scan_records(const uint8_t *base, size_t bytes, uint32_t segment, bool check, uint64_t kinds,
                  const struct scan_columns *out, size_t room, struct scan_result *result);

/* Where the first whole record begins at or after `from` (a multiple of 8), its CRC checked; `bytes` if there is none.
 * Gives up, with `bytes`, when what looks like records has cost CRCs of many times the stretch. */
size_t scan_find(const uint8_t *base, size_t bytes, size_t from, uint32_t segment);

/* Copies `count` pieces of a file to `out`, one behind the other; they are in rising order. Pieces that lie close together
 * are read together, through `scratch`. False with errno; EIO when the file ends before a piece does. */
bool scan_gather_file(int fd, const uint64_t *offset, const uint32_t *length, size_t count, uint8_t *out,
                      uint8_t *scratch, size_t scratch_bytes);

#endif

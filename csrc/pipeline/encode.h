/* Writes the bodies of an Arrow column as a PUBLISH_MANY has them (csrc/ringbuf/many.h): for each body its size, a
 * big-endian uint32_t, then its bytes.
 *
 * Offsets and row numbers are checked against the column's buffers. This module keeps no state and allocates nothing.
 */
#ifndef MQ_ENCODE_H
#define MQ_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENCODE_SIZE_BYTES 4

/* A binary or string column without nulls: row i is data[offsets[i] .. offsets[i + 1]). */
struct encode_column {
    const int32_t *offsets;       /* exactly one of these two is set */
    const int64_t *large_offsets; /* of a large_binary or large_string column */
    size_t rows;
    const uint8_t *data;
    size_t bytes;
};

/* Finds the body of a row. False: there is no such row, or its offsets lead out of the column. */
bool encode_find(const struct encode_column *column, size_t row, const uint8_t **body, size_t *bytes);

/* Writes rows[0], rows[1], ... into `out`, as many of `count` as fit into `room` bytes; if `rows` is NULL, the rows
 * from `first` on. Returns how many were written, and in *used their bytes; -1 if a row or its offsets are wrong. */
int64_t encode_many(const struct encode_column *column, const int64_t *rows, size_t first, size_t count, uint8_t *out,
                    size_t room, size_t *used);

#endif

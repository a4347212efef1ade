/* The bodies of an Arrow column as what a PUBLISH_MANY brings (csrc/ringbuf/many.h): for each its size, uint32_t big-endian, and
 * its bytes.
 *
 * The column is believed as far as its buffers go: an offset that leads out of them, or a row that is not there, is found.
 * Keeps nothing, allocates nothing.
 */
#ifndef MQ_ENCODE_H
#define MQ_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENCODE_SIZE_BYTES 4

/* A binary or string column without nulls: row i is data[offsets[i] .. offsets[i + 1]). */
struct encode_column {
    const int32_t *offsets;       /* one of these two */
    const int64_t *large_offsets; /* of large_binary, large_string */
    size_t rows;
    const uint8_t *data;
    size_t bytes;
};

/* Where a row lies. False: it, or its bytes, are outside of the column. */
bool encode_find(const struct encode_column *column, size_t row, const uint8_t **body, size_t *bytes);

/* Puts rows[0], rows[1], ... into `out`, as many of `count` as fit into `room` bytes, in this order; without `rows` the
 * rows from `first` on. Returns how many were put, and in *used their bytes; -1 if the column is not sound. */
int64_t encode_many(const struct encode_column *column, const int64_t *rows, size_t first, size_t count, uint8_t *out,
                    size_t room, size_t *used);

#endif

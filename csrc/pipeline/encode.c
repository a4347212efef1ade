#include "pipeline/encode.h"

#include <assert.h>
#include <string.h>

bool encode_find(const struct encode_column *column, size_t row, const uint8_t **body, size_t *bytes) {
    if (row >= column->rows) return false;
    int64_t from, until;
    if (column->offsets != NULL) {
        from = column->offsets[row];
        until = column->offsets[row + 1];
    } else {
        from = column->large_offsets[row];
        until = column->large_offsets[row + 1];
    }
    if (from < 0 || until < from || (uint64_t)until > column->bytes) return false;
    *body = column->data + from;
    *bytes = (size_t)(until - from);
    return true;
}

static void put_size(uint8_t *out, size_t bytes) {
    out[0] = (uint8_t)(bytes >> 24);
    out[1] = (uint8_t)(bytes >> 16);
    out[2] = (uint8_t)(bytes >> 8);
    out[3] = (uint8_t)bytes;
}

int64_t encode_many(const struct encode_column *column, const int64_t *rows, size_t first, size_t count, uint8_t *out,
                    size_t room, size_t *used) {
    assert((column->offsets == NULL) != (column->large_offsets == NULL));
    assert(room <= UINT32_MAX);
    uint8_t *at = out;
    size_t left = room, done = 0;
    for (; done < count; done++) {
        const uint8_t *body;
        size_t bytes;
        size_t row = rows != NULL ? (size_t)rows[done] : first + done;
        if (!encode_find(column, row, &body, &bytes)) return -1;
        if (left < ENCODE_SIZE_BYTES || left - ENCODE_SIZE_BYTES < bytes) break;
        put_size(at, bytes);
        if (bytes > 0) memcpy(at + ENCODE_SIZE_BYTES, body, bytes); /* an empty column may have NULL data */
        at += ENCODE_SIZE_BYTES + bytes;
        left -= ENCODE_SIZE_BYTES + bytes;
    }
    *used = room - left;
    return (int64_t)done;
}

/* Bodies of an Arrow column with headers before them, out of a map of names and values: what a PUBLISH_MANY with MSG_HEADERS
 * brings of each message (csrc/ringbuf/message.h).
 *
 * As NATS writes headers, so that its clients see them, where names and values can be written so; else as
 * csrc/base/entries.h has Spark's. The columns are believed as far as their buffers go. Keeps nothing, allocates nothing.
 */
#ifndef MQ_CONTENTS_H
#define MQ_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#include "pipeline/encode.h"

/* Row i has the entries begins[i] to ends[i] - 1. `pri`, `ttr_ms` and `delay_ms` are no headers, and left out. */
struct encode_attributes {
    const int32_t *begins, *ends;
    size_t entries;
    const int32_t *name_offsets, *value_offsets; /* one more than there are entries */
    const uint8_t *names, *values;
    size_t name_bytes, value_bytes;
    const uint32_t *key_hashes; /* of each row; 0: it has no key */
};

enum {
    CONTENTS_ROW_BYTES = 16 + 12, /* beside bodies, names and values: of each row, ... */
    CONTENTS_ENTRY_BYTES = 8,     /* ... and of each entry */
    CONTENTS_UNSOUND = -1,        /* a column is not what it says */
    CONTENTS_TOO_MANY = -2,       /* entries, or bytes of them: no message has so large headers */
    CONTENTS_NAMELESS = -3,
};

/* The contents of all rows, one behind the other, into `out`: offsets[i] is where row i begins, and one more. Returns their
 * bytes, or one of the above, and in *row of which row. */
int64_t encode_contents(const struct encode_column *bodies, const struct encode_attributes *attributes,
                        int64_t *offsets, uint8_t *out, size_t room, size_t *row);

#endif

/* Writes messages with headers for a PUBLISH_MANY with MSG_HEADERS (csrc/ringbuf/message.h): the bodies come from an
 * Arrow column, the headers from a map column of names and values.
 *
 * Headers are written in the format of NATS, so that NATS clients see them, if all names and values of the message can
 * be; else in that of Spark (csrc/formats/entries.h). Offsets are checked against the columns' buffers. This module
 * keeps no state and allocates nothing.
 */
#ifndef MQ_CONTENTS_H
#define MQ_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#include "pipeline/encode.h"

/* Row i has the entries begins[i] to ends[i] - 1. Those named `pri`, `ttr_ms` and `delay_ms` do not become headers. */
struct encode_attributes {
    const int32_t *begins, *ends;
    size_t entries;
    const int32_t *name_offsets, *value_offsets; /* each has one more than there are entries */
    const uint8_t *names, *values;
    size_t name_bytes, value_bytes;
    const uint32_t *key_hashes; /* of each row; 0: the row has no key. NULL: no row has one */
};

enum {
    CONTENTS_ROW_BYTES = 16 + 12, /* the room a row needs besides its body, names and values; ... */
    CONTENTS_ENTRY_BYTES = 8,     /* ... and what each of its entries needs */
    CONTENTS_UNSOUND = -1,        /* an offset leads out of its column, or `room` is too small */
    CONTENTS_TOO_MANY = -2,       /* more headers, or longer ones, than a message may have */
    CONTENTS_NAMELESS = -3,       /* a header with an empty name */
};

/* Writes all rows into `out`, one behind the other. offsets[i] is where row i begins, and offsets[rows] where the last
 * one ends. Returns how many bytes were written, or one of the errors above, with the row concerned in *row. */
int64_t encode_contents(const struct encode_column *bodies, const struct encode_attributes *attributes,
                        int64_t *offsets, uint8_t *out, size_t room, size_t *row);

#endif

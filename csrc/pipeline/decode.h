/* Decodes runs of message records, which a broker sends to readers of a topic, into the buffers of Arrow columns. A
 * single pass checks each record and copies the wanted parts of it. This module knows no sockets, files or workers.
 *
 * A run is a header of 16 bytes (struct run) and then records of one topic, as csrc/log/layout.h lays them out, each
 * padded to a multiple of 8. A PUBLISH or MOVED record is a message. A STAGED record is a message of an aborted
 * transaction: it makes no row, but its seq is not missing either. Runs follow each other, and the input may be cut
 * anywhere.
 *
 * A record becomes one row; a valid batch of a Pulsar client becomes one row for each of its messages. The caller
 * decompresses compressed payloads, with a library (DECODE_PACKED). Seqs count records, and the columns may become full
 * in the middle of a batch.
 */
#ifndef MQ_DECODE_H
#define MQ_DECODE_H

#include <stddef.h>
#include <stdint.h>

struct run {
    uint32_t segment; /* seeds the CRCs */
    uint32_t records;
    uint64_t bytes;
};
_Static_assert(sizeof(struct run) == 16, "on the wire");

enum {
    DECODE_MAX_ATTRIBUTES = 3,        /* of a message besides its headers: pri, ttr_ms, delay_ms */
    DECODE_ATTRIBUTE_NAME_BYTES = 17, /* the names of these three together, and their values */
    DECODE_ATTRIBUTE_VALUE_BYTES = 52,
    DECODE_HEADERS_ENTRIES = 1 << 17, /* room for the headers of all messages together: entries, names, values */
    DECODE_HEADERS_NAME_BYTES = 1 << 20,
    DECODE_HEADERS_VALUE_BYTES = 4 << 20,
    DECODE_ID_PREFIX_BYTES = 17, /* the broker's id and a dash, which make ids unique over brokers */
    DECODE_ID_BYTES = DECODE_ID_PREFIX_BYTES + 16,
    DECODE_ID_MOST_BYTES = DECODE_ID_BYTES + 1 + 10, /* in a batch: a dot and the place in the batch follow */
};

/* The columns that messages are written to, at most `capacity` of them. A column that is not wanted is NULL. Offsets
 * are those of Arrow: one more than there are values. The caller writes the first one, 0. */
struct decode_columns {
    size_t capacity;
    size_t count;
    int64_t *seq;
    int64_t *time_us;
    int32_t *batch_index; /* -1: the message is of no batch */
    uint8_t *ids;         /* each is id_prefix and 16 hexadecimal digits; in a batch a dot and the place there */
    int32_t *id_offsets;
    uint8_t id_prefix[DECODE_ID_PREFIX_BYTES];
    uint8_t *bodies;
    int32_t *body_offsets;
    size_t body_capacity; /* at most INT32_MAX */
    size_t body_bytes;
    /* The attributes are a map, and attribute_offsets count its entries. There is room for `capacity` messages and
     * their headers, in the sizes given above. */
    int32_t *attribute_offsets;
    int32_t *name_offsets;
    uint8_t *names;
    int32_t *value_offsets;
    uint8_t *values;
};

struct decoder {
    struct run run;    /* what is left of the run under way */
    uint64_t next_seq; /* the seq expected next; earlier ones have been seen */
    uint64_t end_seq;  /* one beyond the last seq that was asked for */
    uint64_t gap_from; /* the first gap at or beyond gaps_from, [gap_from, gap_until); equal: there is none */
    uint64_t gap_until;
    uint64_t gaps_from; /* gaps before this seq are ignored */
    uint64_t missing;   /* how many seqs are missing at or beyond gaps_from */
    uint64_t needs;     /* DECODE_MORE: how many bytes of input in one piece; DECODE_FULL: room for how long a body */
    uint64_t rows;      /* DECODE_FULL: how many rows the next record has left */
    /* The record under way, whose batch may have been decoded in part: */
    uint64_t within;    /* its seq plus 1; 0: there is none */
    uint32_t next_part; /* messages of the batch before this one have been decoded */
    /* DECODE_PACKED: the next record's payload, packed_bytes at packed_at in the input, is compressed. Before the next
     * call the caller sets was_opened, and `opened` to opened_size decompressed bytes, or NULL if they cannot be
     * decompressed. They must stay until that record has been decoded. */
    uint32_t compression, opened_size;
    uint64_t packed_at, packed_bytes;
    uint32_t was_opened;
    const uint8_t *opened;
};

enum decode_result {
    DECODE_MORE = 0,  /* the input is used up, except for a piece of a record */
    DECODE_FULL,      /* the columns are full */
    DECODE_CORRUPT,   /* the record at which the rest of the input begins has wrong lengths or a wrong CRC */
    DECODE_PACKED,    /* the next record is compressed */
    DECODE_MISPLACED, /* the next record is valid but was not asked for, or a run does not end with its last record */
};

/* Decodes `input`, which is aligned to 8. *used, a multiple of 8, is how much of it has been decoded; the caller passes
 * the rest again, with more behind it. */
enum decode_result decode_runs(struct decoder *decoder, const void *input, size_t bytes, size_t *used,
                               struct decode_columns *out);

#endif

/* Runs of message records, as a broker sends them to who reads topics, into the buffers of Arrow columns: one pass that
 * checks each record and copies what is wanted of it. Knows nothing of sockets, files and workers.
 *
 * A run is a header of 16 bytes (struct run) and records as csrc/log/log.h lays them out, PUBLISH or MOVED, all of one
 * topic, each padded to 8; or STAGED, of a transaction that was aborted: a place without a row, which is no gap. Runs follow each other; input may be cut anywhere.
 *
 * A record is one row; a batch of a Pulsar client's is one for each of its messages, if it is what it says it is. What is
 * compressed the caller opens, with a library (DECODE_PACKED). Seqs count records: a batch may be cut between two calls.
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
    DECODE_MAX_ATTRIBUTES = 3,        /* of a message without headers: pri, ttr_ms, delay_ms */
    DECODE_ATTRIBUTE_NAME_BYTES = 17, /* of all names of such a message together, and of all values */
    DECODE_ATTRIBUTE_VALUE_BYTES = 52,
    DECODE_HEADERS_ENTRIES = 1 << 17, /* of all messages together, for what headers take beyond that: entries, ... */
    DECODE_HEADERS_NAME_BYTES = 1 << 20,
    DECODE_HEADERS_VALUE_BYTES = 4 << 20,
    DECODE_ID_PREFIX_BYTES = 17, /* of the broker's id, and a dash: ids are unique over brokers */
    DECODE_ID_BYTES = DECODE_ID_PREFIX_BYTES + 16,
    DECODE_ID_MOST_BYTES = DECODE_ID_BYTES + 1 + 10, /* of one of a batch: a dot, and its place there */
};

/* Where messages go: `capacity` of them at most. A column that is NULL is not wanted. Offsets are Arrow's: one more than
 * there are values; the first is 0 and the caller's to write. */
struct decode_columns {
    size_t capacity;
    size_t count;
    int64_t *seq;
    int64_t *time_us;
    int32_t *batch_index; /* -1: the message is of no batch */
    uint8_t *ids;         /* id_prefix and 16 hexadecimal digits each, and then maybe the place in a batch */
    int32_t *id_offsets;
    uint8_t id_prefix[DECODE_ID_PREFIX_BYTES];
    uint8_t *bodies;
    int32_t *body_offsets;
    size_t body_capacity; /* at most INT32_MAX */
    size_t body_bytes;
    /* attributes: a map; its offsets count entries. There is room for as many as the sizes above say, for
     * `capacity` messages and their headers. */
    int32_t *attribute_offsets;
    int32_t *name_offsets;
    uint8_t *names;
    int32_t *value_offsets;
    uint8_t *values;
};

struct decoder {
    struct run run;    /* what is left of the run that was cut */
    uint64_t next_seq; /* the one expected; earlier ones have been seen */
    uint64_t end_seq;  /* one beyond the last that was asked for */
    uint64_t gap_from; /* the first gap at or beyond gaps_from: [gap_from, gap_until); none: equal */
    uint64_t gap_until;
    uint64_t gaps_from; /* gaps before are no matter */
    uint64_t missing;   /* in all gaps at or beyond gaps_from */
    uint64_t needs;     /* DECODE_MORE: as many bytes in one piece; DECODE_FULL: room for such a body */
    uint64_t rows;      /* DECODE_FULL: so many come of the record that is next */
    /* Of a batch that is under way: */
    uint64_t within;    /* its seq and one more; 0: none is */
    uint32_t next_part; /* those before are done with */
    /* DECODE_PACKED: so much of it lies `packed_at` from the beginning of the input. The caller has it opened, and says so
     * before the next call; `opened` NULL: it cannot be. What it gives has to stay until that record is done with. */
    uint32_t compression, opened_size;
    uint64_t packed_at, packed_bytes;
    uint32_t was_opened;
    const uint8_t *opened;
};

enum decode_result {
    DECODE_MORE = 0,  /* the input is used up, but for a piece of a record */
    DECODE_FULL,      /* the columns are */
    DECODE_CORRUPT,   /* at what is left of the input: lengths or CRC are wrong */
    DECODE_PACKED,    /* the record that is next is compressed */
    DECODE_MISPLACED, /* a whole record that was not asked for, or a run that does not end with its last record */
};

/* Goes on with `input`, which is aligned to 8; *used, a multiple of 8, is how much of it is done with. The rest comes
 * again, with more behind it. */
enum decode_result decode_runs(struct decoder *decoder, const void *input, size_t bytes, size_t *used,
                               struct decode_columns *out);

#endif

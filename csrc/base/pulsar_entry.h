/* What a Pulsar client stores: an entry, of metadata in protobuf and a payload, which may be a batch of messages. Read where it
 * lies; knows no connection and no log, allocates nothing, believes nothing.
 *
 * Fields that are not known are skipped, of one that comes twice the last counts (except those that are repeated), as protobuf
 * has it. What is not protobuf, or lacks what its message must have, is no message: every function that reads says so by
 * false.
 */
#ifndef MQ_PULSAR_ENTRY_H
#define MQ_PULSAR_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pulsar_bytes {
    const uint8_t *at, *end;
};

static inline size_t pulsar_length(struct pulsar_bytes bytes) {
    return (size_t)(bytes.end - bytes.at);
}

static inline bool pulsar_is_done(struct pulsar_bytes rest) {
    return rest.at == rest.end;
}

/* One field of a protobuf message: `number` is its value, or `bytes` what is in it. */
struct pulsar_field {
    uint32_t tag; /* its number, and how it is encoded: see PULSAR_TAG */
    uint64_t number;
    struct pulsar_bytes bytes;
};

enum { PULSAR_VARINT = 0, PULSAR_FIXED64 = 1, PULSAR_BYTES = 2, PULSAR_FIXED32 = 5 };
#define PULSAR_TAG(field, wire) ((uint32_t)(field) << 3 | (wire))

bool pulsar_get_varint(struct pulsar_bytes *rest, uint64_t *out);
/* The next field; false at the end, and then `at` is `end` if all was protobuf. */
bool pulsar_next(struct pulsar_bytes *rest, struct pulsar_field *out);

static inline uint32_t pulsar_get_be32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

/* What stands behind a SEND's command. */
struct pulsar_entry {
    struct pulsar_bytes all;
    bool has_checksum;
    uint32_t checksum;
    struct pulsar_bytes checked; /* what the checksum is of */
    struct pulsar_bytes metadata;
    struct pulsar_bytes payload;
    bool is_whole; /* there is room for its metadata; else metadata is all there is, and payload is empty */
};
void pulsar_split_entry(struct pulsar_bytes bytes, struct pulsar_entry *out);

struct pulsar_metadata {
    struct pulsar_bytes producer, partition_key, ordering_key;
    uint64_t sequence, publish_time, deliver_at, highest_sequence, event_time;
    uint32_t messages; /* in the batch, 0: it is none */
    uint32_t chunk, chunks;
    uint32_t compression; /* 0: none */
    uint32_t uncompressed_bytes;
    bool key_is_base64, is_encrypted, is_chunk, has_txn, is_marker;
};
/* False: it is no metadata, and no consumer is to see it. */
bool pulsar_scan_metadata(struct pulsar_bytes bytes, struct pulsar_metadata *out);

/* A message of a batch, and its own metadata. */
struct pulsar_single {
    struct pulsar_bytes metadata, payload;
};
/* The next one of what a batch consists of; false at the end, and then `at` is `end` if all was a batch. */
bool pulsar_next_single(struct pulsar_bytes *rest, struct pulsar_single *out);
/* Whether that is a batch of so many. */
bool pulsar_is_batch(struct pulsar_bytes payload, uint32_t messages);

#endif

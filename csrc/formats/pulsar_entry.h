/* What a Pulsar client stores: an entry, made of protobuf metadata and a payload, which may be a batch of messages.
 * Read where it lies; knows no connection and no log, allocates nothing, believes nothing.
 *
 * Fields that are not known are skipped, of one that comes twice the last counts (except those that are repeated), as
 * protobuf has it. What is not protobuf, or lacks what its message must have, is no message: every function that reads
 * says so by false.
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
    uint32_t tag; /* its number and wire type: see PULSAR_TAG */
    uint64_t number;
    struct pulsar_bytes bytes;
};

enum { PULSAR_VARINT = 0, PULSAR_FIXED64 = 1, PULSAR_BYTES = 2, PULSAR_FIXED32 = 5 };
#define PULSAR_TAG(field, wire) ((uint32_t)(field) << 3 | (wire))

bool pulsar_get_varint(struct pulsar_bytes *rest, uint64_t *out);
/* The next field; false at the end. If all of it was valid protobuf, `at` is then `end`. */
bool pulsar_next(struct pulsar_bytes *rest, struct pulsar_field *out);

static inline uint32_t pulsar_get_be32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

/* What follows the command of a SEND frame. */
struct pulsar_entry {
    struct pulsar_bytes all;
    bool has_checksum;
    uint32_t checksum;
    struct pulsar_bytes checked; /* the bytes that the checksum covers */
    struct pulsar_bytes metadata;
    struct pulsar_bytes payload;
    bool is_whole; /* the metadata size is right; else `metadata` has all the bytes and `payload` is empty */
};
void pulsar_split_entry(struct pulsar_bytes bytes, struct pulsar_entry *out);

struct pulsar_metadata {
    struct pulsar_bytes producer, partition_key, ordering_key;
    uint64_t sequence, publish_time, deliver_at, highest_sequence, event_time;
    uint32_t messages; /* messages in the batch; 0: no batch */
    uint32_t chunk, chunks;
    uint32_t compression; /* 0: none */
    uint32_t uncompressed_bytes;
    bool key_is_base64, is_encrypted, is_chunk, has_txn, is_marker;
};
/* False: this is not metadata, so no consumer may see the entry. */
bool pulsar_scan_metadata(struct pulsar_bytes bytes, struct pulsar_metadata *out);

/* One message of a batch: its own metadata and payload. */
struct pulsar_single {
    struct pulsar_bytes metadata, payload;
};
/* The next message of a batch; false at the end. If all of it was a valid batch, `at` is then `end`. */
bool pulsar_next_single(struct pulsar_bytes *rest, struct pulsar_single *out);
/* Whether the payload is a valid batch of that many messages. */
bool pulsar_is_batch(struct pulsar_bytes payload, uint32_t messages);

#endif

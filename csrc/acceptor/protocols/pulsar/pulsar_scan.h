/* Reads and writes, by hand, Pulsar's frames and the few protobuf messages that are exchanged for each message.
 * Messages are read in place. This module knows no connection, allocates nothing, and checks everything it reads.
 *
 * As protobuf demands, unknown fields are skipped, and of a field that comes twice the last one counts, unless it is
 * repeated. Every function that reads returns false for bytes that are not protobuf or lack a required field.
 */
#ifndef MQ_PULSAR_SCAN_H
#define MQ_PULSAR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "formats/pulsar_entry.h"
#include "ringbuf/message.h"

/* BaseCommand.Type. The field of BaseCommand that holds the command's message has the same number. */
enum pulsar_type {
    PULSAR_CONNECT = 2,
    PULSAR_SEND = 6,
    PULSAR_SEND_RECEIPT = 7,
    PULSAR_SEND_ERROR = 8,
    PULSAR_MESSAGE = 9,
    PULSAR_ACK = 10,
    PULSAR_FLOW = 11,
    PULSAR_CLOSE_PRODUCER = 15,
    PULSAR_CLOSE_CONSUMER = 16,
    PULSAR_PING = 18,
    PULSAR_PONG = 19,
    PULSAR_REDELIVER = 20,
    PULSAR_ACTIVE_CONSUMER_CHANGE = 31,
    PULSAR_AUTH_RESPONSE = 37,
    PULSAR_ACK_RESPONSE = 38,
    PULSAR_TYPES = 128,
};

/* ServerError. */
enum pulsar_error {
    PULSAR_PERSISTENCE_ERROR = 2,
    PULSAR_SERVICE_NOT_READY = 6,
    PULSAR_CHECKSUM_ERROR = 9,
    PULSAR_TOPIC_TERMINATED = 15,
    PULSAR_NOT_ALLOWED = 22,
};

struct pulsar_command {
    uint32_t type;
    struct pulsar_bytes body; /* the message of that type; `at` is NULL if there is none */
};
bool pulsar_scan_command(struct pulsar_bytes bytes, struct pulsar_command *out);

/* Added to the number of a transaction that only the command names, and not the metadata of its batch. The client in Go
 * names its producer's last transaction so, also when that is over: then the batch belongs to none. */
#define PULSAR_TXN_OF_COMMAND (1ull << 63)
/* has_txn: it has both halves of a transaction's id. */
struct pulsar_send {
    uint64_t producer, sequence, highest, txn_least, txn_most;
    bool is_chunk, is_marker, has_txn, has_highest;
};
bool pulsar_scan_send(struct pulsar_bytes bytes, struct pulsar_send *out);

struct pulsar_flow {
    uint64_t consumer;
    uint32_t permits;
};
bool pulsar_scan_flow(struct pulsar_bytes bytes, struct pulsar_flow *out);
/* The producer of a CLOSE_PRODUCER. */
bool pulsar_scan_close(struct pulsar_bytes bytes, uint64_t *producer);

enum { PULSAR_ACK_WORDS = PARTS_MAX_WORDS };
struct pulsar_id {
    uint64_t ledger, entry;
    uint32_t words; /* how many words ack_set has; above PULSAR_ACK_WORDS: too many, and `set` has the first */
    uint64_t set[PULSAR_ACK_WORDS];
};
bool pulsar_scan_id(struct pulsar_bytes bytes, struct pulsar_id *out);

/* An ACK or a REDELIVER. pulsar_next_id reads its `count` ids. */
struct pulsar_ids {
    uint64_t consumer, request, epoch, txn_most, txn_least;
    bool cumulative, has_request, has_epoch, has_txn;
    uint32_t count;
    struct pulsar_bytes rest;
    uint32_t tag;
};
bool pulsar_scan_ack(struct pulsar_bytes bytes, struct pulsar_ids *out);
bool pulsar_scan_redeliver(struct pulsar_bytes bytes, struct pulsar_ids *out);
/* The next id; false at the end. */
bool pulsar_next_id(struct pulsar_ids *ids, struct pulsar_id *out);

/* The hash by which Key_Shared chooses a consumer: never 0. */
uint32_t pulsar_key_hash(const struct pulsar_metadata *metadata);
/* Murmur3_32 with the seed 0. */
uint32_t pulsar_murmur(const uint8_t *data, size_t bytes);

/* --- writing ------------------------------------------------------------------------------------------------------ */

static inline uint8_t *pulsar_put_varint(uint8_t *out, uint64_t value) {
    while (value >= 0x80) {
        *out++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *out++ = (uint8_t)value;
    return out;
}

static inline uint8_t *pulsar_put_number(uint8_t *out, uint32_t field, uint64_t value) {
    return pulsar_put_varint(pulsar_put_varint(out, PULSAR_TAG(field, PULSAR_VARINT)), value);
}

static inline uint8_t *pulsar_put_be32(uint8_t *out, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(out, &value, sizeof value);
    return out + sizeof value;
}

/* The most bytes of a command written here, besides texts and ack sets; and those of a varint. */
enum { PULSAR_COMMAND_BYTES = 128, PULSAR_VARINT_BYTES = 10 };

#endif

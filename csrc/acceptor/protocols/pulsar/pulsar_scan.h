/* Pulsar's frames and the few protobuf messages that come or go once a message: read where they lie, written by hand. Knows no
 * connection, allocates nothing, believes nothing.
 *
 * Fields that are not known are skipped, of one that comes twice the last counts (except those that are repeated), as protobuf has it. What is not protobuf,
 * or lacks what its message must have, is no message: every function that reads says so by false.
 */
#ifndef MQ_PULSAR_SCAN_H
#define MQ_PULSAR_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/pulsar_entry.h"
#include "ringbuf/message.h"

/* BaseCommand.Type; its message's field in BaseCommand has the same number. */
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
    struct pulsar_bytes body; /* of the message of that type; at: NULL, if there is none */
};
bool pulsar_scan_command(struct pulsar_bytes bytes, struct pulsar_command *out);

struct pulsar_send {
    uint64_t producer, sequence, highest, txn_least, txn_most;
    bool is_chunk, is_marker, has_txn;
};
bool pulsar_scan_send(struct pulsar_bytes bytes, struct pulsar_send *out);

struct pulsar_flow {
    uint64_t consumer;
    uint32_t permits;
};
bool pulsar_scan_flow(struct pulsar_bytes bytes, struct pulsar_flow *out);

enum { PULSAR_ACK_WORDS = 16 };
struct pulsar_id {
    uint64_t ledger, entry;
    uint32_t words; /* of ack_set; more than PULSAR_ACK_WORDS: too many to look at */
    uint64_t set[PULSAR_ACK_WORDS];
};
bool pulsar_scan_id(struct pulsar_bytes bytes, struct pulsar_id *out);

/* An ACK or a REDELIVER; the ids in it by pulsar_next_id, from `ids` on. */
struct pulsar_ids {
    uint64_t consumer, request, epoch, txn_most, txn_least;
    bool cumulative, has_request, has_epoch, has_txn;
    uint32_t count;
    struct pulsar_bytes rest;
    uint32_t tag;
};
bool pulsar_scan_ack(struct pulsar_bytes bytes, struct pulsar_ids *out);
bool pulsar_scan_redeliver(struct pulsar_bytes bytes, struct pulsar_ids *out);
/* False behind the last. */
bool pulsar_next_id(struct pulsar_ids *ids, struct pulsar_id *out);

/* The hash that Key_Shared goes by: never 0. */
uint32_t pulsar_key_hash(const struct pulsar_metadata *metadata);
/* Murmur3_32 with the seed 0. */
uint32_t pulsar_murmur(const uint8_t *data, size_t bytes);

/* --- writing ------------------------------------------------------------------------------------------------------- */

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

/* How much there is at most of a command that is written here, without texts and ack sets; and of a varint. */
enum { PULSAR_COMMAND_BYTES = 128, PULSAR_VARINT_BYTES = 10 };

#endif

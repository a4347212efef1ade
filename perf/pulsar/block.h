/* SENDs that are made once: before each use only what differs is written into them (producer, sequence id, key, time,
 * checksum).
 */
#ifndef MQ_PERF_PULSAR_BLOCK_H
#define MQ_PERF_PULSAR_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sequence ids begin here: they are varints of five bytes from then on, for a long time. */
#define FIRST_SEQUENCE  (UINT64_C(1) << 28)
#define MAX_PRODUCER_ID 127u /* the largest varint of one byte */
#define KEY_DIGITS      6u

struct block {
    uint8_t *frames; /* back to back */
    uint32_t *payload_crc;
    unsigned count;
    size_t frame_bytes;
    size_t payload_bytes;       /* of an entry, with the head of each message of a batch */
    size_t payload_at, body_at; /* body_at: of the body of the first message */
    size_t producer_at, sequence_at, checksum_at, metadata_sequence_at, key_at;
    unsigned keys;
    bool is_timed;
    unsigned sample;         /* frames whose place is a multiple of this carry a time */
    uint32_t behind[4][256]; /* by byte of a checksum: what it becomes after a payload */
};

/* Makes as many frames as are sent at a time, at most `most`. `keys` 0: messages have no key. */
void block_open(struct block *b, size_t body_bytes, unsigned batch, unsigned keys, unsigned most);
void block_close(struct block *b);

/* Makes the frame at `place` a SEND of this producer; `time_ns` is when it is sent, or was due. */
void block_write(struct block *b, unsigned place, unsigned producer, uint64_t sequence, uint64_t time_ns);

#endif

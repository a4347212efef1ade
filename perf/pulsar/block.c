#include "pulsar/block.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "big_endian.h"
#include "measure.h"
#include "pulsar/frames.h"

#define BLOCK_BYTES   ((size_t)256 << 10)
#define SAMPLE        16u
#define CHECKED_BYTES 6u /* magic, checksum */
#define NAME          "load"

static uint8_t *put_payload(uint8_t *to, size_t body_bytes, unsigned batch) {
    uint8_t head[16];
    size_t head_bytes = (size_t)(put_number(head, 3, body_bytes) - head);
    for (unsigned i = 0; i < batch; i++) {
        if (batch > 1) {
            to = write_u32(to, head_bytes);
            memcpy(to, head, head_bytes);
            to += head_bytes;
        }
        write_body((char *)to, body_bytes);
        to += body_bytes;
    }
    return to;
}

/* Makes the first frame, and notes the places in it that change. */
static void make_frame(struct block *b, size_t body_bytes, unsigned batch) {
    uint8_t send[64], metadata[256];
    uint8_t *end = put_number(send, 1, 0);
    size_t producer = 1, sequence = (size_t)(end - send) + 1;
    end = put_number(end, 2, FIRST_SEQUENCE);
    if (batch > 1) end = put_number(end, 3, batch);
    size_t send_bytes = (size_t)(end - send);
    end = put_text(metadata, 1, NAME);
    size_t in_metadata = (size_t)(end - metadata) + 1, key = 0;
    end = put_number(end, 2, FIRST_SEQUENCE);
    end = put_number(end, 3, UINT64_C(1700000000000));
    if (b->keys > 0) {
        key = (size_t)(end - metadata) + 2;
        end = put_text(end, 6, "000000");
    }
    if (batch > 1) end = put_number(end, 11, batch);
    size_t metadata_bytes = (size_t)(end - metadata);
    size_t behind = CHECKED_BYTES + 4 + metadata_bytes + b->payload_bytes;
    uint8_t *at = put_frame_head(b->frames, SEND, send_bytes, behind);
    b->producer_at = (size_t)(at - b->frames) + producer;
    b->sequence_at = (size_t)(at - b->frames) + sequence;
    memcpy(at, send, send_bytes);
    at += send_bytes;
    *at++ = 0x0e;
    *at++ = 0x01;
    b->checksum_at = (size_t)(at - b->frames);
    at = write_u32(write_u32(at, 0), metadata_bytes);
    b->metadata_sequence_at = (size_t)(at - b->frames) + in_metadata;
    b->key_at = (size_t)(at - b->frames) + key;
    memcpy(at, metadata, metadata_bytes);
    at += metadata_bytes;
    b->payload_at = (size_t)(at - b->frames);
    b->frame_bytes = (size_t)(put_payload(at, body_bytes, batch) - b->frames);
}

void block_open(struct block *b, size_t body_bytes, unsigned batch, unsigned keys, unsigned most) {
    uint8_t head[16];
    size_t before = batch > 1 ? 4 + (size_t)(put_number(head, 3, body_bytes) - head) : 0;
    *b = (struct block){.payload_bytes = batch * (before + body_bytes), .keys = keys};
    b->is_timed = body_bytes >= STAMP_BYTES;
    size_t frame_most = COMMAND_BYTES + b->payload_bytes, fitting = BLOCK_BYTES / frame_most;
    b->count = fitting > most ? most : fitting > 0 ? (unsigned)fitting : 1;
    b->sample = b->count < SAMPLE ? b->count : SAMPLE;
    b->frames = allocate(b->count, frame_most);
    b->payload_crc = allocate(b->count, sizeof *b->payload_crc);
    make_frame(b, body_bytes, batch);
    b->body_at = b->payload_at + before;
    for (unsigned i = 0; i < b->count; i++) {
        if (i > 0) memcpy(b->frames + i * b->frame_bytes, b->frames, b->frame_bytes);
        b->payload_crc[i] = crc32c_extend(0, b->frames + b->payload_at, b->payload_bytes);
    }
    for (unsigned byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++)
            b->behind[byte][value] = crc32c_advance(value << (8 * byte), b->payload_bytes);
}

void block_close(struct block *b) {
    free(b->frames);
    free(b->payload_crc);
}

static void write_sequence(uint8_t *to, uint64_t sequence) {
    for (unsigned i = 0; i < 4; i++) to[i] = (uint8_t)(sequence >> (7 * i) | 0x80);
    to[4] = (uint8_t)(sequence >> 28);
}

void block_write(struct block *b, unsigned place, unsigned producer, uint64_t sequence, uint64_t time_ns) {
    uint8_t *frame = b->frames + place * b->frame_bytes, *checked = frame + b->checksum_at + 4;
    frame[b->producer_at] = (uint8_t)producer;
    write_sequence(frame + b->sequence_at, sequence);
    write_sequence(frame + b->metadata_sequence_at, sequence);
    if (b->keys > 0) {
        uint64_t key = sequence % b->keys;
        for (size_t digit = KEY_DIGITS; digit-- > 0; key /= 10) frame[b->key_at + digit] = (uint8_t)('0' + key % 10);
    }
    if (b->is_timed && place % b->sample == 0) {
        write_stamp((char *)frame + b->body_at, time_ns);
        b->payload_crc[place] = crc32c_extend(0, frame + b->payload_at, b->payload_bytes);
    }
    /* The checksum of the frame, from those of its two pieces: a CRC is linear. */
    uint32_t crc = crc32c_extend(0, checked, b->payload_at - b->checksum_at - 4);
    crc = b->behind[0][crc & 0xff] ^ b->behind[1][crc >> 8 & 0xff] ^ b->behind[2][crc >> 16 & 0xff] ^
          b->behind[3][crc >> 24] ^ b->payload_crc[place];
    write_u32(frame + b->checksum_at, crc);
}

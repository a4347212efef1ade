#include "base/s2_stream.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

enum { COMPRESSED = 0x00, UNCOMPRESSED = 0x01, FIRST_SKIPPABLE = 0x80, IDENTIFIER = 0xff };
enum { HEAD_BYTES = 4, CHECKSUM_BYTES = 4, NAME_BYTES = S2_IDENTIFIER_BYTES - HEAD_BYTES };

/* Snappy's streams are S2's. */
static const uint8_t OURS[NAME_BYTES + 1] = "S2sTwO", SNAPPY[NAME_BYTES + 1] = "sNaPpY";

static uint32_t get_32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t masked_checksum(const uint8_t *data, size_t bytes) {
    uint32_t checksum = crc32c_extend(0, data, bytes);
    return (checksum >> 15 | checksum << 17) + 0xa282ead8u;
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

static enum s2_found wrong(struct s2_stream *stream, const char *why) {
    stream->why = why;
    return S2_WRONG;
}

static enum s2_found take_identifier(struct s2_stream *stream, const uint8_t *content, size_t bytes) {
    if (bytes != NAME_BYTES || (memcmp(content, OURS, NAME_BYTES) != 0 && memcmp(content, SNAPPY, NAME_BYTES) != 0))
        return wrong(stream, "not the identifier of a stream");
    stream->identified = true;
    return S2_NOTHING;
}

static enum s2_found take_block(struct s2_stream *stream, uint8_t kind, const uint8_t *content, size_t bytes) {
    struct s2_chunk *chunk = &stream->chunk;
    if (bytes < CHECKSUM_BYTES) return wrong(stream, "a chunk without a checksum");
    *chunk = (struct s2_chunk){.content = content + CHECKSUM_BYTES, .bytes = bytes - CHECKSUM_BYTES};
    chunk->checksum = get_32(content);
    chunk->is_compressed = kind == COMPRESSED;
    int64_t plain = (int64_t)chunk->bytes;
    if (chunk->is_compressed) plain = s2_decoded_bytes(chunk->content, chunk->bytes);
    if (plain < 0 || plain > S2_MAX_BLOCK) return wrong(stream, "a chunk that stands for too much");
    chunk->plain_bytes = (size_t)plain;
    return S2_BLOCK;
}

static size_t skip(struct s2_stream *stream, size_t bytes) {
    size_t passed = bytes < stream->skipped ? bytes : stream->skipped;
    stream->skipped -= (uint32_t)passed;
    return passed;
}

enum s2_found s2_stream_take(struct s2_stream *stream, const uint8_t *in, size_t bytes, size_t *taken) {
    size_t at = *taken = skip(stream, bytes);
    if (at > 0) return S2_NOTHING;
    if (bytes < HEAD_BYTES) return S2_PARTIAL;
    uint8_t kind = in[0];
    uint32_t length = get_32(in) >> 8;
    if (!stream->identified && kind != IDENTIFIER) return wrong(stream, "it does not begin with its identifier");
    if (kind >= FIRST_SKIPPABLE && kind != IDENTIFIER) {
        stream->skipped = length;
        *taken = HEAD_BYTES;
        return S2_NOTHING;
    }
    /* Refused before the rest of it is waited for. */
    if (kind > UNCOMPRESSED && kind != IDENTIFIER) return wrong(stream, "a chunk of a kind that there is not");
    if (length > (kind == IDENTIFIER ? (uint32_t)NAME_BYTES : (uint32_t)S2_MAX_CHUNK))
        return wrong(stream, "a chunk that is too long");
    if (bytes - HEAD_BYTES < length) return S2_PARTIAL;
    *taken = HEAD_BYTES + length;
    if (kind == IDENTIFIER) return take_identifier(stream, in + HEAD_BYTES, length);
    return take_block(stream, kind, in + HEAD_BYTES, length);
}

bool s2_stream_open(struct s2_stream *stream, uint8_t *out) {
    const struct s2_chunk *chunk = &stream->chunk;
    if (!chunk->is_compressed) {
        memcpy(out, chunk->content, chunk->bytes);
    } else if (s2_decode(chunk->content, chunk->bytes, out, chunk->plain_bytes) == S2_CORRUPT) {
        stream->why = "a chunk that is damaged";
        return false;
    }
    if (masked_checksum(out, chunk->plain_bytes) == chunk->checksum) return true;
    stream->why = "a chunk's checksum is wrong";
    return false;
}

/* --- what goes ---------------------------------------------------------------------------------------------------- */

static void put_head(uint8_t *out, uint8_t kind, size_t length) {
    uint32_t head = kind | (uint32_t)length << 8;
    memcpy(out, &head, HEAD_BYTES);
}

void s2_put_identifier(uint8_t out[S2_IDENTIFIER_BYTES]) {
    put_head(out, IDENTIFIER, NAME_BYTES);
    memcpy(out + HEAD_BYTES, OURS, NAME_BYTES);
}

size_t s2_put_chunk(uint8_t *out, const uint8_t *in, size_t bytes, enum s2_level level) {
    assert(bytes > 0 && bytes <= S2_MAX_ENCODED);
    uint8_t *content = out + S2_CHUNK_HEAD_BYTES, kind = UNCOMPRESSED;
    size_t made = bytes, worth_it = bytes - bytes / 8;
    if (level != S2_NONE) {
        made = s2_encode(in, bytes, content, bytes + S2_ENCODED_EXTRA, level);
        if (made < worth_it) kind = COMPRESSED;
    }
    if (kind == UNCOMPRESSED) {
        memcpy(content, in, bytes);
        made = bytes;
    }
    uint32_t checksum = masked_checksum(in, bytes);
    memcpy(out + HEAD_BYTES, &checksum, CHECKSUM_BYTES);
    put_head(out, kind, CHECKSUM_BYTES + made);
    return S2_CHUNK_HEAD_BYTES + made;
}

/* Streams of S2: chunks as Snappy's framing format has them (framing_format.txt of google/snappy), each with its checksum,
 * of blocks that may be larger than Snappy's. A stream may end and another begin, with an identifier of its own, at any
 * chunk. Knows no connection, allocates nothing, and trusts no byte.
 */
#ifndef MQ_S2_STREAM_H
#define MQ_S2_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/s2.h"

enum {
    S2_IDENTIFIER_BYTES = 10,
    S2_CHUNK_HEAD_BYTES = 8, /* of one with a block: its checksum too */
    S2_MAX_BLOCK = 4 << 20,  /* what one stands for */
    S2_MAX_CHUNK = 4 + S2_MAX_BLOCK + S2_MAX_BLOCK / 6 + 32,
};

/* What a stream goes on with. */
enum s2_found {
    S2_PARTIAL, /* there is no whole chunk */
    S2_NOTHING, /* what stands for nothing */
    S2_BLOCK,
    S2_WRONG, /* no stream: `why` says what is wrong */
};

struct s2_chunk {
    const uint8_t *content;
    size_t bytes, plain_bytes; /* as it is, and what it stands for */
    uint32_t checksum;
    bool is_compressed;
};

struct s2_stream {
    uint32_t skipped; /* bytes to come that stand for nothing */
    bool identified;
    const char *why;
    struct s2_chunk chunk;
};

/* Looks at the front of what has come: `*taken` bytes of it need not be given again. Of S2_BLOCK `chunk` is what there is, and
 * refers to them. */
enum s2_found s2_stream_take(struct s2_stream *stream, const uint8_t *in, size_t bytes, size_t *taken);
/* What it stands for, to `out`, where there is room for exactly that. False when it is damaged. */
bool s2_stream_open(struct s2_stream *stream, uint8_t *out);

/* What a stream begins with. */
void s2_put_identifier(uint8_t out[S2_IDENTIFIER_BYTES]);
/* A chunk of at most S2_MAX_ENCODED bytes: compressed, if it is worth the reader's while. There is room for S2_CHUNK_HEAD_BYTES and
 * S2_ENCODED_EXTRA more than that. How long it is. */
size_t s2_put_chunk(uint8_t *out, const uint8_t *in, size_t bytes, enum s2_level level);

#endif

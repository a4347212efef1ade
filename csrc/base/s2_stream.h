/* Streams of S2: chunks as Snappy's framing format has them (framing_format.txt of google/snappy), each with its
 * checksum, of blocks that may be larger than Snappy's. A stream may end and another begin, with an identifier of its
 * own, at any chunk. Knows no connection, allocates nothing, and trusts no byte.
 */
#ifndef MQ_S2_STREAM_H
#define MQ_S2_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/s2.h"

enum {
    S2_IDENTIFIER_BYTES = 10,
    S2_CHUNK_HEAD_BYTES = 8, /* head of a chunk with a block: the checksum too */
    S2_MAX_BLOCK = 4 << 20,  /* decoded bytes of one chunk */
    S2_MAX_CHUNK = 4 + S2_MAX_BLOCK + S2_MAX_BLOCK / 6 + 32,
};

/* What comes next in a stream. */
enum s2_found {
    S2_PARTIAL, /* no whole chunk has arrived yet */
    S2_NOTHING, /* a chunk without data: identifier, padding, skippable */
    S2_BLOCK,
    S2_WRONG, /* not a valid stream: `why` says what is wrong */
};

struct s2_chunk {
    const uint8_t *content;
    size_t bytes, plain_bytes; /* encoded and decoded length */
    uint32_t checksum;
    bool is_compressed;
};

struct s2_stream {
    uint32_t skipped; /* bytes still to come of a chunk without data */
    bool identified;
    const char *why;
    struct s2_chunk chunk;
};

/* Looks at the front of what has come: `*taken` bytes of it need not be given again. Of S2_BLOCK `chunk` is what there
 * is, and refers to them. */
enum s2_found s2_stream_take(struct s2_stream *stream, const uint8_t *in, size_t bytes, size_t *taken);
/* Decodes the chunk to `out`, which has room for exactly its decoded length. False when it is damaged. */
bool s2_stream_open(struct s2_stream *stream, uint8_t *out);

/* Writes the identifier that a stream begins with. */
void s2_put_identifier(uint8_t out[S2_IDENTIFIER_BYTES]);
/* A chunk of at most S2_MAX_ENCODED bytes: compressed, if it is worth the reader's while. There is room for
 * S2_CHUNK_HEAD_BYTES and S2_ENCODED_EXTRA more than that. How long it is. */
size_t s2_put_chunk(uint8_t *out, const uint8_t *in, size_t bytes, enum s2_level level);

#endif

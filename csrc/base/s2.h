/* Blocks of S2, an extension of Snappy: literals, and copies of what came before. A copy may stand without its
 * distance, which is then that of the one before ("repeat"); so it may be long.
 *
 * Format: format_description.txt of google/snappy, and S2's additions to it, in the README of the s2 package of
 * klauspost/compress ("Format Extensions"). Snappy's blocks are S2's. Keeps nothing, allocates nothing.
 *
 *   s2.c          blocks taken apart
 *   s2_encode.c   blocks made
 *   s2_stream.c   chunks of a stream, with a block in each
 */
#ifndef MQ_S2_H
#define MQ_S2_H

#include <stddef.h>
#include <stdint.h>

enum { S2_CORRUPT = -1 };

/* The decoded length that a block claims; S2_CORRUPT when it has none, or claims 2^32 or more. */
int64_t s2_decoded_bytes(const uint8_t *block, size_t bytes);
/* Decodes a block to `out`, which has room for exactly the length it claims. Returns that length, or S2_CORRUPT. */
int64_t s2_decode(const uint8_t *block, size_t bytes, uint8_t *out, size_t room);

/* S2_NONE: streams whose chunks are not compressed. */
enum s2_level { S2_NONE, S2_FAST, S2_BETTER, S2_BEST };

/* The longest input of a block, and by how much its output may be longer: a few bytes in fact, 2 in 65 if each
 * copy saved one byte only. */
enum { S2_MAX_ENCODED = 1 << 16, S2_ENCODED_EXTRA = 32 + S2_MAX_ENCODED / 32 };

/* Encodes at most S2_MAX_ENCODED bytes as a block at `out`, which has room for S2_ENCODED_EXTRA more. Returns its
 * length. */
size_t s2_encode(const uint8_t *in, size_t bytes, uint8_t *out, size_t room, enum s2_level level);

#endif

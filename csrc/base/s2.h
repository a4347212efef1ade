/* Blocks of S2, the extension of Snappy that NATS servers compress routes with: literals, and copies of what came before.
 * A copy may stand without its distance, which is then that of the one before ("repeat"); so it may be long.
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

/* How many bytes a block stands for, as it says; S2_CORRUPT when it says nothing, or 2^32 and more. */
int64_t s2_decoded_bytes(const uint8_t *block, size_t bytes);
/* Puts them to `out`, where there is room for exactly so many as it says. How many they are, or S2_CORRUPT. */
int64_t s2_decode(const uint8_t *block, size_t bytes, uint8_t *out, size_t room);

/* S2_NONE: in the form only, where streams are made; blocks are not. */
enum s2_level { S2_NONE, S2_FAST, S2_BETTER, S2_BEST };

/* Of a block that is made, and what has to be free behind that: it is a few bytes longer at most, and would be 2 in 65 if each
 * copy saved one byte only. */
enum { S2_MAX_ENCODED = 1 << 16, S2_ENCODED_EXTRA = 32 + S2_MAX_ENCODED / 32 };

/* Puts a block of at most S2_MAX_ENCODED bytes to `out`, where there is room for S2_ENCODED_EXTRA more. How long it is. */
size_t s2_encode(const uint8_t *in, size_t bytes, uint8_t *out, size_t room, enum s2_level level);

#endif

/* CRC-32C (Castagnoli), as in iSCSI, RFC 3720 B.4: the checksum of log records.
 *
 * Uses the processor's instruction where there is one (SSE4.2, looked for when the library is loaded; ARMv8 when
 * compiled for it), three streams at a time on longer inputs, and from half a KB on carry-less products of 64 bytes at
 * a time (AVX-512 with VPCLMULQDQ); tables elsewhere. All give the same numbers, and the same as `crc32c.crc32c(data,
 * crc)` of the Python package. Needs no initialisation, allocates nothing.
 */
#ifndef MQ_CRC32C_H
#define MQ_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Extends `crc`, the CRC of some bytes, to the CRC of those bytes followed by `data`. The CRC of nothing is 0. */
uint32_t crc32c_extend(uint32_t crc, const void *data, size_t bytes);

/* The same without carry-less products, and from tables alone, as on processors without those instructions. */
uint32_t crc32c_extend_streams(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_extend_portable(uint32_t crc, const void *data, size_t bytes);

/* The CRC register `state` (that is, ~crc) after `bytes` zero bytes, in O(log bytes): because a CRC is
 * linear, this is what it takes to have the CRC of a piece from the CRCs of two prefixes. */
uint32_t crc32c_advance(uint32_t state, uint64_t bytes);

#endif

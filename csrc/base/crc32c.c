#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define HARDWARE          __attribute__((target("sse4.2")))
#define WIDE              __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))
#define STEP_8(state, x)  _mm_crc32_u64((state), (x))
#define STEP_1(state, x)  _mm_crc32_u8((uint32_t)(state), (x))
#define HAS_INSTRUCTION() __builtin_cpu_supports("sse4.2")
#define HAS_WIDE()                                                                                                     \
    (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE
#define STEP_8(state, x)  __crc32cd((uint32_t)(state), (x))
#define STEP_1(state, x)  __crc32cb((uint32_t)(state), (x))
#define HAS_INSTRUCTION() 1
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the tables and the log's layout assume little-endian");

/* Bit 31 is the coefficient of x^0: the reflected order that the instruction and RFC 3720 use. */
#define POLYNOMIAL 0x82F63B78u

/* The instruction has a latency of three cycles and a throughput of one: three independent streams keep it busy.
 * Streams of these lengths; a record of a few hundred bytes already gains from the short ones. */
#define STREAM_SHORT 128u
#define STREAM_LONG  1024u

static uint32_t by_byte[8][256];       /* [k][v]: the CRC state after byte v and then k zero bytes */
static uint32_t powers[64];            /* x^(8 * 2^k) */
static uint32_t advance_short[4][256]; /* [k][v]: the state v << 8k after STREAM_SHORT zero bytes */
static uint32_t advance_long[4][256];
#ifdef HARDWARE
static int has_instruction;
#endif

#ifdef WIDE
/* Four blocks of 64 bytes a step, so that no product waits for another. Less than two steps would gain nothing. */
enum { WIDE_BLOCK = 64, WIDE_STEP = 4 * WIDE_BLOCK, WIDE_LEAST = 2 * WIDE_STEP };

static int has_wide;
static struct fold {
    uint64_t low, high;
} fold_lane, fold_block, fold_step; /* how 16 bytes are carried on over a lane of 16, a block, a step */
#endif

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if (a & bit) product ^= b;
        b = (b & 1u) ? (b >> 1) ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

uint32_t crc32c_advance(uint32_t state, uint64_t bytes) {
    for (size_t k = 0; bytes != 0; k++, bytes >>= 1) {
        if (bytes & 1u) state = multiply(powers[k], state);
    }
    return state;
}

static void fill_advance(uint32_t table[4][256], uint64_t bytes) {
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t v = 0; v < 256; v++) table[k][v] = crc32c_advance(v << (8 * k), bytes);
    }
}

#ifdef WIDE
/* x^(8 * bytes - 1) for the last 64 bits of 16 bytes, x^(8 * bytes + 63) for the 64 before. (In 128 bits the product
 * of two reflected numbers of 64 is one place off: hence - 1.) */
static struct fold fold_over(uint64_t bytes) {
    const uint32_t x7 = 1u << 24, one = 1u << 31;
    return (struct fold){.low = (uint64_t)multiply(x7, crc32c_advance(one, bytes + 7)) << 32,
                         .high = (uint64_t)multiply(x7, crc32c_advance(one, bytes - 1)) << 32};
}
#endif

/* Before main or at dlopen, so that no caller needs to ask whether the tables are there. */
__attribute__((constructor)) static void fill_tables(void) {
    for (uint32_t v = 0; v < 256; v++) {
        uint32_t state = v;
        for (int bit = 0; bit < 8; bit++) state = (state & 1u) ? (state >> 1) ^ POLYNOMIAL : state >> 1;
        by_byte[0][v] = state;
    }
    for (uint32_t k = 1; k < 8; k++) {
        for (uint32_t v = 0; v < 256; v++) {
            uint32_t before = by_byte[k - 1][v];
            by_byte[k][v] = (before >> 8) ^ by_byte[0][before & 0xff];
        }
    }
    powers[0] = 1u << 23;
    for (size_t k = 1; k < 64; k++) powers[k] = multiply(powers[k - 1], powers[k - 1]);
    fill_advance(advance_short, STREAM_SHORT);
    fill_advance(advance_long, STREAM_LONG);
#ifdef HARDWARE
    has_instruction = HAS_INSTRUCTION() ? 1 : 0;
#endif
#ifdef WIDE
    has_wide = has_instruction && HAS_WIDE() ? 1 : 0;
    fold_lane = fold_over(WIDE_BLOCK / 4);
    fold_block = fold_over(WIDE_BLOCK);
    fold_step = fold_over(WIDE_STEP);
#endif
}

static inline uint64_t load_8(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

uint32_t crc32c_extend_portable(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t state = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t x = load_8(p) ^ state;
        state = 0;
        for (uint32_t k = 0; k < 8; k++) state ^= by_byte[7 - k][(x >> (8 * k)) & 0xff];
    }
    for (; bytes > 0; bytes--, p++) state = (state >> 8) ^ by_byte[0][(state ^ *p) & 0xff];
    return ~state;
}

#ifdef HARDWARE

static inline uint32_t advanced(const uint32_t table[4][256], uint64_t state) {
    return table[0][state & 0xff] ^ table[1][(state >> 8) & 0xff] ^ table[2][(state >> 16) & 0xff] ^
           table[3][(state >> 24) & 0xff];
}

HARDWARE static inline uint64_t three_streams(uint64_t state, const uint8_t *p, size_t stream,
                                              const uint32_t table[4][256]) {
    uint64_t first = state;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < stream; i += 8) {
        first = STEP_8((uint32_t)first, load_8(p + i));
        second = STEP_8((uint32_t)second, load_8(p + stream + i));
        third = STEP_8((uint32_t)third, load_8(p + 2 * stream + i));
    }
    return advanced(table, advanced(table, first) ^ second) ^ third;
}

HARDWARE static uint32_t extend_hardware(uint32_t crc, const uint8_t *p, size_t bytes) {
    uint64_t state = (uint32_t)~crc;
    for (; bytes >= 3 * STREAM_LONG; bytes -= 3 * STREAM_LONG, p += 3 * STREAM_LONG)
        state = three_streams(state, p, STREAM_LONG, advance_long);
    for (; bytes >= 3 * STREAM_SHORT; bytes -= 3 * STREAM_SHORT, p += 3 * STREAM_SHORT)
        state = three_streams(state, p, STREAM_SHORT, advance_short);
    for (; bytes >= 32; bytes -= 32, p += 32) {
        state = STEP_8((uint32_t)state, load_8(p));
        state = STEP_8((uint32_t)state, load_8(p + 8));
        state = STEP_8((uint32_t)state, load_8(p + 16));
        state = STEP_8((uint32_t)state, load_8(p + 24));
    }
    for (; bytes >= 8; bytes -= 8, p += 8) state = STEP_8((uint32_t)state, load_8(p));
    for (; bytes > 0; bytes--, p++) state = STEP_1((uint32_t)state, *p);
    return ~(uint32_t)state;
}

#ifdef WIDE

/* `before`, carried on over what `fold` is for, and what stands there. */
WIDE static inline __m512i folded(__m512i before, __m512i fold, __m512i there) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(before, fold, 0x00),
                                     _mm512_clmulepi64_epi128(before, fold, 0x11), there, 0x96);
}

WIDE static inline __m128i folded_lane(__m128i before, __m128i fold, __m128i there) {
    return _mm_xor_si128(
        there, _mm_xor_si128(_mm_clmulepi64_si128(before, fold, 0x00), _mm_clmulepi64_si128(before, fold, 0x11)));
}

WIDE static inline __m128i lane_of(struct fold fold) {
    return _mm_set_epi64x((long long)fold.high, (long long)fold.low);
}

/* Of a multiple of WIDE_STEP. It is folded until 16 bytes are left that have the same CRC. */
WIDE static uint32_t extend_wide(uint32_t crc, const uint8_t *p, size_t bytes) {
    const __m512i over_step = _mm512_broadcast_i32x4(lane_of(fold_step));
    const __m512i over_block = _mm512_broadcast_i32x4(lane_of(fold_block));
    const __m128i over_lane = lane_of(fold_lane);
    __m512i first = _mm512_loadu_si512(p);
    __m512i second = _mm512_loadu_si512(p + WIDE_BLOCK);
    __m512i third = _mm512_loadu_si512(p + 2 * WIDE_BLOCK);
    __m512i last = _mm512_loadu_si512(p + 3 * WIDE_BLOCK);
    first = _mm512_xor_si512(first, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    for (size_t at = WIDE_STEP; at < bytes; at += WIDE_STEP) {
        first = folded(first, over_step, _mm512_loadu_si512(p + at));
        second = folded(second, over_step, _mm512_loadu_si512(p + at + WIDE_BLOCK));
        third = folded(third, over_step, _mm512_loadu_si512(p + at + 2 * WIDE_BLOCK));
        last = folded(last, over_step, _mm512_loadu_si512(p + at + 3 * WIDE_BLOCK));
    }
    last = folded(folded(folded(first, over_block, second), over_block, third), over_block, last);
    __m128i lane = folded_lane(_mm512_extracti32x4_epi32(last, 0), over_lane, _mm512_extracti32x4_epi32(last, 1));
    lane = folded_lane(lane, over_lane, _mm512_extracti32x4_epi32(last, 2));
    lane = folded_lane(lane, over_lane, _mm512_extracti32x4_epi32(last, 3));
    uint64_t state = STEP_8(0, (uint64_t)_mm_cvtsi128_si64(lane));
    state = STEP_8((uint32_t)state, (uint64_t)_mm_extract_epi64(lane, 1));
    return ~(uint32_t)state;
}

static uint32_t extend(uint32_t crc, const uint8_t *p, size_t bytes) {
    if (!has_wide || bytes < WIDE_LEAST) return extend_hardware(crc, p, bytes);
    const size_t wide = bytes - bytes % WIDE_STEP;
    return extend_hardware(extend_wide(crc, p, wide), p + wide, bytes - wide);
}

#else

static uint32_t extend(uint32_t crc, const uint8_t *p, size_t bytes) {
    return extend_hardware(crc, p, bytes);
}

#endif

uint32_t crc32c_extend_streams(uint32_t crc, const void *data, size_t bytes) {
    if (has_instruction) return extend_hardware(crc, data, bytes);
    return crc32c_extend_portable(crc, data, bytes);
}

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t bytes) {
    if (has_instruction) return extend(crc, data, bytes);
    return crc32c_extend_portable(crc, data, bytes);
}

#else

uint32_t crc32c_extend_streams(uint32_t crc, const void *data, size_t bytes) {
    return crc32c_extend_portable(crc, data, bytes);
}

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t bytes) {
    return crc32c_extend_portable(crc, data, bytes);
}

#endif

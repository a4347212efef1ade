#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define HARDWARE          __attribute__((target("sse4.2")))
#define STEP_8(state, x)  _mm_crc32_u64((state), (x))
#define STEP_1(state, x)  _mm_crc32_u8((uint32_t)(state), (x))
#define HAS_INSTRUCTION() __builtin_cpu_supports("sse4.2")
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

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t bytes) {
    if (has_instruction) return extend_hardware(crc, data, bytes);
    return crc32c_extend_portable(crc, data, bytes);
}

#else

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t bytes) {
    return crc32c_extend_portable(crc, data, bytes);
}

#endif

/* Scripts of bytes as blocks of S2: the decoder stays in its bounds, and makes as many bytes as a block says, or says that it
 * is corrupt. A script is taken as it is, and with a part of it as elements that are mostly right; and what it is made into, at
 * every level, is what comes back. What each is given lies where the sanitizer sees every byte too many. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/s2.h"
#include "script.h"

enum { MAX_BLOCK = 4096, MAX_DECODED = 1 << 18 };

static void decode(const uint8_t *block, size_t bytes, uint64_t size) {
    uint8_t *out = malloc(size > 0 ? (size_t)size : 1);
    assert(out != NULL);
    int64_t decoded = s2_decode(block, bytes, out, (size_t)size);
    assert(decoded == (int64_t)size || decoded == S2_CORRUPT);
    assert(s2_decode(block, bytes, out, (size_t)size + 1) == S2_CORRUPT);
    free(out);
}

static void try_block(const uint8_t *made, size_t bytes) {
    uint8_t *block = malloc(bytes > 0 ? bytes : 1);
    assert(block != NULL);
    memcpy(block, made, bytes);
    int64_t size = s2_decoded_bytes(block, bytes);
    assert(size >= S2_CORRUPT && size <= (int64_t)UINT32_MAX);
    if (size >= 0 && size <= MAX_DECODED) decode(block, bytes, (uint64_t)size);
    free(block);
}

static size_t put_size(uint8_t *out, uint32_t size) {
    size_t at = 0;
    for (; size >= 0x80; size >>= 7) out[at++] = (uint8_t)(size | 0x80);
    out[at++] = (uint8_t)size;
    return at;
}

/* A literal, and copies of it that are near, far or repeated; the size is what these make, more or less. */
static void try_elements(void) {
    uint8_t block[MAX_BLOCK], elements[MAX_BLOCK];
    size_t at = 0;
    uint32_t made = 1 + pick(60);
    elements[at++] = (uint8_t)((made - 1) << 2);
    for (uint32_t i = 0; i < made; i++) elements[at++] = (uint8_t)i;
    for (uint32_t n = pick(40); n > 0; n--) {
        uint32_t length = pick(8), distance = pick(2) > 0 ? 0 : 1 + pick(made < 255 ? made : 255);
        elements[at++] = (uint8_t)(1 | length << 2);
        elements[at++] = (uint8_t)distance;
        made += length + 4;
        if (distance > 0 || length < 5) continue;
        uint8_t more = byte();
        elements[at++] = more;
        for (uint32_t i = 5; i < length; i++) elements[at++] = 0;
        made += more - length + (length == 5 ? 4 : length == 6 ? 1u << 8 : 1u << 16);
    }
    size_t head = put_size(block, made + (pick(8) > 0 ? 0 : pick(9)));
    memcpy(block + head, elements, at);
    at += head;
    if (pick(4) == 0) block[pick((uint32_t)at)] = byte();
    try_block(block, pick(8) > 0 ? at : pick((uint32_t)at));
}

static void encode(const uint8_t *in, size_t bytes, enum s2_level level) {
    size_t room = bytes + S2_ENCODED_EXTRA;
    uint8_t *exact = malloc(bytes > 0 ? bytes : 1), *out = malloc(room), *back = malloc(bytes > 0 ? bytes : 1);
    assert(exact != NULL && out != NULL && back != NULL);
    memcpy(exact, in, bytes);
    size_t made = s2_encode(exact, bytes, out, room, level);
    assert(made <= bytes + 8);
    assert(s2_decoded_bytes(out, made) == (int64_t)bytes);
    assert(s2_decode(out, made, back, bytes) == (int64_t)bytes && memcmp(back, exact, bytes) == 0);
    free(exact);
    free(out);
    free(back);
}

/* Runs of a byte, noise, and what has stood there before, from anywhere and as long as any code can say. */
static void try_encoding(void) {
    static uint8_t in[S2_MAX_ENCODED];
    size_t bytes = pick(8) > 0 ? pick(600) : pick(S2_MAX_ENCODED + 1), made = 0;
    uint32_t letters = 1 + pick(5) * pick(60);
    while (made < bytes) {
        size_t run = 1 + (pick(4) > 0 ? pick(40) : pick(3000));
        if (run > bytes - made) run = bytes - made;
        size_t from = made > 0 ? pick((uint32_t)made) : 0;
        uint32_t kind = pick(3);
        for (size_t i = 0; i < run; i++, made++)
            in[made] = made > 0 && kind == 0 ? in[from + i] : kind == 1 ? (uint8_t)run : (uint8_t)pick(letters);
    }
    for (enum s2_level level = S2_FAST; level <= S2_BEST; level++) encode(in, bytes, level);
}

void run_script(void) {
    size_t bytes = (size_t)(script.end - script.at);
    try_block(script.at, bytes);
    if (bytes > S2_MAX_ENCODED) bytes = S2_MAX_ENCODED;
    for (enum s2_level level = S2_FAST; level <= S2_BEST; level++) encode(script.at, bytes, level);
    if (script_goes_on()) try_encoding();
    while (script_goes_on()) try_elements();
}

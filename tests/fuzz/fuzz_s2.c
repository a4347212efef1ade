/* Scripts of bytes as blocks of S2: the decoder stays in its bounds, and makes as many bytes as a block says, or says that it
 * is corrupt. A script is taken as it is, and with a part of it as elements that are mostly right. What the decoder is given
 * lies where the sanitizer sees every byte too many. */
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

void run_script(void) {
    try_block(script.at, (size_t)(script.end - script.at));
    while (script_goes_on()) try_elements();
}

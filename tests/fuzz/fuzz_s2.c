/* Scripts of bytes as blocks of S2: the decoder stays in its bounds, and makes as many bytes as a block says, or says
 * that it is corrupt. A script is taken as it is, and with a part of it as elements that are mostly right; and what it
 * is made into, at every level, is what comes back. So it is with streams, however they are cut into pieces. What each
 * is given lies where the sanitizer sees every byte too many. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/s2_stream.h"
#include "script.h"

enum { MAX_BLOCK = 4096, MAX_DECODED = 1 << 18, MOST = 1 << 17 };

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

/* --- streams ------------------------------------------------------------------------------------------------------ */

static struct {
    uint8_t stream[2 * MOST], plain[MOST];
    size_t stream_bytes, plain_bytes;
} sent;

/* What stands for nothing, if it is not what says that it does. */
static void put_nothing(void) {
    uint8_t *out = sent.stream + sent.stream_bytes;
    if (pick(2)) {
        s2_put_identifier(out);
        if (pick(2)) memcpy(out + 4, "sNaPpY", 6);
        sent.stream_bytes += S2_IDENTIFIER_BYTES;
        return;
    }
    size_t bytes = pick(3) ? pick(8) : pick(400);
    out[0] = (uint8_t)(0x80 + pick(127));
    out[1] = (uint8_t)bytes;
    out[2] = (uint8_t)(bytes >> 8);
    out[3] = 0;
    memset(out + 4, 0xff, bytes);
    sent.stream_bytes += 4 + bytes;
}

static void put_block(void) {
    uint8_t *plain = sent.plain + sent.plain_bytes;
    size_t bytes = 1 + (pick(6) ? pick(300) : pick(30000));
    if (sent.plain_bytes + bytes > MOST) return;
    uint32_t letters = 1 + pick(60);
    for (size_t i = 0; i < bytes; i++) plain[i] = (uint8_t)(i % letters + (pick(16) ? 0 : 1));
    uint8_t *exact = malloc(S2_CHUNK_HEAD_BYTES + bytes + S2_ENCODED_EXTRA);
    assert(exact != NULL);
    size_t made = s2_put_chunk(exact, plain, bytes, (enum s2_level)pick(S2_BEST + 1));
    assert(made <= S2_CHUNK_HEAD_BYTES + bytes);
    memcpy(sent.stream + sent.stream_bytes, exact, made);
    free(exact);
    sent.stream_bytes += made;
    sent.plain_bytes += bytes;
}

/* What came out so far is what went in, unless it was damaged. */
static size_t heard_bytes;

static bool hear_block(struct s2_stream *stream, bool honest) {
    size_t bytes = stream->chunk.plain_bytes;
    assert(bytes <= S2_MAX_BLOCK);
    uint8_t *plain = malloc(bytes > 0 ? bytes : 1);
    assert(plain != NULL);
    bool good = s2_stream_open(stream, plain);
    if (honest)
        assert(good && bytes <= sent.plain_bytes - heard_bytes && !memcmp(plain, sent.plain + heard_bytes, bytes));
    heard_bytes += bytes;
    free(plain);
    return good;
}

/* All that there is of it; how much of that was taken. Less than nothing: it is no stream. */
static int64_t take(struct s2_stream *stream, const uint8_t *in, size_t bytes, bool honest) {
    uint8_t *exact = malloc(bytes > 0 ? bytes : 1);
    assert(exact != NULL);
    memcpy(exact, in, bytes);
    size_t at = 0, taken;
    for (bool good = true;;) {
        enum s2_found found = s2_stream_take(stream, exact + at, bytes - at, &taken);
        assert(taken <= bytes - at && (found == S2_PARTIAL) == (taken == 0 && found != S2_WRONG));
        if (found == S2_BLOCK) good = hear_block(stream, honest);
        if (found == S2_WRONG || !good) {
            assert(!honest && stream->why != NULL);
            free(exact);
            return -1;
        }
        if (found == S2_PARTIAL) break;
        at += taken;
    }
    free(exact);
    return (int64_t)at;
}

static void try_stream(void) {
    struct s2_stream stream = {0};
    bool honest = pick(2) == 0;
    sent.plain_bytes = heard_bytes = 0;
    s2_put_identifier(sent.stream);
    sent.stream_bytes = S2_IDENTIFIER_BYTES;
    for (uint32_t left = 1 + pick(8); left > 0; left--) pick(3) ? put_block() : put_nothing();
    for (uint32_t left = honest ? 0 : 1 + pick(4); left > 0; left--) {
        size_t at = ((size_t)byte() << 8 | byte()) % sent.stream_bytes;
        sent.stream[pick(2) ? at % 24 : at] = byte();
    }
    size_t from = 0, until = 0;
    while (until < sent.stream_bytes) {
        size_t more = pick(2) ? 1 + pick(30) : 1 + pick(40000);
        until = more < sent.stream_bytes - until ? until + more : sent.stream_bytes;
        int64_t taken = take(&stream, sent.stream + from, until - from, honest);
        if (taken < 0) return;
        from += (size_t)taken;
    }
    assert(!honest || (from == until && heard_bytes == sent.plain_bytes));
}

void run_script(void) {
    size_t bytes = (size_t)(script.end - script.at);
    try_block(script.at, bytes);
    if (bytes > S2_MAX_ENCODED) bytes = S2_MAX_ENCODED;
    for (enum s2_level level = S2_FAST; level <= S2_BEST; level++) encode(script.at, bytes, level);
    if (script_goes_on()) try_encoding();
    while (script_goes_on()) pick(2) ? try_elements() : try_stream();
}

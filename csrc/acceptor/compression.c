/* A connection that is compressed: streams of S2 between its socket, or its filter, and its codec.
 *
 *   socket -> (filter) -> `packed` -> compression_go_on -> `in` -> the codec
 *   socket <- (filter) <-  `wire`  <- compression_pass <- `out` <- the codec
 *
 * A few bytes may expand to very much, so input is decompressed block by block: the next block when the codec has used
 * the one before, and a limited amount over all connections in a turn. In a turn a codec gets about as much as could be
 * received from a fast connection without compression. While there is input left to decompress nothing is received.
 * Invalid or damaged input ends the connection.
 */

#include "acceptor/compression.h"

#include <stdlib.h>
#include <string.h>

#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/room.h"
#include "acceptor/silent.h"
#include "acceptor/wake.h"
#include "base/s2_stream.h"

_Static_assert(COMPRESSED_AHEAD_BYTES >= S2_MAX_ENCODED, "what leaves at once is of whole chunks");

/* --- what comes --------------------------------------------------------------------------------------------------- */

/* Lets the codec parse all decompressed input. False: some is left that it cannot take now. */
static bool parse_on(struct acceptor *a, struct connection *c, size_t *given) {
    struct compression *k = c->framing->compression;
    size_t bytes;
    for (size_t window = RECEIVE_BYTES; k->unparsed && (bytes = buffer_bytes(&c->in)) > 0;) {
        if (c->closing || c->stall != STALL_NONE || socket_is_quiet(a, c)) return false;
        if (*given >= COMPRESSED_GIVEN_BYTES) return false;
        size_t piece = bytes < window ? bytes : window;
        size_t used = c->codec->parse(a, c, buffer_front(&c->in), piece);
        silent_used(a, c, used);
        if (c->closed) return false;
        buffer_consume(&a->blocks, &c->in, used);
        *given += used;
        if (c->stall != STALL_NONE || c->closing) return false;
        if (piece == bytes)
            k->unparsed = false;
        else
            window = used > 0 ? RECEIVE_BYTES : 2 * window; /* one command may be longer */
    }
    k->unparsed = false;
    return true;
}

static bool open_block(struct acceptor *a, struct connection *c) {
    struct compression *k = c->framing->compression;
    size_t bytes = k->stream.chunk.plain_bytes;
    if (a->opened_bytes >= COMPRESSED_OPENED_BYTES || (bytes > 0 && !room_for_input(a, c, &c->in, bytes))) return false;
    uint8_t nothing[1], *room = bytes > 0 ? buffer_room(&a->blocks, &c->in, bytes) : nothing;
    if (room == NULL) {
        engine_oom(a, c);
        return false;
    }
    a->opened_bytes += bytes;
    if (!s2_stream_open(&k->stream, room)) {
        socket_close(a, c);
        return false;
    }
    c->in.end += bytes;
    k->unparsed = bytes > 0;
    return true;
}

/* Decompresses the next chunk. False: there is none, or it has to wait. */
static bool take_chunk(struct acceptor *a, struct connection *c) {
    struct compression *k = c->framing->compression;
    size_t taken, bytes = buffer_bytes(&k->packed);
    switch (s2_stream_take(&k->stream, bytes > 0 ? buffer_front(&k->packed) : NULL, bytes, &taken)) {
    case S2_PARTIAL: k->more = false; return false;
    case S2_WRONG: socket_close(a, c); return false;
    case S2_BLOCK:
        if (!open_block(a, c)) return false;
        break;
    case S2_NOTHING: break;
    }
    buffer_consume(&a->blocks, &k->packed, taken);
    return true;
}

void compression_go_on(struct acceptor *a, struct connection *c) {
    struct compression *k = c->framing->compression;
    size_t given = 0;
    k->more = true;
    while (parse_on(a, c, &given) && take_chunk(a, c)) continue;
    if (c->closed) return;
    /* A connection that is ending needs no more input. */
    if (c->closing) k->more = false;
    if (k->more && c->stall == STALL_NONE && !socket_is_quiet(a, c)) socket_schedule(a, c);
}

/* --- what goes ---------------------------------------------------------------------------------------------------- */

/* Returns waiting output in one piece, whatever stretches it lies in. */
static const uint8_t *gather(struct acceptor *a, struct connection *c, size_t bytes, uint8_t *room) {
    for (size_t at = 0, piece; at < bytes; at += piece) {
        const uint8_t *front = output_front(&c->out, &piece);
        if (piece > bytes - at) piece = bytes - at;
        memcpy(room + at, front, piece);
        output_consume(&a->blocks, &c->out, piece);
    }
    return room;
}

/* What compressing a byte costs at each level, relative to S2_FAST: from about 2 GB/s down to less than 0.1. */
static const size_t LEVEL_COSTS[] = {[S2_NONE] = 1, [S2_FAST] = 1, [S2_BETTER] = 2, [S2_BEST] = 20};

static void put_waiting(struct acceptor *a, struct connection *c) {
    struct compression *k = c->framing->compression;
    struct output *wire = &c->framing->wire;
    uint8_t gathered[S2_MAX_ENCODED];
    size_t bytes = output_bytes(&c->out), piece;
    if (bytes > S2_MAX_ENCODED) bytes = S2_MAX_ENCODED;
    uint8_t *room = output_room(&a->blocks, wire, S2_IDENTIFIER_BYTES + S2_CHUNK_HEAD_BYTES + bytes + S2_ENCODED_EXTRA);
    if (room == NULL) {
        engine_oom(a, c);
        return;
    }
    if (!k->greeted) {
        s2_put_identifier(room);
        wire->last.end += S2_IDENTIFIER_BYTES;
        room += S2_IDENTIFIER_BYTES;
        k->greeted = true;
    }
    const uint8_t *front = output_front(&c->out, &piece);
    bool scattered = piece < bytes;
    if (scattered) front = gather(a, c, bytes, gathered);
    wire->last.end += s2_put_chunk(room, front, bytes, k->level);
    a->made_bytes += bytes * LEVEL_COSTS[k->level];
    if (!scattered) output_consume(&a->blocks, &c->out, bytes);
}

void compression_pass(struct acceptor *a, struct connection *c) {
    struct compression *k = c->framing->compression;
    k->put_off = false;
    while (output_bytes(&c->out) > 0 && output_bytes(&c->framing->wire) < COMPRESSED_AHEAD_BYTES && !c->closed) {
        if (a->made_bytes >= COMPRESSED_MADE_BYTES) {
            k->put_off = true;
            socket_dirty(a, c);
            wake_self(a);
            return;
        }
        put_waiting(a, c);
    }
}

bool compression_waits(const struct acceptor *a, const struct connection *c) {
    const struct compression *k = compression_of(c);
    return k != NULL && k->put_off && a->made_bytes >= COMPRESSED_MADE_BYTES;
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

/* Earlier output leaves as it is; input behind the command that Python has is taken as compressed. */
static bool begin(struct acceptor *a, struct connection *c) {
    struct framing *f = calloc(1, sizeof *f);
    struct compression *k = calloc(1, sizeof *k);
    if (f == NULL || k == NULL) {
        free(f);
        free(k);
        engine_oom(a, c);
        return false;
    }
    f->compression = k;
    f->wire = c->out;
    c->out = (struct output){0};
    k->packed = c->in;
    c->in = (struct buffer){0};
    k->more = buffer_bytes(&k->packed) > 0;
    c->framing = f;
    socket_dirty(a, c);
    socket_schedule(a, c);
    wake_self(a);
    return true;
}

bool acceptor_compress(struct acceptor *a, uint32_t conn, uint32_t level) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || level > S2_BEST || (c->framing != NULL && c->framing->compression == NULL)) return false;
    if (c->framing == NULL && !begin(a, c)) return false;
    c->framing->compression->level = (uint8_t)level;
    return true;
}

const char *compression_damage(const struct connection *c) {
    return c->framing != NULL && c->framing->compression != NULL ? c->framing->compression->stream.why : NULL;
}

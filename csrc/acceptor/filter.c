/* A connection whose bytes pass through Python on their way: TLS, compression, or both.
 *
 *   socket -> UPCALL_INPUT  -> acceptor_feed -> `in`  -> the codec
 *   socket <- `wire` <- acceptor_send <- UPCALL_OUTPUT <- `out` <- the codec
 *
 * With a websocket, the input fed and the output passed are frames, and framing.c is between them and the codec; with
 * compression they are chunks, and compression.c is.
 *
 * Nothing piles up on the way: one UPCALL_INPUT is answered completely, in pieces, before more is received, and output
 * is passed on only while little waits behind Python. The next piece is asked for when the codec has used the one
 * before, and few over all connections in a turn, so that other clients do not wait for the decompression.
 */

#include "acceptor/filter.h"

#include <stdlib.h>
#include <string.h>

#include "acceptor/framing.h"
#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/upcalls.h"
#include "acceptor/wake.h"

static void push_input(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    c->filter->input = true;
    upcall_push(a, UPCALL_INPUT, c->number, c->protocol, NULL, data, bytes);
}

void filter_received(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    assert(!c->filter->input && !c->filter->more);
    push_input(a, c, data, bytes);
}

void filter_ended(struct acceptor *a, struct connection *c) {
    struct filter *f = c->filter;
    if (!f->heard_out) {
        socket_close(a, c);
    } else if (!f->end_told) {
        f->end_told = true;
        push_input(a, c, NULL, 0);
    }
}

void filter_go_on(struct acceptor *a, struct connection *c) {
    struct filter *f = c->filter;
    assert(f->more && !f->input);
    if (a->filter_pieces == FILTER_PIECES_PER_TURN) {
        socket_schedule(a, c);
        return;
    }
    a->filter_pieces++;
    f->more = false;
    push_input(a, c, NULL, 0);
}

void filter_pass(struct acceptor *a, struct connection *c) {
    struct filter *f = c->filter;
    struct output *out = c->framing != NULL && !c->framing->by_python ? &c->framing->wire : &c->out;
    size_t bytes;
    while (output_bytes(out) > 0 && f->output_bytes + output_bytes(&f->wire) < FILTER_AHEAD_BYTES) {
        const uint8_t *front = output_front(out, &bytes);
        if (bytes > FILTER_CHUNK_BYTES) bytes = FILTER_CHUNK_BYTES;
        upcall_push(a, UPCALL_OUTPUT, c->number, c->protocol, NULL, front, bytes);
        f->output_bytes += bytes;
        output_consume(&a->blocks, out, bytes);
    }
}

void filter_taken(struct acceptor *a, struct connection *c, size_t bytes) {
    assert(c->filter->output_bytes >= bytes);
    c->filter->output_bytes -= bytes;
    /* There may be more; or the connection is to end, and nothing came of this. */
    socket_dirty(a, c);
    wake_self(a);
}

bool acceptor_is_filtered(const struct acceptor *a, uint32_t conn) {
    const struct connection *c = connection_find(a, conn);
    return c != NULL && c->filter != NULL;
}

void acceptor_filter(struct acceptor *a, uint32_t conn) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0 || c->filter != NULL) return;
    struct filter *f = calloc(1, sizeof *f);
    if (f == NULL) {
        engine_oom(a, c);
        return;
    }
    /* Earlier output is sent as it is. */
    f->wire = c->out;
    c->out = (struct output){0};
    c->filter = f;
    size_t bytes = buffer_bytes(&c->in);
    if (bytes > 0) {
        push_input(a, c, buffer_front(&c->in), bytes);
        buffer_consume(&a->blocks, &c->in, bytes);
    }
    socket_dirty(a, c);
    /* Input was not wanted while Python had the command; now it is. */
    socket_schedule(a, c);
    wake_self(a);
}

/* Copies bytes from Python to `buffer`. False when memory is short; the connection is closed then. */
static bool copied(struct acceptor *a, struct connection *c, uint8_t *room, const void *bytes, size_t bytes_count) {
    if (room == NULL)
        engine_oom(a, c);
    else
        memcpy(room, bytes, bytes_count);
    return room != NULL;
}

void acceptor_feed(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count, bool more) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->filter == NULL) return;
    c->filter->input = false;
    c->filter->more = more && !c->closing;
    if (!c->closing && bytes_count > 0) {
        struct compression *k = compression_of(c);
        struct buffer *in = k != NULL ? &k->packed : &c->in;
        uint8_t *room = buffer_room(&a->blocks, in, bytes_count);
        if (!copied(a, c, room, bytes, bytes_count)) return;
        size_t plain = c->framing == NULL || k != NULL ? bytes_count : framing_received(a, c, room, bytes_count);
        if (c->closed) return;
        in->end += plain;
        if (k != NULL) k->more = true;
    }
    socket_schedule(a, c);
    wake_self(a);
}

void acceptor_hear_out(struct acceptor *a, uint32_t conn) {
    struct connection *c = connection_find(a, conn);
    if (c != NULL && c->filter != NULL) c->filter->heard_out = true;
}

void acceptor_end_input(struct acceptor *a, uint32_t conn) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->filter == NULL) return;
    socket_ended(a, c);
    wake_self(a);
}

void acceptor_send(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->filter == NULL || bytes_count == 0) return;
    struct output *wire = &c->filter->wire;
    if (!copied(a, c, output_room(&a->blocks, wire, bytes_count), bytes, bytes_count)) return;
    wire->last.end += bytes_count;
    socket_dirty(a, c);
    wake_self(a);
}

/* A connection that is a websocket: frames between its socket, or its filter, and its codec.
 *
 *   socket -> (filter) -> framing_received -> `in`  -> the codec
 *   socket <- (filter) <-      `wire`      <- framing_pass <- `out` <- the codec
 *
 * Received frames are parsed in place. Output is put into frames as it leaves: what waits is in `out`, where large
 * payloads are shared, and little is in `wire`. Pings are answered here, and no other file sees control frames. If
 * messages are compressed, Python makes and parses the frames, and only the end of the connection is handled here.
 */

#include "acceptor/framing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "acceptor/compression.h"
#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/room.h"
#include "acceptor/upcalls.h"
#include "acceptor/wake.h"

enum { FRAMES_AHEAD_BYTES = 64 << 10 };

/* --- what is sent ------------------------------------------------------------------------------------------------- */

static uint32_t new_key(struct acceptor *a) {
    if (a->mask_keys_left == 0) {
        /* So little always comes at once; on a machine that has no randomness yet, keys are used again. */
        (void)!getrandom(a->mask_keys, sizeof a->mask_keys, GRND_NONBLOCK);
        a->mask_keys_left = MASK_KEYS;
    }
    return a->mask_keys[--a->mask_keys_left];
}

/* Begins a frame in `room`. Returns where its payload is to be put. */
static uint8_t *begin_frame(const struct framing *f, uint8_t *room, uint8_t first, size_t bytes) {
    return room + websocket_head(room, first, bytes) + (f->masks ? WEBSOCKET_KEY_BYTES : 0);
}

/* Ends a frame that has its payload. */
static void end_frame(struct acceptor *a, struct framing *f, uint8_t *room, uint8_t *payload, size_t bytes) {
    size_t head = (size_t)(payload - room);
    if (f->masks) websocket_mask(room, head - WEBSOCKET_KEY_BYTES, bytes, new_key(a));
    f->wire.last.end += head + bytes;
}

/* Appends a whole frame to `wire`. Closes the connection when memory is short. */
static void put_frame(struct acceptor *a, struct connection *c, uint8_t first, const uint8_t *payload, size_t bytes) {
    struct output *wire = &c->framing->wire;
    uint8_t *room = output_room(&a->blocks, wire, WEBSOCKET_HEAD_BYTES + bytes);
    if (room == NULL) {
        engine_oom(a, c);
        return;
    }
    uint8_t *at = begin_frame(c->framing, room, first, bytes);
    memcpy(at, payload, bytes);
    end_frame(a, c->framing, room, at, bytes);
}

/* --- what comes --------------------------------------------------------------------------------------------------- */

static void hear_control(struct acceptor *a, struct connection *c) {
    const struct websocket *ws = &c->framing->websocket;
    if (ws->opcode != WEBSOCKET_PING || c->framing->closing_said) return;
    put_frame(a, c, WEBSOCKET_FINAL | WEBSOCKET_PONG, ws->control, ws->control_bytes);
    if (c->closed) return;
    socket_dirty(a, c);
    /* A client that only pings and never reads is not read from either. */
    if (c->stall == STALL_NONE) (void)may_go_on(a, c);
}

static void heard_closing(struct acceptor *a, struct connection *c, const uint8_t *answer, size_t bytes) {
    if (!c->framing->closing_said) framing_close(a, c, answer, bytes);
    socket_ended(a, c);
}

void acceptor_websocket_ended(struct acceptor *a, uint32_t conn, const uint8_t *payload, size_t bytes) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->framing == NULL) return;
    heard_closing(a, c, payload, bytes);
    wake_self(a);
}

size_t framing_received(struct acceptor *a, struct connection *c, uint8_t *data, size_t bytes) {
    struct framing *f = c->framing;
    if (f->by_python) return bytes;
    size_t plain = 0;
    for (size_t at = 0; at < bytes && !c->closed && !c->eof;) {
        size_t made;
        at += websocket_take(&f->websocket, data + at, bytes - at, data + plain, &made);
        plain += made;
        if (f->websocket.found == WEBSOCKET_CONTROL) hear_control(a, c);
        if (f->websocket.found != WEBSOCKET_ENDED) continue;
        c->unreadable = f->websocket.is_wrong;
        heard_closing(a, c, f->websocket.control, f->websocket.control_bytes);
    }
    return plain;
}

/* --- what goes ---------------------------------------------------------------------------------------------------- */

/* Puts waiting output into one frame, whatever stretches it lies in. */
static void put_waiting(struct acceptor *a, struct connection *c) {
    struct framing *f = c->framing;
    size_t bytes = output_bytes(&c->out);
    if (bytes > f->frame_bytes) bytes = f->frame_bytes;
    uint8_t *room = output_room(&a->blocks, &f->wire, WEBSOCKET_HEAD_BYTES + bytes);
    if (room == NULL) {
        engine_oom(a, c);
        return;
    }
    uint8_t *payload = begin_frame(f, room, WEBSOCKET_FINAL | WEBSOCKET_BINARY, bytes), *at = payload;
    for (size_t left = bytes, piece; left > 0; left -= piece) {
        const uint8_t *front = output_front(&c->out, &piece);
        if (piece > left) piece = left;
        memcpy(at, front, piece);
        at += piece;
        output_consume(&a->blocks, &c->out, piece);
    }
    end_frame(a, f, room, payload, bytes);
}

static void hand_closing_over(struct acceptor *a, struct connection *c) {
    const struct framing *f = c->framing;
    uint8_t frame[WEBSOCKET_HEAD_BYTES + WEBSOCKET_CONTROL_BYTES];
    size_t head = websocket_head(frame, WEBSOCKET_FINAL | WEBSOCKET_CLOSE, f->closing_bytes);
    memcpy(frame + head, f->closing, f->closing_bytes);
    upcall_push(a, UPCALL_CLOSING, c->number, c->protocol, NULL, frame, head + f->closing_bytes);
    c->filter->output_bytes += head + f->closing_bytes;
}

void framing_pass(struct acceptor *a, struct connection *c) {
    struct framing *f = c->framing;
    if (f->compression != NULL) {
        compression_pass(a, c);
        return;
    }
    while (!f->by_python && output_bytes(&c->out) > 0 && output_bytes(&f->wire) < FRAMES_AHEAD_BYTES && !c->closed)
        put_waiting(a, c);
    /* What came before the other side's closing frame is answered before ours. */
    if (c->closed || !f->closing_waits || output_bytes(&c->out) > 0 || (c->eof && !c->closing)) return;
    f->closing_waits = false;
    if (f->by_python)
        hand_closing_over(a, c);
    else
        put_frame(a, c, WEBSOCKET_FINAL | WEBSOCKET_CLOSE, f->closing, f->closing_bytes);
}

void framing_close(struct acceptor *a, struct connection *c, const uint8_t *payload, size_t bytes) {
    struct framing *f = c->framing;
    assert(bytes <= WEBSOCKET_CONTROL_BYTES);
    assert(f->compression == NULL); /* there are no frames */
    if (f->closing_said && !f->closing_waits) return;
    memcpy(f->closing, payload, bytes);
    f->closing_bytes = (uint8_t)bytes;
    f->closing_said = f->closing_waits = true;
    socket_dirty(a, c);
}

void framing_close_silently(struct connection *c) {
    c->framing->closing_said = true;
    c->framing->closing_waits = false;
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

bool acceptor_websocket(struct acceptor *a, uint32_t conn, size_t frame_bytes, uint32_t flags) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0 || c->framing != NULL || buffer_bytes(&c->in) > 0) return false;
    if (c->filter != NULL ? c->filter->output_bytes > 0 : (flags & WEBSOCKET_BY_FILTER) != 0) return false;
    if (frame_bytes == 0 || frame_bytes > FRAME_BYTES) return false;
    struct framing *f = calloc(1, sizeof *f);
    if (f == NULL) {
        engine_oom(a, c);
        return false;
    }
    f->frame_bytes = (uint32_t)frame_bytes;
    f->websocket.unmasked = (flags & WEBSOCKET_UNMASKED) != 0;
    f->masks = (flags & WEBSOCKET_MASKS) != 0;
    f->by_python = (flags & WEBSOCKET_BY_PYTHON) != 0;
    c->framing = f;
    if ((flags & WEBSOCKET_BY_FILTER) != 0) return true;
    /* Output from before, when there were no frames, leaves ahead of any frame. */
    struct output *before = c->filter != NULL ? &c->filter->wire : &c->out;
    f->wire = *before;
    *before = (struct output){0};
    free(c->filter);
    c->filter = NULL;
    socket_dirty(a, c);
    socket_schedule(a, c);
    wake_self(a);
    return true;
}

#include "acceptor/websocket.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { MASK_BIT = 0x80, RESERVED_BITS = 0x30, KEY_BYTES = WEBSOCKET_KEY_BYTES, HEAD_START_BYTES = 2 };

/* --- masks -------------------------------------------------------------------------------------------------------- */

/* Masks or unmasks bytes; `out` may be `in`, or lie before it. Returns the key rotated, so that it begins with the next
 * byte. */
static uint32_t mask(uint32_t key, const uint8_t *in, size_t bytes, uint8_t *out) {
    uint64_t wide = (uint64_t)key << 32 | key;
    size_t at = 0;
    for (; bytes - at >= sizeof wide; at += sizeof wide) {
        uint64_t piece;
        memcpy(&piece, in + at, sizeof piece);
        piece ^= wide;
        memcpy(out + at, &piece, sizeof piece);
    }
    uint8_t letters[KEY_BYTES], turned[KEY_BYTES];
    memcpy(letters, &key, KEY_BYTES);
    for (size_t i = 0; at + i < bytes; i++) out[at + i] = in[at + i] ^ letters[i % KEY_BYTES];
    for (size_t i = 0; i < KEY_BYTES; i++) turned[i] = letters[(bytes + i) % KEY_BYTES];
    memcpy(&key, turned, KEY_BYTES);
    return key;
}

/* --- what is said ------------------------------------------------------------------------------------------------- */

size_t websocket_head(uint8_t out[WEBSOCKET_HEAD_BYTES], uint8_t first, uint64_t payload_bytes) {
    out[0] = first;
    size_t bytes = payload_bytes <= WEBSOCKET_CONTROL_BYTES ? 0 : payload_bytes <= UINT16_MAX ? 2 : 8;
    out[1] = (uint8_t)(bytes == 0 ? payload_bytes : bytes == 2 ? 126 : 127);
    for (size_t i = 0; i < bytes; i++) out[2 + i] = (uint8_t)(payload_bytes >> 8 * (bytes - 1 - i));
    return 2 + bytes;
}

void websocket_mask(uint8_t *frame, size_t head_bytes, size_t payload_bytes, uint32_t key) {
    frame[1] |= MASK_BIT;
    memcpy(frame + head_bytes, &key, KEY_BYTES);
    uint8_t *payload = frame + head_bytes + KEY_BYTES;
    (void)mask(key, payload, payload_bytes, payload);
}

size_t websocket_closing(uint8_t out[WEBSOCKET_CONTROL_BYTES], uint16_t status, const char *why) {
    const size_t room = WEBSOCKET_CONTROL_BYTES - 2;
    size_t bytes = strlen(why);
    out[0] = (uint8_t)(status >> 8);
    out[1] = (uint8_t)status;
    if (bytes <= room) {
        memcpy(out + 2, why, bytes);
        return 2 + bytes;
    }
    memcpy(out + 2, why, room - 3);
    memcpy(out + 2 + room - 3, "...", 3);
    return WEBSOCKET_CONTROL_BYTES;
}

/* --- a frame's head ----------------------------------------------------------------------------------------------- */

static void wrong(struct websocket *ws, const char *why) {
    ws->control_bytes = (uint8_t)websocket_closing(ws->control, WEBSOCKET_PROTOCOL_ERROR, why);
    ws->found = WEBSOCKET_ENDED;
    ws->ended = ws->is_wrong = true;
}

static bool is_control(uint8_t opcode) {
    return opcode >= WEBSOCKET_CLOSE;
}

/* Checks what the first byte says by itself. */
static void look_at_first(struct websocket *ws) {
    if ((ws->head[0] & RESERVED_BITS) != 0)
        wrong(ws, "RSV2 and RSV3 must be clear");
    else if ((ws->head[0] & WEBSOCKET_COMPRESSED) != 0 && !ws->compresses)
        wrong(ws, "compressed frame received without negotiated permessage-deflate");
}

static void look_at_control(struct websocket *ws, bool final, bool compressed, size_t bytes) {
    if (bytes > WEBSOCKET_CONTROL_BYTES)
        wrong(ws, "control frame length bigger than maximum allowed of 125 bytes");
    else if (!final)
        wrong(ws, "control frame does not have final bit set");
    else if (compressed)
        wrong(ws, "control frame must not be compressed");
}

/* Checks the first two bytes. */
static void look_at_start(struct websocket *ws) {
    bool final = (ws->head[0] & WEBSOCKET_FINAL) != 0, compressed = (ws->head[0] & WEBSOCKET_COMPRESSED) != 0;
    ws->opcode = ws->head[0] & 15;
    if (!ws->unmasked && (ws->head[1] & MASK_BIT) == 0) {
        wrong(ws, "mask bit missing");
        return;
    }
    switch (ws->opcode) {
    case WEBSOCKET_CLOSE:
    case WEBSOCKET_PING:
    case WEBSOCKET_PONG: look_at_control(ws, final, compressed, ws->head[1] & 127); return;
    case WEBSOCKET_TEXT:
    case WEBSOCKET_BINARY:
        if (ws->in_message) wrong(ws, "new message started before final frame for previous message was received");
        ws->is_compressed = compressed;
        break;
    case WEBSOCKET_CONTINUES:
        if (!ws->in_message || compressed) wrong(ws, "invalid continuation frame");
        break;
    default: {
        char text[32];
        snprintf(text, sizeof text, "unknown opcode %u", ws->opcode);
        wrong(ws, text);
    }
    }
    ws->final = final;
}

/* The length of the head, which its second byte tells. */
static size_t whole_head_bytes(const struct websocket *ws) {
    size_t size = ws->head[1] & 127;
    size_t bytes = HEAD_START_BYTES + (size == 126 ? 2u : size == 127 ? 8u : 0u);
    return ws->unmasked ? bytes : bytes + KEY_BYTES;
}

static void read_head(struct websocket *ws) {
    size_t size = ws->head[1] & 127, at = HEAD_START_BYTES;
    ws->rest = size;
    if (size >= 126) {
        ws->rest = 0;
        for (size_t i = 0, bytes = size == 126 ? 2 : 8; i < bytes; i++) ws->rest = ws->rest << 8 | ws->head[at++];
    }
    if (ws->rest >> 63 != 0) {
        wrong(ws, "invalid 64-bit payload length");
        return;
    }
    ws->key = 0;
    if (!ws->unmasked) memcpy(&ws->key, ws->head + at, KEY_BYTES);
    ws->head_bytes = 0;
    ws->in_payload = true;
    if (is_control(ws->opcode))
        ws->control_bytes = 0;
    else
        ws->in_message = !ws->final;
}

/* Parses as much of a head as there is. An error is reported as soon as it can be known. */
static size_t take_head(struct websocket *ws, const uint8_t *in, size_t bytes) {
    size_t at = 0;
    while (at < bytes && !ws->in_payload && !ws->ended) {
        ws->head[ws->head_bytes++] = in[at++];
        if (ws->head_bytes == 1) look_at_first(ws);
        if (ws->head_bytes == HEAD_START_BYTES) look_at_start(ws);
        if (ws->head_bytes >= HEAD_START_BYTES && !ws->ended && ws->head_bytes == whole_head_bytes(ws)) read_head(ws);
    }
    return at;
}

/* --- payload ------------------------------------------------------------------------------------------------------ */

/* Unmasks as much payload as there is; `out` may be `in`, or lie before it. */
static size_t unmask(struct websocket *ws, const uint8_t *in, size_t bytes, uint8_t *out) {
    size_t take = bytes < ws->rest ? bytes : (size_t)ws->rest;
    ws->rest -= take;
    if (ws->key == 0)
        memmove(out, in, take);
    else
        ws->key = mask(ws->key, in, take, out);
    return take;
}

/* The length of a UTF-8 character; 0 if it is invalid. */
static size_t character_bytes(const uint8_t *at, size_t bytes) {
    if (at[0] < 0x80) return 1;
    size_t length = at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (length == 0 || length > bytes) return 0;
    uint32_t code = at[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_short = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    return is_short || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

static bool is_utf8(const uint8_t *at, size_t bytes) {
    while (bytes > 0) {
        size_t length = character_bytes(at, bytes);
        if (length == 0) return false;
        at += length;
        bytes -= length;
    }
    return true;
}

static bool is_status(uint32_t status) {
    if (status == 1004 || status == 1005 || status == 1006 || status == 1015) return false;
    return status >= 1000 && status < 5000 && (status < 1016 || status > 2999);
}

/* Handles the client's closing frame, whose payload is sent back as the answer. */
static void take_closing(struct websocket *ws) {
    if (ws->control_bytes == 1) {
        wrong(ws, "close frame payload cannot be 1 byte");
        return;
    }
    ws->found = WEBSOCKET_ENDED;
    ws->ended = true;
    if (ws->control_bytes == 0) return;
    uint32_t status = (uint32_t)ws->control[0] << 8 | ws->control[1];
    if (!is_status(status)) {
        char text[48];
        snprintf(text, sizeof text, "invalid close status code %u", status);
        wrong(ws, text);
    } else if (!is_utf8(ws->control + 2, ws->control_bytes - 2u)) {
        const char *why = "invalid utf8 body in close frame";
        ws->control_bytes = (uint8_t)websocket_closing(ws->control, WEBSOCKET_INVALID_PAYLOAD, why);
    }
}

static void end_frame(struct websocket *ws) {
    ws->in_payload = false;
    if (ws->opcode == WEBSOCKET_CLOSE)
        take_closing(ws);
    else if (is_control(ws->opcode))
        ws->found = WEBSOCKET_CONTROL;
    else if (ws->final)
        ws->found = WEBSOCKET_MESSAGE;
}

size_t websocket_take(struct websocket *ws, const uint8_t *in, size_t bytes, uint8_t *out, size_t *made) {
    size_t at = 0;
    *made = 0;
    ws->found = WEBSOCKET_ALL_TAKEN;
    if (ws->ended) return bytes;
    while (at < bytes && ws->found == WEBSOCKET_ALL_TAKEN) {
        at += take_head(ws, in + at, bytes - at);
        if (!ws->in_payload) continue;
        if (is_control(ws->opcode)) {
            assert(ws->control_bytes + ws->rest <= WEBSOCKET_CONTROL_BYTES);
            size_t taken = unmask(ws, in + at, bytes - at, ws->control + ws->control_bytes);
            ws->control_bytes = (uint8_t)(ws->control_bytes + taken);
            at += taken;
        } else {
            size_t taken = unmask(ws, in + at, bytes - at, out + *made);
            *made += taken;
            at += taken;
        }
        if (ws->rest == 0) end_frame(ws);
    }
    return at;
}

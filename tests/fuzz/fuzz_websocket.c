/* Frames of websockets: what a client sent rightly has to come out as it went in, however it was cut into pieces and
 * wherever it is put; of what a stranger sends nothing may be read or written that is not there. Each piece lies in
 * memory of its own size.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "acceptor/websocket.h"
#include "script.h"

enum { MOST = 1 << 17, CONTROLS = 64 };

/* What was sent: frames, payload of messages, and control frames behind so many bytes of it. */
static struct {
    uint8_t frames[2 * MOST], payload[MOST];
    size_t frame_bytes, payload_bytes;
    struct {
        uint8_t opcode, bytes;
        uint8_t payload[WEBSOCKET_CONTROL_BYTES];
        size_t at;
    } controls[CONTROLS];
    uint32_t control_count, messages;
} sent;

static void put_frame(uint8_t first, const uint8_t *payload, size_t bytes, bool unmasked) {
    uint8_t *out = sent.frames + sent.frame_bytes;
    size_t head = websocket_head(out, first, bytes);
    uint8_t key[4] = {0};
    if (!unmasked && pick(4) == 0) {
        memcpy(out + head + WEBSOCKET_KEY_BYTES, payload, bytes);
        websocket_mask(out, head, bytes, (uint32_t)pick(UINT32_MAX));
        sent.frame_bytes += head + WEBSOCKET_KEY_BYTES + bytes;
        return;
    }
    if (!unmasked) {
        for (int i = 0; i < 4; i++) key[i] = pick(8) ? byte() : 0;
        out[1] |= 0x80;
        memcpy(out + head, key, 4);
        head += 4;
    }
    for (size_t i = 0; i < bytes; i++) out[head + i] = payload[i] ^ key[i % 4];
    sent.frame_bytes += head + bytes;
}

static void put_control(bool unmasked) {
    if (sent.control_count == CONTROLS) return;
    uint32_t n = sent.control_count++;
    sent.controls[n].opcode = pick(2) ? WEBSOCKET_PING : WEBSOCKET_PONG;
    sent.controls[n].bytes = (uint8_t)pick(WEBSOCKET_CONTROL_BYTES + 1);
    for (uint32_t i = 0; i < sent.controls[n].bytes; i++) sent.controls[n].payload[i] = (uint8_t)(i * 7 + n);
    sent.controls[n].at = sent.payload_bytes;
    put_frame(WEBSOCKET_FINAL | sent.controls[n].opcode, sent.controls[n].payload, sent.controls[n].bytes, unmasked);
}

static void put_message(bool unmasked) {
    uint32_t parts = 1 + pick(4);
    for (uint32_t part = 0; part < parts; part++) {
        static const uint32_t sizes[] = {0, 1, 3, 8, 60, 125, 126, 127, 700, 65535, 65536};
        size_t bytes = sizes[pick(20) ? pick(9) : pick(11)];
        if (sent.payload_bytes + bytes > MOST || sent.frame_bytes + bytes + 64 > MOST) bytes = 0;
        uint8_t *payload = sent.payload + sent.payload_bytes;
        for (size_t i = 0; i < bytes; i++) payload[i] = (uint8_t)(i * 31 + sent.payload_bytes);
        uint8_t first = part > 0 ? WEBSOCKET_CONTINUES : pick(2) ? WEBSOCKET_BINARY : WEBSOCKET_TEXT;
        if (part + 1 == parts) first |= WEBSOCKET_FINAL;
        put_frame(first, payload, bytes, unmasked);
        sent.payload_bytes += bytes;
        if (pick(4) == 0) put_control(unmasked);
    }
    sent.messages++;
}

/* What came out. */
static struct {
    uint8_t payload[2 * MOST];
    size_t bytes;
    uint32_t controls, messages;
    bool ended;
} heard;

static void check_control(const struct websocket *ws) {
    assert(heard.controls < sent.control_count);
    uint32_t n = heard.controls++;
    assert(ws->opcode == sent.controls[n].opcode && ws->control_bytes == sent.controls[n].bytes);
    assert(memcmp(ws->control, sent.controls[n].payload, ws->control_bytes) == 0);
    assert(sent.controls[n].at == heard.bytes && "in its place");
}

/* A piece of what came, in place or put before it, as the engine does. */
static void take_piece(struct websocket *ws, const uint8_t *from, size_t bytes, bool honest) {
    size_t before = pick(3) ? 0 : pick(40);
    uint8_t *room = malloc(before + bytes + (before + bytes == 0));
    assert(room != NULL);
    uint8_t *data = room + before, *out = room;
    memcpy(data, from, bytes);
    size_t plain = 0;
    for (size_t at = 0; at < bytes;) {
        size_t made, used = websocket_take(ws, data + at, bytes - at, out + plain, &made);
        assert(used > 0 && used <= bytes - at && made <= used);
        assert(heard.bytes + made <= sizeof heard.payload);
        memcpy(heard.payload + heard.bytes, out + plain, made);
        heard.bytes += made;
        plain += made;
        at += used;
        assert(ws->control_bytes <= WEBSOCKET_CONTROL_BYTES);
        assert(!heard.ended || (made == 0 && used == bytes - (at - used)));
        if (ws->found == WEBSOCKET_CONTROL && honest) check_control(ws);
        if (ws->found == WEBSOCKET_MESSAGE) heard.messages++;
        if (ws->found == WEBSOCKET_ENDED) heard.ended = true;
    }
    free(room);
}

static void take_all(struct websocket *ws, bool honest) {
    for (size_t at = 0; at < sent.frame_bytes;) {
        size_t bytes = pick(3) ? 1 + pick(20) : 1 + pick(40000);
        if (bytes > sent.frame_bytes - at) bytes = sent.frame_bytes - at;
        take_piece(ws, sent.frames + at, bytes, honest);
        at += bytes;
    }
}

/* A closing frame of ours is one that a client may send back. */
static void end_rightly(struct websocket *ws) {
    static const char too_long[] =
        "a reason that is so long that it has to be cut, which is where it would be too long "
        "for the payload of a control frame: one hundred and twenty-five bytes";
    static const char *const reasons[] = {"", "x", "aé€😀", too_long};
    uint8_t payload[WEBSOCKET_CONTROL_BYTES], status = (uint8_t)pick(4);
    size_t bytes = websocket_closing(payload, (uint16_t)(1000 + status), reasons[pick(4)]);
    assert(bytes >= 2 && bytes <= sizeof payload);
    sent.frame_bytes = 0;
    put_frame(WEBSOCKET_FINAL | WEBSOCKET_CLOSE, payload, bytes, ws->unmasked);
    take_all(ws, true);
    assert(heard.ended && ws->control_bytes == bytes && memcmp(ws->control, payload, bytes) == 0);
}

void run_script(void) {
    memset(&heard, 0, sizeof heard);
    sent.frame_bytes = sent.payload_bytes = 0;
    sent.control_count = sent.messages = 0;
    struct websocket ws = {.unmasked = pick(4) == 0, .compresses = pick(4) == 0};
    bool honest = pick(2) == 0;
    for (uint32_t left = 1 + pick(8); left > 0; left--) {
        put_message(ws.unmasked);
        if (pick(4) == 0) put_control(ws.unmasked);
    }
    /* Strangers: some bytes of it are others, or all. */
    for (uint32_t left = honest ? 0 : 1 + pick(6); left > 0; left--) {
        size_t at = ((size_t)byte() << 16 | (size_t)byte() << 8 | byte()) % sent.frame_bytes;
        if (pick(2)) at %= 64 < sent.frame_bytes ? 64 : sent.frame_bytes;
        sent.frames[at] = byte();
    }
    take_all(&ws, honest);
    if (!honest) return;
    assert(!heard.ended && heard.controls == sent.control_count && heard.messages == sent.messages);
    assert(heard.bytes == sent.payload_bytes && memcmp(heard.payload, sent.payload, heard.bytes) == 0);
    end_rightly(&ws);
}

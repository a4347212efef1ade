#include "acceptor/protocols/nats/nats_set_header.h"

#include <stdlib.h>

#include "base/decimal.h"

enum { KEPT_ROOM_BYTES = 64 << 10 };

static const char FIRST_LINE[] = "NATS/1.0\r\n";

uint8_t *nats_room_for(struct nats_room *room, size_t bytes) {
    if (bytes <= room->bytes) return room->at;
    uint8_t *larger = malloc(bytes);
    if (larger == NULL) return NULL;
    free(room->at);
    *room = (struct nats_room){larger, bytes};
    return larger;
}

void nats_room_done(struct nats_room *room) {
    if (room->bytes <= KEPT_ROOM_BYTES) return;
    free(room->at);
    *room = (struct nats_room){NULL, 0};
}

static uint8_t *put(uint8_t *out, const void *text, size_t bytes) {
    if (bytes > 0) memcpy(out, text, bytes);
    return out + bytes;
}

uint8_t *nats_put_headers(const struct nats_message *m, const char *name, uint8_t *out) {
    const size_t name_bytes = strlen(name);
    if (m->header_bytes < sizeof FIRST_LINE + 1) return put(out, FIRST_LINE, sizeof FIRST_LINE - 1);
    const uint8_t *at = m->payload, *end = m->payload + m->header_bytes - CRLF_BYTES;
    while (at < end) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        const uint8_t *next = newline != NULL ? newline + 1 : end;
        bool is_named = (size_t)(next - at) >= name_bytes && memcmp(at, name, name_bytes) == 0;
        if (!is_named) out = put(out, at, (size_t)(next - at));
        at = next;
    }
    return out;
}

uint8_t *nats_put_body_behind(struct nats_message *m, uint8_t *payload, uint8_t *out) {
    size_t header_bytes = (size_t)(out - payload);
    out = put(out, m->payload + m->header_bytes, m->payload_bytes - m->header_bytes);
    m->payload = payload;
    m->payload_bytes = (size_t)(out - payload);
    m->header_bytes = header_bytes;
    m->joined = false;
    m->header_size.at = out;
    m->header_size.bytes = (size_t)((out = decimal_put(out, m->header_bytes)) - m->header_size.at);
    m->size.at = out;
    m->size.bytes = (size_t)((out = decimal_put(out, m->payload_bytes)) - m->size.at);
    return out;
}

bool nats_set_header(struct nats_message *m, const char *name, struct text value, struct nats_room *room) {
    const size_t more = sizeof FIRST_LINE + strlen(name) + value.bytes + 8 + 2 * DECIMAL_MAX_BYTES;
    uint8_t *payload = nats_room_for(room, m->payload_bytes + more), *out = payload;
    if (payload == NULL) return false;
    out = put(nats_put_headers(m, name, out), name, strlen(name));
    out = put(put(put(out, " ", 1), value.at, value.bytes), "\r\n\r\n", 4);
    nats_put_body_behind(m, payload, out);
    return true;
}

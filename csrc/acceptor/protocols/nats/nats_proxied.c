/* PROXY headers: a proxy begins a connection with its client's address (PROXY protocol, versions 1 and 2, as HAProxy
 * describes it). If the option is set, a header is handed to Python, which parses it; other input is the client's. */
#define _GNU_SOURCE
#include "acceptor/protocols/nats/nats_proxied.h"

#include <string.h>

#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_say.h"

#define TOLD_APART_NS ((uint64_t)5 * 1000000000u) /* time for the rest, once its beginning is known */

static const char PREFIX[] = "PROXY ";
static const uint8_t SIGNATURE[] = {0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A};

enum {
    PREFIX_BYTES = 6, /* bytes that tell the versions apart */
    LINE_BYTES = 107, /* longest header of version 1 */
    HEAD_BYTES = 16,  /* head of version 2, which addresses follow */
    ADDRESSES_4 = 12,
    ADDRESSES_6 = 36,
};

enum header { HEADER_NONE, HEADER_PARTIAL, HEADER_WRONG, HEADER_WHOLE };

static enum header read_line(const uint8_t *data, size_t bytes, size_t *header_bytes) {
    size_t most = bytes < LINE_BYTES ? bytes : LINE_BYTES;
    const uint8_t *end = memmem(data, most, "\r\n", CRLF_BYTES);
    if (end == NULL) return bytes < LINE_BYTES ? HEADER_PARTIAL : HEADER_WRONG;
    *header_bytes = (size_t)(end - data) + CRLF_BYTES;
    return HEADER_WHOLE;
}

/* Whether the head of version 2 is valid: command, family, and enough bytes of addresses. Only streams are accepted. */
static bool is_head(const uint8_t *head, size_t addresses) {
    enum { LOCAL = 0x20, PROXY = 0x21, STREAM = 1, NO_FAMILY = 0x00, FAMILY_4 = 0x10, FAMILY_6 = 0x20 };
    if (head[12] == LOCAL) return true;
    if (head[12] != PROXY || (head[13] & 0x0F) != STREAM) return false;
    uint8_t family = head[13] & 0xF0;
    return family == NO_FAMILY || (family == FAMILY_4 && addresses >= ADDRESSES_4) ||
           (family == FAMILY_6 && addresses >= ADDRESSES_6);
}

static enum header read_binary(const uint8_t *data, size_t bytes, size_t *header_bytes) {
    size_t there = bytes < sizeof SIGNATURE ? bytes : sizeof SIGNATURE;
    if (memcmp(data, SIGNATURE, there) != 0) return HEADER_WRONG;
    if (bytes < HEAD_BYTES) return HEADER_PARTIAL;
    size_t addresses = (size_t)data[14] << 8 | data[15];
    if (!is_head(data, addresses)) return HEADER_WRONG;
    *header_bytes = HEAD_BYTES + addresses;
    return bytes < *header_bytes ? HEADER_PARTIAL : HEADER_WHOLE;
}

static enum header read_header(const uint8_t *data, size_t bytes, size_t *header_bytes) {
    *header_bytes = 0;
    if (bytes < PREFIX_BYTES) return HEADER_PARTIAL;
    if (memcmp(data, PREFIX, PREFIX_BYTES) == 0) return read_line(data, bytes, header_bytes);
    if (memcmp(data, SIGNATURE, PREFIX_BYTES) == 0) return read_binary(data, bytes, header_bytes);
    return HEADER_NONE;
}

void nats_proxied_in_vain(struct acceptor *a, struct connection *c) {
    struct nats *n = nats_of(c);
    n->flags &= ~(uint32_t)NATS_PROXIED;
    n->deadline_ns = 0;
    nats_hang_up(a, c, NATS_PROTOCOL_VIOLATION);
}

size_t nats_take_proxied(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct nats *n = nats_of(c);
    size_t header_bytes, told_bytes;
    enum header header = read_header(data, bytes, &header_bytes);
    if (header == HEADER_WRONG) {
        nats_proxied_in_vain(a, c);
        return bytes;
    }
    if (header == HEADER_PARTIAL) {
        if (bytes < PREFIX_BYTES || n->deadline_ns <= a->now_ns + TOLD_APART_NS) return 0;
        n->deadline_ns = a->now_ns + TOLD_APART_NS;
        nats_schedule(a, c);
        return 0;
    }
    n->flags &= ~(uint32_t)NATS_PROXIED;
    n->deadline_ns = 0;
    told_bytes = header_bytes < LINE_BYTES ? header_bytes : LINE_BYTES; /* anything behind the addresses is ignored */
    if (header == HEADER_NONE)
        reply_by_python(a, c, (const uint8_t *)PREFIX, PREFIX_BYTES);
    else
        reply_by_python(a, c, data, told_bytes);
    return header_bytes;
}

/* Which requests are measured: a part of them, and those whose headers say that they are traced. Headers are read as by
 * nats-server, whose names of them have capitals as in HTTP. */
#include "acceptor/protocols/nats/nats_sampled.h"

#include <string.h>
#include <strings.h>

#include "acceptor/protocols/nats/nats_line.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_trace_state.h"

static const char UBER[] = "Uber-Trace-Id", UBER_MORE[] = "Uberctx-", B3[] = "B3", PARENT[] = "Traceparent",
                  STATE[] = "Tracestate", B3_ID[] = "X-B3-Traceid", B3_SAMPLED[] = "X-B3-Sampled",
                  B3_PARENT[] = "X-B3-Parentspanid", B3_SPAN[] = "X-B3-Spanid";

struct request_headers {
    struct text names[NATS_TRACE_HEADERS], values[NATS_TRACE_HEADERS];
    size_t count;
};

static bool is_name_byte(uint8_t byte) {
    return byte > ' ' && byte < 0x7f && strchr("\"(),/:;<=>?@[\\]{}", byte) == NULL;
}

/* Reads a line without its end; false if it is none of a header's. */
static bool read_line(const uint8_t *at, const uint8_t *end, struct text *name, struct text *value) {
    const uint8_t *colon = memchr(at, ':', (size_t)(end - at));
    if (colon == NULL || colon == at) return false;
    for (const uint8_t *byte = at; byte < colon; byte++)
        if (!is_name_byte(*byte) && (*byte != ' ' || byte == at)) return false;
    *name = (struct text){at, (size_t)(colon - at)};
    for (at = colon + 1; at < end && nats_is_blank(*at);) at++;
    while (end > at && (nats_is_blank(end[-1]) || end[-1] == '\r')) end--;
    *value = (struct text){at, (size_t)(end - at)};
    return true;
}

/* Reads all headers; none of them count if one is malformed. */
static bool read_headers(const struct nats_message *m, struct request_headers *h) {
    const uint8_t *end = m->payload + m->header_bytes, *at = m->payload;
    h->count = 0;
    for (bool is_first = true; at < end; is_first = false) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) return false;
        if (newline == at || (newline == at + 1 && *at == '\r')) return h->count > 0;
        if (!is_first) {
            if (h->count == NATS_TRACE_HEADERS) return true;
            if (!read_line(at, newline, &h->names[h->count], &h->values[h->count])) return false;
            h->count++;
        }
        at = newline + 1;
    }
    return false;
}

static bool is_named(struct text found, const char *name) {
    return found.bytes == strlen(name) && strncasecmp((const char *)found.at, name, found.bytes) == 0;
}

static const struct text *value_of(const struct request_headers *h, const char *name) {
    for (size_t i = 0; i < h->count; i++)
        if (is_named(h->names[i], name)) return &h->values[i];
    return NULL;
}

static bool is(struct text value, const char *wanted) {
    return value.bytes == strlen(wanted) && memcmp(value.at, wanted, value.bytes) == 0;
}

/* Splits a value. Returns how many parts there are; only the first `limit` are stored. */
static size_t split(struct text value, uint8_t at, struct text *parts, size_t limit) {
    size_t count = 0, begin = 0;
    for (size_t i = 0; i <= value.bytes; i++) {
        if (i < value.bytes && value.at[i] != at) continue;
        if (count < limit) parts[count] = (struct text){value.at + begin, i - begin};
        count++;
        begin = i + 1;
    }
    return count;
}

/* --- as JSON ------------------------------------------------------------------------------------------------------ */

/* Writes a name with a capital at its beginning and behind each "-". */
static void put_name(struct json_text *out, struct text name) {
    bool is_first = true;
    json_put_name(out, "\"");
    for (size_t i = 0; i < name.bytes; i++) {
        uint8_t byte = name.at[i];
        if (is_first && byte >= 'a' && byte <= 'z') byte = (uint8_t)(byte - 32);
        if (!is_first && byte >= 'A' && byte <= 'Z') byte = (uint8_t)(byte + 32);
        is_first = byte == '-';
        json_put(out, &byte, 1);
    }
    json_put_name(out, "\":[");
}

/* Writes all values of a header; nothing if there are none. */
static void put_header(struct json_text *out, const struct request_headers *h, struct text name) {
    bool any = false;
    for (size_t i = 0; i < h->count; i++) {
        if (h->names[i].bytes != name.bytes ||
            strncasecmp((const char *)h->names[i].at, (const char *)name.at, name.bytes) != 0)
            continue;
        if (any)
            json_put_name(out, ",");
        else if (out->bytes > 0)
            json_put_name(out, ",");
        if (!any) put_name(out, name);
        json_put_string(out, h->values[i].at, h->values[i].bytes);
        any = true;
    }
    if (any) json_put_name(out, "]");
}

static void put_named(struct json_text *out, const struct request_headers *h, const char *name) {
    put_header(out, h, (struct text){(const uint8_t *)name, strlen(name)});
}

static int order_of(struct text one, struct text other) {
    size_t least = one.bytes < other.bytes ? one.bytes : other.bytes;
    int found = strncasecmp((const char *)one.at, (const char *)other.at, least);
    return found != 0 ? found : (one.bytes > other.bytes) - (one.bytes < other.bytes);
}

/* Writes all headers that begin so, in the order of their names. */
static void put_beginning(struct json_text *out, const struct request_headers *h, const char *prefix) {
    const struct text *last = NULL;
    for (;;) {
        const struct text *next = NULL;
        for (size_t i = 0; i < h->count; i++) {
            const struct text *name = &h->names[i];
            if (name->bytes < strlen(prefix) || strncasecmp((const char *)name->at, prefix, strlen(prefix)) != 0)
                continue;
            if ((last == NULL || order_of(*name, *last) > 0) && (next == NULL || order_of(*name, *next) < 0))
                next = name;
        }
        if (next == NULL) return;
        put_header(out, h, *next);
        last = next;
    }
}

/* --- whether ------------------------------------------------------------------------------------------------------ */

/* The value of a hexadecimal digit; -1: it is none. */
static int hex_digit(uint8_t byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 32;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

bool nats_asks_for_trace(struct text value) {
    size_t dashes = 0, last = 0;
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.at[i] != '-') continue;
        if (++dashes == 3) last = i + 1;
    }
    if (dashes != 3 || value.bytes - last != 2) return false;
    uint8_t first = value.at[last];
    int high = first == '+' ? 0 : hex_digit(first), low = hex_digit(value.at[last + 1]);
    return high >= 0 && high < 8 && low >= 0 && (low & 1) != 0;
}

/* 479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb:1, whose last number has flags. As with nats-server, of two digits
 * only the second one counts. */
static bool is_uber_sampled(struct text value) {
    struct text parts[4];
    if (split(value, ':', parts, 4) != 4 || parts[3].bytes == 0 || parts[3].bytes > 2) return false;
    int flags = hex_digit(parts[3].at[parts[3].bytes - 1]);
    return flags >= 0 && (flags & 1) != 0;
}

/* 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90, or its third part alone; 0: it is denied. */
static bool is_b3_sampled(struct text value) {
    struct text parts[3];
    size_t count = split(value, '-', parts, 3);
    return !(count > 2 && is(parts[2], "0")) && !(count == 1 && is(parts[0], "0"));
}

static bool has_asked(const struct request_headers *h, struct json_text *out) {
    const struct text *value;
    if ((value = value_of(h, UBER)) != NULL) {
        put_named(out, h, UBER);
        put_beginning(out, h, UBER_MORE);
        return is_uber_sampled(*value);
    }
    const struct text *sampled = value_of(h, B3_SAMPLED);
    if (sampled != NULL && is(*sampled, "0")) return false;
    if ((sampled != NULL && is(*sampled, "1")) || value_of(h, B3_ID) != NULL) {
        const char *const names[] = {B3_PARENT, B3_SAMPLED, B3_SPAN, B3_ID};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) put_named(out, h, names[i]);
        return true;
    }
    if ((value = value_of(h, B3)) != NULL) {
        put_named(out, h, B3);
        return is_b3_sampled(*value);
    }
    if ((value = value_of(h, PARENT)) == NULL) return false;
    put_named(out, h, PARENT);
    put_named(out, h, STATE);
    return nats_asks_for_trace(*value);
}

bool nats_is_sampled(struct nats_server *server, uint32_t percent, const struct nats_message *m,
                     struct json_text *headers) {
    struct request_headers h;
    /* As rare as nats-server's: "15" takes 16 of 100. */
    if (percent >= 100 || (percent > 0 && nats_random(server) % 100 <= percent)) return true;
    return m->header_bytes > 0 && read_headers(m, &h) && has_asked(&h, headers);
}

/* Makes an entry of a message that was published by another protocol or by Spark. Its headers become properties, but a
 * key, an event time and what else Spark reads of Pulsar's messages (formats/entries.h) become fields of the
 * metadata. */
#include "acceptor/protocols/pulsar/pulsar_foreign.h"

#include "base/crc32c.h"
#include "formats/entries.h"

static const char FOREIGN[] = "mq-shards"; /* the producer's name in such entries */

enum {
    ENTRY_HEAD = 2 + 4 + 4, /* magic, checksum, size of the metadata */
    PROPERTY_BYTES = 4 * 4, /* of a property, besides name and value: three tags and lengths, and room to spare */
    PREFIX_BYTES = sizeof ENTRY_PREFIX - 1,
};

size_t pulsar_foreign_bytes(const struct pulsar_foreign *of) {
    size_t bytes = pulsar_length(of->headers);
    return ENTRY_HEAD + PULSAR_COMMAND_BYTES + (bytes > 0 ? bytes + HEADERS_MOST * PROPERTY_BYTES : 0);
}

static size_t varint_bytes(uint64_t value) {
    size_t bytes = 1;
    while (value >>= 7) bytes++;
    return bytes;
}

static uint8_t *put_text(uint8_t *out, uint32_t field, struct text text) {
    out = pulsar_put_varint(pulsar_put_varint(out, PULSAR_TAG(field, PULSAR_BYTES)), text.bytes);
    if (text.bytes > 0) memcpy(out, text.at, text.bytes);
    return out + text.bytes;
}

static uint8_t *put_property(uint8_t *out, struct text name, struct text value) {
    size_t bytes = 2 + varint_bytes(name.bytes) + name.bytes + varint_bytes(value.bytes) + value.bytes;
    out = pulsar_put_varint(pulsar_put_varint(out, PULSAR_TAG(4, PULSAR_BYTES)), bytes);
    return put_text(put_text(out, 1, name), 2, value);
}

static bool is(struct text text, const char *word) {
    return text.bytes == strlen(word) && memcmp(text.at, word, text.bytes) == 0;
}

static bool is_number(struct text text, uint64_t *out) {
    const uint8_t *at = text.at, *end = text.at + text.bytes;
    return decimal_get(&at, end, INT64_MAX, out) && at == end;
}

/* Writes a header that has a field of its own in the metadata. Returns `out` unchanged if it has none. */
static uint8_t *put_field(uint8_t *out, const struct entry *one, bool is_empty) {
    uint64_t time_ms;
    if (is(one->name, "key")) return put_text(out, 6, one->value);
    if (is(one->name, "ordering_key")) return put_text(out, 18, one->value);
    if (is(one->name, "event_time_ms") && is_number(one->value, &time_ms)) return pulsar_put_number(out, 12, time_ms);
    if (is(one->name, "key_encoding") && is(one->value, "base64")) return pulsar_put_number(out, 17, 1);
    if (is(one->name, "null_value") && is(one->value, "true") && is_empty) return pulsar_put_number(out, 25, 1);
    return out;
}

/* Spark was given a property whose name is one of these with a prefix, which is taken off again. */
static struct text unprefixed(struct text name) {
    static const char *const ours[] = {"key",        "ordering_key", "event_time_ms", "key_encoding",
                                       "null_value", "pri",          "ttr_ms",        "delay_ms"};
    if (name.bytes <= PREFIX_BYTES || memcmp(name.at, ENTRY_PREFIX, PREFIX_BYTES) != 0) return name;
    const struct text rest = {name.at + PREFIX_BYTES, name.bytes - PREFIX_BYTES};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (is(rest, ours[i])) return rest;
    return name;
}

/* Writes the headers that can be parsed and are text, as a property must be. */
static uint8_t *put_headers(uint8_t *out, const struct pulsar_foreign *of) {
    struct entries entries = {.count = 0};
    size_t bytes = pulsar_length(of->headers);
    if (of->tag == HEADERS_NATS) entries_of_nats(of->headers.at, bytes, &entries);
    if (of->tag == HEADERS_SPARK) entries_of_spark(of->headers.at, bytes, &entries);
    for (const struct entry *one = entries.all; one < entries.all + entries.count; one++) {
        uint8_t *end = put_field(out, one, pulsar_length(of->body) == 0);
        out = end > out ? end : put_property(out, unprefixed(one->name), one->value);
    }
    return out;
}

uint8_t *pulsar_put_foreign(uint8_t *out, const struct pulsar_foreign *of) {
    uint8_t *size = out + 2 + 4, *metadata = size + 4;
    uint8_t *end = put_text(metadata, 1, (struct text){(const uint8_t *)FOREIGN, sizeof FOREIGN - 1});
    end = pulsar_put_number(end, 2, of->seq);
    end = pulsar_put_number(end, 3, of->time_ns / 1000000);
    if (pulsar_length(of->headers) > 0) end = put_headers(end, of);
    out[0] = 0x0e;
    out[1] = 0x01;
    pulsar_put_be32(size, (uint32_t)(end - metadata));
    uint32_t crc = crc32c_extend(0, size, (size_t)(end - size));
    pulsar_put_be32(out + 2, crc32c_extend(crc, of->body.at, pulsar_length(of->body)));
    return end;
}

/* Messages published through other protocols, for NATS clients: their own headers (properties, a key, a
 * time: formats/entries.h) are headers here. */
#include "acceptor/protocols/nats/nats_headers.h"

#include <stdlib.h>
#include <string.h>

#include "formats/entries.h"

static const char VERSION[] = "NATS/1.0\r\n";
enum { LINE_BYTES = sizeof ": \r\n" - 1, PREFIX_BYTES = sizeof ENTRY_PREFIX - 1 };

static uint8_t *put(uint8_t *out, const void *text, size_t bytes) {
    if (bytes > 0) memcpy(out, text, bytes);
    return out + bytes;
}

uint8_t *nats_kept_room(struct nats_server *server, size_t bytes) {
    if (server->kept_room < bytes) {
        uint8_t *larger = realloc(server->kept, bytes);
        if (larger == NULL) return NULL;
        server->kept = larger;
        server->kept_room = bytes;
    }
    return server->kept;
}

/* Whether name and value fit on one header line unchanged. */
static bool is_line(const struct entry *one) {
    const struct text name = one->name, value = one->value;
    for (size_t i = 0; i < name.bytes; i++)
        if (name.at[i] <= ' ' || name.at[i] == ':' || name.at[i] == 0x7f) return false;
    return name.bytes > 0 && memchr(value.at, '\r', value.bytes) == NULL && memchr(value.at, '\n', value.bytes) == NULL;
}

static void read_entries(const struct published *message, struct entries *out) {
    const struct codec_bytes said = message->said;
    struct pulsar_bytes metadata = {said.at, said.at + said.bytes};
    struct pulsar_entry entry;
    out->count = 0;
    out->name_bytes = out->value_bytes = 0;
    if (said.bytes == 0) return;
    if (message->said_tag == HEADERS_SPARK) (void)entries_of_spark(said.at, said.bytes, out);
    if (message->said_tag != HEADERS_PULSAR) return;
    if (!message->is_part) {
        pulsar_split_entry(metadata, &entry);
        if (!entry.is_whole) return;
        metadata = entry.metadata;
    }
    (void)entries_of_pulsar(metadata, message->is_part ? PULSAR_SINGLE : PULSAR_ENTRY, out);
}

static uint8_t *put_line(uint8_t *out, const struct entry *one) {
    if (one->prefixed) out = put(out, ENTRY_PREFIX, PREFIX_BYTES);
    out = put(put(out, one->name.at, one->name.bytes), ": ", 2);
    return put(put(out, one->value.at, one->value.bytes), "\r\n", 2);
}

void nats_put_body(struct nats_server *server, const struct published *message, struct nats_message *m) {
    const size_t left_out = message->headers_tag == HEADERS_NATS ? 0 : message->header_bytes;
    struct entries entries;
    m->payload = message->body + left_out;
    m->payload_bytes = message->body_bytes - left_out;
    m->header_bytes = message->header_bytes - left_out;
    if (m->header_bytes > 0) return;
    read_entries(message, &entries);
    if (entries.count == 0) return;
    const size_t most = sizeof VERSION + entries.name_bytes + entries.value_bytes + entries.count * LINE_BYTES + 2;
    uint8_t *room = nats_kept_room(server, most + m->payload_bytes), *end = room;
    if (room == NULL) return; /* without memory it is delivered without headers */
    end = put(end, VERSION, sizeof VERSION - 1);
    const uint8_t *first = end;
    for (const struct entry *one = entries.all; one < entries.all + entries.count; one++)
        if (is_line(one)) end = put_line(end, one);
    if (end == first) return;
    end = put(end, "\r\n", 2);
    m->header_bytes = (size_t)(end - room);
    if (m->payload_bytes > 0) memcpy(end, m->payload, m->payload_bytes);
    m->payload = room;
    m->payload_bytes += m->header_bytes;
}

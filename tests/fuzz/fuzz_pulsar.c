/* Pulsar's frames: bytes that a stranger sent, to the functions that read them; and what was written rightly has to be
 * read so. Each input lies in memory of its own size, so that the sanitizers see who reads beyond it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "acceptor/protocols/pulsar/pulsar_scan.h"
#include "script.h"

enum { MOST = 512, FIELDS = 30 };

static uint64_t number(void) {
    uint64_t value = 0;
    for (uint32_t left = pick(9); left > 0; left--) value = value << 8 | byte();
    return value;
}

/* Protobuf of any fields: mostly what a message has, sometimes spoilt. */
static size_t any_fields(uint8_t *out, size_t room) {
    uint8_t *end = out;
    for (uint32_t left = pick(12); left > 0 && (size_t)(end - out) + 64 < room; left--) {
        uint32_t field = 1 + pick(FIELDS), wire = (uint32_t[]){0, 0, 2, 2, 1, 5, 3, 7}[pick(8)];
        end = pulsar_put_varint(end, PULSAR_TAG(field, wire));
        if (wire == PULSAR_VARINT) {
            end = pulsar_put_varint(end, number());
        } else {
            uint32_t bytes = wire == PULSAR_FIXED64 ? 8 : wire == PULSAR_FIXED32 ? 4 : pick(24);
            if (wire == PULSAR_BYTES) end = pulsar_put_varint(end, pick(16) ? bytes : number());
            for (; bytes > 0; bytes--) *end++ = byte();
        }
    }
    return (size_t)(end - out);
}

/* A varint is read as it was written, whatever it is. */
static void numbers_come_back(void) {
    uint8_t bytes[2 * PULSAR_VARINT_BYTES];
    uint64_t value = number();
    struct pulsar_field field;
    struct pulsar_bytes rest = {bytes, pulsar_put_number(bytes, 1 + pick(FIELDS), value)};
    bool found = pulsar_next(&rest, &field);
    assert(found && field.number == value && rest.at == rest.end);
}

static void is_inside(struct pulsar_bytes part, struct pulsar_bytes whole) {
    if (part.at == NULL) return;
    assert(part.at >= whole.at && part.at <= part.end && part.end <= whole.end);
}

static void read_ids(struct pulsar_ids ids) {
    struct pulsar_id id;
    uint32_t count = 0;
    while (pulsar_next_id(&ids, &id)) {
        assert(id.words <= PULSAR_ACK_WORDS + 1);
        count++;
    }
    assert(count == ids.count);
}

static void read_metadata(struct pulsar_bytes bytes) {
    struct pulsar_metadata metadata;
    if (!pulsar_scan_metadata(bytes, &metadata)) return;
    is_inside(metadata.producer, bytes);
    is_inside(metadata.partition_key, bytes);
    is_inside(metadata.ordering_key, bytes);
    assert(pulsar_key_hash(&metadata) != 0);
}

static void read_batch(struct pulsar_bytes bytes) {
    struct pulsar_bytes rest = bytes;
    struct pulsar_single single;
    uint32_t count = 0;
    for (; pulsar_next_single(&rest, &single); count++) {
        is_inside(single.metadata, bytes);
        is_inside(single.payload, bytes);
        assert(single.payload.end == rest.at);
    }
    is_inside(rest, bytes);
    assert(!pulsar_is_batch(bytes, count + 1) && pulsar_is_batch(bytes, count) == (rest.at == rest.end));
}

static void read_entry(struct pulsar_bytes bytes) {
    struct pulsar_entry entry;
    pulsar_split_entry(bytes, &entry);
    is_inside(entry.checked, bytes);
    is_inside(entry.metadata, bytes);
    is_inside(entry.payload, bytes);
    assert(entry.metadata.end == entry.payload.at && entry.payload.end == bytes.end);
    read_metadata(entry.metadata);
    read_batch(entry.payload);
}

static void read_all(struct pulsar_bytes bytes) {
    struct pulsar_command command;
    struct pulsar_send send;
    struct pulsar_flow flow;
    struct pulsar_ids ids;
    if (pulsar_scan_command(bytes, &command)) is_inside(command.body, bytes);
    (void)pulsar_scan_send(bytes, &send);
    (void)pulsar_scan_flow(bytes, &flow);
    if (pulsar_scan_ack(bytes, &ids)) read_ids(ids);
    if (pulsar_scan_redeliver(bytes, &ids)) read_ids(ids);
    read_metadata(bytes);
    read_batch(bytes);
    read_entry(bytes);
}

void run_script(void) {
    while (script_goes_on()) {
        uint8_t drawn[MOST];
        bool is_noise = pick(4) == 0;
        size_t bytes = is_noise ? pick(64) : any_fields(drawn, sizeof drawn);
        for (size_t i = 0; is_noise && i < bytes; i++) drawn[i] = byte();
        if (bytes > 0 && pick(2)) drawn[pick((uint32_t)bytes)] ^= (uint8_t)(1u << pick(8));
        uint8_t *exact = malloc(bytes + 1);
        assert(exact != NULL);
        memcpy(exact + 1, drawn, bytes);
        read_all((struct pulsar_bytes){exact + 1, exact + 1 + bytes});
        free(exact);
        numbers_come_back();
    }
}

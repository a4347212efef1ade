#include "acceptor/protocols/pulsar/pulsar_say.h"

uint8_t *pulsar_room(struct acceptor *a, struct connection *c, size_t command_bytes) {
    return socket_room(a, c, PULSAR_FRAME_HEAD + command_bytes);
}

void pulsar_say(struct acceptor *a, struct connection *c, uint8_t *room, uint8_t *end) {
    uint32_t command_bytes = (uint32_t)(end - room) - PULSAR_FRAME_HEAD;
    pulsar_put_be32(pulsar_put_be32(room, command_bytes + 4), command_bytes);
    socket_written(a, c, end);
}

void pulsar_say_body(struct acceptor *a, struct connection *c, uint32_t type, const uint8_t *body, size_t bytes) {
    uint8_t *room = pulsar_room(a, c, PULSAR_COMMAND_BYTES + bytes);
    if (room == NULL) return;
    uint8_t *end = pulsar_put_command(room + PULSAR_FRAME_HEAD, type, bytes);
    if (bytes > 0) memcpy(end, body, bytes);
    pulsar_say(a, c, room, end + bytes);
}

void pulsar_say_closed(struct acceptor *a, struct connection *c, uint32_t type, uint64_t id) {
    uint8_t body[PULSAR_COMMAND_BYTES];
    uint8_t *end = pulsar_put_number(pulsar_put_number(body, 1, id), 2, PULSAR_CLOSED_REQUEST);
    pulsar_say_body(a, c, type, body, (size_t)(end - body));
}

bool pulsar_hang_up(struct acceptor *a, struct connection *c) {
    c->closing = c->muted = true;
    socket_dirty(a, c);
    return true;
}

void pulsar_tell_python(struct acceptor *a, struct connection *c, enum pulsar_upcall what, uint64_t id,
                        uint64_t number) {
    const struct pulsar_told told = {.id = id, .number = number};
    uint8_t bytes[1 + sizeof told] = {(uint8_t)what};
    memcpy(bytes + 1, &told, sizeof told);
    upcall_push(a, UPCALL_COMMAND, c->number, c->protocol, NULL, bytes, sizeof bytes);
}

int64_t pulsar_put_counts(const struct codec_call *call, const uint64_t *counts, size_t count) {
    for (size_t i = 0; i < count && 2 * i + 1 < call->out_limit; i++) {
        call->out[2 * i] = (uint32_t)counts[i];
        call->out[2 * i + 1] = (uint32_t)(counts[i] >> 32);
    }
    return (int64_t)(2 * count);
}

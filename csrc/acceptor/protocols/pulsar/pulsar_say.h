/* Commands to clients, and what Python is told. */
#ifndef MQ_PULSAR_SAY_H
#define MQ_PULSAR_SAY_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* Reserves room in the output for a frame that consists of a command alone. The caller writes the command behind the
 * first PULSAR_FRAME_HEAD bytes, and pulsar_say completes the frame. */
uint8_t *pulsar_room(struct acceptor *a, struct connection *c, size_t command_bytes);
void pulsar_say(struct acceptor *a, struct connection *c, uint8_t *room, uint8_t *end);
/* Begins a BaseCommand of this type, whose message of body_bytes the caller writes behind it. */
static inline uint8_t *pulsar_put_command(uint8_t *out, uint32_t type, size_t body_bytes) {
    out = pulsar_put_number(out, 1, type);
    out = pulsar_put_varint(out, PULSAR_TAG(type, PULSAR_BYTES));
    return pulsar_put_varint(out, body_bytes);
}
/* Sends a command whose message has been written to `body`. */
void pulsar_say_body(struct acceptor *a, struct connection *c, uint32_t type, const uint8_t *body, size_t bytes);
/* Sends a CLOSE_PRODUCER or CLOSE_CONSUMER that the client did not ask for. */
void pulsar_say_closed(struct acceptor *a, struct connection *c, uint32_t type, uint64_t id);
/* Closes the connection without an error, as a real broker does. */
bool pulsar_hang_up(struct acceptor *a, struct connection *c);
/* Tells Python something about a connection, or its producer or consumer `id`. */
void pulsar_tell_python(struct acceptor *a, struct connection *c, enum pulsar_upcall what, uint64_t id,
                        uint64_t number);

/* Puts 64-bit numbers into the output of a call, the low half of each first. */
int64_t pulsar_put_counts(const struct codec_call *call, const uint64_t *counts, size_t count);

#endif

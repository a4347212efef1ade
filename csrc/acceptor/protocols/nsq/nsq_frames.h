/* Frames, which go to a client. */
#ifndef MQ_NSQ_FRAMES_H
#define MQ_NSQ_FRAMES_H

#include "acceptor/protocols/nsq/nsq_state.h"

static inline uint8_t *put_be32(uint8_t *out, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(out, &value, sizeof value);
    return out + sizeof value;
}

static inline uint8_t *put_frame_head(uint8_t *out, enum frame_type type, size_t data_bytes) {
    out = put_be32(out, (uint32_t)(data_bytes + 4));
    return put_be32(out, type);
}

/* Puts a frame into the output at once, whatever replies are due. */
void nsq_say(struct acceptor *a, struct connection *c, enum frame_type type, const void *data, size_t bytes);
uint8_t *nsq_put_id(uint8_t *out, uint64_t id);

#endif

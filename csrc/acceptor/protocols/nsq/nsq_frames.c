#include "acceptor/protocols/nsq/nsq_frames.h"

#include "base/hex.h"

uint8_t *nsq_put_id(uint8_t *out, uint64_t id) {
    hex_put(out, id);
    return out + NSQ_ID_BYTES;
}

void nsq_say(struct acceptor *a, struct connection *c, enum frame_type type, const void *data, size_t bytes) {
    uint8_t *room = socket_room(a, c, FRAME_HEAD_BYTES + bytes);
    if (room == NULL) return;
    uint8_t *end = put_frame_head(room, type, bytes);
    memcpy(end, data, bytes);
    socket_written(a, c, end + bytes);
}

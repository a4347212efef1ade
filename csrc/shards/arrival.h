/* A message as it has come over a ring. */
#ifndef MQ_SHARDS_ARRIVAL_H
#define MQ_SHARDS_ARRIVAL_H

#include <stdint.h>
#include <string.h>

#include "ringbuf/message.h"
#include "shards/topic.h"

struct arrival {
    uint64_t id;
    const uint8_t *content; /* the headers, if any, and the body */
    uint32_t content_bytes;
    uint32_t headers_bytes; /* of the headers and the struct before them; 0: none */
};

/* Counts its bytes, and what is in it if it is a batch, in the figures of its topic. */
static inline void arrival_count(struct topic *t, const struct arrival *one) {
    t->message_bytes += one->content_bytes - one->headers_bytes;
    if (!one->headers_bytes) return;
    struct headers h;
    memcpy(&h, one->content, sizeof h);
    t->header_bytes += h.bytes;
    t->more_parts += h.parts ? h.parts - 1u : 0;
}

#endif

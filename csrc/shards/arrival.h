/* A message as it has come over a ring. */
#ifndef MQ_SHARDS_ARRIVAL_H
#define MQ_SHARDS_ARRIVAL_H

#include <stdint.h>

struct arrival {
    uint64_t id;
    const uint8_t *content; /* the headers, if any, and the body */
    uint32_t content_bytes;
    uint32_t headers_bytes; /* of the headers and the struct before them; 0: none */
};

#endif

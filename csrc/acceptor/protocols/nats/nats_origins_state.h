/* Clusters of leaf nodes by number. */
#ifndef MQ_NATS_ORIGINS_STATE_H
#define MQ_NATS_ORIGINS_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/siphash.h"
#include "base/text.h"

/* NATS_MOST_ORIGINS: more than there may be leaf nodes and hubs here, each of which may be one. */
enum { NATS_MOST_ORIGINS = 8192, NATS_ORIGIN_BYTES = 1024, NATS_ORIGIN_SLOTS = 1024 };

/* Stands for all leaf nodes that belong to no cluster, where a server is told what they want. */
#define NATS_NO_CLUSTER UINT32_MAX

struct nats_origin {
    char *name; /* NULL: it has none */
    uint32_t name_bytes;
    uint32_t references; /* 0: the number is free */
    uint32_t next;       /* next in its bucket, or in the list of free ones; 0: none */
};

struct nats_origins {
    struct siphash_key key;
    struct nats_origin *items; /* indexed by number; 0 is not used */
    uint32_t count, capacity, free;
    uint32_t slots[NATS_ORIGIN_SLOTS];
};

#endif

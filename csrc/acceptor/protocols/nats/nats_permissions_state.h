/* The permission sets of an acceptor, and cached decisions. */
#ifndef MQ_NATS_PERMISSIONS_STATE_H
#define MQ_NATS_PERMISSIONS_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/subjects.h"

struct nats_permissions;
struct subject_walk;

enum { NATS_MAX_PERMISSION_SETS = 1 << 20, NATS_PERMITTED = 4096, NATS_PERMITTED_SUBJECT_BYTES = 47 };

/* A cached decision of a set about a subject. */
struct nats_permitted {
    uint64_t hash;
    uint64_t set; /* 0: the entry is empty */
    uint8_t bytes;
    uint8_t asked; /* enum nats_asked */
    bool allowed;
    char subject[NATS_PERMITTED_SUBJECT_BYTES];
};

/* All permission sets of an acceptor. */
struct nats_permission_sets {
    struct nats_permissions **sets; /* indexed by Python's numbers */
    uint32_t count;
    uint64_t made; /* sets made so far, which numbers them for the cache */
    struct siphash_key key;
    struct subject_walk *walk;        /* its own, as other walks may be in use */
    struct nats_permitted *permitted; /* allocated with the first set */
};

enum { NATS_MAX_REPLIES = 1 << 16 /* most replies expected of one connection at a time */ };

#endif

/* Producers attached to topics: their names, unique in a topic, and which one is exclusive.
 *
 * Memory only: a worker that has restarted knows no producers, and acceptors tell their clients to attach again. The
 * log only has a topic's epoch: how many exclusive producers it has had. Whoever is not attached may publish all the
 * same. But what an attached producer sends with its arrival (MSG_OF_PRODUCER) is refused once a later one has been
 * exclusive: its acceptor may hear of that only after it has passed on more.
 */
#ifndef MQ_SHARDS_ATTACHMENTS_H
#define MQ_SHARDS_ATTACHMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/map.h"
#include "ringbuf/message.h"

struct worker;

struct attached {
    uint32_t arena_link;
    uint32_t client, number; /* its acceptor's */
    uint32_t next_of_client;
    uint32_t topic, previous, next;
    uint8_t access; /* enum access */
    bool waits;
    uint64_t arrival; /* counts the producers of the worker; of those that wait, the lowest goes first */
    uint64_t place;   /* in the map of names */
    size_t name_bytes;
    char *name;
};

struct attachments {
    struct arena arena;
    struct map by_name;
    uint64_t arrivals;
};

#endif

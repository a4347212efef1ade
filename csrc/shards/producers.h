/* A shard's memory of idempotent producers: the last batch of each, and how many parts of it were published.
 *
 * Owns the memory of a limited number of producers, ordered by when they wrote last. If there is no place for a new
 * one, the one that has been silent longest is forgotten. A producer that has been silent for longer than `idle_ns` is
 * forgotten too. Must never: know what is in a batch.
 */
#ifndef MQ_PRODUCERS_H
#define MQ_PRODUCERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "ringbuf/message.h"

/* Producers of batches in parts are few, and not forgotten for being idle. Those with a name in a topic are many. */
enum { SHARD_BATCH_PRODUCERS = 64, SHARD_NAMED_PRODUCERS = 4096 };
#define NAMED_IDLE_NS ((uint64_t)6 * 3600 * 1000000000)

struct producer_last {
    struct producer_part part;
    uint64_t used_ns; /* by the wall clock */
    uint32_t newer, older;
};

struct producers {
    struct producer_last *items; /* from 1 on */
    uint32_t count, limit;
    uint32_t newest, oldest;
    uint64_t idle_ns; /* 0: producers are not forgotten for being idle */
    struct map places;
};

enum producer_turn {
    PRODUCER_NEXT = 1, /* it has to be published */
    PRODUCER_DONE,     /* it was published before */
    PRODUCER_EARLY,    /* the part before it is missing */
};

static inline struct producers producers_of(uint32_t limit, uint64_t idle_ns) {
    return (struct producers){.limit = limit, .idle_ns = idle_ns};
}
void producers_free(struct producers *producers);
/* The last part of a producer; NULL: it is not known, or was forgotten. */
const struct producer_part *producers_last(const struct producers *producers, uint64_t key, uint64_t wall_ns);
enum producer_turn producers_ask(const struct producers *producers, const struct producer_part *part, uint64_t wall_ns);
/* Notes a published part. False when memory is short; nothing more may be done with it then. */
bool producers_note(struct producers *producers, const struct producer_part *part, uint64_t wall_ns);

#endif

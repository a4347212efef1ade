#include "shards/producers.h"

#include <string.h>

static uint32_t place_of(const struct producers *producers, uint64_t writer) {
    uint32_t i = 0;
    while (i < producers->count && producers->last[i].writer != writer) i++;
    return i;
}

enum producer_turn producers_ask(const struct producers *producers, const struct producer_part *part) {
    uint32_t i = place_of(producers, part->writer);
    if (i == producers->count || part->batch > producers->last[i].batch)
        return part->part == 0 ? PRODUCER_NEXT : PRODUCER_EARLY;
    if (part->batch < producers->last[i].batch || part->part <= producers->last[i].part) return PRODUCER_DONE;
    return part->part == producers->last[i].part + 1 ? PRODUCER_NEXT : PRODUCER_EARLY;
}

void producers_note(struct producers *producers, const struct producer_part *part) {
    uint32_t i = place_of(producers, part->writer);
    if (i == producers->count && ++producers->count > SHARD_PRODUCERS) {
        producers->count = SHARD_PRODUCERS;
        i = SHARD_PRODUCERS - 1;
    }
    memmove(&producers->last[1], &producers->last[0], i * sizeof producers->last[0]);
    producers->last[0] = *part;
}

/* What a shard remembers of those who must not publish twice: each one's last batch, and how many parts of it it has.
 *
 * Owns nothing: the memory of a few producers, the one that wrote last first; what a new one finds no place for, the one
 * that has been silent longest makes room for. Must never: know what a batch holds.
 */
#ifndef MQ_PRODUCERS_H
#define MQ_PRODUCERS_H

#include <stdint.h>

#include "ringbuf/message.h"

enum { SHARD_PRODUCERS = 64 };

struct producers {
    uint32_t count;
    struct producer_part last[SHARD_PRODUCERS];
};

enum producer_turn {
    PRODUCER_NEXT = 1, /* it is to be written */
    PRODUCER_DONE,     /* it has been */
    PRODUCER_EARLY,    /* the part before it has not */
};

enum producer_turn producers_ask(const struct producers *producers, const struct producer_part *part);
void producers_note(struct producers *producers, const struct producer_part *part);

#endif

/* What a shard remembers of those who must not publish twice: each one's last batch, and how many parts of it it has.
 *
 * Owns nothing: the memory of a few writers, the one that wrote last first; what a new one finds no place for, the one
 * that has been silent longest makes room for. Must never: know what a batch holds.
 */
#ifndef MQ_WRITERS_H
#define MQ_WRITERS_H

#include <stdint.h>

#include "message.h"

enum { SHARD_WRITERS = 64 };

struct writers {
    uint32_t count;
    struct once last[SHARD_WRITERS];
};

enum writer_turn {
    WRITER_NEXT = 1, /* it is to be written */
    WRITER_DONE,     /* it has been */
    WRITER_EARLY,    /* the part before it has not */
};

enum writer_turn writers_ask(const struct writers *writers, const struct once *part);
void writers_note(struct writers *writers, const struct once *part);

#endif

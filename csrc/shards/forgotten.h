/* How far forgotten topics had counted, so that one that comes back counts on from there, without a gap.
 *
 * Owns the next seqs of the FORGOTTEN_MOST topics of a shard that were forgotten last, by a hash of their names. A
 * topic that is not among them counts on from the shard's floor, which is never lower. Two names with one hash share
 * the higher seq. Each segment begins with all of it. Must never: say less than a topic's next seq, as its seqs would
 * be given out again. So nothing of it is believed where something of the log was lost, until the next segment begins.
 */
#ifndef MQ_FORGOTTEN_H
#define MQ_FORGOTTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

enum { FORGOTTEN_MOST = 1024 };

/* On disk too. */
struct forgotten_topic {
    uint64_t key;
    uint64_t next_seq; /* 0: an empty place */
};
_Static_assert(sizeof(struct forgotten_topic) == 16, "on-disk layout");

struct forgotten {
    struct forgotten_topic *items; /* a ring, which is full of them or of empty places */
    struct map places;             /* from a key to its place in the ring + 1 */
    uint32_t next;                 /* the place of the next one, and of the oldest */
    bool doubtful;                 /* recovery: records were lost, so nothing is noted */
};

uint64_t forgotten_key(const char *name, size_t name_bytes);
/* Where the topic counts on; 0: not known. */
uint64_t forgotten_next_seq(const struct forgotten *all, uint64_t key);
/* Notes a topic's next seq, and forgets the oldest one if there are too many. If memory is short nothing is noted. */
void forgotten_note(struct forgotten *all, uint64_t key, uint64_t next_seq);
/* A topic that is known again need not be remembered. With a higher seq it is another one, of the same hash. */
void forgotten_remove(struct forgotten *all, uint64_t key, uint64_t next_seq);
/* Forgets all; as long as it is doubtful, nothing is noted. */
void forgotten_clear(struct forgotten *all, bool doubtful);
/* Copies up to `most` of them, in the order in which they were noted. `at` is 0 at first, and says where to go on.
 * Returns how many there were; 0: there are no more. */
size_t forgotten_some(const struct forgotten *all, uint32_t *at, struct forgotten_topic *out, size_t most);
void forgotten_free(struct forgotten *all);

#endif

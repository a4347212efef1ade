/* The rest of a list of entries that is walked in several pieces, while entries come and go between the pieces.
 *
 * A tail begins with the entries that are in the list then. Each of them is met once, unless it is removed before; an
 * entry that is added later is never met. When an entry is removed, others are moved so that this stays true.
 */
#ifndef MQ_SUBJECT_TAIL_H
#define MQ_SUBJECT_TAIL_H

#include "base/subject.h"

struct subject_tail {
    struct subject_tail *next; /* of the same subjects */
    struct subject_entries *entries;
    uint32_t begin, end; /* places in `entries` that are still to be walked; `entries` is valid while there are any */
};

/* Closes a gap in `entries` as far as tails are concerned: moves entries across it. Returns where the gap is then; it
 * may be filled with the last entry. */
uint32_t subject_tails_close_gap(struct subject_tail *first, struct subject_entries *entries, uint32_t gap);

#endif

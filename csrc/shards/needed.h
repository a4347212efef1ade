/* From which segment on a start has to read a shard's log: nothing that is held or retained lies before it. Older ones
 * are kept for readers of the log only, and a start passes them over, as if they had been dropped. */
#ifndef MQ_NEEDED_H
#define MQ_NEEDED_H

#include <stdint.h>

struct shard;
struct worker;

/* That segment, if it lies behind `from`; 0: it does not, or what is retained has not been looked through yet. Looks at
 * a bounded number of pages. */
uint32_t shard_needed_from(struct worker *w, struct shard *s, uint32_t from);

#endif

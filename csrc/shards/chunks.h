/* With POLICY_TURNS each message goes to another consumer, but all chunks of a message go to the same one, in their
 * order. The slot of their key says which belong together. */
#ifndef MQ_SHARDS_CHUNKS_H
#define MQ_SHARDS_CHUNKS_H

#include "shards/worker_state.h"

/* The most chunks held back for consumers that have earlier chunks of the same message and can take none now; with
 * more, no message overtakes them. Also how many are looked at to find one that may go. */
enum { CHUNKS_HELD_BACK = 64 };

bool chunk_is(const struct worker *w, uint32_t subscription, const struct record *r);
/* The consumer for a chunk: the one that has others of its message in flight, else `consumer`. 0: that one cannot take
 * it now. */
uint32_t chunk_holder(const struct worker *w, uint32_t subscription, const struct record *r, uint32_t consumer);
/* The first chunk with that slot among the first redeliveries; 0: none. */
uint32_t chunk_again(const struct worker *w, uint32_t subscription, uint16_t slot);
/* The first redelivery that may be delivered now, be it a chunk or not; 0: none of the first few may. */
uint32_t chunk_first_again(const struct worker *w, uint32_t subscription, uint32_t consumer);
/* A chunk is in flight now: the following ones go to the same consumer, if there is room to note that. */
void chunk_hold(struct worker *w, uint32_t delivery, uint16_t slot);

#endif

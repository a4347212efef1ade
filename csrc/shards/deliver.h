/* Sends a message to a consumer, which pays with its permits and its window. */
#ifndef MQ_SHARDS_DELIVER_H
#define MQ_SHARDS_DELIVER_H

#include "shards/worker_state.h"

/* A message as it is stored, or of a batch the parts that are left of it. */
void deliver_whole(struct worker *w, uint32_t delivery, const struct record *r, uint32_t consumer);
/* `count` parts of a split batch, or the only message of a packed one; the acceptor unpacks them. */
void deliver_packed(struct worker *w, uint32_t delivery, const struct record *r, uint32_t consumer, uint32_t count);
/* There is nothing more to read: consumers whose permits are used up get no more than they have. */
void deliver_reads_end(struct worker *w, uint32_t subscription);

#endif

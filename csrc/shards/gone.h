/* A client that has left lets go of what it had: of some at once, of the rest a piece a turn. */
#ifndef MQ_SHARDS_GONE_H
#define MQ_SHARDS_GONE_H

#include "shards/worker_state.h"

/* Returns how many watches, consumers and producers it had to let go of at once, whatever was left of the turn. */
uint32_t client_gone(struct worker *w, uint32_t client);
/* Goes on with clients that have left, in the order in which they did. True: there is more. */
bool clients_leave(struct worker *w);

#endif

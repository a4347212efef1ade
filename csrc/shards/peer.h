/* Acceptors that attach and die. */
#ifndef MQ_SHARDS_PEER_H
#define MQ_SHARDS_PEER_H

#include "shards/worker_state.h"

/* Releases some of what dead acceptors had. True if there is more. */
bool peers_leave(struct worker *w);
void peers_free(struct worker *w);

#endif

/* Delivers messages, each to the next consumer that may take one, and writes the log records of that. */
#ifndef MQ_SHARDS_DISPATCH_H
#define MQ_SHARDS_DISPATCH_H

#include "shards/worker_state.h"

/* Delivers what is due. True if there is more for the next turn. */
bool dispatch(struct worker *w);

#endif

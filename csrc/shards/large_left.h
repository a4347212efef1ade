/* Large messages that no request goes on with. */
#ifndef MQ_SHARDS_LARGE_LEFT_H
#define MQ_SHARDS_LARGE_LEFT_H

#include "shards/worker_state.h"

/* A file that cannot be cut, as its disk fails, is tried again after so long. */
#define CUT_AGAIN_NS ((uint64_t)100000000)

/* Goes on with large messages whose clients have left, and cuts off dropped ones. True if it is to be called again at
 * once; w->larges_left: later at least. */
bool larges_go_on(struct worker *w);
void larges_free(struct worker *w);

/* The client has gone: its large publish is still written to its end. */
void large_leave(struct worker *w, uint32_t client);

#endif

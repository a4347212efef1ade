/* Answers when the oldest message was published that a channel has not finished, or that is next in a tube. */
#ifndef MQ_SHARDS_OLDEST_H
#define MQ_SHARDS_OLDEST_H

#include "shards/worker_state.h"

enum outcome oldest(struct worker *w, uint32_t client, const struct message *m);

#endif

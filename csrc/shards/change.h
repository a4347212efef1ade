/* CHANGE: a topic or channel is made, paused, emptied, deleted, terminated, or retained. */
#ifndef MQ_SHARDS_CHANGE_H
#define MQ_SHARDS_CHANGE_H

#include "shards/worker_state.h"

enum outcome topic_change(struct worker *w, uint32_t client, const struct message *m);

#endif

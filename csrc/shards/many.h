/* Carries out a PUBLISH_MANY. */
#ifndef MQ_SHARDS_MANY_H
#define MQ_SHARDS_MANY_H

#include "shards/worker_state.h"

enum outcome publish_many(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* Whether a PUBLISH_MANY has begun to be written as a group, so that it goes on even if the client leaves. */
bool many_is_begun(const struct client *c);

#endif

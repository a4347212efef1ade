/* What is called for each kind of request. */
#ifndef MQ_SHARDS_EXECUTE_H
#define MQ_SHARDS_EXECUTE_H

#include "shards/worker_state.h"

/* Carries out a request. `topic` is the worker's own number. */
enum outcome execute(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
/* Whether a request that may touch much has to wait for the next turn, because others have done so in this one. */
bool execute_later(const struct worker *w, const struct message *m);

#endif

/* A topic becomes durable. */
#ifndef MQ_SHARDS_DURABLE_H
#define MQ_SHARDS_DURABLE_H

#include "shards/worker_state.h"

enum outcome topic_make_durable(struct worker *w, uint32_t topic, uint8_t *status);
/* Reserves room to write the topic's record again, the last of which counts; `more`: as for a publish, since it will
 * free none on a full disk. */
enum outcome topic_reserve(struct worker *w, uint32_t topic, bool more, uint8_t *status);
/* During recovery: the topic is durable. */
void replay_durable(struct worker *w, uint32_t topic, bool ephemeral);

#endif

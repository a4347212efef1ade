/* Requests about positions. */
#ifndef MQ_SHARDS_POSITION_H
#define MQ_SHARDS_POSITION_H

#include "shards/worker_state.h"

enum outcome position_seek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome position_tell(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome position_peek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome position_backlog(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

#endif

/* Carries out requests to the job queue of a topic. */
#ifndef MQ_SHARDS_TUBE_H
#define MQ_SHARDS_TUBE_H

#include "shards/worker_state.h"

enum outcome tube_reserve(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_probe(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_take(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_reserve_id(struct worker *w, uint32_t client, const struct message *m);
void tube_give_back(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_delete(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_release(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_bury(struct worker *w, uint32_t client, const struct message *m);
void tube_touch(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_kick_id(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_kick(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome tube_peek_id(struct worker *w, uint32_t client, const struct message *m);
enum outcome tube_peek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

#endif

/* Sends answers, and jobs to the clients that asked for one. */
#ifndef MQ_SHARDS_ANSWERS_H
#define MQ_SHARDS_ANSWERS_H

#include "shards/worker_state.h"

void request_answer(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint8_t status, uint64_t id);
void request_deliver(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint32_t job);

struct message request_answer_of(const struct worker *w, uint32_t client, const struct message *m, uint8_t status);
void request_send(struct worker *w, uint32_t client, struct message *answer, const void *body, size_t body_bytes);
/* As channel_send for a body in the shard's log: a large one is read from there as it moves into the ring. */
void request_send_lent(struct channel *channel, const struct shard *s, const struct message *m, const void *body,
                       size_t body_bytes);
/* Answers with a body that is in the shard's log. */
void request_send_logged(struct worker *w, uint32_t client, const struct shard *s, struct message *answer,
                         const void *body, size_t body_bytes);
/* Whether a body may be sent with request_send_logged now: a large one, not while its acceptor is sent as much as it
 * takes. Many clients may have waited for one message to be looked at, and what they get would be copied. */
bool request_may_send(struct worker *w, uint32_t client, size_t body_bytes);
/* Answers `count` PUBLISHes with OK, JOINED_MOST at most, joined with the answers before them if possible. */
void request_joined(struct worker *w, uint32_t client, struct message *answer, uint32_t count);
/* Answers with a status and the request's id. */
void request_done(struct worker *w, uint32_t client, const struct message *m, uint8_t status);

#endif

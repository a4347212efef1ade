/* Carries out consumers' requests. */
#ifndef MQ_SHARDS_CONSUME_H
#define MQ_SHARDS_CONSUME_H

#include "shards/worker_state.h"

enum outcome consumer_subscribe(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void consumer_close(struct worker *w, uint32_t client, const struct message *m);
/* Removes the next consumer of a client that has left. False: it has none. */
bool consumer_leave_client(struct worker *w, uint32_t client);
/* Delivers nothing more to a client's consumers. What is in flight to them no longer counts for its acceptor. */
void consumers_stop(struct worker *w, uint32_t client);
void consumer_credit(struct worker *w, uint32_t client, const struct message *m);
void consumer_sent(struct worker *w, uint32_t client, const struct message *m);
enum outcome consumer_finish(struct worker *w, uint32_t client, const struct message *m);
enum outcome consumer_requeue(struct worker *w, uint32_t client, const struct message *m);
void consumer_extend(struct worker *w, uint32_t client, const struct message *m);

#endif

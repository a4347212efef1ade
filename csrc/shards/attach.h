/* Producers attach to topics, and leave. */
#ifndef MQ_SHARDS_ATTACH_H
#define MQ_SHARDS_ATTACH_H

#include "shards/worker_state.h"

bool attachments_open(struct attachments *all, uint32_t limit);
void attachments_close(struct attachments *all);

/* Detaches the next producer of a client that has left. False: it has none. */
bool producer_leave_client(struct worker *w, uint32_t client);

enum outcome attach(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
void attach_end(struct worker *w, uint32_t client, const struct message *m);

#endif

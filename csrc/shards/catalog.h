/* Lists of topics and subscriptions, with their figures. */
#ifndef MQ_SHARDS_CATALOG_H
#define MQ_SHARDS_CATALOG_H

#include "shards/worker_state.h"

enum outcome catalog(struct worker *w, uint32_t client, const struct message *m);
void catalog_list(struct worker *w, uint32_t client, const struct message *m);
enum outcome transactions_list(struct worker *w, uint32_t client, const struct message *m);
void catalog_rings(struct worker *w, uint32_t client, const struct message *m);
/* Recovery is over: from now on topics and channels count new messages apart from recovered ones. */
void catalog_begins(struct worker *w);
void sheet_free(struct client *c);
/* The topic has got its first messages. */
void catalog_heard(struct worker *w, uint32_t topic);

#endif

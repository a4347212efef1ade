/* The topics that are open, by the numbers that acceptors give them. */
#ifndef MQ_SHARDS_OPENED_H
#define MQ_SHARDS_OPENED_H

#include "shards/worker_state.h"

/* The topic that is bound to an acceptor's number; 0: none. */
uint32_t opened_find(const struct worker *w, uint32_t acceptor, const struct message *m);
void opened_open(struct worker *w, uint32_t acceptor, const struct message *m);
void opened_forget(struct worker *w, uint32_t acceptor, const struct message *m);
/* Unbinds an acceptor's number. */
void opened_close(struct worker *w, struct opened *opened);
/* Adds a reference to a topic, which is listed while it has any. */
void opened_hold(struct worker *w, uint32_t topic);
void opened_let_go(struct worker *w, uint32_t topic);
/* A client has references to the topics it uses and watches, because its acceptor may close a number before the client
 * learns of it. */
enum outcome opened_use(struct worker *w, uint32_t client, uint32_t topic, bool asked_for);
enum outcome opened_watch(struct worker *w, uint32_t client, uint32_t topic, bool asked_for);
void opened_ignore(struct worker *w, uint32_t client, uint32_t topic);

#endif

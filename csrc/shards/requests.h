/* Calls the function for each message of the shard protocol, and parks requests until they can be carried out. */
#ifndef MQ_SHARDS_REQUESTS_H
#define MQ_SHARDS_REQUESTS_H

#include "shards/worker_state.h"

/* Carries out a message. False: it must wait for a segment; call again. */
bool request_handle(struct worker *w, uint32_t acceptor, const struct message *m);
bool requests_run_parked(struct worker *w);
/* Goes on with requests that the previous turn left unfinished. True if there were any. */
bool requests_resume(struct worker *w);
/* Returns how many watches, consumers and producers it had to let go of at once, whatever was left of the turn. */
uint32_t client_gone(struct worker *w, uint32_t client);

#endif

/* Messages of the shard protocol are carried out in the order in which a client sent them; what must wait stands in
 * line. */
#ifndef MQ_SHARDS_REQUESTS_H
#define MQ_SHARDS_REQUESTS_H

#include "shards/worker_state.h"

/* Carries out a message. False: it must wait for a segment; call again. */
bool request_handle(struct worker *w, uint32_t acceptor, const struct message *m);
/* Goes on with parked requests of clients that no longer wait. Called for each message, mostly for nothing. */
void requests_run_runnable(struct worker *w);
static inline void requests_run_parked(struct worker *w) {
    if (w->clients.lines[LINE_RUNNABLE].first) requests_run_runnable(w);
}
/* Goes on with requests that the previous turn left unfinished. True if there were any. */
bool requests_resume(struct worker *w);

#endif

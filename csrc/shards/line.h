/* A client's requests stand in line: what comes while one of them waits is parked, with a reference to its topic. */
#ifndef MQ_SHARDS_LINE_H
#define MQ_SHARDS_LINE_H

#include "shards/worker_state.h"

/* `done`: how many requests of a REQUEST_EACH have been done. */
void line_park(struct worker *w, uint32_t acceptor, uint32_t client, const struct message *m, uint32_t done);
void line_drop_first(struct worker *w, uint32_t client);
void line_drop_all(struct worker *w, uint32_t client);
/* The next request has done nothing yet. */
void line_reset(struct worker *w, uint32_t client);

/* The client's request goes on in the next turn, behind those of other clients. */
static inline void line_put_off(struct worker *w, uint32_t client) {
    client_line_up(&w->clients, LINE_UNFINISHED, client);
}

#endif

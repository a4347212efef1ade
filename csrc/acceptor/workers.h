/* The workers: attach, lose, receive replies. */
#ifndef MQ_WORKERS_H
#define MQ_WORKERS_H

#include "acceptor/acceptor_state.h"

/* Handles the workers' messages; false if there were none. */
bool peers_hear(struct acceptor *a);
/* Notes which workers have a backlog, and wakes the connections that waited for the others. */
void peers_look(struct acceptor *a);
void peers_publish(struct acceptor *a);
/* Frees what their channels kept for overflow and did not need. Returns the bytes. */
size_t peers_trim(struct acceptor *a);

#endif

/* Lists in which connections wait for their turn, by their numbers. */
#ifndef MQ_LISTS_H
#define MQ_LISTS_H

#include "acceptor/acceptor_state.h"

/* Without memory for a few numbers the process cannot go on; the supervisor starts another acceptor. */
void connection_list_add(struct connection_list *list, uint32_t number);
/* Wakes the connections of a list that are stalled for that reason, and empties it. */
void connection_list_wake(struct acceptor *a, struct connection_list *list, enum stall why);

/* The connection's input may go on. */
void socket_wake(struct acceptor *a, struct connection *c);
/* Has its input parsed in the next turn, unless it is stalled then. */
void socket_schedule(struct acceptor *a, struct connection *c);
/* The connection has something to send, or is to be closed. */
static inline void socket_dirty(struct acceptor *a, struct connection *c) {
    if (c->dirty) return;
    c->dirty = true;
    connection_list_add(&a->dirty, c->number);
}

#endif

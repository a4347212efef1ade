/* A connection whose bytes pass through Python on their way. */
#ifndef MQ_FILTER_H
#define MQ_FILTER_H

#include "acceptor/acceptor_state.h"

/* Hands input of a filtered connection to Python. */
void filter_received(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
/* The input of a filtered connection has ended while Python has its command: ends the connection, unless it is to be
 * heard out. */
void filter_ended(struct acceptor *a, struct connection *c);
/* The codec can take more of the filtered input, in this turn or the next. */
void filter_go_on(struct acceptor *a, struct connection *c);
/* Hands as much output to Python as may wait there. */
void filter_pass(struct acceptor *a, struct connection *c);
/* Python has taken an UPCALL_OUTPUT. */
void filter_taken(struct acceptor *a, struct connection *c, size_t bytes);

#endif

/* A turn of an acceptor's loop: see turn.c. */
#ifndef MQ_TURN_H
#define MQ_TURN_H

#include "acceptor/engine.h"

/* The data of an epoll event: the number of a connection, or one of these. */
#define EVENT_WAKE     ((uint64_t)1 << 32)
#define EVENT_CONTROL  ((uint64_t)2 << 32)
#define EVENT_POKE     ((uint64_t)3 << 32)
#define EVENT_LISTENER ((uint64_t)4 << 32) /* plus its index */

/* Runs a turn. Waits for events only if there is nothing else to do. False if there was nothing to do. */
bool turn(struct acceptor *a, int timeout_ms);

/* Tells the workers and other acceptors that this process is about to sleep. False if there is something to do first.
 * */
bool turn_may_sleep(struct acceptor *a);
void turn_awake(struct acceptor *a);

#endif

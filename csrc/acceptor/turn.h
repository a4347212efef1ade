/* A turn of an acceptor's loop: see turn.c. */
#ifndef MQ_TURN_H
#define MQ_TURN_H

#include "acceptor/engine.h"

/* What an event is about: the number of a connection, or one of these. */
#define EVENT_WAKE     ((uint64_t)1 << 32)
#define EVENT_CONTROL  ((uint64_t)2 << 32)
#define EVENT_POKE     ((uint64_t)3 << 32)
#define EVENT_LISTENER ((uint64_t)4 << 32) /* and which */

/* Waits for events only if there is nothing else to do. False if there was nothing to do. */
bool turn(struct acceptor *a, int timeout_ms);

/* Of a process that is about to wait: says so to the workers. False if there is something to do first. */
bool all_may_sleep(struct acceptor *a);
void all_awake(struct acceptor *a);

#endif

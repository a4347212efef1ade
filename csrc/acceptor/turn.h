/* A turn of an acceptor's loop: see turn.c. */
#ifndef MQ_TURN_H
#define MQ_TURN_H

#include "acceptor/acceptor_state.h"

/* Runs a turn. Waits for events only if there is nothing else to do. False if there was nothing to do. */
bool turn(struct acceptor *a, int timeout_ms);

/* Tells the workers and other acceptors that this process is about to sleep. False if there is something to do first.
 * */
bool turn_may_sleep(struct acceptor *a);
void turn_awake(struct acceptor *a);

#endif

/* A reserve over several workers, which has one reply in the end.
 *
 *   probing   every worker concerned is asked for its most urgent message. If any has one:
 *   taking    the worker with the smallest (pri, id) is asked for it, provided it is still no less urgent than what the
 *             second best had; if another client was faster, probing begins anew (some client makes progress each time)
 *   waiting   no worker had any: all are asked to reserve. The first delivery is the reply; the others are cancelled,
 *             and what they deliver nevertheless is returned, untouched
 *
 * It runs alone on its connection: nothing else is under way, and no input is taken until all workers have answered.
 * Its slot is the one at the head all that time, and all its messages bear that slot's number.
 */
#ifndef MQ_GATHER_H
#define MQ_GATHER_H

#include "acceptor/protocols/beanstalk/beanstalk_state.h"

/* Begins a reserve. The connection has nothing else under way. */
void gather_begin(struct acceptor *a, struct connection *c, uint64_t timeout_ns);
/* Handles a reply to its slot. */
void gather_hear(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply);
/* The connection is closed: no reply is expected any more. */
void gather_forget(struct acceptor *a, struct connection *c);
/* The client has hung up: ends the wait. */
void gather_cancel(struct acceptor *a, struct connection *c);
/* A worker has died, and all it had sent has been handled. */
void gather_lost(struct acceptor *a, struct connection *c, uint32_t worker);
/* The worker is back. */
void gather_again(struct acceptor *a, struct connection *c, uint32_t worker);

#endif

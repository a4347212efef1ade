/* A reserve over several workers, and what it comes to is one reply.
 *
 *   probing   every worker concerned is asked for its most urgent message. If any has one:
 *   taking    the worker with the smallest (pri, id) is asked for it, provided it is still no less urgent than what the
 *             second best had; if it has gone, probing begins anew (somebody else has got on, so this ends)
 *   waiting   nobody had any: all are asked to reserve. The first delivery is the reply; the others are cancelled, and
 *             what they deliver nevertheless is returned, untouched
 *
 * It runs alone on its connection: nothing else is under way, and no input is taken until all workers have answered.
 * Its slot is the one at the head all that time, and all its messages bear that slot's number.
 */
#ifndef MQ_GATHER_H
#define MQ_GATHER_H

#include "acceptor/protocols/beanstalk/beanstalk.h"

/* May be done alone. */
void gather_begin(struct acceptor *a, struct connection *c, uint64_t timeout_ns);
/* A reply came for its slot. */
void gather_hear(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply);
/* The connection is closed: no reply is expected any more. */
void gather_forget(struct acceptor *a, struct connection *c);
/* The client has hung up: do not wait any longer. */
void gather_cancel(struct acceptor *a, struct connection *c);
/* A worker has died, and what it had to say has been heard. */
void gather_lost(struct acceptor *a, struct connection *c, uint32_t worker);
/* It is back. */
void gather_again(struct acceptor *a, struct connection *c, uint32_t worker);

#endif

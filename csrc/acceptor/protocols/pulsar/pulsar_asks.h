/* Requests to workers, which take no slots. */
#ifndef MQ_PULSAR_ASKS_H
#define MQ_PULSAR_ASKS_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* Sends a message about a consumer to its worker. */
void pulsar_tell_worker(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                        struct message message, const void *body);
/* The same for a FINISH that nobody asked an answer for: its worker need not be woken at once. */
void pulsar_tell_finished(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                          struct message finish, const void *body);
void pulsar_tell_permits(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                         uint64_t permits);

/* Takes a place for a request to a worker; NULL when memory is short. There must be fewer than PULSAR_MAX_PENDING. */
struct pulsar_pending *pulsar_pend(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t worker,
                                   uint32_t *place);
/* Gives the place back. */
void pulsar_settle(struct acceptor *a, struct connection *c, struct pulsar_pending *pending);

/* Frees the memory of a burst's pending requests, if none is pending. */
void pulsar_free_pending(struct pulsar *p);
/* Resumes input that was stalled with STALL_OUTSTANDING. */
void pulsar_wake(struct acceptor *a, struct connection *c);
/* Whether a worker may be sent another request; if not, stalls the connection. */
bool pulsar_may_send(struct acceptor *a, struct connection *c, uint32_t worker);

#endif

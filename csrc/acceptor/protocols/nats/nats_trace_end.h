/* The end of a trace: its event is published. */
#ifndef MQ_NATS_TRACE_END_H
#define MQ_NATS_TRACE_END_H

#include "acceptor/protocols/nats/nats_state.h"

/* The message has been delivered here: publishes the event, unless other acceptors have yet to tell their part. */
void nats_trace_end(struct acceptor *a, struct nats_server *server);
/* An acceptor has gone, perhaps with what it had to tell: publishes all events that wait. */
void nats_trace_give_up(struct acceptor *a, struct nats_server *server);
/* A traced message has come from another acceptor, ... */
void nats_trace_continue(struct acceptor *a, struct nats_server *server, uint64_t number, uint32_t flags);
/* ... and has been delivered: tells the acceptor that has the trace. */
void nats_trace_tell(struct acceptor *a, struct nats_server *server, uint32_t flags);
/* An acceptor tells its part. */
void nats_trace_told(struct acceptor *a, struct nats_server *server, uint64_t number, const uint8_t *body,
                     size_t bytes);

#endif

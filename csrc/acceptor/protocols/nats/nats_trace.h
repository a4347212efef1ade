/* Message tracing. A message with the header Nats-Trace-Dest, or with traceparent in an account that has a destination
 * for traces, is delivered as any other, and what happens to it is published in its account as JSON: an event from each
 * server that it passes. With Nats-Trace-Only it is delivered to nobody, but its event tells who would have had it.
 *
 *   nats_trace.c     whether a message is traced
 *   nats_traced.c    what is told of it
 *   nats_trace_end.c ... when it is published, with what other acceptors tell
 *   nats_hops.c      traced messages for other servers
 *
 * `server->trace` is the trace of the message that is being delivered, NULL for nearly all messages. Other acceptors
 * tell what they did with the message; until all have, the event waits.
 */
#ifndef MQ_NATS_TRACE_H
#define MQ_NATS_TRACE_H

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_message.h"
#include "acceptor/protocols/nats/nats_trace_state.h"

/* Whether headers have to be read to know whether a message is traced. Most have no line that begins so. */
bool nats_may_be_traced(const struct nats_account *account, const struct nats_message *m);
/* Begins the trace of a message, if it is to be traced; NATS_NOT_TAKEN: nothing at all is to be done with it. May
 * change its headers, so that no other server traces it. */
enum nats_traced nats_trace_begin(struct acceptor *a, struct nats_server *server, const struct nats_ingress *from,
                                  struct nats_message *m);
/* The value of a header ("Name:"); empty if there is none. */
struct text nats_header_of(const struct nats_message *m, const char *name);
/* The value of Nats-Trace-Dest by which servers know that they must not trace a message. */
struct text nats_trace_disabled(void);
/* Sets where messages with traceparent are traced to: "PERCENT SUBJECT"; empty: nowhere. */
bool nats_trace_account(struct nats_account *account, struct text said);

#endif

/* The event of a traced message, part by part. */
#ifndef MQ_NATS_TRACED_H
#define MQ_NATS_TRACED_H

#include "acceptor/protocols/nats/nats_delivery.h"
#include "acceptor/protocols/nats/nats_message.h"
#include "acceptor/protocols/nats/nats_subscription_state.h"
#include "acceptor/protocols/nats/nats_trace_state.h"

/* As nats_give, for a message that is traced, which perhaps nobody is to have. */
__attribute__((noinline, cold)) void nats_give_traced(struct nats_delivery *d, struct nats_subscription *s);

struct nats_trace *nats_trace_new(struct acceptor *a, struct nats_server *server, uint32_t account, struct text dest,
                                  struct text hop);
/* The first event: the message has come. `names` and `values` are its headers. */
void nats_trace_ingress(struct acceptor *a, struct nats_trace *t, const struct nats_ingress *from,
                        const struct nats_message *m, const struct text *names, const struct text *values,
                        size_t headers);
/* Why the message was refused, like -ERR's text. */
void nats_trace_refused(struct nats_server *server, const char *text);
void nats_trace_violation(struct nats_server *server, const char *what, struct text subject);
void nats_trace_mapped(struct acceptor *a, struct nats_server *server, struct text subject);
void nats_trace_import(struct acceptor *a, struct nats_server *server, uint32_t account, struct text from,
                       struct text to);

void nats_trace_egress(struct acceptor *a, const struct nats_server *server, struct nats_trace *t,
                       const struct nats_egress *e);
/* What has happened to the message here, as another acceptor adds it to the event. */
struct text nats_trace_part(const struct nats_trace *t);
void nats_trace_add(struct nats_trace *t, struct text events);
void nats_trace_free(struct nats_trace *t);

#endif

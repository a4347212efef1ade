/* PUB, DPUB and MPUB. */
#ifndef MQ_NSQ_PUBLISH_H
#define MQ_NSQ_PUBLISH_H

#include "acceptor/protocols/nsq/nsq_command.h"

/* The key in `grants` for a topic and a connection that has a number. */
struct nsq_granted nsq_granted_to(const struct nsq_options *options, const struct nsq *n, struct text topic);

size_t nsq_pub(struct acceptor *a, struct connection *c, struct command *k);
size_t nsq_dpub(struct acceptor *a, struct connection *c, struct command *k);
size_t nsq_mpub(struct acceptor *a, struct connection *c, struct command *k);

#endif

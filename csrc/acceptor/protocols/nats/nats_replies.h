/* Answers to requests, which a client may send that may publish nothing else. */
#ifndef MQ_NATS_REPLIES_H
#define MQ_NATS_REPLIES_H

#include <stdbool.h>

#include "base/text.h"

struct acceptor;
struct connection;
struct nats_replies;

/* Notes that a message with this reply subject was delivered to the connection, which may then answer it. */
void nats_reply_expect(struct acceptor *a, struct connection *c, struct text reply);
/* Whether the connection may publish to this subject as an answer, which is counted. */
bool nats_reply_allowed(struct acceptor *a, struct connection *c, struct text subject);
void nats_replies_free(struct nats_replies *replies);

#endif

/* What a client is told outside of messages, and how its connection ends. */
#ifndef MQ_NATS_SAY_H
#define MQ_NATS_SAY_H

#include "acceptor/protocols/nats/nats_state.h"

void nats_say(struct acceptor *a, struct connection *c, const void *text, size_t bytes);
void nats_say_error(struct acceptor *a, struct connection *c, const char *text);
/* Says +OK if the client is verbose. */
void nats_say_ok(struct acceptor *a, struct connection *c);
/* Says `before`, then `text` in double quotes as Go's %q writes them. */
void nats_say_quoted(struct acceptor *a, struct connection *c, const char *before, struct text text);
/* Sends -ERR 'Permissions Violation for WHAT "subject" using queue "queue"'. */
void nats_say_violation(struct acceptor *a, struct connection *c, const char *what, struct text subject,
                        struct text queue);
/* Closes the connection when its output has been sent, or is not taken in time. */
void nats_hang_up(struct acceptor *a, struct connection *c, enum nats_reason reason);
/* Says -ERR 'text' and ends the connection. */
void nats_end(struct acceptor *a, struct connection *c, enum nats_reason reason, const char *text);

#endif

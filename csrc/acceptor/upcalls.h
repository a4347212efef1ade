/* What Python is told, kept until it asks. */
#ifndef MQ_UPCALLS_H
#define MQ_UPCALLS_H

#include "acceptor/acceptor_state.h"

void upcalls_free(struct acceptor *a);
/* Queues an upcall with a copy of `bytes`; answer may be NULL. What is not about a connection comes before all that is:
 * the supervisor, which waits for an answer, must not wait for what clients have asked for. */
void upcall_push(struct acceptor *a, uint32_t kind, uint32_t conn, uint32_t protocol, const struct message *answer,
                 const void *bytes, size_t bytes_count);

/* Whether Python may be handed more commands than it has, by whoever comes. */
bool upcall_has_room(const struct acceptor *a);
/* A command of so many bytes may go to Python in this turn; else its connection stalls until a later one. */
bool upcall_may_push(struct acceptor *a, struct connection *c, size_t bytes);
/* Hands a line to Python. may_do_alone() has allowed it. */
void reply_by_python(struct acceptor *a, struct connection *c, const uint8_t *line, size_t bytes);

#endif

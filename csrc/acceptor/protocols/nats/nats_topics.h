/* Subjects whose messages are logged in topics: which they are (nats_bound.c), and how (nats_topics.c). */
#ifndef MQ_NATS_TOPICS_H
#define MQ_NATS_TOPICS_H

#include "acceptor/protocols/nats/nats.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "base/decimal.h"

/* --- nats_bound.c ------------------------------------------------------------------------------------------------- */

/* Replaces the bindings. `lines`: the queue group of servers that share them, perhaps empty, then one pattern a line.
 * CALL_REFUSED, with nothing changed, if a pattern is invalid or memory is short. */
int64_t nats_bind_topics(struct acceptor *a, struct nats_server *server, const uint8_t *lines, size_t bytes);
void nats_unbind_topics(struct nats_server *server);
bool nats_is_bound(struct nats_server *server, struct text subject);
/* Whether a message published here is logged here, and there is a queue group, of which no other server may log it. */
bool nats_is_shared(struct nats_server *server, uint32_t account, struct text subject);
/* Whether a message that came over a route, for these groups, is to be logged here. */
bool nats_is_kept_routed(struct nats_server *server, uint32_t account, struct text subject, const struct text *groups,
                         size_t count);

/* --- nats_topics.c ------------------------------------------------------------------------------------------------ */

/* Whether a message can be handled now; if it is to be logged and its worker is busy, the connection stalls. */
bool nats_may_keep(struct acceptor *a, struct connection *c, const struct nats_message *m);
/* Has a message logged if its subject is bound; false if it is not. */
bool nats_keep(struct acceptor *a, struct connection *c, const struct nats_message *m);
/* The same for messages of which nats_is_kept_routed() is true. */
bool nats_may_keep_routed(struct acceptor *a, struct connection *c, const struct nats_message *m);
void nats_keep_routed(struct acceptor *a, struct connection *c, struct nats_server *server,
                      const struct nats_message *m);
/* Handle the worker's reply (see struct codec), and tell the publisher: .replied and .answer of the codecs. */
void nats_kept(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
               const struct message *reply);
void nats_not_kept(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t status, uint64_t value, uint64_t id,
                   const uint8_t *body, uint32_t body_bytes);
void nats_kept_routed(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
                      const struct message *reply);
void nats_not_kept_routed(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t status, uint64_t value,
                          uint64_t id, const uint8_t *body, uint32_t body_bytes);

/* Messages that other protocols publish to bound topics, for NATS subscribers. */
bool nats_wants_topic(struct acceptor *a, void *state, const uint8_t *name, size_t bytes);
void nats_topic_published(struct acceptor *a, void *state, const struct published *message);

/* nats_headers.c: returns scratch room, valid until the next call; NULL: memory is short. */
uint8_t *nats_kept_room(struct nats_server *server, size_t bytes);
/* Sets headers and payload of a message from another protocol, perhaps in that room. */
void nats_put_body(struct nats_server *server, const struct published *message, struct nats_message *m);

#endif

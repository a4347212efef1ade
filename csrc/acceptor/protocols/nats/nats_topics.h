/* Subjects whose messages are kept in topics; see nats_topics.c. */
#ifndef MQ_NATS_TOPICS_H
#define MQ_NATS_TOPICS_H

#include "acceptor/protocols/nats/nats.h"
#include "base/decimal.h"

/* A line with the group of servers that share them, which may be empty, and then one for each pattern. In place of
 * those that were bound; CALL_REFUSED if one is none. */
int64_t nats_bind_topics(struct acceptor *a, struct nats_server *server, const uint8_t *lines, size_t bytes);
void nats_unbind_topics(struct nats_server *server);
bool nats_is_bound(struct nats_server *server, struct text subject);
/* Whether a message that was published here is kept here, and so by no other server of the group of that name. */
bool nats_is_shared(struct nats_server *server, uint32_t account, struct text subject);
/* Whether a message that came over a route, for these groups, is to be kept here. */
bool nats_is_kept_routed(struct nats_server *server, uint32_t account, struct text subject, const struct text *groups,
                         size_t count);

/* Whether nothing stands in the way of keeping a message, if it is to be kept; else the connection stalls. */
bool nats_may_keep(struct acceptor *a, struct connection *c, const struct nats_message *m);
/* Has a message kept that is to be; false if it is not. */
bool nats_keep(struct acceptor *a, struct connection *c, const struct nats_message *m);
/* The same, of one that nats_is_kept_routed(). */
bool nats_may_keep_routed(struct acceptor *a, struct connection *c, const struct nats_message *m);
void nats_keep_routed(struct acceptor *a, struct connection *c, struct nats_server *server,
                      const struct nats_message *m);
/* What a worker said of it; and what was answered, by it or for it. */
void nats_kept(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
               const struct message *reply);
void nats_not_kept(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t status, uint64_t value, uint64_t id,
                   const uint8_t *body, uint32_t body_bytes);
void nats_kept_routed(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
                      const struct message *reply);
void nats_not_kept_routed(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t status, uint64_t value,
                          uint64_t id, const uint8_t *body, uint32_t body_bytes);

/* What others publish to bound topics, for whoever subscribes. */
bool nats_wants_topic(struct acceptor *a, void *state, const uint8_t *name, size_t bytes);
void nats_topic_published(struct acceptor *a, void *state, const struct published *message);

/* nats_headers.c: room in `kept`, until the next one has it; NULL: memory is short. */
uint8_t *nats_kept_room(struct nats_server *server, size_t bytes);
/* Headers and payload of what was published, perhaps in that room. */
void nats_put_body(struct nats_server *server, const struct published *message, struct nats_message *m);

#endif

/* Messages that are logged in topics, and those that other protocols publish there. */
#ifndef MQ_NATS_TOPICS_H
#define MQ_NATS_TOPICS_H

#include "acceptor/protocols/nats/nats_message.h"

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
void nats_not_kept(struct acceptor *a, struct connection *c, const struct codec_answer *answer);
void nats_kept_routed(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
                      const struct message *reply);
void nats_not_kept_routed(struct acceptor *a, struct connection *c, const struct codec_answer *answer);

/* Messages that other protocols publish to bound topics, for NATS subscribers. */
bool nats_wants_topic(struct acceptor *a, void *state, const uint8_t *name, size_t bytes);
void nats_topic_published(struct acceptor *a, void *state, const struct published *message);

#endif

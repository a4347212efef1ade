/* Messages that earlier turns have not given to all. */
#ifndef MQ_NATS_FANOUTS_H
#define MQ_NATS_FANOUTS_H

#include "acceptor/protocols/nats/nats_state.h"

/* Goes on with what earlier turns have left. */
void nats_fanouts_go_on(struct acceptor *a, struct nats_server *server);
/* Goes on to the end with the messages of one origin. */
void nats_fanouts_finish(struct acceptor *a, struct nats_server *server, uint64_t origin);
void nats_fanouts_close(struct nats_server *server);

#endif

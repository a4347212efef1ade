/* Routes: connections to other servers of a cluster, ours or nats-server's. INFO, CONNECT, connecting and refusing
 * servers are Python's part (acceptor/protocols/nats/routing.py).
 *
 *   nats_route.c            parses lines and handles commands
 *   nats_route_send.c       sends interest and messages to a server
 *   nats_route_interest.c   which interest is sent
 *   nats_leaf.c             how leaf nodes differ
 *   nats_leaf_permissions.c ... in what they may want and send
 *
 * One acceptor has all routes. The other acceptors know the interest of each route, and send that acceptor messages for
 * it. A message that came over a route goes to clients of all acceptors, but never to a route.
 *
 * A leaf node's connection (nats_leaf.c) carries a single account. Its messages go wherever a client's go, and messages
 * from routes go to leaf nodes too.
 *
 * If much output waits for a server, its publishers wait. It is closed only if it takes nothing for
 * nats.write-deadline, or so little that publishers would wait for ever. Its input is always taken, so that two servers
 * whose output is full do not block each other.
 */
#ifndef MQ_NATS_ROUTE_H
#define MQ_NATS_ROUTE_H

#include "acceptor/protocols/nats/nats_state.h"

/* Shared by both codecs. */
bool nats_route_started(struct acceptor *a, void *state);
void nats_route_opened(struct acceptor *a, struct connection *c, uint32_t flags);
size_t nats_route_parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
int64_t nats_route_call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *k);
bool nats_route_set(void *state, const char *option, uint64_t value);
void nats_route_go_on(struct acceptor *a, void *state);
void nats_route_sent(struct acceptor *a, struct connection *c);
void nats_route_due(struct acceptor *a, struct connection *c);
void nats_route_closed(struct acceptor *a, struct connection *c);
/* The other server has closed its side. While output has yet to leave, nothing more is written: it is not to be
 * chosen. */
void nats_route_ended(struct acceptor *a, struct connection *c);
void nats_route_freed(struct connection *c);

#endif

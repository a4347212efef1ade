/* Clusters of leaf nodes ("origins") by number: of leaf nodes connected here, and those that other servers of this
 * cluster name. Leaf nodes of one cluster pass messages to each other, whichever servers they are connected to.
 *
 * A number lives as long as a connection or interest refers to it. Only the acceptor with the routes knows the names;
 * the other acceptors know only the numbers.
 */
#ifndef MQ_NATS_ORIGINS_H
#define MQ_NATS_ORIGINS_H

#include <stdint.h>

#include "acceptor/protocols/nats/nats_origins_state.h"
#include "base/text.h"

/* The number of a cluster, with one more reference. Each cluster without a name gets its own. 0: the limit is reached.
 * */
uint32_t nats_origin_take(struct nats_origins *origins, struct text name);
/* The number of a cluster by its name; 0: unknown. */
uint32_t nats_origin_named(const struct nats_origins *origins, struct text name);
/* Its name; empty if it has none. */
struct text nats_origin_name(const struct nats_origins *origins, uint32_t number);
/* Whether these are two clusters for certain: both have names. */
bool nats_origins_differ(const struct nats_origins *origins, uint32_t one, uint32_t other);
/* Add and drop a reference. Numbers given by another acceptor are ignored. */
void nats_origin_keep(struct nats_origins *origins, uint32_t number);
void nats_origin_drop(struct nats_origins *origins, uint32_t number);
void nats_origins_close(struct nats_origins *origins);

#endif

/* The mesh: a pair of rings between each two acceptors, for protocols whose clients talk to each other without a worker
 * between them.
 *
 * A message on it is a struct message whose `conn` is the number of a protocol; the rest is that protocol's own. It arrives in
 * the order in which it was sent. Sending never blocks: what the ring has no room for waits, so who takes in work for a
 * link that is backlogged stops doing that (mesh_may_send). Who receives always receives: two acceptors whose rings to
 * each other are full go on.
 *
 * An acceptor that dies takes its links with it; a new one has links to all that are there before it serves.
 */
#ifndef MQ_MESH_H
#define MQ_MESH_H

#include "acceptor/engine.h"

struct mesh_part {
    const void *at;
    size_t bytes;
};

enum { MESH_PARTS = 8 };

/* Sends to `other`, if it is there: `head` (its conn and body_bytes are filled in here), and as its body the parts one
 * behind the other. */
void mesh_send(struct acceptor *a, uint32_t other, uint32_t protocol, struct message head,
               const struct mesh_part *parts, size_t count);

/* Takes in what other acceptors sent; false if that was nothing. */
bool mesh_hear(struct acceptor *a);
/* Notes who has a backlog, and wakes the connections that wait for those who have none any more. */
void mesh_look(struct acceptor *a);
void mesh_publish(struct acceptor *a);
bool mesh_may_sleep(struct acceptor *a);
void mesh_awake(struct acceptor *a);
void mesh_close(struct acceptor *a);

#endif

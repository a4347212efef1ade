/* The mesh: a pair of rings between each two acceptors, for protocols whose clients talk to each other without a worker
 * between them.
 *
 * A message on the mesh is a struct message whose `conn` is the number of a protocol, which defines the rest. Messages
 * arrive in the order sent. Sending never blocks: messages for which the ring has no room wait, so a connection must
 * not feed a link that is backlogged (mesh_may_send). Acceptors always continue to receive, so two whose rings to each
 * other are full do not block each other.
 *
 * At a stop each acceptor says when it takes no more input: what it had to send is before that on its ring, so the
 * others need not wait for its end to know that they have all.
 *
 * The links of an acceptor end when it dies; a new one has links to all others before it serves clients.
 */
#ifndef MQ_MESH_H
#define MQ_MESH_H

#include "acceptor/acceptor_state.h"

struct mesh_part {
    const void *at;
    size_t bytes;
};

/* Sends a message to acceptor `other`, if it is there: `head` (conn and body_bytes are filled in here), with the
 * concatenated parts as its body. */
void mesh_send(struct acceptor *a, uint32_t other, uint32_t protocol, struct message head,
               const struct mesh_part *parts, size_t count);

/* Whether none of these acceptors has a backlog; else the connection stalls until that is over. */
bool mesh_may_send(struct acceptor *a, struct connection *c, uint64_t others);
/* The acceptors that have a backlog, as bits. */
uint64_t mesh_full(struct acceptor *a);

/* Handles messages from other acceptors; false if there were none. */
bool mesh_hear(struct acceptor *a);
/* Notes which acceptors have a backlog, and wakes the connections that waited for the others. */
void mesh_look(struct acceptor *a);
void mesh_publish(struct acceptor *a);
/* Frees what the channels kept for overflow and did not need. Returns the bytes. */
size_t mesh_trim(struct acceptor *a);
bool mesh_may_sleep(struct acceptor *a);
void mesh_awake(struct acceptor *a);
void mesh_close(struct acceptor *a);

#endif

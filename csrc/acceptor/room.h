/* The memory of all connections together: which ones wait, or are closed, when it is too much. */
#ifndef MQ_ROOM_H
#define MQ_ROOM_H

#include "acceptor/acceptor_state.h"

/* Whether `bytes` more of a connection's input, raw or decoded, may be kept; if not, it is stalled until they may. The
 * connection must not be stalled already. */
bool room_for_input(struct acceptor *a, struct connection *c, const struct buffer *buffer, size_t bytes);
/* How much may be received at once, and how much unsent output a connection may have before its input waits. */
size_t room_receive_bytes(const struct acceptor *a);
size_t room_unsent_bytes(const struct acceptor *a, const struct connection *c);
/* How much unsent output a connection may have before it is closed, in protocols where input does not wait for that. */
size_t room_pending_bytes(const struct acceptor *a, size_t most);
/* Once a turn: wakes connections that waited for room, sweeps, trims. */
void room_look(struct acceptor *a);
static inline bool room_is_wanted(const struct acceptor *a) {
    return a->roomless.count > 0 || a->overdraft != 0 || a->blocks.taken_bytes > a->max_buffered_bytes;
}

/* Whether its unsent output is small enough; else it stalls. The functions below work alike. */
static inline bool may_go_on(struct acceptor *a, struct connection *c) {
    size_t waits = connection_unsent(c) + c->kept_bytes;
    return waits == 0 || waits <= room_unsent_bytes(a, c) || stalled_by(a, c, STALL_OUTPUT, WAITS_CLIENT);
}

#endif

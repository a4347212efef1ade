/* Connections are made and closed. */
#ifndef MQ_LIFE_H
#define MQ_LIFE_H

#include "acceptor/acceptor_state.h"
#include "acceptor/timers.h"

/* Whether the process stops, and what the connection sends counts no more. */
static inline bool socket_is_quiet(const struct acceptor *a, const struct connection *c) {
    return a->quiet && !c->codec->joins_servers;
}

/* Memory is short: closes the connection. */
void engine_oom(struct acceptor *a, struct connection *c);

/* Makes a connection, which owns fd. NULL and errno when that failed; fd is not closed then. */
struct connection *socket_open(struct acceptor *a, int fd, uint32_t protocol);
/* Makes a connection without a socket; see acceptor_local. */
struct connection *socket_open_local(struct acceptor *a);
void socket_close(struct acceptor *a, struct connection *c);
/* When it is closed, the client sees it reset, as if input had been left unread. */
void socket_close_by_reset(struct connection *c);
/* Closes a connection that has said nothing, for a newcomer; see silent.h. False when there is none. */
bool socket_gives_way(struct acceptor *a);
void socket_free_closed(struct acceptor *a);
/* A connection that was closed and kept is freed at the end of the turn. */
void socket_let_go(struct acceptor *a, struct connection *c);
/* The client has closed its side: it sends no more, but what it has sent counts, and it may still listen. Its waiting
 * reserves are cancelled. */
void socket_hung_up(struct acceptor *a, struct connection *c);
/* The client will send no more. */
void socket_ended(struct acceptor *a, struct connection *c);

/* As timer_put; the connection is closed when memory is short. */
static inline bool timer_set(struct acceptor *a, struct connection *c, uint64_t due_ns) {
    const bool set = timer_put(a, c, due_ns);
    if (!set) engine_oom(a, c);
    return set;
}

#endif

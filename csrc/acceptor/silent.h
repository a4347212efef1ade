/* Connections that have not sent a whole command yet, longest first. Where no further connection can be accepted, the
 * first of them gives its place to a newcomer, so that strangers who say nothing cannot keep clients out.
 */
#ifndef MQ_SILENT_H
#define MQ_SILENT_H

#include "acceptor/acceptor_state.h"

/* A stranger has connected. */
void silent_enter(struct acceptor *a, struct connection *c);
/* The connection has sent a command, or is closed. */
void silent_leave(struct acceptor *a, struct connection *c);

/* A codec has used so many bytes of the connection's input. */
static inline void silent_used(struct acceptor *a, struct connection *c, size_t bytes) {
    if (c->silent && bytes > c->codec->greeting_bytes) silent_leave(a, c);
}

/* Whether the longest silent connection has had its time. */
static inline bool silent_is_due(const struct acceptor *a) {
    const struct silent_list *list = &a->silent;
    return list->first != 0 && a->now_ns - list->places[list->first - 1].since_ns >= SILENT_NS;
}

/* The one that has to give way to a newcomer; NULL: none has had its time. */
struct connection *silent_choose(struct acceptor *a);
/* Counts that one has, and lets Python know. */
void silent_count(struct acceptor *a);

#endif

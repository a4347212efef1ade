/* A timer for each connection that wants one. */
#ifndef MQ_TIMERS_H
#define MQ_TIMERS_H

#include "acceptor/acceptor_state.h"

/* Has the codec's `due` called at that time, and not before; replaces any earlier timer. False when memory is short. */
bool timer_put(struct acceptor *a, struct connection *c, uint64_t due_ns);
void timer_clear(struct acceptor *a, struct connection *c);
void timers_run(struct acceptor *a);
/* When the next timer is due; false if there is none. */
static inline bool timers_next(const struct acceptor *a, uint64_t *due_ns) {
    const struct heap_entry *top = heap_top(&a->timers);
    if (top != NULL) *due_ns = top->high;
    return top != NULL;
}

#endif

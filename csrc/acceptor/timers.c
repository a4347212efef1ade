/* Timers of connections: each connection may have one. A heap orders them by when they are due. */
#include "acceptor/timers.h"

static struct heap_places places_of(const struct acceptor *a) {
    return (struct heap_places){a->timer_places, sizeof *a->timer_places};
}

void timer_clear(struct acceptor *a, struct connection *c) {
    if (c->timed) heap_remove(&a->timers, places_of(a), a->timer_places[connection_index(c)]);
    c->timed = false;
}

bool timer_put(struct acceptor *a, struct connection *c, uint64_t due_ns) {
    timer_clear(a, c);
    c->timed = heap_push(&a->timers, places_of(a), heap_key(due_ns, 0, connection_index(c)));
    return c->timed;
}

void timers_run(struct acceptor *a) {
    const struct heap_entry *top;
    while ((top = heap_top(&a->timers)) != NULL && top->high <= a->now_ns) {
        struct connection *c = a->table[heap_item(*top)];
        timer_clear(a, c);
        c->codec->due(a, c);
    }
}

/* Requests made by Python, not by a client, and running an acceptor inside another event loop. */
#include <errno.h>

#include "acceptor/life.h"
#include "acceptor/turn.h"
#include "acceptor/wake.h"

uint32_t acceptor_local(struct acceptor *a) {
    const struct connection *c = socket_open_local(a);
    return c != NULL ? c->number : 0;
}

uint64_t acceptor_take_ids(struct acceptor *a, uint32_t topic, uint32_t count) {
    if (topic >= a->bindings.capacity || binding_at(&a->bindings, topic)->name == NULL) return 0;
    return ids_take(a, binding_at(&a->bindings, topic), count);
}

int acceptor_fd(const struct acceptor *a) {
    return a->epoll_fd;
}

int acceptor_poll(struct acceptor *a) {
    turn_awake(a);
    a->live = true;
    a->polled = false;
    a->turn_ns = 0; /* what went by since the last poll is not its */
    bool quiet = false;
    for (int turns = 0; turns < TURNS_PER_POLL && !quiet; turns++) {
        bool active = turn(a, 0);
        quiet = !active && is_all_sent(a) && a->runnable.count == 0 && a->for_python.count == 0 &&
                a->codecs_left == 0 && turn_may_sleep(a);
    }
    a->polled = true;
    if (!quiet) wake_self(a);
    return (int)a->upcall_count;
}

/* Requests made by Python, not by a client, and running an acceptor inside another event loop. */
#include <errno.h>
#include <sys/eventfd.h>

#include "acceptor/turn.h"

/* Such a connection has no input and no output, so its codec is never called. */
const struct codec local_codec = {.name = ""};

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
        quiet = !active && is_all_sent(a) && a->runnable.count == 0 && a->codecs_left == 0 && turn_may_sleep(a);
    }
    a->polled = true;
    if (!quiet) wake_self(a);
    return (int)a->upcall_count;
}

/* The counter of an eventfd that is never read would be full after 2^64 - 1 pokes, which never happens. */
static void write_poke(const struct acceptor *a) {
    (void)eventfd_write(a->poke_fd, 1);
}

void wake_self(struct acceptor *a) {
    if (!a->polled) return;
    a->polled = false; /* once is enough */
    write_poke(a);
}

void acceptor_poke(struct acceptor *a) {
    /* Release: the thread that takes the upcall sees everything done before. */
    atomic_store_explicit(&a->poked, 1, memory_order_release);
    write_poke(a);
}

/* Makes the next turn come soon: in a process that waits in another loop, and by another thread of Python's. */
#include "acceptor/wake.h"

#include <sys/eventfd.h>

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

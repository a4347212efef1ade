/* The time, and when something of a connection is due next. */
#include "acceptor/protocols/nats/nats_clock.h"

#include <time.h>

uint64_t nats_wall_now(const struct acceptor *a) {
    struct timespec now;
    if (!a->live || clock_gettime(CLOCK_REALTIME, &now) != 0) return a->now_ns;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t sooner(uint64_t one_ns, uint64_t other_ns) {
    if (one_ns == 0) return other_ns;
    return other_ns == 0 || one_ns < other_ns ? one_ns : other_ns;
}

void nats_schedule(struct acceptor *a, struct connection *c) {
    const struct nats *n = nats_of(c);
    uint64_t deadline = n->write_ns > 0 ? n->write_ns + nats_server_of(a, c)->write_deadline_ns : 0;
    uint64_t due = sooner(sooner(n->ping_ns, n->deadline_ns), deadline);
    if (due > 0)
        timer_set(a, c, due);
    else
        timer_clear(a, c);
}

void nats_sent(struct acceptor *a, struct connection *c) {
    nats_write_sent(a, c, nats_write_of(c));
    if (nats_of(c)->write_ns > 0) nats_schedule(a, c);
}

void nats_waits(struct acceptor *a, struct connection *c) {
    if (nats_of(c)->write_ns > 0) return;
    nats_write_waits(a, c, nats_write_of(c));
    nats_schedule(a, c);
}

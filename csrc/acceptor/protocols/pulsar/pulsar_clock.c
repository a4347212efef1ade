/* A connection by the clock: a PING each interval, and the end of one of which nothing came since the one before. Who has not said
 * CONNECT by the first tick is cut off. */
#include "acceptor/protocols/pulsar/pulsar.h"

void pulsar_opened(struct acceptor *a, struct connection *c) {
    pulsar_of(c)->heard = true;
    timer_set(a, c, a->now_ns + pulsar_options(a, c)->keep_alive_ns);
}

/* What it sent is not read now: its silence is ours. */
static bool waits_for_us(const struct connection *c) {
    return c->stall != STALL_NONE;
}

void pulsar_due(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    if (!p->connected || c->closing || (!p->heard && !waits_for_us(c))) {
        socket_close(a, c);
        return;
    }
    p->heard = false;
    pulsar_say_body(a, c, PULSAR_PING, NULL, 0);
    if (!c->closed) timer_set(a, c, a->now_ns + pulsar_options(a, c)->keep_alive_ns);
}

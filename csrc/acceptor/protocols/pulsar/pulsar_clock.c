/* Keep-alive: sends a PING each interval, and closes a connection that has sent nothing since the last PING. A client
 * that has not connected (CONNECT) when the first PING is due is closed, too. */
#include "acceptor/protocols/pulsar/pulsar_clock.h"

#include "acceptor/protocols/pulsar/pulsar_asks.h"
#include "acceptor/protocols/pulsar/pulsar_rates.h"
#include "acceptor/protocols/pulsar/pulsar_say.h"

void pulsar_opened(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    p->heard = true;
    p->keep_alive_ns = a->now_ns + pulsar_options(a, c)->keep_alive_ns;
    pulsar_set_timer(a, c);
}

/* Its input is stalled: it may have sent something that has not been read. */
static bool waits_for_us(const struct connection *c) {
    return c->stall != STALL_NONE;
}

static void count_on(struct acceptor *a, const struct pulsar *p) {
    for (uint32_t i = 0; i < p->producers.capacity; i++) {
        struct pulsar_producer *producer = p->producers.items[i];
        if (producer != NULL) pulsar_count_on(producer->counts, a->now_ns);
    }
    for (uint32_t i = 0; i < p->consumers.capacity; i++) {
        struct pulsar_consumer *consumer = p->consumers.items[i];
        if (consumer == NULL) continue;
        pulsar_count_on(consumer->counts, a->now_ns);
        consumer->consumed[2] = consumer->consumed[1];
        consumer->consumed[1] = consumer->consumed[0];
    }
}

static void keep_alive(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    if (!p->connected || c->closing || (!p->heard && !waits_for_us(c))) {
        socket_close(a, c);
        return;
    }
    p->heard = false;
    p->keep_alive_ns = a->now_ns + pulsar_options(a, c)->keep_alive_ns;
    count_on(a, p);
    pulsar_free_pending(p);
    pulsar_say_body(a, c, PULSAR_PING, NULL, 0);
}

void pulsar_due(struct acceptor *a, struct connection *c) {
    if (pulsar_of(c)->keep_alive_ns <= a->now_ns) keep_alive(a, c);
    if (c->closed) return;
    pulsar_rates_due(a, c);
    pulsar_set_timer(a, c);
}

/* When what waits to be sent is late. */
#include "acceptor/protocols/nats/nats_write.h"

/* A nats-server writes no more at a time. */
enum { MOST_BYTES = 64 << 20 };

/* Bytes of a write. What is compressed on its way has no size yet: such a write is over when any of it has left. */
static size_t write_bytes(const struct connection *c) {
    const struct framing *f = c->framing;
    if (f != NULL && (f->by_python || f->compression != NULL)) return 1;
    size_t bytes = connection_unsent(c);
    return bytes < MOST_BYTES ? bytes : MOST_BYTES;
}

static void begin(const struct acceptor *a, const struct connection *c, struct nats_write w, bool took) {
    *w.since_ns = a->now_ns;
    *w.end = (uint32_t)c->left_bytes + (uint32_t)write_bytes(c);
    *w.flags &= ~(uint32_t)NATS_WRITE_TOOK;
    if (took) *w.flags |= NATS_WRITE_TOOK;
}

void nats_write_waits(const struct acceptor *a, const struct connection *c, struct nats_write w) {
    if (*w.since_ns == 0) begin(a, c, w, false);
}

void nats_write_sent(const struct acceptor *a, const struct connection *c, struct nats_write w) {
    if (connection_unsent(c) == 0) {
        *w.since_ns = 0;
        *w.flags &= ~(uint32_t)NATS_WRITE_SLOW;
        return;
    }
    int32_t beyond = (int32_t)((uint32_t)c->left_bytes - *w.end);
    if (*w.since_ns == 0) {
        begin(a, c, w, true);
    } else if (beyond >= 0) {
        *w.flags &= ~(uint32_t)NATS_WRITE_SLOW;
        begin(a, c, w, beyond > 0);
    } else {
        *w.flags |= NATS_WRITE_TOOK;
    }
}

enum nats_lateness nats_write_check(const struct acceptor *a, const struct connection *c, struct nats_write w,
                                    uint64_t deadline_ns, bool retries) {
    if (*w.since_ns == 0 || a->now_ns < *w.since_ns + deadline_ns) return NATS_WRITE_IN_TIME;
    if (!retries || c->closing || (*w.flags & NATS_WRITE_TOOK) == 0) return NATS_WRITE_LATE;
    bool slow = (*w.flags & NATS_WRITE_SLOW) != 0;
    *w.flags |= NATS_WRITE_SLOW;
    begin(a, c, w, false);
    return slow ? NATS_WRITE_STILL_SLOW : NATS_WRITE_GOES_ON;
}

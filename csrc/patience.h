/* Patience: how long to go on looking at the rings before going to sleep.
 *
 * Being woken costs tens of microseconds where an idle core halts (virtual machines most of all), so looking for a while
 * is cheaper when something comes soon. Whether it does is learnt: after something came the time is a few times what that took,
 * and it halves each time nothing came; now and then the whole limit is tried. Who looks yields the processor after each look: what
 * it waits for may have to run on the same core.
 */
#ifndef MQ_PATIENCE_H
#define MQ_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_LEAST = 16, PATIENCE_TRIAL = 64, PATIENCE_MARGIN = 4 };

struct patience {
    uint64_t limit_ns; /* 0: never look, sleep at once */
    uint64_t now_ns;
    uint32_t vain;
};

static inline void patience_set(struct patience *p, uint64_t limit_ns) {
    *p = (struct patience){.limit_ns = limit_ns, .now_ns = limit_ns};
}

/* How long to look this time. */
static inline uint64_t patience_ns(const struct patience *p) {
    return p->vain % PATIENCE_TRIAL == PATIENCE_TRIAL - 1 ? p->limit_ns : p->now_ns;
}

static inline void patience_paid(struct patience *p, uint64_t took_ns) {
    p->vain = 0;
    if (p->now_ns < took_ns * PATIENCE_MARGIN) p->now_ns = took_ns * PATIENCE_MARGIN;
    if (p->now_ns > p->limit_ns) p->now_ns = p->limit_ns;
}

static inline void patience_in_vain(struct patience *p) {
    p->vain++;
    p->now_ns = p->now_ns / 2 > p->limit_ns / PATIENCE_LEAST ? p->now_ns / 2 : p->limit_ns / PATIENCE_LEAST;
}

#endif

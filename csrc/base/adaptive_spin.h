/* Adaptive spin: how long to keep polling the rings before going to sleep.
 *
 * Being woken costs tens of microseconds where an idle core halts (virtual machines most of all), so polling for a
 * while is cheaper when something arrives soon. The spin learns whether it does: after a success the next spin lasts a
 * few times as long as that success took; after each failure it is halved. The caller yields the processor after each
 * look, because what it waits for may need the same core to run.
 *
 * It also learns whether spinning pays at all: a success saves a wake-up, which costs about as much processor time as
 * ADAPTIVE_SPIN_WAKE looks, and a failure costs the looks it made. While the balance is negative, the caller sleeps at
 * once, and only every ADAPTIVE_SPIN_TRIAL times the whole limit is tried again. Looks are counted, not time: most of
 * the time may be what others do with a core that was yielded to them.
 */
#ifndef MQ_ADAPTIVE_SPIN_H
#define MQ_ADAPTIVE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    ADAPTIVE_SPIN_LEAST = 16,
    ADAPTIVE_SPIN_TRIAL = 64,
    ADAPTIVE_SPIN_MARGIN = 4,
    ADAPTIVE_SPIN_WAKE = 16,
    ADAPTIVE_SPIN_BALANCE = 512 /* at most: what is long past counts no more */
};

struct adaptive_spin {
    uint64_t limit_ns; /* 0: never look, sleep at once */
    uint64_t now_ns;
    uint32_t vain;   /* spins in a row that found nothing */
    int32_t balance; /* looks that spinning has saved, less those it has cost */
};

static inline void adaptive_spin_set(struct adaptive_spin *p, uint64_t limit_ns) {
    *p = (struct adaptive_spin){.limit_ns = limit_ns, .now_ns = limit_ns};
}

/* How long to spin this time. */
static inline uint64_t adaptive_spin_ns(const struct adaptive_spin *p) {
    if (p->vain % ADAPTIVE_SPIN_TRIAL == ADAPTIVE_SPIN_TRIAL - 1) return p->limit_ns;
    return p->balance < 0 ? 0 : p->now_ns;
}

static inline void adaptive_spin_paid(struct adaptive_spin *p, uint64_t took_ns) {
    p->vain = 0;
    if (p->now_ns < took_ns * ADAPTIVE_SPIN_MARGIN) p->now_ns = took_ns * ADAPTIVE_SPIN_MARGIN;
    if (p->now_ns > p->limit_ns) p->now_ns = p->limit_ns;
    p->balance += ADAPTIVE_SPIN_WAKE;
    if (p->balance > ADAPTIVE_SPIN_BALANCE) p->balance = ADAPTIVE_SPIN_BALANCE;
}

static inline void adaptive_spin_in_vain(struct adaptive_spin *p, uint32_t looks) {
    p->vain++;
    p->now_ns = p->now_ns / 2 > p->limit_ns / ADAPTIVE_SPIN_LEAST ? p->now_ns / 2 : p->limit_ns / ADAPTIVE_SPIN_LEAST;
    p->balance -= looks < 2 * ADAPTIVE_SPIN_BALANCE ? (int32_t)looks : 2 * ADAPTIVE_SPIN_BALANCE;
    if (p->balance < -ADAPTIVE_SPIN_WAKE) p->balance = -ADAPTIVE_SPIN_WAKE; /* one success, and it spins again */
}

#endif

/* A timing wheel, for deadlines most of which are cancelled before they come. To add one and to remove one cost the
 * same few steps however many there are; only those that come near go through a heap, which puts them in order.
 *
 * Time is cut into ticks of about a millisecond. A deadline in the tick that is running, or before it, is in the heap
 * `near`; a later one in a list of those whose number of a tick has its highest difference to the running one in the
 * same six bits (the level), and the same six bits there (the slot). When time reaches a slot, its list is dealt out to
 * lower levels, a bounded number of timers at a call: so a turn stays short, and what was due comes a little later.
 *
 * It knows nothing of the items except where each keeps its struct timer, at a fixed stride. Items are numbers from 1
 * to below 2^31.
 */
#ifndef MQ_WHEEL_H
#define MQ_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/heap.h"

enum {
    WHEEL_TICK_BITS = 20, /* of nanoseconds */
    WHEEL_SLOT_BITS = 6,
    WHEEL_SLOTS = 1 << WHEEL_SLOT_BITS,
    WHEEL_LEVELS = 8,
    WHEEL_LISTS = WHEEL_LEVELS * WHEEL_SLOTS + 1, /* the last has what is being dealt out */
    WHEEL_STEPS_PER_CALL = 4096,                  /* timers dealt out by one wheel_advance */
};
_Static_assert(WHEEL_TICK_BITS + WHEEL_SLOT_BITS * WHEEL_LEVELS >= 64, "every time has a slot");

#define TIMER_OFF UINT32_MAX

/* The part of an item that the wheel keeps: `due_ns` and `order` may be read, `previous` and `next` are the wheel's
 * own. */
struct timer {
    uint64_t due_ns;
    uint32_t order;    /* among items due at the same time */
    uint32_t previous; /* an item, or the list whose head this is; TIMER_OFF: in no wheel */
    uint32_t next;     /* an item (0: none), or its place in the heap */
    uint32_t of;       /* for the caller, for instance whose timer it is */
};

/* Where items keep their timer: its address in item 0, and the distance to the next item's. */
struct timers {
    void *base;
    size_t stride;
};

struct wheel {
    struct heap near;
    uint64_t tick; /* the one that is running */
    uint64_t used[WHEEL_LEVELS];
    uint32_t first[WHEEL_LISTS];
    uint32_t count;
};

static inline struct timer *timer_at(struct timers timers, uint32_t item) {
    return (struct timer *)(void *)((char *)timers.base + timers.stride * item);
}

static inline bool timer_on(const struct timer *timer) {
    return timer->previous != TIMER_OFF;
}

/* Adds an item that is in no wheel. False, with nothing changed, when memory is short. */
bool wheel_add(struct wheel *wheel, struct timers timers, uint32_t item, uint64_t due_ns, uint32_t order);
/* Removes an item that is in this wheel. */
void wheel_remove(struct wheel *wheel, struct timers timers, uint32_t item);

/* Moves time to now_ns. True if more is left to deal out than one call may: call again soon. */
bool wheel_advance(struct wheel *wheel, struct timers timers, uint64_t now_ns);
/* The first item due, by (due_ns, order, item), of those that wheel_advance has reached; 0: none. The item stays in. */
uint32_t wheel_due(const struct wheel *wheel, uint64_t now_ns);
/* When to call wheel_advance next, which is no later than the first item is due. UINT64_MAX: never. */
uint64_t wheel_next_ns(const struct wheel *wheel);

void wheel_free(struct wheel *wheel);

#endif

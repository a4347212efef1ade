#include "base/wheel.h"

#include <assert.h>

/* Set in `previous`: the item heads a list (its number is in the other bits) or is in the heap. Item numbers are
 * smaller. */
#define FIRST_OF UINT32_C(0x80000000)
#define IN_HEAP  (UINT32_MAX - 1)

enum { DEALING = WHEEL_LISTS - 1 };

static struct heap_places places_of(struct timers timers) {
    return (struct heap_places){(char *)timers.base + offsetof(struct timer, next), timers.stride};
}

static uint64_t tick_of(uint64_t ns) {
    return ns >> WHEEL_TICK_BITS;
}

static bool put_near(struct wheel *wheel, struct timers timers, uint32_t item, struct timer *timer) {
    if (!heap_push(&wheel->near, places_of(timers), heap_key(timer->due_ns, timer->order, item))) return false;
    timer->previous = IN_HEAP;
    return true;
}

static void put_first(struct wheel *wheel, struct timers timers, uint32_t item, struct timer *timer, uint32_t list) {
    uint32_t next = wheel->first[list];
    timer->previous = FIRST_OF | list;
    timer->next = next;
    if (next) timer_at(timers, next)->previous = item;
    wheel->first[list] = item;
}

/* Puts an item where it belongs at the current tick. */
static bool place(struct wheel *wheel, struct timers timers, uint32_t item, struct timer *timer) {
    uint64_t tick = tick_of(timer->due_ns);
    if (tick <= wheel->tick) return put_near(wheel, timers, item, timer);
    uint32_t level = (63 - (uint32_t)__builtin_clzll(tick ^ wheel->tick)) / WHEEL_SLOT_BITS;
    uint32_t slot = (uint32_t)(tick >> level * WHEEL_SLOT_BITS) % WHEEL_SLOTS;
    put_first(wheel, timers, item, timer, level * WHEEL_SLOTS + slot);
    wheel->used[level] |= (uint64_t)1 << slot;
    return true;
}

static void unlink_timer(struct wheel *wheel, struct timers timers, const struct timer *timer) {
    if (timer->next) timer_at(timers, timer->next)->previous = timer->previous;
    if (!(timer->previous & FIRST_OF)) {
        timer_at(timers, timer->previous)->next = timer->next;
        return;
    }
    uint32_t list = timer->previous & ~FIRST_OF;
    wheel->first[list] = timer->next;
    if (!timer->next && list != DEALING) wheel->used[list / WHEEL_SLOTS] &= ~((uint64_t)1 << list % WHEEL_SLOTS);
}

bool wheel_add(struct wheel *wheel, struct timers timers, uint32_t item, uint64_t due_ns, uint32_t order) {
    assert(item > 0 && item < FIRST_OF);
    struct timer *timer = timer_at(timers, item);
    timer->due_ns = due_ns;
    timer->order = order;
    if (!place(wheel, timers, item, timer)) return false;
    wheel->count++;
    return true;
}

void wheel_remove(struct wheel *wheel, struct timers timers, uint32_t item) {
    struct timer *timer = timer_at(timers, item);
    assert(timer_on(timer) && wheel->count > 0);
    if (timer->previous == IN_HEAP)
        heap_remove(&wheel->near, places_of(timers), timer->next);
    else
        unlink_timer(wheel, timers, timer);
    timer->previous = TIMER_OFF;
    wheel->count--;
}

/* True when all items of the list are where they belong. */
static bool deal_out(struct wheel *wheel, struct timers timers, uint32_t *steps) {
    uint32_t item;
    while ((item = wheel->first[DEALING]) != 0) {
        if (*steps == 0) return false;
        --*steps;
        struct timer *timer = timer_at(timers, item);
        unlink_timer(wheel, timers, timer);
        if (place(wheel, timers, item, timer)) continue;
        put_first(wheel, timers, item, timer, DEALING); /* memory is short: try again later */
        return false;
    }
    return true;
}

/* The first slot that is used, and the tick at which it begins; false if none is. No slot is used at or before the
 * running tick, and all of a level come before those of the next. */
static bool first_slot(const struct wheel *wheel, uint32_t *list, uint64_t *tick) {
    for (uint32_t level = 0; level < WHEEL_LEVELS; level++) {
        if (!wheel->used[level]) continue;
        uint32_t slot = (uint32_t)__builtin_ctzll(wheel->used[level]), shift = level * WHEEL_SLOT_BITS;
        uint64_t above = wheel->tick >> shift >> WHEEL_SLOT_BITS << WHEEL_SLOT_BITS;
        *list = level * WHEEL_SLOTS + slot;
        *tick = (above | slot) << shift;
        return true;
    }
    return false;
}

static void take_slot(struct wheel *wheel, struct timers timers, uint32_t list) {
    uint32_t item = wheel->first[list];
    assert(wheel->first[DEALING] == 0 && item != 0);
    timer_at(timers, item)->previous = FIRST_OF | DEALING;
    wheel->first[DEALING] = item;
    wheel->first[list] = 0;
    wheel->used[list / WHEEL_SLOTS] &= ~((uint64_t)1 << list % WHEEL_SLOTS);
}

bool wheel_advance(struct wheel *wheel, struct timers timers, uint64_t now_ns) {
    uint64_t until = tick_of(now_ns), tick;
    uint32_t steps = WHEEL_STEPS_PER_CALL, list;
    while (deal_out(wheel, timers, &steps)) {
        if (wheel->tick >= until) return false;
        if (!first_slot(wheel, &list, &tick) || tick > until) {
            wheel->tick = until;
            return false;
        }
        wheel->tick = tick;
        take_slot(wheel, timers, list);
    }
    return true;
}

uint32_t wheel_due(const struct wheel *wheel, uint64_t now_ns) {
    const struct heap_entry *first = heap_top(&wheel->near);
    return first && first->high <= now_ns ? heap_item(*first) : 0;
}

uint64_t wheel_next_ns(const struct wheel *wheel) {
    if (wheel->first[DEALING]) return 0;
    const struct heap_entry *first = heap_top(&wheel->near);
    if (first) return first->high;
    uint32_t list;
    uint64_t tick;
    return first_slot(wheel, &list, &tick) ? tick << WHEEL_TICK_BITS : UINT64_MAX;
}

void wheel_free(struct wheel *wheel) {
    heap_free(&wheel->near);
    *wheel = (struct wheel){0};
}

/* A timing wheel beside a model that looks at every timer: random timers come and go while time passes, in small steps
 * and in leaps. What is due comes out in order, never early, and late only while more than one call may do is left. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wheel.h"
#include "draw.h"

enum { ITEMS = 20000 };

struct item {
    uint32_t other;
    struct timer timer;
};

static struct item items[ITEMS];
static uint64_t model[ITEMS]; /* due; 0: off */
static uint32_t orders[ITEMS];
static struct wheel wheel;
static uint64_t now;

static struct timers timers(void) {
    return (struct timers){(char *)items + offsetof(struct item, timer), sizeof *items};
}

static uint64_t span(void) {
    uint64_t span = draw((uint64_t)1 << (1 + draw(46)));
    return draw(500) ? span : UINT64_MAX / 2;
}

static void add(uint32_t item) {
    static const uint64_t usual[] = {60000000000u, 1000000000u, 5000000, 1, 0};
    model[item] = now + (draw(2) ? usual[draw(5)] : span());
    orders[item] = (uint32_t)draw(3);
    assert(wheel_add(&wheel, timers(), item, model[item], orders[item]));
}

static void take_off(uint32_t item) {
    wheel_remove(&wheel, timers(), item);
    assert(!timer_on(&items[item].timer));
    model[item] = 0;
}

static uint32_t first_of_model(void) {
    uint32_t first = 0;
    for (uint32_t i = 1; i < ITEMS; i++) {
        if (!model[i] || model[i] > now) continue;
        if (!first || model[i] < model[first] || (model[i] == model[first] && orders[i] < orders[first])) first = i;
    }
    return first;
}

static uint64_t earliest(void) {
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = 1; i < ITEMS; i++)
        if (model[i] && model[i] < earliest) earliest = model[i];
    return earliest;
}

static void pass(uint64_t by) {
    uint64_t next = wheel_next_ns(&wheel);
    assert(next <= earliest());
    now = draw(3) && next > now && next != UINT64_MAX ? next : now + by;
    int calls = 1;
    while (wheel_advance(&wheel, timers(), now)) calls++;
    assert(calls <= 2 + WHEEL_LEVELS * ITEMS / WHEEL_STEPS_PER_CALL); /* each is dealt out once a level, at most */
    for (uint32_t expected; (expected = first_of_model()) != 0;) {
        uint32_t due = wheel_due(&wheel, now);
        assert(due && model[due] == model[expected] && orders[due] == orders[expected]);
        assert(items[due].timer.due_ns == model[due] && model[due] <= now);
        take_off(due);
    }
    assert(!wheel_due(&wheel, now));
}

static void run(uint64_t seed, uint32_t used, uint32_t steps) {
    random_seed(seed);
    memset(model, 0, sizeof model);
    for (uint32_t i = 0; i < ITEMS; i++) items[i].timer.previous = TIMER_OFF;
    now = draw(2) ? 1 + draw((uint64_t)1 << 60) : 1;
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t item = 1 + (uint32_t)draw(used);
        if (!draw(20))
            pass(span() % ((uint64_t)1 << 44));
        else if (model[item])
            take_off(item);
        else
            add(item);
        uint32_t count = 0;
        for (uint32_t i = 1; i <= used; i++) count += model[i] != 0;
        assert(count == wheel.count);
    }
    wheel_free(&wheel);
}

/* Many in one slot: each call deals out no more than it may, nobody is lost, and what is taken off meanwhile stays
 * off. */
static void crowd(void) {
    random_seed(7);
    memset(model, 0, sizeof model);
    now = 1000000000000u;
    for (uint32_t i = 1; i < ITEMS; i++) {
        items[i].timer.previous = TIMER_OFF;
        model[i] = now + 60000000000u + i;
        orders[i] = 0;
        assert(wheel_add(&wheel, timers(), i, model[i], 0));
    }
    now += 61000000000u;
    uint32_t calls = 0, came = 0;
    for (bool more = true; more; calls++) {
        more = wheel_advance(&wheel, timers(), now);
        assert(!more || wheel_next_ns(&wheel) == 0);
        for (uint32_t due; (due = wheel_due(&wheel, now)) != 0; came++) take_off(due);
        for (int i = 0; i < 100; i++) {
            uint32_t item = 1 + (uint32_t)draw(ITEMS - 1);
            if (model[item]) take_off(item), came++;
        }
    }
    assert(calls >= ITEMS / WHEEL_STEPS_PER_CALL && came >= ITEMS - 1 - 100);
    while (wheel_due(&wheel, now)) take_off(wheel_due(&wheel, now));
    assert(wheel.count == 0 && wheel_next_ns(&wheel) == UINT64_MAX);
    wheel_free(&wheel);
}

int main(int argc, char **argv) {
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 50;
    for (uint64_t seed = 1; seed <= seeds; seed++) run(seed, seed % 3 ? 200 : 5, 2000);
    crowd();
    puts("ok");
    return 0;
}

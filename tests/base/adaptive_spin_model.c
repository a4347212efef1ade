/* An adaptive spin under three loads, each a sequence of gaps until the next message; a look takes a microsecond. Where
 * messages come soon it spins, where most do not it sleeps at once, and it begins to spin again soon after they do. */
#include <assert.h>
#include <stdio.h>

#include "base/adaptive_spin.h"

enum { LIMIT_US = 100, GAPS = 4000 };

static struct adaptive_spin spin;

/* Waits for a message that comes after `gap_us`. Returns how many microseconds are spun in vain. */
static uint32_t wait_for(uint32_t gap_us, uint32_t *slept) {
    uint64_t ns = adaptive_spin_ns(&spin);
    if (ns >= gap_us * 1000u) {
        adaptive_spin_paid(&spin, gap_us * 1000u);
        return 0;
    }
    ++*slept;
    adaptive_spin_in_vain(&spin, (uint32_t)(ns / 1000));
    return (uint32_t)(ns / 1000);
}

int main(void) {
    adaptive_spin_set(&spin, LIMIT_US * 1000);
    uint32_t slept = 0, vain_us = 0;
    for (int i = 0; i < GAPS; i++) vain_us += wait_for(25, &slept);
    assert(slept == 0 && vain_us == 0); /* one client at a time */

    for (int i = 0; i < GAPS; i++) vain_us += wait_for(i % 20 == 0 ? 1000 : 25, &slept);
    assert(slept == GAPS / 20); /* one of 20 comes late: the others are still looked for */

    slept = vain_us = 0;
    for (int i = 0; i < GAPS; i++) vain_us += wait_for(i % 3 == 0 ? 150 : 25, &slept);
    assert(slept > GAPS * 9 / 10 && vain_us < GAPS * 4); /* bursts of a given rate */

    slept = 0;
    for (int i = 0; i < GAPS; i++) wait_for(25, &slept);
    assert(slept < ADAPTIVE_SPIN_TRIAL);

    adaptive_spin_set(&spin, 0);
    for (int i = 0; i < GAPS; i++) assert(wait_for(1, &slept) == 0); /* no spin was asked for */
    puts("ok");
    return 0;
}

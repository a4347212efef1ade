/* Takes and frees items at random: each that lives keeps its content, numbers are given out once, and memory of what
 * was freed is given back. */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena_pages.h"
#include "draw.h"

enum { LIMIT = 20000, STEPS = 80000, PAGE = 4096 };

static bool there[LIMIT];
static uint32_t all[LIMIT], count;

static void fill(const struct arena *arena, uint32_t number) {
    memset(arena_at(arena, number), (int)(number % 251 + 1), arena->item_bytes);
}

static void check(const struct arena *arena, uint32_t number) {
    const uint8_t *item = arena_at(arena, number);
    for (size_t i = 0; i < arena->item_bytes; i++) assert(item[i] == number % 251 + 1);
}

static size_t resident(const struct arena *arena) {
    size_t pages = arena->item_bytes * LIMIT / PAGE + 1, found = 0;
    unsigned char *map = malloc(pages);
    assert(map && mincore(arena->base, pages * PAGE - PAGE, map) == 0);
    for (size_t i = 0; i + 1 < pages; i++) found += map[i] & 1;
    free(map);
    return found;
}

static void take(struct arena_pages *pages, struct arena *arena) {
    uint32_t number = arena_pages_take(pages, arena);
    assert((number == 0) == (count == LIMIT - 1));
    if (!number) return;
    assert(number < LIMIT && !there[number]);
    there[number] = true;
    all[count++] = number;
    fill(arena, number);
}

static void give(struct arena_pages *pages, struct arena *arena, uint32_t i) {
    uint32_t number = all[i];
    check(arena, number);
    there[number] = false;
    all[i] = all[--count];
    arena_pages_give(pages, arena, number);
}

static void play(size_t item_bytes) {
    struct arena arena;
    struct arena_pages pages;
    assert(arena_pages_open(&pages, &arena, item_bytes, LIMIT));
    memset(there, 0, sizeof there);
    count = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        /* Grows and shrinks in waves. */
        bool takes = draw(100) < (step / 40000 % 2 ? 30u : 70u);
        if (takes)
            take(&pages, &arena);
        else if (count)
            give(&pages, &arena, (uint32_t)draw(count));
        assert(arena.live == count);
    }
    while (count < LIMIT - 1) take(&pages, &arena);
    take(&pages, &arena);
    size_t full = resident(&arena);
    while (count > 10) give(&pages, &arena, (uint32_t)draw(count));
    for (uint32_t i = 0; i < count; i++) check(&arena, all[i]);
    assert(full + 2 >= item_bytes * LIMIT / PAGE && resident(&arena) <= PAGES_KEPT + 30);
    arena_pages_close(&pages, &arena);
}

int main(void) {
    random_seed(1);
    play(536);
    play(4096);
    play(200);
    puts("ok");
    return 0;
}

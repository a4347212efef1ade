#define _GNU_SOURCE
#include "base/arena.h"

#include <assert.h>
#include <sys/mman.h>

#include "base/stale.h"

bool arena_open(struct arena *arena, size_t item_bytes, uint32_t limit) {
    assert(item_bytes >= sizeof(uint32_t));
    void *base =
        mmap(NULL, item_bytes * limit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    *arena = (struct arena){.base = base, .item_bytes = item_bytes, .limit = limit, .end = 1};
    return true;
}

void arena_close(struct arena *arena) {
    if (arena->base) munmap(arena->base, arena->item_bytes * arena->limit);
    *arena = (struct arena){0};
}

void arena_reset(struct arena *arena) {
    assert(arena->live == 0);
    const size_t touched = arena->item_bytes * arena->end;
    if (touched > arena->stale_bytes) arena->stale_bytes = touched;
    arena->end = 1;
    arena->free = 0;
}

bool arena_give_back(struct arena *arena, size_t most_bytes) {
    return stale_give_back(arena->base, arena->item_bytes * arena->end, &arena->stale_bytes, most_bytes);
}

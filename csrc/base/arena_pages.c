#define _GNU_SOURCE
#include "base/arena_pages.h"

#include <assert.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, KEPT = 0x8000 };

static void *set_aside(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

bool arena_pages_open(struct arena_pages *pages, struct arena *arena, size_t item_bytes, uint32_t limit) {
    *pages = (struct arena_pages){.pages = (uint32_t)(item_bytes * limit / PAGE_BYTES) + 1};
    if (!arena_open(arena, item_bytes, limit)) return false;
    pages->next = set_aside(sizeof *pages->next * limit);
    pages->uses = set_aside(sizeof *pages->uses * pages->pages);
    if (pages->next && pages->uses) return true;
    arena_pages_close(pages, arena);
    return false;
}

void arena_pages_close(struct arena_pages *pages, struct arena *arena) {
    if (pages->next) (void)munmap(pages->next, sizeof *pages->next * arena->limit);
    if (pages->uses) (void)munmap(pages->uses, sizeof *pages->uses * pages->pages);
    arena_close(arena);
    *pages = (struct arena_pages){0};
}

static uint32_t first_page(const struct arena *arena, uint32_t number) {
    return (uint32_t)(arena->item_bytes * number / PAGE_BYTES);
}

static uint32_t last_page(const struct arena *arena, uint32_t number) {
    return (uint32_t)((arena->item_bytes * (number + (size_t)1) - 1) / PAGE_BYTES);
}

uint32_t arena_pages_take(struct arena_pages *pages, struct arena *arena) {
    uint32_t number = arena->free;
    if (number)
        arena->free = pages->next[number];
    else if (arena->end < arena->limit)
        number = arena->end++;
    else
        return 0;
    arena->live++;
    for (uint32_t page = first_page(arena, number); page <= last_page(arena, number); page++) pages->uses[page]++;
    return number;
}

/* Notes that a page is empty; gives back the one for which that was noted longest ago, if it still is. */
static void keep(struct arena_pages *pages, const struct arena *arena, uint32_t page) {
    if (pages->kept_count == PAGES_KEPT) {
        const uint32_t oldest = pages->kept[pages->kept_at];
        pages->uses[oldest] &= (uint16_t)~KEPT;
        if (pages->uses[oldest] == 0)
            (void)madvise(arena->base + (size_t)oldest * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED);
    } else {
        pages->kept_count++;
    }
    pages->kept[pages->kept_at] = page;
    pages->kept_at = (pages->kept_at + 1) % PAGES_KEPT;
    pages->uses[page] |= KEPT;
}

void arena_pages_give(struct arena_pages *pages, struct arena *arena, uint32_t number) {
    pages->next[number] = arena->free;
    arena->free = number;
    arena->live--;
    for (uint32_t page = first_page(arena, number); page <= last_page(arena, number); page++) {
        assert((pages->uses[page] & ~KEPT) > 0);
        if (--pages->uses[page] == 0) keep(pages, arena, page);
    }
}

/* An arena that gives memory back: pages whose items have all been freed. For large items that come and go by the
 * hundred thousand; items of every message stay with arena_take and arena_give, which cost less.
 *
 * The list of freed items is kept beside the arena, as an item in it may have no memory. A page is given back when
 * PAGES_KEPT others have become empty since, so that an item that comes and goes all the time costs no system call. The
 * content of a freed item is lost at any time: it may read as zeros.
 */
#ifndef MQ_ARENA_PAGES_H
#define MQ_ARENA_PAGES_H

#include "base/arena.h"

enum { PAGES_KEPT = 256 };

struct arena_pages {
    uint32_t *next; /* of each freed item the next one */
    uint16_t *uses; /* how many items live in each page; the highest bit: it is among those kept */
    uint32_t pages;
    uint32_t kept[PAGES_KEPT]; /* pages that have become empty, in a circle */
    uint32_t kept_count, kept_at;
};

/* Opens an arena and its pages. False with errno when the address space cannot be had. */
bool arena_pages_open(struct arena_pages *pages, struct arena *arena, size_t item_bytes, uint32_t limit);
void arena_pages_close(struct arena_pages *pages, struct arena *arena);
/* As arena_take and arena_give. */
uint32_t arena_pages_take(struct arena_pages *pages, struct arena *arena);
void arena_pages_give(struct arena_pages *pages, struct arena *arena, uint32_t number);

#endif

/* An arena: an array of equal items that grows in place, because its address space was set aside at the start.
 *
 * Growing moves nothing and pauses nothing; the kernel gives a page when it is first touched. Items are named by
 * number, from 1 (0 is "none"); a freed item's first word links it into the free list. New items are not cleared.
 */
#ifndef MQ_ARENA_H
#define MQ_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena {
    char *base;
    size_t item_bytes;
    uint32_t limit; /* items there is room for, including the unused number 0 */
    uint32_t end;   /* numbers from here up have never been given out */
    uint32_t free;  /* head of the list of freed items */
    uint32_t live;
    size_t stale_bytes; /* memory that was touched before the last reset ends here; 0: all of it was given back */
};

/* False with errno when the address space cannot be had. */
bool arena_open(struct arena *arena, size_t item_bytes, uint32_t limit);
void arena_close(struct arena *arena);
/* Numbers items from 1 on again; only for an arena without live items. Its memory is stale then. */
void arena_reset(struct arena *arena);
/* Gives back a piece of the stale memory: see stale.h. True if there is more. */
bool arena_give_back(struct arena *arena, size_t most_bytes);

static inline void *arena_at(const struct arena *arena, uint32_t number) {
    return arena->base + arena->item_bytes * number;
}

/* A new item's number; 0 when the limit is reached. */
static inline uint32_t arena_take(struct arena *arena) {
    uint32_t number = arena->free;
    if (number)
        arena->free = *(uint32_t *)arena_at(arena, number);
    else if (arena->end < arena->limit)
        number = arena->end++;
    else
        return 0;
    arena->live++;
    return number;
}

static inline void arena_give(struct arena *arena, uint32_t number) {
    *(uint32_t *)arena_at(arena, number) = arena->free;
    arena->free = number;
    arena->live--;
}

#endif

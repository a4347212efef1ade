/* A 4-ary heap of 128-bit keys whose low 32 bits name an item.
 *
 * It knows nothing of the items except where each keeps its place in the heap: a uint32_t at a fixed stride from
 * `places`. With that an item can be removed from the middle. Four children share a cache line, and an entry that
 * arrives in rising order (as most do) is in place after one comparison.
 *
 * Items are numbers below 2^32; HEAP_NOWHERE is the place of an item that is not in the heap (kept by heap_remove
 * and heap_pop; a new item's place need not be set).
 */
#ifndef MQ_HEAP_H
#define MQ_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_NOWHERE UINT32_MAX

struct heap_entry {
    uint64_t high; /* compared first */
    uint64_t low;  /* compared second; its low 32 bits are the item */
};

struct heap {
    struct heap_entry *entries;
    uint32_t count;
    uint32_t capacity;
};

/* Where items keep their place in the heap: the address of that field in item 0, and the distance to the next item's.
 * */
struct heap_places {
    void *base;
    size_t stride;
};

static inline uint32_t heap_item(struct heap_entry e) {
    return (uint32_t)e.low;
}

static inline struct heap_entry heap_key(uint64_t high, uint32_t middle, uint32_t item) {
    return (struct heap_entry){high, (uint64_t)middle << 32 | item};
}

/* A key that orders items by (pri, id). */
static inline struct heap_entry heap_key_of_job(uint32_t pri, uint64_t id, uint32_t item) {
    return (struct heap_entry){(uint64_t)pri << 32 | id >> 32, id << 32 | item};
}

static inline bool heap_less(struct heap_entry a, struct heap_entry b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
}

/* False, with nothing changed, when memory is short. */
bool heap_push(struct heap *heap, struct heap_places places, struct heap_entry entry);
void heap_remove(struct heap *heap, struct heap_places places, uint32_t place);
void heap_free(struct heap *heap);

static inline const struct heap_entry *heap_top(const struct heap *heap) {
    return heap->count ? heap->entries : NULL;
}

#endif

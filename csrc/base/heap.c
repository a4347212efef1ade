#include "base/heap.h"

#include <assert.h>
#include <stdlib.h>

enum { ARITY = 4, FIRST_CAPACITY = 8, SHRINK_ABOVE = 4096 };

static uint32_t *place_of(struct heap_places places, uint32_t item) {
    return (uint32_t *)(void *)((char *)places.base + places.stride * item);
}

static void put_at(struct heap *heap, struct heap_places places, uint32_t place, struct heap_entry entry) {
    heap->entries[place] = entry;
    *place_of(places, heap_item(entry)) = place;
}

static void sift_up(struct heap *heap, struct heap_places places, uint32_t place, struct heap_entry entry) {
    while (place > 0) {
        uint32_t parent = (place - 1) / ARITY;
        if (!heap_less(entry, heap->entries[parent])) break;
        put_at(heap, places, place, heap->entries[parent]);
        place = parent;
    }
    put_at(heap, places, place, entry);
}

static void sift_down(struct heap *heap, struct heap_places places, uint32_t place, struct heap_entry entry) {
    for (;;) {
        uint64_t first = (uint64_t)place * ARITY + 1;
        if (first >= heap->count) break;
        uint32_t least = (uint32_t)first;
        uint32_t end = first + ARITY < heap->count ? (uint32_t)first + ARITY : heap->count;
        for (uint32_t child = least + 1; child < end; child++)
            if (heap_less(heap->entries[child], heap->entries[least])) least = child;
        if (!heap_less(heap->entries[least], entry)) break;
        put_at(heap, places, place, heap->entries[least]);
        place = least;
    }
    put_at(heap, places, place, entry);
}

static bool resize(struct heap *heap, uint32_t capacity) {
    struct heap_entry *entries = realloc(heap->entries, sizeof *entries * capacity);
    if (!entries) return false;
    heap->entries = entries;
    heap->capacity = capacity;
    return true;
}

bool heap_push(struct heap *heap, struct heap_places places, struct heap_entry entry) {
    if (heap->count == heap->capacity) {
        if (heap->capacity > UINT32_MAX / 2) return false;
        if (!resize(heap, heap->capacity ? heap->capacity * 2 : FIRST_CAPACITY)) return false;
    }
    sift_up(heap, places, heap->count++, entry);
    return true;
}

void heap_remove(struct heap *heap, struct heap_places places, uint32_t place) {
    assert(place < heap->count);
    assert(*place_of(places, heap_item(heap->entries[place])) == place);
    *place_of(places, heap_item(heap->entries[place])) = HEAP_NOWHERE;
    struct heap_entry last = heap->entries[--heap->count];
    if (place < heap->count) {
        if (place > 0 && heap_less(last, heap->entries[(place - 1) / ARITY]))
            sift_up(heap, places, place, last);
        else
            sift_down(heap, places, place, last);
    }
    /* A failure to shrink leaves a larger array, which is no harm. */
    if (heap->capacity > SHRINK_ABOVE && heap->count < heap->capacity / 8) (void)resize(heap, heap->capacity / 2);
}

void heap_free(struct heap *heap) {
    free(heap->entries);
    *heap = (struct heap){0};
}

#include "base/map.h"

#include <assert.h>
#include <stdlib.h>

enum { FIRST_SLOTS = 64 };

static uint32_t home(const struct map *map, uint64_t key) {
    return (uint32_t)(key * 0x9e3779b97f4a7c15ULL >> 32) & map->mask;
}

uint32_t map_find(const struct map *map, uint64_t key) {
    if (!map->slots) return 0;
    for (uint32_t i = home(map, key); map->slots[i].number; i = (i + 1) & map->mask)
        if (map->slots[i].key == key) return map->slots[i].number;
    return 0;
}

static void place(struct map *map, struct map_slot slot) {
    uint32_t i = home(map, slot.key);
    while (map->slots[i].number) i = (i + 1) & map->mask;
    map->slots[i] = slot;
}

static bool grow(struct map *map) {
    uint32_t slots = map->slots ? (map->mask + 1) * 2 : FIRST_SLOTS;
    struct map larger = {.slots = calloc(slots, sizeof *larger.slots), .mask = slots - 1, .count = map->count};
    if (!larger.slots) return false;
    for (uint32_t i = 0; map->slots && i <= map->mask; i++)
        if (map->slots[i].number) place(&larger, map->slots[i]);
    free(map->slots);
    *map = larger;
    return true;
}

bool map_insert(struct map *map, uint64_t key, uint32_t number) {
    assert(number && !map_find(map, key));
    if ((!map->slots || map->count >= (map->mask + 1) / 4 * 3) && !grow(map)) return false;
    place(map, (struct map_slot){key, number});
    map->count++;
    return true;
}

void map_remove(struct map *map, uint64_t key) {
    uint32_t gap = home(map, key);
    while (map->slots[gap].key != key || !map->slots[gap].number) {
        assert(map->slots[gap].number);
        gap = (gap + 1) & map->mask;
    }
    /* Close the gap: move back the entries that a probe would no longer reach past it. */
    for (uint32_t i = (gap + 1) & map->mask; map->slots[i].number; i = (i + 1) & map->mask) {
        uint32_t wanted = home(map, map->slots[i].key);
        if (((i - wanted) & map->mask) >= ((i - gap) & map->mask)) {
            map->slots[gap] = map->slots[i];
            gap = i;
        }
    }
    map->slots[gap] = (struct map_slot){0};
    map->count--;
}

void map_free(struct map *map) {
    free(map->slots);
    *map = (struct map){0};
}

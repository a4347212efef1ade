#include "base/map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

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
    /* Close the gap: move back whatever would not be found past it. */
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

static uint64_t rotate(uint64_t x, int bits) {
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4]) {
    v[0] += v[1], v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

uint64_t map_hash(const uint64_t seed[2], const void *data, size_t bytes) {
    uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575ULL, seed[1] ^ 0x646f72616e646f6dULL, seed[0] ^ 0x6c7967656e657261ULL,
                     seed[1] ^ 0x7465646279746573ULL};
    const uint8_t *at = data;
    uint64_t word;
    for (size_t left = bytes; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)bytes << 56;
    for (size_t i = 0; i < bytes % 8; i++) word |= (uint64_t)at[i] << (8 * i);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

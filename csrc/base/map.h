/* A map from 64-bit keys to non-zero 32-bit numbers: open addressing, for what is looked up often and added seldom. */
#ifndef MQ_MAP_H
#define MQ_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
    uint64_t key;
    uint32_t number; /* 0: free */
};

struct map {
    struct map_slot *slots;
    uint32_t mask;
    uint32_t count;
};

/* The key's number; 0 when the key is not there. */
uint32_t map_find(const struct map *map, uint64_t key);
/* The key must not be there. False, with nothing changed, when memory is short. */
bool map_insert(struct map *map, uint64_t key, uint32_t number);
void map_remove(struct map *map, uint64_t key);
void map_free(struct map *map);

#endif

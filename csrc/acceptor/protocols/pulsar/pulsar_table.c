/* The producers and the consumers of a connection. */
#include "acceptor/protocols/pulsar/pulsar_table.h"

#include <stdlib.h>

enum { PLACE_BITS = 14, FIRST_PLACES = 2, FEW = 8 };
_Static_assert(PULSAR_MAX_PARTS == 1 << PLACE_BITS, "a place fits a number");

static uint32_t place_of(uint32_t number) {
    return number & (PULSAR_MAX_PARTS - 1);
}

/* Each item begins with the id that its client gave it. */
static uint64_t id_of(const void *item) {
    uint64_t id;
    memcpy(&id, item, sizeof id);
    return id;
}

/* A small table is searched, a larger one has a map. */
static bool has_map(const struct pulsar_table *table) {
    return table->capacity > FEW;
}

void *pulsar_table_find(const struct pulsar_table *table, uint64_t id) {
    if (has_map(table)) {
        uint32_t found = map_find(&table->ids, id);
        return found != 0 ? table->items[found - 1] : NULL;
    }
    for (uint32_t i = 0; i < table->capacity; i++)
        if (table->items[i] != NULL && id_of(table->items[i]) == id) return table->items[i];
    return NULL;
}

void *pulsar_table_at(const struct pulsar_table *table, uint32_t number) {
    uint32_t place = place_of(number);
    bool is = place < table->capacity && table->generations[place] == number >> PLACE_BITS;
    return is ? table->items[place] : NULL;
}

static bool grow(struct pulsar_table *table) {
    uint32_t capacity = table->capacity > 0 ? 2 * table->capacity : FIRST_PLACES;
    void **items = realloc(table->items, capacity * sizeof *items);
    if (items == NULL) return false;
    table->items = items;
    uint32_t *generations = realloc(table->generations, capacity * sizeof *generations);
    if (generations == NULL) return false;
    table->generations = generations;
    for (uint32_t i = table->capacity; i < capacity; i++) {
        items[i] = NULL;
        generations[i] = 0;
    }
    bool map_begins = !has_map(table) && capacity > FEW;
    for (uint32_t i = 0; map_begins && i < table->capacity; i++)
        if (!map_insert(&table->ids, id_of(items[i]), i + 1)) return false;
    table->capacity = capacity;
    return true;
}

/* A free place, of which there must be one. */
static uint32_t free_place(const struct pulsar_table *table) {
    uint32_t place = table->count;
    /* Mostly the item added last is removed first, so the place behind the others is free. */
    if (place < table->capacity && table->items[place] == NULL) return place;
    for (place = 0; table->items[place] != NULL; place++) continue;
    return place;
}

uint32_t pulsar_table_add(struct pulsar_table *table, uint64_t id, void *item) {
    if (table->count == PULSAR_MAX_PARTS || (table->count == table->capacity && !grow(table))) return 0;
    uint32_t place = free_place(table);
    if (has_map(table) && !map_insert(&table->ids, id, place + 1)) return 0;
    table->items[place] = item;
    table->count++;
    const uint32_t generations = 1u << (32 - PLACE_BITS);
    uint32_t generation = (table->generations[place] + 1) % generations;
    table->generations[place] = generation > 0 ? generation : 1;
    return table->generations[place] << PLACE_BITS | place;
}

void pulsar_table_remove(struct pulsar_table *table, uint64_t id, uint32_t number) {
    assert(pulsar_table_at(table, number) != NULL);
    if (has_map(table)) map_remove(&table->ids, id);
    table->items[place_of(number)] = NULL;
    table->count--;
}

void *pulsar_table_next(const struct pulsar_table *table, uint32_t *place) {
    while (*place < table->capacity)
        if (table->items[(*place)++] != NULL) return table->items[*place - 1];
    return NULL;
}

void pulsar_table_free(struct pulsar_table *table) {
    assert(table->count == 0);
    map_free(&table->ids);
    free(table->items);
    free(table->generations);
    *table = (struct pulsar_table){0};
}

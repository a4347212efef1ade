#include "base/bindings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

enum { FIRST_CAPACITY = 64 };

static uint32_t hash_of(const struct bindings *b, const void *name, size_t name_bytes) {
    return (uint32_t)siphash(b->key, name, name_bytes);
}

bool bindings_open(struct bindings *b, uint32_t shards, uint32_t workers, uint32_t limit, uint32_t idle_limit) {
    assert(shards > 0 && workers > 0);
    *b = (struct bindings){.shards = shards, .workers = workers, .limit = limit, .idle_limit = idle_limit};
    b->key = siphash_key(0);
    b->table = calloc(FIRST_CAPACITY, sizeof *b->table);
    b->index = calloc(2 * FIRST_CAPACITY, sizeof *b->index);
    if (b->table == NULL || b->index == NULL) {
        bindings_close(b);
        return false;
    }
    b->capacity = FIRST_CAPACITY;
    b->index_mask = 2 * FIRST_CAPACITY - 1;
    for (uint32_t i = FIRST_CAPACITY - 1; i > 0; i--) {
        b->table[i].next_free = b->first_free;
        b->first_free = i;
    }
    return true;
}

void bindings_close(struct bindings *b) {
    for (uint32_t i = 1; i < b->capacity; i++) free(b->table[i].name);
    free(b->table);
    free(b->index);
    *b = (struct bindings){0};
}

uint32_t bindings_shard(const struct bindings *b, const void *name, size_t name_bytes) {
    return crc32c_extend(0, name, name_bytes) % b->shards;
}

/* The slot of the index that holds the name, or else the empty slot where it belongs. */
static uint32_t place_of(const struct bindings *b, uint32_t hash, const void *name, size_t name_bytes) {
    for (uint32_t place = hash & b->index_mask;; place = (place + 1) & b->index_mask) {
        uint32_t number = b->index[place];
        if (number == 0) return place;
        const struct binding *at = &b->table[number];
        if (at->hash == hash && at->name_bytes == name_bytes && memcmp(at->name, name, name_bytes) == 0) return place;
    }
}

uint32_t bindings_find(const struct bindings *b, const void *name, size_t name_bytes) {
    return b->index[place_of(b, hash_of(b, name, name_bytes), name, name_bytes)];
}

/* Doubles the table, and makes an index of twice as many slots as the table has entries. */
static bool grow(struct bindings *b) {
    uint32_t capacity = 2 * b->capacity;
    struct binding *table = realloc(b->table, capacity * sizeof *table);
    if (table == NULL) return false;
    b->table = table;
    uint32_t *index = calloc((size_t)2 * capacity, sizeof *index);
    if (index == NULL) return false;
    memset(table + b->capacity, 0, (capacity - b->capacity) * sizeof *table);
    for (uint32_t i = capacity - 1; i >= b->capacity; i--) {
        table[i].next_free = b->first_free;
        b->first_free = i;
    }
    b->capacity = capacity;
    free(b->index);
    b->index = index;
    b->index_mask = 2 * capacity - 1;
    for (uint32_t i = 1; i < capacity; i++) {
        if (table[i].name == NULL) continue;
        b->index[place_of(b, table[i].hash, table[i].name, table[i].name_bytes)] = i;
    }
    return true;
}

/* --- those that nobody refers to ---------------------------------------------------------------------------------- */

static void leave_idle(struct bindings *b, struct binding *at) {
    *(at->newer != 0 ? &b->table[at->newer].older : &b->newest_idle) = at->older;
    *(at->older != 0 ? &b->table[at->older].newer : &b->oldest_idle) = at->newer;
    at->newer = at->older = 0;
    b->idle--;
}

static void become_idle(struct bindings *b, uint32_t number) {
    struct binding *at = &b->table[number];
    at->newer = 0;
    at->older = b->newest_idle;
    *(at->older != 0 ? &b->table[at->older].newer : &b->oldest_idle) = number;
    b->newest_idle = number;
    b->idle++;
}

static bool is_full(const struct bindings *b) {
    return b->bound >= b->limit || b->names_bytes >= (uint64_t)b->limit * BINDING_NAME_SHARE;
}

uint32_t bindings_surplus(const struct bindings *b) {
    return b->idle > b->idle_limit || is_full(b) ? b->oldest_idle : 0;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

uint32_t bindings_look_up(struct bindings *b, const void *name, size_t name_bytes, bool *is_new) {
    uint32_t hash = hash_of(b, name, name_bytes);
    uint32_t place = place_of(b, hash, name, name_bytes);
    uint32_t number = b->index[place];
    *is_new = number == 0;
    if (number != 0) {
        if (b->table[number].references > 0 || number == b->newest_idle) return number;
        leave_idle(b, &b->table[number]);
        become_idle(b, number);
        return number;
    }
    if (is_full(b)) return 0;
    if (b->first_free == 0) {
        if (!grow(b)) return 0;
        place = place_of(b, hash, name, name_bytes);
    }
    char *copy = malloc(name_bytes > 0 ? name_bytes : 1);
    if (copy == NULL) return 0;
    memcpy(copy, name, name_bytes);
    number = b->first_free;
    struct binding *at = &b->table[number];
    b->first_free = at->next_free;
    uint32_t shard = bindings_shard(b, name, name_bytes);
    *at = (struct binding){.name = copy,
                           .name_bytes = (uint32_t)name_bytes,
                           .hash = hash,
                           .shard = shard,
                           .worker = (uint8_t)(shard % b->workers)};
    become_idle(b, number);
    b->index[place] = number;
    b->bound++;
    b->names_bytes += name_bytes;
    return number;
}

void bindings_refer(struct bindings *b, uint32_t number) {
    struct binding *at = &b->table[number];
    assert(number > 0 && number < b->capacity && at->name != NULL);
    if (at->references++ == 0) leave_idle(b, at);
}

void bindings_unbind(struct bindings *b, uint32_t number) {
    struct binding *at = &b->table[number];
    assert(number > 0 && number < b->capacity && at->references > 0);
    if (--at->references == 0) become_idle(b, number);
}

/* Empties a slot of the index, and moves up the entries that a probe would no longer reach past the gap. */
static void close_gap(struct bindings *b, uint32_t gap) {
    uint32_t mask = b->index_mask;
    for (uint32_t place = (gap + 1) & mask; b->index[place] != 0; place = (place + 1) & mask) {
        uint32_t home = b->table[b->index[place]].hash & mask;
        if (((place - home) & mask) < ((place - gap) & mask)) continue;
        b->index[gap] = b->index[place];
        gap = place;
    }
    b->index[gap] = 0;
}

void bindings_forget(struct bindings *b, uint32_t number) {
    struct binding *at = &b->table[number];
    assert(at->references == 0 && at->name != NULL);
    leave_idle(b, at);
    close_gap(b, place_of(b, at->hash, at->name, at->name_bytes));
    free(at->name);
    b->names_bytes -= at->name_bytes;
    *at = (struct binding){.next_free = b->first_free};
    b->first_free = number;
    b->bound--;
}

#define _GNU_SOURCE
#include "base/index.h"

#include <assert.h>
#include <stddef.h>
#include <sys/mman.h>

/* Items to a bucket: the heads cost half as much as with one each. */
enum { FIRST_BUCKETS = 1024, LINE_BITS = 4, CHAIN = 2 };

static struct indexed *at(const struct arena *items, uint32_t number) {
    return arena_at(items, number);
}

/* The low bits of n as they are; those above mixed, so that a stride in n makes no long chains. */
static uint32_t hash(const struct index *index, uint64_t key) {
    uint64_t n = index->shift ? key >> index->shift : key / index->shards;
    uint64_t mixed = (n >> LINE_BITS) * 0x9e3779b97f4a7c15ULL >> 32;
    return (uint32_t)(mixed << LINE_BITS | (n & ((1u << LINE_BITS) - 1)));
}

static uint32_t bucket_of(const struct index *index, uint64_t key) {
    uint32_t h = hash(index, key);
    uint32_t bucket = h & (index->level_mask << 1 | 1);
    return bucket < index->buckets ? bucket : h & index->level_mask;
}

bool index_open(struct index *index, uint32_t limit, uint32_t shards) {
    uint64_t bytes = sizeof(uint32_t) * (uint64_t)(limit > FIRST_BUCKETS ? limit : FIRST_BUCKETS);
    void *heads = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heads == MAP_FAILED) return false;
    *index = (struct index){.heads = heads,
                            .reserved_bytes = bytes,
                            .buckets = FIRST_BUCKETS,
                            .level_mask = FIRST_BUCKETS - 1,
                            .shards = shards,
                            .shift = shards & (shards - 1) ? 0 : (uint32_t)__builtin_ctz(shards)};
    return true;
}

void index_close(struct index *index) {
    if (index->heads) munmap(index->heads, index->reserved_bytes);
    *index = (struct index){0};
}

void index_reset(struct index *index) {
    assert(index->count == 0);
    madvise(index->heads, index->reserved_bytes, MADV_DONTNEED);
    index->buckets = FIRST_BUCKETS;
    index->level_mask = FIRST_BUCKETS - 1;
}

uint32_t index_find(const struct index *index, const struct arena *items, uint64_t key) {
    uint32_t number = index->heads[bucket_of(index, key)];
    while (number && at(items, number)->key != key) number = at(items, number)->next;
    return number;
}

uint32_t index_next(const struct arena *items, uint32_t number) {
    uint64_t key = at(items, number)->key;
    do number = at(items, number)->next;
    while (number && at(items, number)->key != key);
    return number;
}

/* Takes one more bucket into use and moves to it what now belongs there. */
static void split(struct index *index, const struct arena *items) {
    if ((uint64_t)(index->buckets + 1) * sizeof(uint32_t) > index->reserved_bytes) return;
    uint32_t old = index->buckets - (index->level_mask + 1);
    uint32_t added = index->buckets++;
    uint32_t number = index->heads[old];
    uint32_t stay = 0, move = 0;
    while (number) {
        struct indexed *item = at(items, number);
        uint32_t next = item->next;
        uint32_t *list = bucket_of(index, item->key) == added ? &move : &stay;
        item->next = *list;
        *list = number;
        number = next;
    }
    index->heads[old] = stay;
    index->heads[added] = move;
    if (index->buckets == (index->level_mask + 1) * 2) index->level_mask = index->level_mask << 1 | 1;
}

void index_insert(struct index *index, const struct arena *items, uint32_t number) {
    if (index->count / CHAIN >= index->buckets) split(index, items);
    uint32_t *head = &index->heads[bucket_of(index, at(items, number)->key)];
    at(items, number)->next = *head;
    *head = number;
    index->count++;
}

void index_remove(struct index *index, const struct arena *items, uint32_t number) {
    uint32_t *link = &index->heads[bucket_of(index, at(items, number)->key)];
    while (*link != number) {
        assert(*link);
        link = &at(items, *link)->next;
    }
    *link = at(items, number)->next;
    index->count--;
}

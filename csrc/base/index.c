#define _GNU_SOURCE
#include "base/index.h"

#include <assert.h>
#include <stddef.h>
#include <sys/mman.h>

#include "base/stale.h"

/* Items per bucket: two, so that the heads take half the memory. */
enum { FIRST_BUCKETS = 1024, CHAIN = 2 };

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
    const size_t touched = index->buckets * sizeof *index->heads;
    if (touched > index->stale_bytes) index->stale_bytes = touched;
    index->buckets = FIRST_BUCKETS;
    index->level_mask = FIRST_BUCKETS - 1;
}

bool index_give_back(struct index *index, size_t most_bytes) {
    return stale_give_back((char *)index->heads, index->buckets * sizeof *index->heads, &index->stale_bytes,
                           most_bytes);
}

uint32_t index_next(const struct arena *items, uint32_t number) {
    uint64_t key = index_item(items, number)->key;
    do number = index_item(items, number)->next;
    while (number && index_item(items, number)->key != key);
    return number;
}

/* Adds one bucket, and moves to it the items that now belong there. */
static void split(struct index *index, const struct arena *items) {
    if ((uint64_t)(index->buckets + 1) * sizeof(uint32_t) > index->reserved_bytes) return;
    uint32_t old = index->buckets - (index->level_mask + 1);
    uint32_t added = index->buckets++;
    uint32_t number = index->heads[old];
    uint32_t stay = 0, move = 0;
    while (number) {
        struct indexed *item = index_item(items, number);
        uint32_t next = item->next;
        uint32_t *list = index_bucket(index, item->key) == added ? &move : &stay;
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
    uint32_t *head = &index->heads[index_bucket(index, index_item(items, number)->key)];
    index_item(items, number)->next = *head;
    *head = number;
    index->count++;
}

void index_remove(struct index *index, const struct arena *items, uint32_t number) {
    uint32_t *link = &index->heads[index_bucket(index, index_item(items, number)->key)];
    while (*link != number) {
        assert(*link);
        link = &index_item(items, *link)->next;
    }
    *link = index_item(items, number)->next;
    index->count--;
}

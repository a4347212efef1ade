/* An index from message id to the number of an item in an arena: linear hashing with chains, so that it grows one
 * bucket at a time and no put ever pays for a rehash of all.
 *
 * The chain runs through the items themselves, which begin with a struct indexed; the index holds only the heads. Ids
 * rise one by one, so the low bits of n pick the place in a cache line of heads: a queue worked in order touches them
 * in order.
 */
#ifndef MQ_INDEX_H
#define MQ_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

/* How an item begins. Several items may have the same key. The item is a struct of its user's, reached here as this
 * one: may_alias says so to the compiler, which otherwise takes the two for different memory as soon as it sees both.
 * */
struct __attribute__((packed, aligned(4), may_alias)) indexed {
    uint32_t next;
    uint32_t other; /* the item's own */
    uint64_t key;
};

struct index {
    uint32_t *heads;
    uint64_t reserved_bytes;
    size_t stale_bytes; /* see struct arena */
    uint32_t count;
    uint32_t buckets; /* in use: 2^level + split */
    uint32_t level_mask;
    uint32_t shards; /* n = id / shards ... */
    uint32_t shift;  /* ... or id >> shift, when shards is a power of two */
};

bool index_open(struct index *index, uint32_t limit, uint32_t shards);
void index_close(struct index *index);
/* Only for an index without items: it shrinks. What it does not need any more is stale then, and is given back piece by
 * piece: see arena.h. */
void index_reset(struct index *index);
bool index_give_back(struct index *index, size_t most_bytes);

static inline struct indexed *index_item(const struct arena *items, uint32_t number) {
    return arena_at(items, number);
}

/* The low bits of n that are kept as they are; the bits above are mixed, so that a stride in n makes no long chains. */
enum { INDEX_LINE_BITS = 4 };

static inline uint32_t index_bucket(const struct index *index, uint64_t key) {
    uint64_t n = index->shift ? key >> index->shift : key / index->shards;
    uint64_t mixed = (n >> INDEX_LINE_BITS) * 0x9e3779b97f4a7c15ULL >> 32;
    uint32_t h = (uint32_t)(mixed << INDEX_LINE_BITS | (n & ((1u << INDEX_LINE_BITS) - 1)));
    uint32_t bucket = h & (index->level_mask << 1 | 1);
    return bucket < index->buckets ? bucket : h & index->level_mask;
}

/* `items` is the arena that the numbers name. index_find returns 0 for an unknown key; index_next the next item with
 * the same one. Here, as it is looked into several times a message. */
__attribute__((always_inline)) static inline uint32_t index_find(const struct index *index, const struct arena *items,
                                                                 uint64_t key) {
    uint32_t number = index->heads[index_bucket(index, key)];
    while (number && index_item(items, number)->key != key) number = index_item(items, number)->next;
    return number;
}
uint32_t index_next(const struct arena *items, uint32_t number);
void index_insert(struct index *index, const struct arena *items, uint32_t number);
void index_remove(struct index *index, const struct arena *items, uint32_t number);

#endif

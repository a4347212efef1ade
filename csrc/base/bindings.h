/* Bindings: the acceptor's own numbers for topic names.
 *
 * A name has a number while something refers to it: a connection's use or watch, or for good once it is kept. Owns the names. Knows shards and
 * workers only as arithmetic: a name's shard is its CRC-32C modulo the number of shards, a shard's worker its number
 * modulo the number of workers. Its index hashes with a seed of its own, because names that collide under a CRC are
 * easily made. Sends nothing: who binds a new name or lets go of the last reference tells the worker.
 */
#ifndef MQ_BINDINGS_H
#define MQ_BINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct binding {
    char *name; /* NULL: the number is free */
    uint32_t name_bytes;
    uint32_t hash;
    uint32_t shard;
    uint32_t references;
    uint32_t next_free;
    uint8_t worker;
    bool kept; /* one of the references is never let go */
};

struct bindings {
    struct binding *table; /* by number; 0 is nobody's */
    uint32_t capacity;
    uint32_t bound;
    uint32_t first_free;
    uint32_t *index; /* by hash, open addressing; 0: empty */
    uint32_t index_mask;
    uint64_t seed;
    uint32_t shards;
    uint32_t workers;
    uint32_t limit;
};

bool bindings_open(struct bindings *bindings, uint32_t shards, uint32_t workers, uint32_t limit);
void bindings_close(struct bindings *bindings);

/* The number of a name, or 0. */
uint32_t bindings_find(const struct bindings *bindings, const void *name, size_t name_bytes);

/* The number of a name, with one reference more; 0 when the limit or memory is reached. *is_new: it is the first. */
uint32_t bindings_bind(struct bindings *bindings, const void *name, size_t name_bytes, bool *is_new);

static inline struct binding *binding_at(const struct bindings *bindings, uint32_t number) {
    return &bindings->table[number];
}

/* One reference less. True if it was the last: the caller calls bindings_forget once it has told the worker. */
bool bindings_unbind(struct bindings *bindings, uint32_t number);
void bindings_forget(struct bindings *bindings, uint32_t number);

uint32_t bindings_shard(const struct bindings *bindings, const void *name, size_t name_bytes);

#endif

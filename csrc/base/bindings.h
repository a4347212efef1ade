/* Bindings: the acceptor's own numbers for topic names.
 *
 * A name keeps its number while something refers to it: a connection that uses, watches or publishes to it. A name that
 * was looked up but is no longer referred to is "idle": it stays bound for the next connection that names it. There are
 * at most `idle_limit` idle names, and the least recently named is forgotten first.
 *
 * Owns the names. Knows shards and workers only as arithmetic: a name's shard is its CRC-32C modulo the number of
 * shards, a shard's worker is the shard modulo the number of workers. The index uses a keyed hash, because a stranger
 * can easily make names that collide under a CRC. Sends nothing: the caller that binds or forgets a name tells the
 * worker.
 */
#ifndef MQ_BINDINGS_H
#define MQ_BINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

struct binding {
    char *name; /* NULL: the number is free */
    uint32_t name_bytes;
    uint32_t hash;
    uint32_t shard;
    uint32_t references;
    uint32_t next_free;
    uint32_t newer, older; /* neighbours in the list of idle names */
    uint8_t worker;
    bool bridged; /* kept for the caller */
    bool listed;  /* bound for good, and included when topics are listed */
};

struct bindings {
    struct binding *table; /* by number; number 0 is never used */
    uint32_t capacity;
    uint32_t bound;
    uint32_t first_free;
    uint32_t *index; /* numbers by hash of the name, open addressing; 0: empty slot */
    uint32_t index_mask;
    struct siphash_key key;
    uint32_t shards;
    uint32_t workers;
    uint32_t limit;
    uint64_t names_bytes; /* of all that are bound */
    uint32_t newest_idle, oldest_idle, idle, idle_limit;
};

/* A name may be longer than this. All together have no more bytes, but for one name, than `limit` names of this
 * size. */
enum { BINDING_NAME_SHARE = 256 };

/* `limit`: most names at once; `idle_limit`: most names that nobody refers to. */
bool bindings_open(struct bindings *bindings, uint32_t shards, uint32_t workers, uint32_t limit, uint32_t idle_limit);
void bindings_close(struct bindings *bindings);

/* The number of a name, or 0. */
uint32_t bindings_find(const struct bindings *bindings, const void *name, size_t name_bytes);

/* The number of a name, binding it if need be, without taking a reference: it stays valid until `idle_limit` other
 * names have been looked up. 0 when the limit is reached or memory is short. *is_new: the name was not bound before. */
uint32_t bindings_look_up(struct bindings *bindings, const void *name, size_t name_bytes, bool *is_new);

static inline struct binding *binding_at(const struct bindings *bindings, uint32_t number) {
    return &bindings->table[number];
}

/* Add and drop a reference; a name without references is idle. */
void bindings_refer(struct bindings *bindings, uint32_t number);
void bindings_unbind(struct bindings *bindings, uint32_t number);

/* The idle name to be forgotten next, if there are too many idle ones or the table is full; else 0. The caller tells
 * the worker, then calls bindings_forget. */
uint32_t bindings_surplus(const struct bindings *bindings);
void bindings_forget(struct bindings *bindings, uint32_t number);

uint32_t bindings_shard(const struct bindings *bindings, const void *name, size_t name_bytes);

#endif

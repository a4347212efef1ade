/* Bindings: the acceptor's own numbers for topic names.
 *
 * A name has a number while something refers to it: a connection's use or watch, or the number it publishes to. What was
 * looked up and nobody refers to stays bound for a while, for who names it next: those are idle, the least recently named
 * goes first, and there are never more than so many. Owns the names. Knows shards and workers only as arithmetic: a
 * name's shard is its CRC-32C modulo the number of shards, a shard's worker its number modulo the number of workers. Its
 * index goes by a keyed hash, because names that collide under a CRC are easily made. Sends nothing: who binds a new name
 * or forgets one tells the worker.
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
    uint32_t newer, older; /* among the idle */
    uint8_t worker;
    bool bridged; /* the user's mark */
    bool listed;  /* for good, and topics that are listed have it among them */
};

struct bindings {
    struct binding *table; /* by number; 0 is nobody's */
    uint32_t capacity;
    uint32_t bound;
    uint32_t first_free;
    uint32_t *index; /* by hash, open addressing; 0: empty */
    uint32_t index_mask;
    struct siphash_key key;
    uint32_t shards;
    uint32_t workers;
    uint32_t limit;
    uint32_t newest_idle, oldest_idle, idle, idle_limit;
};

/* `limit`: of names, `idle_limit`: of those that nobody refers to. */
bool bindings_open(struct bindings *bindings, uint32_t shards, uint32_t workers, uint32_t limit, uint32_t idle_limit);
void bindings_close(struct bindings *bindings);

/* The number of a name, or 0. */
uint32_t bindings_find(const struct bindings *bindings, const void *name, size_t name_bytes);

/* The number of a name, without a reference: good until as many other names as may be idle have been looked up. 0 when the
 * limit or memory is reached. *is_new: it was not bound. */
uint32_t bindings_look_up(struct bindings *bindings, const void *name, size_t name_bytes, bool *is_new);

static inline struct binding *binding_at(const struct bindings *bindings, uint32_t number) {
    return &bindings->table[number];
}

/* One reference more, or less: without any it is idle. */
void bindings_refer(struct bindings *bindings, uint32_t number);
void bindings_unbind(struct bindings *bindings, uint32_t number);

/* The idle name that is to go next, if there are too many or no room for one more; else 0. The caller tells the worker
 * and calls bindings_forget. */
uint32_t bindings_surplus(const struct bindings *bindings);
void bindings_forget(struct bindings *bindings, uint32_t number);

uint32_t bindings_shard(const struct bindings *bindings, const void *name, size_t name_bytes);

#endif

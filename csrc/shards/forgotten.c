#include "shards/forgotten.h"

#include <stdlib.h>

#include "base/siphash.h"

/* The hash is on disk, so its key is the same for all, and strangers may choose names with one hash: these count on
 * from the higher seq, or from the floor. */
uint64_t forgotten_key(const char *name, size_t name_bytes) {
    return siphash((struct siphash_key){{0, 0}}, name, name_bytes);
}

uint64_t forgotten_next_seq(const struct forgotten *all, uint64_t key) {
    uint32_t place = map_find(&all->places, key);
    return place ? all->items[place - 1].next_seq : 0;
}

static void empty(struct forgotten *all, struct forgotten_topic *item) {
    if (!item->next_seq) return;
    map_remove(&all->places, item->key);
    *item = (struct forgotten_topic){0};
}

void forgotten_remove(struct forgotten *all, uint64_t key, uint64_t next_seq) {
    uint32_t place = map_find(&all->places, key);
    if (place && all->items[place - 1].next_seq <= next_seq) empty(all, &all->items[place - 1]);
}

void forgotten_note(struct forgotten *all, uint64_t key, uint64_t next_seq) {
    uint64_t before = forgotten_next_seq(all, key);
    if (before > next_seq) next_seq = before;
    forgotten_remove(all, key, next_seq);
    if (all->doubtful || !next_seq) return;
    if (!all->items) all->items = calloc(FORGOTTEN_MOST, sizeof *all->items);
    if (!all->items) return;
    struct forgotten_topic *item = &all->items[all->next];
    empty(all, item);
    if (!map_insert(&all->places, key, all->next + 1)) return;
    *item = (struct forgotten_topic){key, next_seq};
    all->next = (all->next + 1) % FORGOTTEN_MOST;
}

void forgotten_clear(struct forgotten *all, bool doubtful) {
    forgotten_free(all);
    all->doubtful = doubtful;
}

size_t forgotten_some(const struct forgotten *all, uint32_t *at, struct forgotten_topic *out, size_t most) {
    size_t count = 0;
    for (; all->items && *at < FORGOTTEN_MOST && count < most; (*at)++) {
        const struct forgotten_topic *item = &all->items[(all->next + *at) % FORGOTTEN_MOST];
        if (item->next_seq) out[count++] = *item;
    }
    return count;
}

void forgotten_free(struct forgotten *all) {
    map_free(&all->places);
    free(all->items);
    *all = (struct forgotten){0};
}

#include "shards/producers.h"

#include <stdlib.h>

void producers_free(struct producers *producers) {
    free(producers->items);
    map_free(&producers->places);
    *producers = (struct producers){0};
}

const struct producer_part *producers_last(const struct producers *producers, uint64_t key, uint64_t wall_ns) {
    uint32_t n = map_find(&producers->places, key);
    if (!n) return NULL;
    const struct producer_last *last = &producers->items[n];
    bool idle = producers->idle_ns && wall_ns > last->used_ns && wall_ns - last->used_ns > producers->idle_ns;
    return idle ? NULL : &last->part;
}

enum producer_turn producers_ask(const struct producers *producers, const struct producer_part *part,
                                 uint64_t wall_ns) {
    const struct producer_part *last = producers_last(producers, part->key, wall_ns);
    if (!last || part->batch > last->batch) return part->part == 0 ? PRODUCER_NEXT : PRODUCER_EARLY;
    if (part->batch < last->batch || part->part <= last->part) return PRODUCER_DONE;
    return part->part == last->part + 1 ? PRODUCER_NEXT : PRODUCER_EARLY;
}

static void unlink_one(struct producers *p, uint32_t n) {
    const struct producer_last *one = &p->items[n];
    *(one->newer ? &p->items[one->newer].older : &p->newest) = one->older;
    *(one->older ? &p->items[one->older].newer : &p->oldest) = one->newer;
}

static void put_first(struct producers *p, uint32_t n) {
    struct producer_last *one = &p->items[n];
    one->newer = 0;
    one->older = p->newest;
    *(p->newest ? &p->items[p->newest].newer : &p->oldest) = n;
    p->newest = n;
}

/* A place for a producer: a new one, or that of the one silent for longest. 0 when memory is short. */
static uint32_t make_place(struct producers *p) {
    if (p->count == p->limit) {
        uint32_t n = p->oldest;
        unlink_one(p, n);
        map_remove(&p->places, p->items[n].part.key);
        return n;
    }
    /* Number 0 is not used; room grows in steps of half a power of two. */
    uint32_t n = p->count + 1;
    if ((n & (n - 1)) == 0) {
        struct producer_last *larger = realloc(p->items, (size_t)n * 2 * sizeof *larger);
        if (!larger) return 0;
        p->items = larger;
    }
    p->count++;
    return n;
}

bool producers_note(struct producers *producers, const struct producer_part *part, uint64_t wall_ns) {
    uint32_t n = map_find(&producers->places, part->key);
    if (n) {
        unlink_one(producers, n);
    } else {
        n = make_place(producers);
        if (!n || !map_insert(&producers->places, part->key, n)) return false;
    }
    producers->items[n].part = *part;
    producers->items[n].part.batch += part->more;
    producers->items[n].part.more = 0;
    producers->items[n].used_ns = wall_ns;
    put_first(producers, n);
    return true;
}

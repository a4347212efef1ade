/* Slots that no consumer asked for are shared out: the consumer with the highest hash of itself and the slot has it. So
 * when a consumer comes or goes, only slots that it gets or had move.
 *
 * That is a look at each consumer. Where there are many, a table for all subscriptions of the worker remembers what was
 * found, until a consumer comes or goes. */
#include "shards/key_owners.h"

#include <stdlib.h>

#include "base/mix.h"

/* With fewer a look at each is as cheap. */
enum { REMEMBERED_FROM = 8 };

struct owner {
    uint64_t round; /* subscription.owners when it was found; the place in the table tells the slot */
    uint32_t consumer;
};

static bool has_slot(const struct consumer_rank *rank, uint16_t slot) {
    for (uint32_t i = 0; i < rank->range_count; i++)
        if (slot >= rank->ranges[i].first && slot <= rank->ranges[i].last) return true;
    return false;
}

static uint32_t look(const struct worker *w, const struct subscription *s, uint16_t slot) {
    uint64_t highest = 0;
    uint32_t owner = 0;
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next) {
        const struct consumer_rank *rank = worker_consumer(w, c)->rank;
        if (rank->range_count) {
            if (has_slot(rank, slot)) return c;
            continue;
        }
        uint64_t height = mix_bits(rank->seed ^ (uint64_t)slot * 0x9e3779b97f4a7c15u);
        if (owner && height <= highest) continue;
        highest = height;
        owner = c;
    }
    return owner;
}

uint32_t key_owners_find(struct worker *w, uint32_t subscription, uint16_t slot, uint32_t *looked) {
    struct subscriptions *all = &w->subscriptions;
    struct subscription *s = worker_subscription(w, subscription);
    if (s->consumers >= REMEMBERED_FROM && !all->owners) all->owners = calloc(KEY_SLOTS, sizeof *all->owners);
    const bool remembers = s->consumers >= REMEMBERED_FROM && all->owners;
    if (remembers && !s->owners) s->owners = ++all->owner_rounds;
    /* Of one round each slot has a place of its own. */
    struct owner *found = remembers ? &all->owners[(slot + s->owners * 40503) % KEY_SLOTS] : NULL;
    if (found && found->round == s->owners) {
        ++*looked;
        return found->consumer;
    }
    *looked += s->consumers;
    const uint32_t consumer = look(w, s, slot);
    if (found) *found = (struct owner){.round = s->owners, .consumer = consumer};
    return consumer;
}

void key_owners_changed(struct subscription *s) {
    s->owners = 0;
}

void key_owners_free(struct subscriptions *all) {
    free(all->owners);
}

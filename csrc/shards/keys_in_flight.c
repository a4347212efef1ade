/* Slots of keys of which a consumer has messages in flight: no other consumer gets messages of these meanwhile. Memory
 * only. */
#include "shards/keys_in_flight.h"

#include <assert.h>

#include "shards/due.h"
#include "shards/redelivery.h"

static uint64_t use_key(uint32_t subscription, uint16_t slot) {
    return (uint64_t)subscription << 16 | slot;
}

uint32_t policy_slot_user(const struct worker *w, uint32_t subscription, uint16_t slot) {
    const struct subscriptions *all = &w->subscriptions;
    uint32_t use = map_find(&all->slot_uses, use_key(subscription, slot));
    return use ? ((const struct slot_use *)arena_at(&all->slots, use))->consumer : 0;
}

bool policy_slot_free(const struct worker *w, uint32_t subscription, uint16_t slot, uint32_t consumer) {
    const struct subscriptions *all = &w->subscriptions;
    uint32_t number = map_find(&all->slot_uses, use_key(subscription, slot));
    struct slot_use *use = number ? arena_at(&all->slots, number) : NULL;
    if (!use || use->consumer == consumer) return true;
    use->awaited = true;
    return false;
}

bool policy_slot_take(struct worker *w, uint32_t delivery, uint16_t slot, uint32_t consumer) {
    struct subscriptions *all = &w->subscriptions;
    struct delivery *d = delivery_at(all, delivery);
    uint64_t key = use_key(d->subscription, slot);
    uint32_t number = map_find(&all->slot_uses, key);
    if (!number) {
        number = arena_take(&all->slots);
        if (!number) return false;
        if (!map_insert(&all->slot_uses, key, number)) {
            arena_give(&all->slots, number);
            return false;
        }
        *(struct slot_use *)arena_at(&all->slots, number) = (struct slot_use){.consumer = consumer};
    }
    struct slot_use *use = arena_at(&all->slots, number);
    assert(use->consumer == consumer);
    use->count++;
    d->slot = slot;
    d->keyed = true;
    return true;
}

void policy_slot_release(struct worker *w, uint32_t delivery) {
    struct subscriptions *all = &w->subscriptions;
    struct delivery *d = delivery_at(all, delivery);
    uint64_t key = use_key(d->subscription, d->slot);
    uint32_t number = map_find(&all->slot_uses, key);
    struct slot_use *use = arena_at(&all->slots, number);
    d->keyed = false;
    assert(number && use->count);
    if (--use->count) return;
    if (use->awaited) redelivery_look_anew(subscription_at(all, d->subscription));
    map_remove(&all->slot_uses, key);
    arena_give(&all->slots, number);
    subscription_due(w, d->subscription);
}

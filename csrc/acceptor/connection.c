#include "acceptor/connection.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void connection_init(struct connection *c, int fd, uint32_t number, uint32_t protocol) {
    *c = (struct connection){.fd = fd, .number = number, .protocol = (uint8_t)protocol};
    c->slots = c->few_slots;
    c->slot_mask = FEW_SLOTS - 1;
    c->watched = c->few_watched;
    c->watched_capacity = FEW_WATCHED;
}

static void release_slots(struct connection *c, struct blocks *blocks) {
    if (c->slots == c->few_slots) return;
    blocks_give(blocks, c->slots);
    c->slots = c->few_slots;
    c->slot_mask = FEW_SLOTS - 1;
}

void connection_release(struct connection *c, struct blocks *blocks) {
    for (; c->slot_count > 0; c->slot_count--, c->head_slot++) free(connection_slot(c, c->head_slot)->body);
    release_slots(c, blocks);
    if (c->in.bytes != NULL) buffer_release(blocks, &c->in);
    if (c->out.bytes != NULL) buffer_release(blocks, &c->out);
    if (c->filter != NULL) {
        if (c->filter->wire.bytes != NULL) buffer_release(blocks, &c->filter->wire);
        free(c->filter);
        c->filter = NULL;
    }
    if (c->watched != c->few_watched) free(c->watched);
    c->watched = c->few_watched;
    c->watched_count = 0;
}

/* From the few to as many as there may be. */
static bool spread_slots(struct connection *c, struct blocks *blocks) {
    struct slot *all = blocks_take(blocks);
    if (all == NULL) return false;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        uint32_t number = c->head_slot + i;
        all[number & (MAX_OUTSTANDING - 1)] = *connection_slot(c, number);
    }
    c->slots = all;
    c->slot_mask = MAX_OUTSTANDING - 1;
    return true;
}

struct slot *connection_push_slot(struct connection *c, struct blocks *blocks, uint8_t kind) {
    assert(c->slot_count < MAX_OUTSTANDING);
    if (c->slot_count > c->slot_mask && !spread_slots(c, blocks)) return NULL;
    struct slot *slot = connection_slot(c, c->head_slot + c->slot_count++);
    *slot = (struct slot){.kind = kind};
    return slot;
}

void connection_pop_slot(struct connection *c, struct blocks *blocks) {
    assert(c->slot_count > 0);
    struct slot *slot = connection_slot(c, c->head_slot);
    if (slot->body != NULL) free(slot->body);
    c->head_slot++;
    if (--c->slot_count == 0) release_slots(c, blocks);
}

uint32_t connection_watch_place(const struct connection *c, uint32_t binding) {
    uint32_t place = 0;
    while (place < c->watched_count && c->watched[place] != binding) place++;
    return place;
}

bool connection_add_watch(struct connection *c, uint32_t binding) {
    if (c->watched_count == c->watched_capacity) {
        uint32_t capacity = 2 * c->watched_capacity;
        uint32_t *larger = malloc(capacity * sizeof *larger);
        if (larger == NULL) return false;
        memcpy(larger, c->watched, c->watched_count * sizeof *larger);
        if (c->watched != c->few_watched) free(c->watched);
        c->watched = larger;
        c->watched_capacity = capacity;
    }
    c->watched[c->watched_count++] = binding;
    return true;
}

void connection_remove_watch(struct connection *c, uint32_t place) {
    assert(place < c->watched_count);
    c->watched[place] = c->watched[--c->watched_count];
}

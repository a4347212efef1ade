#include "acceptor/protocols/nats/nats_origins.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ORIGINS = 16 };

static uint32_t slot_of(const struct nats_origins *o, struct text name) {
    return (uint32_t)siphash(o->key, name.at, name.bytes) % NATS_ORIGIN_SLOTS;
}

uint32_t nats_origin_named(const struct nats_origins *o, struct text name) {
    if (name.bytes == 0) return 0;
    uint32_t number = o->slots[slot_of(o, name)];
    while (number != 0 &&
           (o->items[number].name_bytes != name.bytes || memcmp(o->items[number].name, name.at, name.bytes) != 0))
        number = o->items[number].next;
    return number;
}

struct text nats_origin_name(const struct nats_origins *o, uint32_t number) {
    if (number >= o->count || o->items[number].name == NULL) return (struct text){0};
    return (struct text){(const uint8_t *)o->items[number].name, o->items[number].name_bytes};
}

static bool grow(struct nats_origins *o) {
    uint32_t capacity = o->capacity == 0 ? FIRST_ORIGINS : 2 * o->capacity;
    struct nats_origin *items = realloc(o->items, capacity * sizeof *items);
    if (items == NULL) return false;
    o->items = items;
    o->capacity = capacity;
    if (o->count > 0) return true;
    items[0] = (struct nats_origin){0};
    o->count = 1;
    return true;
}

/* 0: there is none. */
static uint32_t free_number(struct nats_origins *o) {
    uint32_t number = o->free;
    if (number != 0) {
        o->free = o->items[number].next;
        return number;
    }
    bool full = o->count > NATS_MOST_ORIGINS || (o->count == o->capacity && !grow(o));
    return full ? 0 : o->count++;
}

uint32_t nats_origin_take(struct nats_origins *o, struct text name) {
    uint32_t number = nats_origin_named(o, name);
    if (number != 0) {
        o->items[number].references++;
        return number;
    }
    if (name.bytes > NATS_ORIGIN_BYTES) return 0;
    struct nats_origin made = {.references = 1, .name_bytes = (uint32_t)name.bytes};
    if (name.bytes > 0 && (made.name = malloc(name.bytes)) == NULL) return 0;
    if ((number = free_number(o)) == 0) {
        free(made.name);
        return 0;
    }
    if (name.bytes > 0) {
        uint32_t *slot = &o->slots[slot_of(o, name)];
        memcpy(made.name, name.at, name.bytes);
        made.next = *slot;
        *slot = number;
    }
    o->items[number] = made;
    return number;
}

bool nats_origins_differ(const struct nats_origins *origins, uint32_t one, uint32_t other) {
    return one != other && nats_origin_name(origins, one).bytes > 0 && nats_origin_name(origins, other).bytes > 0;
}

void nats_origin_keep(struct nats_origins *o, uint32_t number) {
    if (number == 0 || number >= o->count) return;
    assert(o->items[number].references > 0);
    o->items[number].references++;
}

void nats_origin_drop(struct nats_origins *o, uint32_t number) {
    if (number == 0 || number >= o->count) return;
    struct nats_origin *origin = &o->items[number];
    assert(origin->references > 0);
    if (--origin->references > 0) return;
    if (origin->name != NULL) {
        uint32_t *at = &o->slots[slot_of(o, nats_origin_name(o, number))];
        while (*at != number) at = &o->items[*at].next;
        *at = origin->next;
        free(origin->name);
    }
    *origin = (struct nats_origin){.next = o->free};
    o->free = number;
}

void nats_origins_close(struct nats_origins *o) {
    for (uint32_t i = 0; i < o->count; i++) free(o->items[i].name);
    free(o->items);
}

#include "acceptor/connection.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct connection *connection_new(int fd, uint32_t number, uint32_t protocol, const struct codec *codec,
                                  size_t state_bytes) {
    struct connection *c = calloc(1, sizeof *c + state_bytes);
    if (c == NULL) return NULL;
    c->fd = fd;
    c->number = number;
    c->protocol = (uint8_t)protocol;
    c->codec = codec;
    c->slots = c->few_slots;
    c->slot_mask = FEW_SLOTS - 1;
    return c;
}

void connection_gather_slots(struct connection *c, struct blocks *blocks) {
    bytes_give(blocks, c->slots, BLOCK_BYTES);
    c->slots = c->few_slots;
    c->slot_mask = FEW_SLOTS - 1;
}

void connection_release(struct connection *c, struct blocks *blocks) {
    while (c->slot_count > 0) connection_pop_slot(c, blocks);
    if (c->slots != c->few_slots) connection_gather_slots(c, blocks);
    if (c->in.bytes != NULL) buffer_release(blocks, &c->in);
    output_release(blocks, &c->out);
    if (c->framing != NULL) {
        struct compression *compression = c->framing->compression;
        if (compression != NULL && compression->packed.bytes != NULL) buffer_release(blocks, &compression->packed);
        free(compression);
        output_release(blocks, &c->framing->wire);
        free(c->framing);
        c->framing = NULL;
    }
    if (c->filter != NULL) {
        output_release(blocks, &c->filter->wire);
        free(c->filter);
        c->filter = NULL;
    }
}

bool connection_spread_slots(struct connection *c, struct blocks *blocks) {
    struct slot *all = bytes_take(blocks, BLOCK_BYTES);
    if (all == NULL) return false;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        uint32_t number = c->head_slot + i;
        all[number & (MAX_OUTSTANDING - 1)] = *connection_slot(c, number);
    }
    c->slots = all;
    c->slot_mask = MAX_OUTSTANDING - 1;
    return true;
}

uint8_t *connection_body(struct connection *c, struct blocks *blocks, struct slot *slot, size_t bytes) {
    assert(bytes > 0 && bytes <= UINT32_MAX - slot->body_bytes);
    size_t before = slot->body_bytes;
    if (slot->body == NULL || bytes_room(before + bytes) != bytes_room(before)) {
        uint8_t *larger = bytes_take(blocks, before + bytes);
        if (larger == NULL) return NULL;
        if (slot->body != NULL) {
            memcpy(larger, slot->body, before);
            bytes_give(blocks, slot->body, before);
        }
        slot->body = larger;
    }
    slot->body_bytes = (uint32_t)(before + bytes);
    c->kept_bytes += bytes;
    return slot->body + before;
}

void connection_drop_body(struct connection *c, struct blocks *blocks, struct slot *slot) {
    assert(c->kept_bytes >= slot->body_bytes);
    c->kept_bytes -= slot->body_bytes;
    bytes_give(blocks, slot->body, slot->body_bytes);
    slot->body = NULL;
    slot->body_bytes = 0;
}

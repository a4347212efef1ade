#include "acceptor/buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "acceptor/bounds.h"

struct block {
    struct block *next;
};

void *blocks_take(struct blocks *blocks) {
    struct block *block = blocks->first;
    if (block == NULL) return malloc(BLOCK_BYTES);
    blocks->first = block->next;
    blocks->kept--;
    return block;
}

void blocks_give(struct blocks *blocks, void *given) {
    if (blocks->kept >= KEEP_BLOCKS) {
        free(given);
        return;
    }
    struct block *block = given;
    block->next = blocks->first;
    blocks->first = block;
    blocks->kept++;
}

void blocks_close(struct blocks *blocks) {
    while (blocks->first != NULL) {
        struct block *block = blocks->first;
        blocks->first = block->next;
        free(block);
    }
    blocks->kept = 0;
}

void buffer_release(struct blocks *blocks, struct buffer *buffer) {
    if (buffer->capacity == BLOCK_BYTES)
        blocks_give(blocks, buffer->bytes);
    else
        free(buffer->bytes);
    *buffer = (struct buffer){0};
}

void buffer_consume(struct blocks *blocks, struct buffer *buffer, size_t bytes) {
    assert(bytes <= buffer_bytes(buffer));
    buffer->begin += bytes;
    if (buffer->begin == buffer->end && buffer->bytes != NULL) buffer_release(blocks, buffer);
}

uint8_t *buffer_grow(struct blocks *blocks, struct buffer *buffer, size_t bytes) {
    size_t kept = buffer_bytes(buffer);
    assert(bytes <= SIZE_MAX / 4 - kept);
    /* Moving is cheaper than growing, but only once a good part has been consumed: so that each byte moves once or so.
     */
    if (kept + bytes <= buffer->capacity && kept <= buffer->begin) {
        memmove(buffer->bytes, buffer_front(buffer), kept);
        buffer->begin = 0;
        buffer->end = kept;
        return buffer->bytes + kept;
    }
    size_t capacity = BLOCK_BYTES;
    while (capacity < kept + bytes || capacity <= buffer->capacity) capacity *= 2;
    uint8_t *larger;
    if (buffer->begin == 0 && buffer->capacity > BLOCK_BYTES) {
        larger = realloc(buffer->bytes, capacity); /* which moves pages, not bytes, when it is really large */
        if (larger == NULL) return NULL;
    } else {
        larger = capacity == BLOCK_BYTES ? blocks_take(blocks) : malloc(capacity);
        if (larger == NULL) return NULL;
        if (kept > 0) memcpy(larger, buffer_front(buffer), kept);
        if (buffer->bytes != NULL) buffer_release(blocks, buffer);
    }
    *buffer = (struct buffer){.bytes = larger, .end = kept, .capacity = capacity};
    return larger + kept;
}

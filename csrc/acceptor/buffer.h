/* Buffers of a connection's bytes on their way in or out, and the pool of blocks that most of them are made of.
 *
 * A buffer that is empty holds no memory. It starts with a block of the pool, and is one stretch of bytes however large
 * it grows, so that it is received into and sent from by one system call.
 */
#ifndef MQ_BUFFER_H
#define MQ_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct block;

struct blocks {
    struct block *first; /* free ones */
    uint32_t kept;
};

/* BLOCK_BYTES, aligned for anything; NULL when memory is short. */
void *blocks_take(struct blocks *blocks);
void blocks_give(struct blocks *blocks, void *block);
void blocks_close(struct blocks *blocks);

struct buffer {
    uint8_t *bytes;
    size_t begin, end, capacity;
};

static inline size_t buffer_bytes(const struct buffer *buffer) {
    return buffer->end - buffer->begin;
}

static inline uint8_t *buffer_front(const struct buffer *buffer) {
    return buffer->bytes + buffer->begin;
}

/* Where `bytes` more can be written (then: end += what was); NULL when memory is short. What is there may move. */
uint8_t *buffer_grow(struct blocks *blocks, struct buffer *buffer, size_t bytes);
static inline uint8_t *buffer_room(struct blocks *blocks, struct buffer *buffer, size_t bytes) {
    if (buffer->capacity - buffer->end >= bytes) return buffer->bytes + buffer->end;
    return buffer_grow(blocks, buffer, bytes);
}

/* Goes past bytes at the front; gives the memory back with the last. */
void buffer_consume(struct blocks *blocks, struct buffer *buffer, size_t bytes);
void buffer_release(struct blocks *blocks, struct buffer *buffer);

#endif

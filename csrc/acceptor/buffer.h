/* Where the bytes of connections live: on their way in or out, and replies whose turn has not come.
 *
 * What is small comes from pools, so that nothing is allocated for a message; what is large comes from the system page by
 * page and goes back there. All that is taken is counted: it has a limit over all connections (bounds.h).
 *
 * A buffer that is empty holds no memory. It starts with a block of the pool, and is one stretch of bytes however large
 * it grows, so that it is received into and sent from by one system call.
 */
#ifndef MQ_BUFFER_H
#define MQ_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct piece;

enum { PIECE_SIZES = 5, KEEP_MAPPED = 8 };

struct mapping {
    void *at;
    size_t bytes;
};

struct blocks {
    struct piece *first[PIECE_SIZES]; /* free ones, by size */
    uint32_t kept[PIECE_SIZES];
    struct mapping mapped[KEEP_MAPPED]; /* free ones */
    uint32_t mapped_count;
    size_t taken_bytes;
    size_t freed_bytes; /* to the heap, since it was trimmed */
};

/* Room for so many bytes, aligned for anything; NULL when memory is short. Given back with the same number, or another
 * that bytes_room makes the same of. */
void *bytes_take(struct blocks *blocks, size_t bytes);
void bytes_give(struct blocks *blocks, void *given, size_t bytes);
/* How many there is room for when so many are taken. */
size_t bytes_room(size_t bytes);

/* The pools' own go back to the system, and what the heap has free; to be called now and then when little is taken. */
void blocks_trim(struct blocks *blocks);
/* What that would give back, at most. */
size_t blocks_idle_bytes(const struct blocks *blocks);
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

/* How much larger it would have to be for `bytes` more. */
size_t buffer_growth(const struct buffer *buffer, size_t bytes);

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

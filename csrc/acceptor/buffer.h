/* Memory for the bytes of connections: input, output, and replies whose turn has not come.
 *
 * Small pieces come from pools, so that no message needs an allocation; large ones are mapped from the system and given
 * back to it. All that is taken is counted, because it has a limit over all connections (bounds.h).
 *
 * An empty buffer holds no memory. It starts with a block of the pool and stays contiguous however large it grows, so
 * that one system call receives into it or sends from it.
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
    struct piece *first[PIECE_SIZES]; /* free pieces, by size */
    uint32_t kept[PIECE_SIZES];
    uint32_t least[PIECE_SIZES];        /* the fewest there were since the last look: so many were not needed */
    struct mapping mapped[KEEP_MAPPED]; /* free mappings */
    uint32_t mapped_count, least_mapped;
    size_t taken_bytes;
    size_t freed_bytes, least_freed_bytes; /* given back to the heap since it was last trimmed, and not taken again */
};

/* Takes room for so many bytes, aligned for anything; NULL when memory is short. It is given back with the same number,
 * or another one for which bytes_room returns the same. */
void *bytes_take(struct blocks *blocks, size_t bytes);
void bytes_give(struct blocks *blocks, void *given, size_t bytes);
/* How many bytes there really is room for when `bytes` are taken. */
size_t bytes_room(size_t bytes);

/* Gives the pools' free pieces and the heap's free memory back to the system. */
void blocks_trim(struct blocks *blocks);
/* The same, but for what was needed since the last look: a busy one would take it again at once, page by page. */
void blocks_trim_unneeded(struct blocks *blocks);
/* How much that would give back, about. */
size_t blocks_unneeded_bytes(const struct blocks *blocks);
/* From here on counts what is needed. */
void blocks_look(struct blocks *blocks);
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

/* Memory of others that went back to the heap, or came from it: when much has gone back, the heap is trimmed. */
static inline void blocks_heap_given(struct blocks *blocks, size_t bytes) {
    blocks->freed_bytes += bytes;
}
static inline void blocks_heap_taken(struct blocks *blocks, size_t bytes) {
    blocks->freed_bytes -= bytes < blocks->freed_bytes ? bytes : blocks->freed_bytes;
    if (blocks->freed_bytes < blocks->least_freed_bytes) blocks->least_freed_bytes = blocks->freed_bytes;
}

/* How much the buffer would have to grow to hold `bytes` more. */
size_t buffer_growth(const struct buffer *buffer, size_t bytes);

/* Where `bytes` more can be written; the caller then adds to `end` what it wrote. The contents may move. NULL when
 * memory is short. */
uint8_t *buffer_grow(struct blocks *blocks, struct buffer *buffer, size_t bytes);
static inline uint8_t *buffer_room(struct blocks *blocks, struct buffer *buffer, size_t bytes) {
    if (buffer->capacity - buffer->end >= bytes) return buffer->bytes + buffer->end;
    return buffer_grow(blocks, buffer, bytes);
}

/* Removes bytes from the front; gives the memory back with the last one. */
void buffer_consume(struct blocks *blocks, struct buffer *buffer, size_t bytes);
void buffer_release(struct blocks *blocks, struct buffer *buffer);

#endif

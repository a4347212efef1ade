/* The output of a connection: a chain of pieces ("stretches"). Writes append to the last piece, which is usually a
 * block; when it is full, another is begun. So waiting output is never moved, however much there is, and its memory is
 * freed as it leaves. Bytes for many connections can be shared: they are stored once and counted once.
 */
#ifndef MQ_OUTPUT_H
#define MQ_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "acceptor/bounds.h"
#include "acceptor/buffer.h"

/* Bytes that several outputs refer to, each from an offset of its own on. */
struct shared_bytes {
    size_t references;
    size_t bytes;
    uint8_t at[];
};

struct stretch;

struct output {
    struct buffer last;             /* follows the stretches */
    struct stretch *first, *newest; /* NULL: none */
    size_t chained;                 /* bytes in the stretches */
};

static inline size_t output_bytes(const struct output *output) {
    return output->chained + buffer_bytes(&output->last);
}

/* Whether it holds more than a block. */
static inline bool output_is_large(const struct output *output) {
    return output->first != NULL || output->last.capacity > BLOCK_BYTES;
}

/* Where `bytes` more can be written; the caller then adds to last.end what it wrote. NULL when memory is short. */
uint8_t *output_grow(struct blocks *blocks, struct output *output, size_t bytes);
static inline uint8_t *output_room(struct blocks *blocks, struct output *output, size_t bytes) {
    const struct buffer *last = &output->last;
    if (last->capacity - last->end >= bytes) return last->bytes + last->end;
    return output_grow(blocks, output, bytes);
}

/* The contiguous bytes at the front; *bytes is how many. */
const uint8_t *output_front(const struct output *output, size_t *bytes);
/* Fills `parts` with stretches from the front, `most` bytes at most. Returns how many parts. */
size_t output_gather(const struct output *output, struct iovec *parts, size_t room, size_t most);
/* Removes bytes from the front, and gives back their memory. */
void output_consume(struct blocks *blocks, struct output *output, size_t bytes);
void output_release(struct blocks *blocks, struct output *output);

/* Makes shared bytes with one reference, the caller's; NULL when memory is short. */
struct shared_bytes *shared_new(struct blocks *blocks, size_t bytes);
void shared_drop(struct blocks *blocks, struct shared_bytes *shared);
/* Appends `count` bytes at `bytes`, which lie in `allocated`. That memory belongs to the output from then on, which
 * gives its pages back to the kernel as they leave, and calls free() at the end. It counts as taken. False when memory
 * is short; the memory then stays the caller's. */
bool output_take(struct blocks *blocks, struct output *output, void *allocated, const uint8_t *bytes, size_t count);
/* Appends bytes that stay where they are until output_settle; false when memory is short. */
bool output_borrow(struct blocks *blocks, struct output *output, const uint8_t *bytes, size_t count);
/* Copies the borrowed bytes that have not left; false when memory is short. */
bool output_settle(struct blocks *blocks, struct output *output);
/* Appends shared bytes from `from` on; false when memory is short. */
bool output_share(struct blocks *blocks, struct output *output, struct shared_bytes *shared, size_t from);

#endif

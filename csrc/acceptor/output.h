/* What is to be sent on a connection: a chain of stretches. What is written goes behind the last, which is one block as a
 * rule; when that is full another is begun. So what waits, however much it is, is not moved about, and its memory goes
 * back as it leaves. Bytes that many connections are to have can be shared: they are held once, and counted once.
 */
#ifndef MQ_OUTPUT_H
#define MQ_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "acceptor/bounds.h"
#include "acceptor/buffer.h"

/* Of several outputs, each at a place of its own in it. */
struct shared_bytes {
    size_t references;
    size_t bytes;
    uint8_t at[];
};

struct stretch;

struct output {
    struct buffer last;             /* behind the stretches */
    struct stretch *first, *newest; /* NULL: none */
    size_t chained;                 /* bytes in them */
};

static inline size_t output_bytes(const struct output *output) {
    return output->chained + buffer_bytes(&output->last);
}

/* It holds more than a block. */
static inline bool output_is_large(const struct output *output) {
    return output->first != NULL || output->last.capacity > BLOCK_BYTES;
}

/* Where `bytes` more can be written (then: last.end += what was); NULL when memory is short. */
uint8_t *output_grow(struct blocks *blocks, struct output *output, size_t bytes);
static inline uint8_t *output_room(struct blocks *blocks, struct output *output, size_t bytes) {
    const struct buffer *last = &output->last;
    if (last->capacity - last->end >= bytes) return last->bytes + last->end;
    return output_grow(blocks, output, bytes);
}

/* The bytes at the front that lie in one stretch; how many is in `bytes`. */
const uint8_t *output_front(const struct output *output, size_t *bytes);
/* As many stretches from the front as there is room for, `most` bytes of them; how many. */
size_t output_gather(const struct output *output, struct iovec *parts, size_t room, size_t most);
/* Goes past bytes at the front, and gives back the memory of what has been passed. */
void output_consume(struct blocks *blocks, struct output *output, size_t bytes);
void output_release(struct blocks *blocks, struct output *output);

/* With one reference, the caller's; NULL when memory is short. */
struct shared_bytes *shared_new(struct blocks *blocks, size_t bytes);
void shared_drop(struct blocks *blocks, struct shared_bytes *shared);
/* What was allocated elsewhere and is the output's from now on, to be given to free(), comes behind what was written: `count` bytes at
 * `bytes`, which lie in it. It counts as taken; pages that have left go back to the kernel before all has. False, and it is the caller's:
 * memory is short. */
bool output_take(struct blocks *blocks, struct output *output, void *allocated, const uint8_t *bytes, size_t count);
/* What stands in it from `from` on comes behind what was written; false when memory is short. */
bool output_share(struct blocks *blocks, struct output *output, struct shared_bytes *shared, size_t from);

#endif

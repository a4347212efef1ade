#define _GNU_SOURCE
#include "acceptor/output.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "acceptor/bounds.h"

/* A piece of output. Its bytes are in a buffer of its own, in shared bytes, borrowed, or right behind the struct. */
struct stretch {
    struct stretch *next;
    struct buffer buffer;
    struct shared_bytes *shared; /* NULL: not */
    void *allocated;             /* heap memory in which the bytes lie; NULL: none */
    bool borrowed;               /* the bytes are somebody else's: see output_settle */
};

#define STRETCH_INLINE_BYTES (CELL_BYTES - sizeof(struct stretch))

/* --- shared bytes ------------------------------------------------------------------------------------------------- */

struct shared_bytes *shared_new(struct blocks *blocks, size_t bytes) {
    struct shared_bytes *shared = bytes_take(blocks, sizeof *shared + bytes);
    if (shared == NULL) return NULL;
    shared->references = 1;
    shared->bytes = bytes;
    return shared;
}

void shared_drop(struct blocks *blocks, struct shared_bytes *shared) {
    assert(shared->references > 0);
    if (--shared->references == 0) bytes_give(blocks, shared, sizeof *shared + shared->bytes);
}

/* --- stretches ---------------------------------------------------------------------------------------------------- */

static uint8_t *inline_bytes(struct stretch *stretch) {
    return (uint8_t *)(stretch + 1);
}

static struct stretch *stretch_new(struct blocks *blocks) {
    struct stretch *stretch = bytes_take(blocks, CELL_BYTES);
    if (stretch != NULL) *stretch = (struct stretch){0};
    return stretch;
}

/* Gives back whole pages of memory allocated elsewhere that have just been passed. */
static void forget_pages(const struct buffer *buffer, size_t passed) {
    const uintptr_t page = PAGE_BYTES;
    uintptr_t begin = ((uintptr_t)buffer->bytes + page - 1) & ~(page - 1);
    uintptr_t before = ((uintptr_t)buffer_front(buffer) - passed) & ~(page - 1);
    uintptr_t end = (uintptr_t)buffer_front(buffer) & ~(page - 1);
    if (begin < before) begin = before;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Moves the front of a stretch. free() may keep large memory, so its pages are given back here, sent or not. */
static void pass(struct stretch *stretch, size_t bytes) {
    stretch->buffer.begin += bytes;
    if (stretch->allocated != NULL && stretch->buffer.capacity >= LENT_BYTES) forget_pages(&stretch->buffer, bytes);
}

static void stretch_free(struct blocks *blocks, struct stretch *stretch) {
    if (stretch->allocated != NULL) {
        pass(stretch, buffer_bytes(&stretch->buffer));
        blocks->taken_bytes -= stretch->buffer.capacity;
        free(stretch->allocated);
    } else if (stretch->shared != NULL) {
        shared_drop(blocks, stretch->shared);
    } else if (!stretch->borrowed && stretch->buffer.bytes != inline_bytes(stretch)) {
        buffer_release(blocks, &stretch->buffer);
    }
    bytes_give(blocks, stretch, CELL_BYTES);
}

static void chain(struct output *output, struct stretch *stretch) {
    if (output->first == NULL)
        output->first = stretch;
    else
        output->newest->next = stretch;
    output->newest = stretch;
    output->chained += buffer_bytes(&stretch->buffer);
}

/* Turns `last` into a stretch. A few bytes are copied instead, so that the block can be written to again. */
static bool seal(struct blocks *blocks, struct output *output) {
    struct buffer *last = &output->last;
    size_t bytes = buffer_bytes(last);
    if (bytes == 0) return true;
    struct stretch *stretch = stretch_new(blocks);
    if (stretch == NULL) return false;
    if (bytes <= STRETCH_INLINE_BYTES) {
        stretch->buffer = (struct buffer){.bytes = inline_bytes(stretch), .end = bytes, .capacity = bytes};
        memcpy(inline_bytes(stretch), buffer_front(last), bytes);
        last->begin = last->end = 0;
    } else {
        stretch->buffer = *last;
        *last = (struct buffer){0};
    }
    chain(output, stretch);
    return true;
}

/* --- output ------------------------------------------------------------------------------------------------------- */

/* When output waits already, the next block is larger, because less of it will be left empty. */
static bool begin_block(struct blocks *blocks, struct output *output, size_t bytes) {
    struct buffer *last = &output->last;
    size_t least = output->first == NULL ? BLOCK_BYTES : OUTPUT_BLOCK_BYTES;
    size_t capacity = bytes_room(bytes > least ? bytes : least);
    if (last->bytes != NULL) buffer_release(blocks, last);
    uint8_t *at = bytes_take(blocks, capacity);
    if (at == NULL) return false;
    *last = (struct buffer){.bytes = at, .capacity = capacity};
    return true;
}

uint8_t *output_grow(struct blocks *blocks, struct output *output, size_t bytes) {
    struct buffer *last = &output->last;
    bool begins = last->bytes == NULL && output->first == NULL; /* the usual case: a turn's replies fit a block */
    if (begins) return begin_block(blocks, output, bytes) ? last->bytes : NULL;
    if (buffer_growth(last, bytes) == 0) return buffer_grow(blocks, last, bytes);
    if (!seal(blocks, output)) return NULL;
    if (last->capacity - last->end < bytes && !begin_block(blocks, output, bytes)) return NULL;
    return last->bytes + last->end;
}

bool output_share(struct blocks *blocks, struct output *output, struct shared_bytes *shared, size_t from) {
    assert(from < shared->bytes);
    if (!seal(blocks, output)) return false;
    struct stretch *stretch = stretch_new(blocks);
    if (stretch == NULL) return false;
    stretch->buffer = (struct buffer){.bytes = shared->at, .begin = from, .end = shared->bytes};
    stretch->shared = shared;
    shared->references++;
    chain(output, stretch);
    return true;
}

bool output_take(struct blocks *blocks, struct output *output, void *allocated, const uint8_t *bytes, size_t count) {
    if (!seal(blocks, output)) return false;
    struct stretch *stretch = stretch_new(blocks);
    if (stretch == NULL) return false;
    stretch->buffer = (struct buffer){.bytes = (uint8_t *)(uintptr_t)bytes, .end = count, .capacity = count};
    stretch->allocated = allocated;
    blocks->taken_bytes += count;
    chain(output, stretch);
    return true;
}

bool output_borrow(struct blocks *blocks, struct output *output, const uint8_t *bytes, size_t count) {
    if (!seal(blocks, output)) return false;
    struct stretch *stretch = stretch_new(blocks);
    if (stretch == NULL) return false;
    stretch->buffer = (struct buffer){.bytes = (uint8_t *)(uintptr_t)bytes, .end = count, .capacity = count};
    stretch->borrowed = true;
    chain(output, stretch);
    return true;
}

static bool append_copy(struct blocks *blocks, struct output *output, const struct buffer *buffer) {
    size_t bytes = buffer_bytes(buffer);
    uint8_t *room = output_room(blocks, output, bytes);
    if (room == NULL) return false;
    if (bytes > 0) memcpy(room, buffer_front(buffer), bytes);
    output->last.end += bytes;
    return true;
}

/* Appends a stretch, or a copy of its bytes: those between borrowed ones are few. */
static bool append_settled(struct blocks *blocks, struct output *output, struct stretch *stretch) {
    if (stretch->borrowed || stretch->buffer.bytes == inline_bytes(stretch)) {
        const bool copied = append_copy(blocks, output, &stretch->buffer);
        stretch_free(blocks, stretch);
        return copied;
    }
    if (!seal(blocks, output)) {
        stretch_free(blocks, stretch);
        return false;
    }
    stretch->next = NULL;
    chain(output, stretch);
    return true;
}

/* Everything is appended anew, so that the copies lie in as few blocks as possible. */
bool output_settle(struct blocks *blocks, struct output *output) {
    const struct stretch *s = output->first;
    while (s != NULL && !s->borrowed) s = s->next;
    if (s == NULL) return true;
    struct stretch *next = output->first;
    struct buffer last = output->last;
    bool settled = true;
    *output = (struct output){0};
    while (next != NULL) {
        struct stretch *this = next;
        next = this->next;
        if (settled)
            settled = append_settled(blocks, output, this);
        else
            stretch_free(blocks, this);
    }
    if (settled) settled = append_copy(blocks, output, &last);
    if (last.bytes != NULL) buffer_release(blocks, &last);
    return settled;
}

const uint8_t *output_front(const struct output *output, size_t *bytes) {
    const struct buffer *front = output->first != NULL ? &output->first->buffer : &output->last;
    *bytes = buffer_bytes(front);
    return buffer_front(front);
}

static struct iovec part_of(const struct buffer *buffer) {
    return (struct iovec){.iov_base = buffer_front(buffer), .iov_len = buffer_bytes(buffer)};
}

static size_t add_part(struct iovec *part, const struct buffer *buffer, size_t most) {
    *part = part_of(buffer);
    if (part->iov_len > most) part->iov_len = most;
    return part->iov_len;
}

size_t output_gather(const struct output *output, struct iovec *parts, size_t room, size_t most) {
    size_t count = 0;
    for (const struct stretch *s = output->first; s != NULL && count < room && most > 0; s = s->next)
        most -= add_part(&parts[count++], &s->buffer, most);
    if (count < room && most > 0 && buffer_bytes(&output->last) > 0) add_part(&parts[count++], &output->last, most);
    return count;
}

void output_consume(struct blocks *blocks, struct output *output, size_t bytes) {
    if (output->first == NULL) {
        buffer_consume(blocks, &output->last, bytes);
        return;
    }
    while (output->first != NULL && bytes > 0) {
        struct stretch *first = output->first;
        size_t here = buffer_bytes(&first->buffer), passed = bytes < here ? bytes : here;
        pass(first, passed);
        output->chained -= passed;
        bytes -= passed;
        if (passed < here) return;
        output->first = first->next;
        stretch_free(blocks, first);
    }
    /* With the last stretch, an empty `last` is released as well. */
    if (bytes > 0 || (output->first == NULL && buffer_bytes(&output->last) == 0 && output->last.bytes != NULL))
        buffer_consume(blocks, &output->last, bytes);
}

void output_release(struct blocks *blocks, struct output *output) {
    while (output->first != NULL) {
        struct stretch *first = output->first;
        output->first = first->next;
        stretch_free(blocks, first);
    }
    if (output->last.bytes != NULL) buffer_release(blocks, &output->last);
    *output = (struct output){0};
}

#define _GNU_SOURCE
#include "acceptor/buffer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "acceptor/bounds.h"
#include "base/process.h"

struct piece {
    struct piece *next;
};

/* The pools: the size of their pieces, and how many free ones each keeps. */
static const struct {
    size_t bytes;
    uint32_t most;
} SIZES[PIECE_SIZES] = {{CELL_BYTES, KEEP_CELLS},
                        {PAGE_BYTES, KEEP_PAGES},
                        {BLOCK_BYTES, KEEP_BLOCKS},
                        {LARGE_BLOCK_BYTES, KEEP_LARGE_BLOCKS},
                        {OUTPUT_BLOCK_BYTES, KEEP_OUTPUT_BLOCKS}};

/* The pool for so many bytes; PIECE_SIZES: none is large enough. */
static uint32_t size_of(size_t bytes) {
    uint32_t size = 0;
    while (size < PIECE_SIZES && bytes > SIZES[size].bytes) size++;
    return size;
}

size_t bytes_room(size_t bytes) {
    uint32_t size = size_of(bytes);
    if (size < PIECE_SIZES) return SIZES[size].bytes;
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Whether it gets a mapping of its own, whose pages return to the kernel as soon as it is given back; the heap's do
 * not. */
static bool is_mapped(size_t room) {
    return room >= MAPPED_BYTES;
}

static void *heap_take(struct blocks *blocks, size_t room) {
    blocks_heap_taken(blocks, room);
    return malloc(room);
}

static void *large_take(struct blocks *blocks, size_t room) {
    if (!is_mapped(room)) return heap_take(blocks, room);
    for (uint32_t i = 0; i < blocks->mapped_count; i++) {
        if (blocks->mapped[i].bytes != room) continue;
        void *kept = blocks->mapped[i].at;
        blocks->mapped[i] = blocks->mapped[--blocks->mapped_count];
        if (blocks->mapped_count < blocks->least_mapped) blocks->least_mapped = blocks->mapped_count;
        return kept;
    }
    void *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED ? at : NULL;
}

void *bytes_take(struct blocks *blocks, size_t bytes) {
    uint32_t size = size_of(bytes);
    size_t room = bytes_room(bytes);
    void *taken;
    if (size == PIECE_SIZES) {
        taken = large_take(blocks, room);
    } else if (blocks->first[size] != NULL) {
        struct piece *piece = blocks->first[size];
        blocks->first[size] = piece->next;
        if (--blocks->kept[size] < blocks->least[size]) blocks->least[size] = blocks->kept[size];
        taken = piece;
    } else {
        taken = heap_take(blocks, room);
    }
    if (taken != NULL) blocks->taken_bytes += room;
    return taken;
}

void bytes_give(struct blocks *blocks, void *given, size_t bytes) {
    uint32_t size = size_of(bytes);
    size_t room = bytes_room(bytes);
    assert(blocks->taken_bytes >= room);
    blocks->taken_bytes -= room;
    if (is_mapped(room)) {
        if (room <= MAPPED_KEEP_BYTES && blocks->mapped_count < KEEP_MAPPED)
            blocks->mapped[blocks->mapped_count++] = (struct mapping){given, room};
        else
            munmap(given, room);
    } else if (size < PIECE_SIZES && blocks->kept[size] < SIZES[size].most) {
        struct piece *piece = given;
        piece->next = blocks->first[size];
        blocks->first[size] = piece;
        blocks->kept[size]++;
    } else {
        blocks->freed_bytes += room;
        free(given);
    }
}

static void give_back(struct blocks *blocks) {
    for (uint32_t size = 0; size < PIECE_SIZES; size++) {
        for (; blocks->least[size] > 0; blocks->least[size]--) {
            struct piece *piece = blocks->first[size];
            blocks->first[size] = piece->next;
            blocks->kept[size]--;
            free(piece);
        }
    }
    for (; blocks->least_mapped > 0; blocks->least_mapped--) {
        const struct mapping *last = &blocks->mapped[--blocks->mapped_count];
        munmap(last->at, last->bytes);
    }
}

void blocks_trim_unneeded(struct blocks *blocks) {
    give_back(blocks);
    process_trim();
    blocks->freed_bytes = blocks->least_freed_bytes = 0;
}

size_t blocks_unneeded_bytes(const struct blocks *blocks) {
    size_t unneeded = blocks->least_freed_bytes;
    for (uint32_t size = 0; size < PIECE_SIZES; size++) unneeded += blocks->least[size] * SIZES[size].bytes;
    for (uint32_t i = 0; i < blocks->least_mapped; i++) unneeded += blocks->mapped[i].bytes;
    return unneeded;
}

void blocks_look(struct blocks *blocks) {
    memcpy(blocks->least, blocks->kept, sizeof blocks->least);
    blocks->least_mapped = blocks->mapped_count;
    blocks->least_freed_bytes = blocks->freed_bytes;
}

void blocks_trim(struct blocks *blocks) {
    blocks_look(blocks);
    blocks_trim_unneeded(blocks);
}

void blocks_close(struct blocks *blocks) {
    blocks_look(blocks);
    give_back(blocks);
}

void buffer_release(struct blocks *blocks, struct buffer *buffer) {
    bytes_give(blocks, buffer->bytes, buffer->capacity);
    *buffer = (struct buffer){0};
}

void buffer_consume(struct blocks *blocks, struct buffer *buffer, size_t bytes) {
    assert(bytes <= buffer_bytes(buffer));
    buffer->begin += bytes;
    if (buffer->begin == buffer->end && buffer->bytes != NULL) buffer_release(blocks, buffer);
}

/* Enlarges a mapped buffer: pages move, not bytes. */
static uint8_t *remap(struct blocks *blocks, const struct buffer *buffer, size_t capacity) {
    void *at = mremap(buffer->bytes, buffer->capacity, capacity, MREMAP_MAYMOVE);
    if (at == MAP_FAILED) return NULL;
    blocks->taken_bytes += capacity - buffer->capacity;
    return at;
}

/* Moving the contents to the front is cheaper than growing, but only once a good part has been consumed: then each byte
 * moves about once. */
static bool may_move(const struct buffer *buffer, size_t bytes) {
    size_t kept = buffer_bytes(buffer);
    return kept + bytes <= buffer->capacity && kept <= buffer->begin;
}

static size_t larger_capacity(const struct buffer *buffer, size_t bytes) {
    size_t capacity = BLOCK_BYTES;
    while (capacity < buffer_bytes(buffer) + bytes || capacity <= buffer->capacity) capacity *= 2;
    return capacity;
}

size_t buffer_growth(const struct buffer *buffer, size_t bytes) {
    if (buffer->capacity - buffer->end >= bytes || may_move(buffer, bytes)) return 0;
    return larger_capacity(buffer, bytes) - buffer->capacity;
}

uint8_t *buffer_grow(struct blocks *blocks, struct buffer *buffer, size_t bytes) {
    size_t kept = buffer_bytes(buffer);
    assert(bytes <= SIZE_MAX / 4 - kept);
    if (may_move(buffer, bytes)) {
        memmove(buffer->bytes, buffer_front(buffer), kept);
        buffer->begin = 0;
        buffer->end = kept;
        return buffer->bytes + kept;
    }
    size_t capacity = larger_capacity(buffer, bytes);
    uint8_t *larger;
    if (buffer->begin == 0 && is_mapped(buffer->capacity)) {
        larger = remap(blocks, buffer, capacity);
        if (larger == NULL) return NULL;
    } else {
        larger = bytes_take(blocks, capacity);
        if (larger == NULL) return NULL;
        if (kept > 0) memcpy(larger, buffer_front(buffer), kept);
        if (buffer->bytes != NULL) buffer_release(blocks, buffer);
    }
    *buffer = (struct buffer){.bytes = larger, .end = kept, .capacity = capacity};
    return larger + kept;
}

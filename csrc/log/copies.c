#define _GNU_SOURCE
#include "log/copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

enum { STAGED_MOST = 256 << 10, FILE_MOST = 1 << 30 };

/* Precedes each record in the file. */
struct entry {
    uint32_t offset;
    uint32_t check; /* CRC-32C of the offset, continued from the record's CRC */
};
_Static_assert(sizeof(struct entry) == 8, "on-disk layout");

static uint32_t check_of(uint32_t offset, uint32_t record_crc) {
    return crc32c_extend(record_crc, &offset, sizeof offset);
}

void copies_open(struct copies *c, int fd) {
    struct stat status;
    *c = (struct copies){.fd = fd};
    c->end = fstat(fd, &status) == 0 ? ((uint64_t)status.st_size + 7) & ~(uint64_t)7 : 0;
    c->cut = c->end == 0;
}

void copies_close(struct copies *c) {
    if (c->fd) (void)close(c->fd);
    free(c->staged);
    *c = (struct copies){0};
}

static bool reach(struct copies *c, size_t bytes) {
    if (bytes <= c->capacity) return true;
    size_t capacity = c->capacity ? c->capacity : 4096;
    while (capacity < bytes) capacity *= 2;
    uint8_t *staged = realloc(c->staged, capacity);
    if (!staged) return false;
    c->staged = staged;
    c->capacity = capacity;
    return true;
}

void copies_add(struct copies *c, uint32_t offset, const struct record *record) {
    struct entry entry = {offset, check_of(offset, record->crc)};
    size_t stride = (size_t)record_stride(record);
    if (!c->fd || !reach(c, c->bytes + sizeof entry + stride)) return;
    memcpy(c->staged + c->bytes, &entry, sizeof entry);
    memcpy(c->staged + c->bytes + sizeof entry, record, stride);
    c->bytes += sizeof entry + stride;
    if (c->bytes > STAGED_MOST) copies_flush(c);
}

void copies_flush(struct copies *c) {
    if (!c->bytes) return;
    if (!c->cut) c->cut = ftruncate(c->fd, (off_t)c->end) == 0;
    size_t from = 0;
    c->written = true;
    while (from < c->bytes) {
        ssize_t n = pwrite(c->fd, c->staged + from, c->bytes - from, (off_t)(c->end + from));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        from += (size_t)n;
    }
    c->end = (c->end + from + 7) & ~(uint64_t)7;
    c->bytes = 0;
    if (c->capacity <= STAGED_MOST) return;
    free(c->staged);
    c->staged = NULL;
    c->capacity = 0;
}

void copies_read_free(struct copies_read *all) {
    free(all->base);
    *all = (struct copies_read){0};
}

struct copies_read copies_read(const struct copies *c) {
    struct copies_read all = {0};
    struct stat status;
    if (!c->fd || fstat(c->fd, &status) != 0 || status.st_size <= 0 || status.st_size > FILE_MOST) return all;
    all.base = malloc((size_t)status.st_size);
    while (all.base && all.bytes < (size_t)status.st_size) {
        ssize_t n = pread(c->fd, all.base + all.bytes, (size_t)status.st_size - all.bytes, (off_t)all.bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        all.bytes += (size_t)n;
    }
    return all;
}

static bool is_whole(const struct copies_read *all, size_t at, uint32_t segment) {
    struct entry entry;
    struct record r;
    memcpy(&entry, all->base + at, sizeof entry);
    memcpy(&r, all->base + at + sizeof entry, sizeof r);
    if (!r.kind || entry.check != check_of(entry.offset, r.crc)) return false;
    if (r.bytes < sizeof r + r.attribute_bytes || r.bytes > all->bytes - at - sizeof entry) return false;
    const uint32_t start[2] = {r.bytes, segment};
    uint32_t crc = crc32c_extend(0, start, sizeof start);
    return crc32c_extend(crc, all->base + at + sizeof entry + sizeof start, r.bytes - sizeof start) == r.crc;
}

bool copies_are_of(const void *bytes, size_t count, uint32_t segment) {
    const struct copies_read all = {(uint8_t *)bytes, count};
    return count >= sizeof(struct entry) + sizeof(struct record) && is_whole(&all, 0, segment);
}

const struct record *copies_next(const struct copies_read *all, size_t *at, uint32_t segment, uint32_t *offset) {
    for (; *at + sizeof(struct entry) + sizeof(struct record) <= all->bytes; *at += 8) {
        if (!is_whole(all, *at, segment)) continue;
        struct entry entry;
        memcpy(&entry, all->base + *at, sizeof entry);
        const struct record *r = (const struct record *)(const void *)(all->base + *at + sizeof entry);
        *offset = entry.offset;
        *at += sizeof entry + (size_t)record_stride(r);
        return r;
    }
    return NULL;
}

void copies_end_at(struct copies *c, const struct copies_read *all, uint32_t segment, uint64_t offset) {
    uint32_t found;
    const struct record *r;
    if (!c->fd || !all->bytes) return;
    c->end = (all->bytes + 7) & ~(uint64_t)7;
    c->cut = true;
    for (size_t at = 0; (r = copies_next(all, &at, segment, &found)) != NULL;) {
        if (found < offset) continue;
        c->end = at - (size_t)record_stride(r) - sizeof(struct entry);
        c->cut = false;
        return;
    }
}

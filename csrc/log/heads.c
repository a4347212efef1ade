#define _GNU_SOURCE
#include "log/heads.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/log.h"
#include "log/reads.h"
#include "log/records.h"

enum { READ_PIECE = 1 << 20, WRITE_PIECE = 1 << 20 };
_Static_assert((int)READ_PIECE <= (int)LOG_LOOK_BYTES, "one buffer holds a piece or a record");
_Static_assert((int)HEADS_BEHIND >= (int)LOG_PEEK_BYTES, "the last head can be looked at as a record of the log");

static uint64_t stride_of(uint32_t kept) {
    return sizeof(struct head) + (((uint64_t)kept + 7) & ~(uint64_t)7);
}

static uint32_t record_crc(const struct record *r, uint32_t segment) {
    const uint32_t start[2] = {r->bytes, segment};
    return crc32c_extend(crc32c_extend(0, start, sizeof start), (const uint8_t *)r + sizeof start,
                         r->bytes - sizeof start);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

struct writing {
    int from, to;
    uint64_t end, most;
    uint8_t *read; /* the segment from read_at on, read_bytes of it */
    uint64_t read_at, read_bytes;
    uint8_t *out; /* what is not written yet */
    size_t out_bytes;
    struct heads_header header;
};

static bool write_all(int fd, const void *data, size_t bytes, uint64_t offset) {
    const uint8_t *from = data;
    while (bytes) {
        ssize_t n = pwrite(fd, from, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        from += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return true;
}

/* The segment's bytes from `at` on, of which there must be `bytes`. NULL with errno; EBADMSG: the file ends before. */
static const uint8_t *bytes_at(struct writing *w, uint64_t at, uint64_t bytes) {
    if (at < w->read_at || at + bytes > w->read_at + w->read_bytes) {
        uint64_t want = bytes > READ_PIECE ? bytes : READ_PIECE;
        if (want > w->end - at) want = w->end - at;
        w->read_at = at;
        w->read_bytes = 0;
        while (w->read_bytes < want) {
            ssize_t n = pread(w->from, w->read + w->read_bytes, want - w->read_bytes, (off_t)(at + w->read_bytes));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
                if (n == 0) errno = EBADMSG;
                return NULL;
            }
            w->read_bytes += (uint64_t)n;
        }
    }
    return w->read + (at - w->read_at);
}

static bool put_out(struct writing *w) {
    w->header.heads_crc = crc32c_extend(w->header.heads_crc, w->out, w->out_bytes);
    bool done = write_all(w->to, w->out, w->out_bytes, sizeof w->header + w->header.bytes);
    w->header.bytes += w->out_bytes;
    w->out_bytes = 0;
    return done;
}

static bool put_head(struct writing *w, uint64_t offset, const struct record *r) {
    const struct head head = {(uint32_t)offset, record_kept_bytes(r)};
    const uint64_t stride = stride_of(head.kept);
    if (w->out_bytes + stride > WRITE_PIECE && !put_out(w)) return false;
    uint8_t *out = w->out + w->out_bytes;
    memset(out, 0, stride);
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, r, head.kept);
    w->out_bytes += stride;
    w->header.count++;
    return true;
}

static enum heads_written write_header(struct writing *w) {
    const uint8_t *at = bytes_at(w, 0, sizeof(struct segment_header));
    struct segment_header h;
    if (!at) return errno == EBADMSG ? HEADS_UNFIT : HEADS_FAILED;
    memcpy(&h, at, sizeof h);
    if (h.magic != SEGMENT_MAGIC || h.version != SEGMENT_VERSION ||
        h.crc != crc32c_extend(0, &h, offsetof(struct segment_header, crc)))
        return HEADS_UNFIT;
    w->header = (struct heads_header){.magic = HEADS_MAGIC,
                                      .version = HEADS_VERSION,
                                      .shard = h.shard,
                                      .shards = h.shards,
                                      .segment = h.segment,
                                      .time_ns = h.time_ns,
                                      .log_began_ns = h.log_began_ns,
                                      .end = (uint32_t)w->end};
    return HEADS_WRITTEN;
}

static enum heads_written write_heads(struct writing *w) {
    enum heads_written begun = write_header(w);
    if (begun != HEADS_WRITTEN) return begun;
    for (uint64_t at = sizeof(struct segment_header); at < w->end;) {
        const struct record *r = NULL;
        uint64_t bytes = sizeof *r;
        /* First its head, which says how long it is. */
        for (int i = 0; i < 2; i++) {
            if (bytes > w->end - at || bytes > LOG_LOOK_BYTES) return HEADS_UNFIT;
            r = (const struct record *)(const void *)bytes_at(w, at, bytes);
            if (!r) return errno == EBADMSG ? HEADS_UNFIT : HEADS_FAILED;
            if (!record_fits(r, w->end - at)) return HEADS_UNFIT;
            bytes = r->bytes;
        }
        if (record_crc(r, w->header.segment) != r->crc) return HEADS_UNFIT;
        if (stride_of(record_kept_bytes(r)) > WRITE_PIECE) return HEADS_UNFIT;
        const uint64_t stride = record_stride(r);
        if (!put_head(w, at, r)) return HEADS_FAILED;
        if (w->header.bytes + w->out_bytes > w->most) return HEADS_UNFIT;
        at += stride;
    }
    if (!w->header.count) return HEADS_UNFIT;
    if (!put_out(w)) return HEADS_FAILED;
    memset(w->out, 0, HEADS_BEHIND);
    w->out_bytes = HEADS_BEHIND;
    if (!put_out(w)) return HEADS_FAILED;
    w->header.crc = crc32c_extend(0, &w->header, offsetof(struct heads_header, crc));
    return write_all(w->to, &w->header, sizeof w->header, 0) ? HEADS_WRITTEN : HEADS_FAILED;
}

enum heads_written heads_write(int segment_fd, int heads_fd, uint64_t end, uint64_t most) {
    struct writing w = {.from = segment_fd, .to = heads_fd, .end = end, .most = most};
    if (end <= sizeof(struct segment_header) || end % 8 || end > SEGMENT_MAX_BYTES) return HEADS_UNFIT;
    w.read = malloc(LOG_LOOK_BYTES);
    w.out = malloc(WRITE_PIECE);
    errno = ENOMEM;
    const enum heads_written written = w.read && w.out ? write_heads(&w) : HEADS_FAILED;
    const int why = errno;
    free(w.read);
    free(w.out);
    errno = why;
    return written;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Each so many heads a place is noted, from which the next ones are walked to. */
enum { PLACE_EVERY = 16 };

struct place {
    uint32_t offset, at;
};

struct heads {
    const uint8_t *map;
    uint64_t map_bytes, bytes; /* of the file, and where its heads end */
    struct place *places;
    uint32_t count;
    struct place last;  /* the last head, ... */
    struct place found; /* ... and the one that was found last */
};

static struct head head_at(const struct heads *h, uint64_t at) {
    struct head head;
    memcpy(&head, h->map + at, sizeof head);
    return head;
}

static const struct record *record_at(const struct heads *h, uint64_t at) {
    return (const struct record *)(const void *)(h->map + at + sizeof(struct head));
}

void heads_close(struct heads *heads) {
    if (!heads) return;
    if (heads->map) (void)munmap((void *)(uintptr_t)heads->map, heads->map_bytes);
    free(heads->places);
    free(heads);
}

/* Notes a place every so often. False: the heads are not what was written. */
static bool walk(struct heads *h, const struct heads_header *header) {
    uint64_t offset = sizeof(struct segment_header), at = sizeof *header;
    h->places = malloc(((size_t)header->count / PLACE_EVERY + 1) * sizeof *h->places);
    if (!h->places) return false;
    for (; h->count < header->count; h->count++) {
        if (h->bytes - at < sizeof(struct head) + sizeof(struct record)) return false;
        const struct head head = head_at(h, at);
        const struct record *r = record_at(h, at);
        if (head.offset != offset || head.kept < sizeof *r || stride_of(head.kept) > h->bytes - at) return false;
        if (offset >= header->end || !record_fits(r, header->end - offset)) return false;
        if (head.kept != record_kept_bytes(r)) return false;
        h->last = (struct place){(uint32_t)offset, (uint32_t)at};
        if (h->count % PLACE_EVERY == 0) h->places[h->count / PLACE_EVERY] = h->last;
        offset += record_stride(r);
        at += stride_of(head.kept);
    }
    h->found = h->places[0];
    return h->count && at == h->bytes && offset == header->end;
}

static bool is_of(const struct heads_header *h, const struct segment_header *of, uint64_t end) {
    return h->version == HEADS_VERSION && h->shard == of->shard && h->shards == of->shards &&
           h->segment == of->segment && h->time_ns == of->time_ns && h->log_began_ns == of->log_began_ns &&
           h->end == end;
}

static enum heads_found check(struct heads *h, const struct segment_header *of, uint64_t end) {
    struct heads_header header;
    const uint8_t *failed;
    if (!reads_touch(h->map, h->map_bytes, &failed)) return HEADS_DAMAGED;
    memcpy(&header, h->map, sizeof header);
    if (header.magic != HEADS_MAGIC || header.crc != crc32c_extend(0, &header, offsetof(struct heads_header, crc)))
        return HEADS_DAMAGED;
    if (!is_of(&header, of, end)) return HEADS_OTHER;
    if (header.bytes != h->map_bytes - sizeof header ||
        header.heads_crc != crc32c_extend(0, h->map + sizeof header, header.bytes))
        return HEADS_DAMAGED;
    return walk(h, &header) ? HEADS_FOUND : HEADS_DAMAGED;
}

enum heads_found heads_open(int fd, const struct segment_header *of, uint64_t end, struct heads **heads) {
    struct stat status;
    *heads = NULL;
    if (fstat(fd, &status) != 0 || status.st_size < (off_t)(sizeof(struct heads_header) + HEADS_BEHIND) ||
        (uint64_t)status.st_size > SEGMENT_MAX_BYTES)
        return HEADS_DAMAGED;
    struct heads *h = calloc(1, sizeof *h);
    if (!h) return HEADS_DAMAGED;
    h->map_bytes = (uint64_t)status.st_size;
    h->bytes = h->map_bytes - HEADS_BEHIND;
    void *map = mmap(NULL, h->map_bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (map != MAP_FAILED) h->map = map;
    const enum heads_found found = h->map ? check(h, of, end) : HEADS_DAMAGED;
    if (found == HEADS_FOUND)
        *heads = h;
    else
        heads_close(h);
    return found;
}

const struct record *heads_next(const struct heads *h, uint64_t *at, uint32_t *offset) {
    const uint64_t here = *at ? *at : sizeof(struct heads_header);
    if (here >= h->bytes) return NULL;
    const struct head head = head_at(h, here);
    *offset = head.offset;
    *at = here + stride_of(head.kept);
    return record_at(h, here);
}

/* Whether all of a head can be read: the file's medium may fail too. */
static bool can_be_read(const struct heads *h, uint64_t at) {
    const uint8_t *failed;
    if (h->bytes - at < sizeof(struct head) || !reads_touch(h->map + at, sizeof(struct head), &failed)) return false;
    const uint64_t stride = stride_of(head_at(h, at).kept);
    return stride > sizeof(struct head) && stride <= h->bytes - at && reads_touch(h->map + at, stride, &failed);
}

/* Walks from a place to an offset, over `most` heads at most. */
static const struct record *walk_to(struct heads *h, struct place from, uint64_t offset, uint32_t most) {
    for (uint32_t i = 0; i <= most && from.offset <= offset && can_be_read(h, from.at); i++) {
        if (head_at(h, from.at).offset != from.offset) break;
        if (from.offset == offset) {
            h->found = from;
            return record_at(h, from.at);
        }
        if (from.at == h->last.at) break;
        from.offset += (uint32_t)record_stride(record_at(h, from.at));
        from.at += (uint32_t)stride_of(head_at(h, from.at).kept);
    }
    return NULL;
}

const struct record *heads_find(struct heads *h, uint64_t offset) {
    const struct record *r = walk_to(h, h->found, offset, 2);
    if (r) return r;
    uint32_t low = 0, high = (h->count - 1) / PLACE_EVERY + 1;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        *(h->places[middle].offset <= offset ? &low : &high) = middle;
    }
    return walk_to(h, h->places[low], offset, PLACE_EVERY);
}

const struct record *heads_last(const struct heads *h, uint32_t *offset) {
    *offset = h->last.offset;
    return record_at(h, h->last.at);
}

void heads_rest(const struct heads *h) {
    (void)madvise((void *)(uintptr_t)h->map, h->map_bytes, MADV_DONTNEED);
}

#define _GNU_SOURCE
/* The staging buffer: records that have been appended and not written yet, one behind the other as in the segment. A
 * large body that its owner keeps in place until then is not copied: the buffer has a gap for it, and it is written
 * from its place.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/log_state.h"
#include "log/pages.h"

#define STAGING_CALM ((size_t)256 << 10) /* what a log that has become quiet keeps of it */
#define CALM_FLUSHES 4096u

/* --- bodies that lie elsewhere ------------------------------------------------------------------------------------ */

/* Copies a lent body into its gap: from then on it is a body like any other. */
static void fill_gap(const struct log *log, uint32_t i) {
    struct lent_bodies *lent = log->lent;
    const struct lent_body body = lent->items[i];
    memcpy(log->staging + body.at, body.bytes, body.count);
    lent->count--;
    memmove(&lent->items[i], &lent->items[i + 1], (lent->count - i) * sizeof body);
}

static uint32_t lent_at(const struct log *log, size_t at) {
    uint32_t i = 0;
    while (i < log->lent->count && log->lent->items[i].at != at) i++;
    return i;
}

static size_t body_place(const struct log *log, const struct record *r) {
    return (uintptr_t)record_body(r) - (uintptr_t)log->staging;
}

void log_fill(const struct log *log, const struct record *staged) {
    uint32_t i = lent_at(log, body_place(log, staged));
    if (i < log->lent->count) fill_gap(log, i);
}

const void *log_body(const struct log *log, const struct record *r) {
    uint32_t i = lent_at(log, body_place(log, r));
    return i < log->lent->count ? log->lent->items[i].bytes : record_body(r);
}

/* --- writing out -------------------------------------------------------------------------------------------------- */

/* Gives memory back when a burst is over, and what a large reservation took beyond the usual size at once. */
static void trim_staging(struct log *log, size_t flushed) {
    if (log->staging_bytes > LOG_STAGING_BYTES && log->reserved <= LOG_STAGING_BYTES) {
        /* Shrinking in place does not fail; if it did, the buffer would only stay large. */
        if (mremap(log->staging, log->staging_bytes, LOG_STAGING_BYTES, 0) != MAP_FAILED)
            log->staging_bytes = LOG_STAGING_BYTES;
    }
    if (flushed > log->touched) log->touched = flushed;
    log->calm = flushed <= STAGING_CALM ? log->calm + 1 : 0;
    if (log->calm < CALM_FLUSHES) return;
    log->calm = 0;
    if (log->touched > STAGING_CALM && log->reserved <= STAGING_CALM)
        (void)madvise(log->staging + STAGING_CALM, log->staging_bytes - STAGING_CALM, MADV_DONTNEED);
    log->touched = 0;
}

ssize_t log_write_out(const struct segment *s, const uint8_t *data, size_t bytes, uint64_t offset) {
    if (!s->copied || offset + bytes > s->allocated) return pwrite(s->fd, data, bytes, (off_t)offset);
    memcpy(s->map + offset, data, bytes);
    return (ssize_t)bytes;
}

/* Lists all parts that are not written yet, in the order of the segment. */
static size_t gather(const struct log *log, struct iovec parts[static LOG_LENT_PARTS]) {
    size_t from = log->from, count = 0;
    for (uint32_t i = 0; i < log->lent->count; i++) {
        const struct lent_body *body = &log->lent->items[i];
        assert(body->at > from); /* at least its record's head lies between */
        parts[count++] = (struct iovec){log->staging + from, body->at - from};
        parts[count++] = (struct iovec){(uint8_t *)(uintptr_t)body->bytes, body->count};
        from = body->at + body->count;
    }
    if (from < log->to) parts[count++] = (struct iovec){log->staging + from, log->to - from};
    return count;
}

__attribute__((noinline)) static ssize_t write_with_lent(const struct log *log) {
    const struct segment *s = log->current;
    uint64_t offset = log->base + log->from;
    const size_t bytes = log->to - log->from;
    struct iovec parts[LOG_LENT_PARTS];
    const size_t count = gather(log, parts);
    if (!s->copied || offset + bytes > s->allocated) return pwritev(s->fd, parts, (int)count, (off_t)offset);
    for (size_t i = 0; i < count; offset += parts[i++].iov_len)
        memcpy(s->map + offset, parts[i].iov_base, parts[i].iov_len);
    return (ssize_t)bytes;
}

static ssize_t write_rest(const struct log *log) {
    if (log->lent->count > 0) return write_with_lent(log);
    return log_write_out(log->current, log->staging + log->from, log->to - log->from, log->base + log->from);
}

static bool write_staged(struct log *log) {
    struct segment *s = log->current;
    while (log->from < log->to) {
        ssize_t n = write_rest(log);
        if (n < 0 && errno == EINTR) continue;
        log->from += n > 0 ? (size_t)n : 0;
        /* Lenders may reuse their memory now, so what is not written is copied. */
        while (log->from < log->to && log->lent->count > 0) fill_gap(log, log->lent->count - 1);
        if (n <= 0) {
            log->error = n < 0 ? errno : ENOSPC;
            return false;
        }
        log->flushed += (uint64_t)n;
        s->end = log->base + log->from;
        s->mark = log->flushed;
    }
    log->lent->count = 0;
    return true;
}

enum log_result log_flush(struct log *log) {
    if (log->from == log->to) return LOG_OK;
    struct segment *s = log->current;
    if (log->prepares) pages_prepare(s, log->to - log->from);
    if (!write_staged(log)) return LOG_FAILING;
    copies_flush(&s->copies);
    if (s->copies.written) s->copies.mark = log->flushed;
    s->copies.written = false;
    log->error = 0;
    size_t flushed = log->to;
    log->base += flushed;
    log->from = 0;
    log->to = 0;
    trim_staging(log, flushed);
    return LOG_OK;
}

/* --- appending ---------------------------------------------------------------------------------------------------- */

enum log_result log_stage_room(struct log *log, uint64_t need) {
    if (log->to + need <= log->staging_bytes) return LOG_OK;
    enum log_result result = log_flush(log);
    if (result != LOG_OK) return result;
    if (need <= log->staging_bytes) return LOG_OK;
    size_t bytes = (size_t)(need + 4095) & ~(size_t)4095;
    void *staging = mremap(log->staging, log->staging_bytes, bytes, MREMAP_MAYMOVE);
    if (staging == MAP_FAILED) {
        log->error = errno;
        return LOG_NO_SPACE;
    }
    log->staging = staging;
    log->staging_bytes = bytes;
    return LOG_OK;
}

/* Stores words of eight bytes, composed in registers: the checksum reads such words, and a load stalls on what was just
 * stored in smaller parts. */
static inline void put_head(uint8_t *p, const struct record *head, size_t bytes, uint32_t crc) {
    const uint64_t what = head->kind | (uint64_t)head->attribute_bytes << 8 | (uint64_t)head->flags << 16;
    const uint64_t words[] = {(uint64_t)crc << 32 | (uint32_t)bytes, (uint64_t)head->topic << 32 | what, head->seq,
                              head->time_ns, head->id};
    _Static_assert(sizeof words == sizeof *head && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "as struct record lies");
    memcpy(p, words, sizeof words);
}

/* `lends` is a constant in both callers, for which this is compiled twice. */
static inline log_position append(struct log *log, const struct record *head, const void *attributes, const void *body,
                                  size_t body_bytes, const bool lends) {
    size_t bytes = sizeof *head + head->attribute_bytes + body_bytes;
    size_t stride = (bytes + 7) & ~(size_t)7;
    assert(head->kind != 0);
    assert(log->reserved >= LOG_RECORD_OVERHEAD + head->attribute_bytes + body_bytes);
    assert(log->to + stride <= log->staging_bytes && tail_of(log) + stride <= log->current->allocated);

    uint8_t *p = log->staging + log->to;
    memset(p + stride - 8, 0, 8); /* zeros for the padding; the rest is overwritten */
    put_head(p, head, bytes, log->current->number);
    if (head->attribute_bytes == sizeof(uint64_t)) /* most publishes: one store */
        memcpy(p + sizeof *head, attributes, sizeof(uint64_t));
    else if (head->attribute_bytes > 0)
        memcpy(p + sizeof *head, attributes, head->attribute_bytes);
    if (lends)
        log->lent->items[log->lent->count++] = (struct lent_body){log->to + bytes - body_bytes, body_bytes, body};
    else if (body_bytes > 0)
        memcpy(p + sizeof *head + head->attribute_bytes, body, body_bytes);
    uint32_t crc = crc32c_extend(0, p, lends ? bytes - body_bytes : bytes);
    if (lends) crc = crc32c_extend(crc, body, body_bytes);
    memcpy(p + offsetof(struct record, crc), &crc, sizeof crc);

    log_position position = (uint64_t)log->current->number << 32 | tail_of(log);
    log->to += stride;
    log->reserved -= LOG_RECORD_OVERHEAD + head->attribute_bytes + body_bytes;
    log->records++;
    return position;
}

log_position log_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                        size_t body_bytes) {
    return append(log, head, attributes, body, body_bytes, false);
}

__attribute__((noinline)) log_position log_append_lent(struct log *log, const struct record *head,
                                                       const void *attributes, const void *body, size_t body_bytes) {
    assert(body_bytes > 0);
    if (log->lent->count == LOG_LENT_MOST && log_flush(log) != LOG_OK)
        return log_append(log, head, attributes, body, body_bytes);
    return append(log, head, attributes, body, body_bytes, true);
}

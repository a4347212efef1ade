#define _GNU_SOURCE
/* Records that count together, and are too many to be written in one turn. They are written to the segment that waits,
 * as a large record's body is (large.c), each with its head, while other records are appended to the active segment.
 *
 * The header of their segment is written last. A process that is killed before that leaves a file without a header,
 * which does not count as a segment; after it all the records are there. So at no moment do only some of them count.
 */
#include "log/group.h"

#include <assert.h>
#include <string.h>

#include "log/large.h"
#include "log/log_state.h"

static uint64_t written_to(const struct large *l) {
    return l->at + l->written + l->gathered;
}

static const struct segment *segment_of(const struct log *log) {
    return &log->segments[log->active + 1];
}

log_position log_group_next(const struct log *log) {
    return (uint64_t)segment_of(log)->number << 32 | written_to(&log->large);
}

bool log_group_write(struct log *log) {
    struct large *l = &log->large;
    const size_t bytes = l->gathered;
    l->gathered = 0;
    return bytes == 0 || log_large_write(log, l->gathering, bytes);
}

/* Puts the record's head and attributes at `p`, with the seed of the CRC in place of the CRC. Returns their length. */
static size_t put_head(const struct log *log, uint8_t *p, const struct record *head, const void *attributes,
                       size_t body_bytes) {
    const size_t bytes = sizeof *head + head->attribute_bytes;
    struct record r = *head;
    r.bytes = (uint32_t)(bytes + body_bytes);
    r.crc = segment_of(log)->number;
    memcpy(p, &r, sizeof r);
    if (head->attribute_bytes > 0) memcpy(p + sizeof r, attributes, head->attribute_bytes);
    return bytes;
}

static void put_crc(uint8_t *p, uint32_t crc) {
    memcpy(p + offsetof(struct record, crc), &crc, sizeof crc);
}

bool log_group_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                      size_t body_bytes) {
    struct large *l = &log->large;
    const size_t bytes = sizeof *head + head->attribute_bytes + body_bytes, stride = (bytes + 7) & ~(size_t)7;
    assert(l->is_group && !l->dropped && head->kind != 0);
    assert(stride <= LOG_GROUP_PIECE && l->written + l->gathered + stride <= l->bytes);
    if (stride > LOG_GROUP_PIECE - l->gathered && !log_group_write(log)) return false;
    uint8_t *p = l->gathering + l->gathered;
    memset(p + stride - 8, 0, 8); /* zeros for the padding; the rest is overwritten */
    size_t before = put_head(log, p, head, attributes, body_bytes);
    if (body_bytes > 0) memcpy(p + before, body, body_bytes);
    put_crc(p, crc32c_extend(0, p, bytes));
    l->gathered += stride;
    return true;
}

bool log_group_open(struct log *log, uint8_t attribute_bytes) {
    struct large *l = &log->large;
    assert(l->is_group && !l->dropped);
    if (!log_group_write(log)) return false;
    l->record_at = l->at + l->written;
    l->written += sizeof(struct record) + attribute_bytes;
    l->crc = 0;
    return true;
}

bool log_group_close(struct log *log, const struct record *head, const void *attributes, size_t body_bytes) {
    struct large *l = &log->large;
    uint8_t p[sizeof *head + UINT8_MAX];
    const size_t bytes = put_head(log, p, head, attributes, body_bytes);
    assert(l->is_group && l->at + l->written == l->record_at + bytes + body_bytes);
    put_crc(p, crc_joined(crc32c_extend(0, p, bytes), l->crc, body_bytes));
    l->written = (l->written + 7) & ~(uint64_t)7; /* the padding: the file has zeros there */
    return log_write_at(log, segment_of(log), p, bytes, l->record_at);
}

bool log_group_end(struct log *log, uint64_t records) {
    struct segment *s = log->current;
    uint8_t header[LOG_HEADER_BYTES];
    assert(log->large.switched && log->large.is_group && log_large_room(log) == 0);
    const bool is_unwritten = log->base == 0 && log->from == 0; /* else names filled the staging buffer */
    if (is_unwritten) {
        memcpy(header, log->staging, sizeof header);
        log->from = sizeof header;
    }
    if (log_flush(log) != LOG_OK) return false;
    if (is_unwritten && !log_write_at(log, s, header, sizeof header, 0)) return false;
    if (is_unwritten) log->flushed += sizeof header;
    log_large_join(log);
    log->records += records;
    return true;
}

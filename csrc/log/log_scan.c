#define _GNU_SOURCE
/* Walks a segment, at recovery or to empty it: finds its whole records, and where it continues behind damage. */
#include "log/log_scan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/log_state.h"
#include "log/reads.h"
#include "log/scan.h"

#define SCAN_WINDOW      ((uint64_t)1 << 20)
#define SCAN_AHEAD       ((uint64_t)8 << 20)
#define PREFIX_STEP      ((uint64_t)1024)
#define DIRECT_CRC_BYTES 4096u

void prefixes_forget(struct prefixes *p) {
    free(p->state);
    *p = (struct prefixes){0};
}

static bool has_prefixes(struct prefixes *p, const struct segment *s) {
    if (p->state != NULL && p->segment == s->number && p->limit == s->end) return true;
    prefixes_forget(p);
    size_t count = (size_t)(s->end / PREFIX_STEP) + 1;
    p->state = malloc(count * sizeof *p->state);
    if (p->state == NULL) return false;
    p->segment = s->number;
    p->limit = s->end;
    uint32_t state = 0;
    for (size_t i = 0; i < count; i++) {
        p->state[i] = state;
        if (i + 1 < count) state = ~crc32c_extend(~state, s->map + i * PREFIX_STEP, PREFIX_STEP);
    }
    return true;
}

static uint32_t prefix(const struct prefixes *p, const struct segment *s, uint64_t offset) {
    uint64_t step = offset / PREFIX_STEP;
    uint64_t begin = step * PREFIX_STEP;
    return ~crc32c_extend(~p->state[step], s->map + begin, (size_t)(offset - begin));
}

/* The CRC of a record of `bytes` bytes at `offset`. While we search for where a damaged segment continues, any eight
 * bytes may look like the beginning of a record of any length. To stay linear, CRCs of long ones are computed from
 * prefixes. */
static uint32_t record_crc(const struct segment *s, uint64_t offset, uint32_t bytes, struct prefixes *prefixes) {
    const uint32_t start[2] = {bytes, s->number};
    uint32_t crc = crc32c_extend(0, start, sizeof start);
    uint64_t begin = offset + sizeof start;
    uint64_t end = offset + bytes;
    if (prefixes == NULL || bytes <= DIRECT_CRC_BYTES || !has_prefixes(prefixes, s))
        return crc32c_extend(crc, s->map + begin, (size_t)(end - begin));
    return ~(prefix(prefixes, s, end) ^ crc32c_advance(prefix(prefixes, s, begin) ^ ~crc, end - begin));
}

/* Whether a whole record begins at `offset`, which is aligned. */
static bool whole(const struct segment *s, uint64_t offset, struct prefixes *prefixes) {
    if (offset + sizeof(struct record) > s->end) return false;
    struct record r;
    memcpy(&r, s->map + offset, sizeof r);
    if (!record_fits(&r, s->end - offset)) return false;
    return record_crc(s, offset, r.bytes, prefixes) == r.crc;
}

/* Returns where the next whole record from `offset` on begins, or 0. Sets *dirty if it found more than zeros. */
static uint64_t find_whole(const struct segment *s, uint64_t offset, struct prefixes *prefixes, bool *dirty) {
    for (; offset + 8 <= s->end; offset += 8) {
        uint64_t start;
        memcpy(&start, s->map + offset, sizeof start);
        if (start == 0) continue;
        *dirty = true;
        if (whole(s, offset, prefixes)) return offset;
    }
    for (; offset < s->end; offset++) *dirty |= s->map[offset] != 0;
    return 0;
}

uint64_t log_expected_end(const struct log *log, uint32_t segment) {
    const struct segment *next = segment_find(log, segment + 1);
    if (next == NULL || next->end < LOG_HEADER_BYTES || next->header_damaged) return 0;
    struct segment_header h;
    memcpy(&h, next->map, sizeof h);
    /* A segment that was larger than usual and has been cut short is mapped only as long as its file. */
    uint64_t most = segment_find(log, segment)->capacity & ~(uint64_t)7;
    return h.previous_end < most ? h.previous_end & ~7u : most;
}

/* Maps the next window at once, which saves a fault for every few pages, and lets the disk read what comes after. These
 * are hints: if they fail, the pages are read when they are touched. */
static void read_ahead(const struct segment *s, uint64_t window) {
    if (window >= s->end) return;
    uint64_t left = s->end - window;
    (void)madvise(s->map + window, (size_t)(left < SCAN_AHEAD ? left : SCAN_AHEAD), MADV_WILLNEED);
    (void)madvise(s->map + window, (size_t)(left < SCAN_WINDOW ? left : SCAN_WINDOW), MADV_POPULATE_READ);
}

/* Replaces unreadable pages with zeros, which are no record. Only at recovery, when no position in them is known yet; a
 * log in use is left as it is. */
static void look(struct segment *s, uint64_t from, uint64_t until) {
    const uint8_t *failed;
    while (from < until && !reads_touch(s->map + from, (size_t)(until - from), &failed)) {
        size_t bytes;
        const uint8_t *page = reads_page(failed, &bytes);
        from = (uint64_t)(page - s->map) + bytes;
        s->unreadable_until = from < s->end ? from : s->end;
        /* So that nothing is appended to this segment any more. */
        s->is_old = true;
    }
}

static void look_upto(struct segment *s, uint64_t offset) {
    if (s->end_known) return;
    if (offset > s->end) offset = s->end;
    while (s->readable < offset) {
        uint64_t window = s->readable;
        uint64_t until = s->end - window < SCAN_WINDOW ? s->end : window + SCAN_WINDOW;
        read_ahead(s, window);
        look(s, window, until);
        s->readable = until;
    }
}

/* Checks a record's pages: those of its head first, which says how long it is. */
static void look_at_record(struct segment *s, uint64_t at) {
    if (s->end_known) return;
    look_upto(s, at + sizeof(struct record));
    uint32_t bytes = 0;
    if (at + sizeof bytes <= s->end) memcpy(&bytes, s->map + at, sizeof bytes);
    if (at + bytes <= s->end) look_upto(s, at + bytes);
}

int log_scan(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record, uint64_t *bad) {
    struct segment *s = segment_find(log, segment);
    assert(s != NULL && s->end >= LOG_HEADER_BYTES && *offset % 8 == 0);
    uint64_t at = *offset == 0 ? LOG_HEADER_BYTES : *offset;
    if (*offset == 0) {
        if (s->end_known) read_ahead(s, 0);
        if (s->header_damaged) {
            *bad = 0;
            *offset = LOG_HEADER_BYTES;
            return -1;
        }
    }
    *bad = 0;
    look_at_record(s, at);
    if (whole(s, at, NULL)) {
        *record = (const struct record *)(const void *)(s->map + at);
        *offset = at + record_stride(*record);
        if (s->end_known && at / SCAN_WINDOW != *offset / SCAN_WINDOW)
            read_ahead(s, *offset / SCAN_WINDOW * SCAN_WINDOW);
        return 1;
    }
    bool dirty = false;
    look_upto(s, s->end);
    uint64_t next = find_whole(s, at, log->prefixes, &dirty);
    uint64_t expected = log_expected_end(log, segment);
    if (next == 0 && expected > at) next = expected;
    /* Nobody knows what unreadable pages contain, so they are not cut off. */
    uint64_t behind = s->unreadable_until & ~(uint64_t)7;
    if (next == 0 && behind > at) next = behind;
    if (next != 0) {
        *bad = at;
        *offset = next;
        return -1;
    }
    prefixes_forget(log->prefixes);
    *bad = dirty ? at : 0;
    *offset = at;
    return 0;
}

void log_pass_over(struct log *log, uint32_t segment) {
    struct segment *s = segment_find(log, segment);
    assert(s != NULL && s != log->current);
    uint64_t expected = log_expected_end(log, segment);
    if (expected >= LOG_HEADER_BYTES && expected < s->end) s->end = expected;
    s->end_known = true;
    copies_close(&s->copies);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

uint32_t log_missing(const struct log *log, uint32_t segment) {
    return segment_find(log, segment)->missing;
}

uint64_t log_written_until(const struct log *log, uint32_t segment, uint64_t offset) {
    const struct segment *s = segment_find(log, segment);
    uint64_t until = s->end;
    while (until > offset && s->map[until - 1] == 0) until--;
    return until > offset ? (until + 7) & ~(uint64_t)7 : offset;
}

bool log_cut_short(const struct log *log, uint32_t segment, uint64_t offset, uint64_t until, struct record *head) {
    const struct segment *s = segment_find(log, segment);
    uint64_t cut = (until + READS_PAGE - 1) / READS_PAGE * READS_PAGE;
    *head = (struct record){0};
    if (cut > s->end) cut = s->end;
    if (offset + sizeof *head > cut) return true;
    memcpy(head, s->map + offset, sizeof *head);
    if (head->bytes < sizeof *head + head->attribute_bytes || head->bytes > s->capacity - offset) return false;
    return offset + head->bytes > cut;
}

bool log_put_end(const struct log *log, uint64_t offset, struct record *head, const void *attributes) {
    const struct segment *s = log->current;
    uint8_t bytes[sizeof *head + UINT8_MAX + 8] = {0};
    if (s->is_old || offset + record_stride(head) > s->capacity) return false;
    const uint32_t start[2] = {head->bytes, s->number};
    memcpy(bytes + sizeof *head, attributes, head->attribute_bytes);
    memcpy(bytes, head, sizeof *head);
    head->crc = crc32c_extend(crc32c_extend(0, start, sizeof start), bytes + sizeof start, head->bytes - sizeof start);
    memcpy(bytes, head, sizeof *head);
    ssize_t n;
    do n = pwrite(s->fd, bytes, record_stride(head), (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)record_stride(head) && fdatasync(s->fd) == 0;
}

/* --- in use ------------------------------------------------------------------------------------------------------- */

/* Returns the end of the last page that cannot be read; 0: all can. Such pages, of which the first begins at *first,
 * are zeros until they are mapped again. */
static uint64_t touch_all(const struct segment *s, uint64_t from, uint64_t until, uint64_t *first) {
    const uint8_t *failed;
    uint64_t last = 0;
    while (from < until && !reads_touch(s->map + from, (size_t)(until - from), &failed)) {
        size_t bytes;
        uint64_t page = (uint64_t)(reads_page(failed, &bytes) - s->map);
        if (!last) *first = page;
        from = last = page + bytes;
    }
    return last;
}

/* Maps the page that contains `failed` from the file again, and returns where it ends. */
static uint64_t end_of_page(const struct segment *s, const uint8_t *failed) {
    size_t bytes;
    uint64_t page = (uint64_t)(reads_page(failed, &bytes) - s->map);
    segment_map_again(s, page, bytes);
    return page + bytes;
}

enum found { FOUND_UNREADABLE, FOUND_DAMAGED, FOUND_WHOLE, FOUND_MORE };

/* Checks a record whose head can be read; of a large one the next piece. */
static enum found check(struct checked *c, const struct segment *s, uint64_t at, const struct record *r) {
    const log_position position = (uint64_t)s->number << 32 | at;
    const uint32_t start[2] = {r->bytes, s->number};
    if (c->at != position || c->total != r->bytes || r->bytes <= LOG_SCAN_PIECE)
        *c = (struct checked){position, crc32c_extend(0, start, sizeof start), r->bytes, sizeof start};
    const uint32_t left = c->total - c->bytes, piece = left < LOG_SCAN_PIECE ? left : LOG_SCAN_PIECE;
    const uint8_t *from = s->map + at + c->bytes, *failed;
    if (piece > 0 && !reads_touch(from, piece, &failed)) {
        (void)end_of_page(s, failed);
        c->at = 0;
        return FOUND_UNREADABLE;
    }
    c->crc = crc32c_extend(c->crc, from, piece);
    c->bytes += piece;
    if (c->bytes < c->total) return FOUND_MORE;
    return c->crc == r->crc ? FOUND_WHOLE : FOUND_DAMAGED;
}

/* Checks what looks like a record where one may begin. FOUND_WHOLE: it is one. FOUND_DAMAGED: there is none. */
static enum found check_next(struct log *log, const struct segment *s, uint64_t *spent) {
    struct sought *k = &log->sought;
    const struct record *r = (const struct record *)(const void *)(s->map + k->next);
    if (!scan_plausible(r, (size_t)(s->end - k->next))) return FOUND_DAMAGED;
    const uint32_t bytes = r->bytes;
    if (bytes > k->effort) {
        k->next = s->end;
        return FOUND_MORE;
    }
    if (*spent >= LOG_SCAN_PIECE) return FOUND_MORE;
    *spent += bytes < LOG_SCAN_PIECE ? bytes : LOG_SCAN_PIECE;
    const enum found found = check(&log->checked, s, k->next, r);
    if (found == FOUND_MORE || found == FOUND_WHOLE) return found;
    k->effort -= bytes;
    return FOUND_DAMAGED;
}

/* Searches LOG_SCAN_PIECE bytes for the next whole record behind damage. FOUND_WHOLE: it begins at sought.next.
 * FOUND_DAMAGED: there is none. */
static enum found seek(struct log *log, const struct segment *s) {
    struct sought *k = &log->sought;
    const uint64_t most = s->end > sizeof(struct record) ? s->end - sizeof(struct record) : 0;
    const uint64_t until = k->next + LOG_SCAN_PIECE <= most ? k->next + LOG_SCAN_PIECE : most + 1;
    if (k->next >= until) return FOUND_DAMAGED;
    uint64_t first = 0, spent = 0, last = touch_all(s, k->next, until - 1 + sizeof(struct record), &first);
    enum found found = FOUND_DAMAGED;
    for (; k->next < until; k->next += 8)
        if ((found = check_next(log, s, &spent)) != FOUND_DAMAGED) break;
    if (last) segment_map_again(s, first, last - first);
    if (found == FOUND_WHOLE) return found;
    return k->next > most ? FOUND_DAMAGED : FOUND_MORE;
}

void log_check_again(struct log *log) {
    log->checked.at = log->sought.at = 0;
}

static int search_on(struct log *log, const struct segment *s, uint64_t *offset) {
    const enum found found = seek(log, s);
    if (found == FOUND_MORE) return 2;
    *offset = found == FOUND_WHOLE ? log->sought.next : (s->end + 7) & ~(uint64_t)7;
    log->sought.at = 0;
    return -1;
}

int log_scan_sealed(struct log *log, uint32_t segment, uint64_t *offset, const struct record **record) {
    const struct segment *s = segment_find(log, segment);
    assert(s != NULL && s != log->current && *offset % 8 == 0);
    const uint64_t at = *offset == 0 ? LOG_HEADER_BYTES : *offset;
    const log_position position = (uint64_t)s->number << 32 | at;
    if (log->sought.at == position) return search_on(log, s, offset);
    uint64_t behind = at + sizeof(uint64_t);
    const uint8_t *failed;
    if (*offset == 0) read_ahead(s, 0);
    if (at + sizeof(struct record) > s->end) return 0;
    const struct record *r = (const struct record *)(const void *)(s->map + at);
    if (!reads_touch(r, sizeof *r, &failed)) {
        behind = end_of_page(s, failed);
    } else if (record_fits(r, s->end - at)) {
        uint64_t next = at + record_stride(r);
        enum found found = check(&log->checked, s, at, r);
        if (found == FOUND_MORE) return 2;
        if (found != FOUND_DAMAGED) {
            *record = r;
            *offset = next;
            if (found == FOUND_UNREADABLE) return -1;
            if (at / SCAN_WINDOW != next / SCAN_WINDOW) read_ahead(s, next / SCAN_WINDOW * SCAN_WINDOW);
            return 1;
        }
    }
    behind = (behind + 7) & ~(uint64_t)7;
    log->sought = (struct sought){position, behind, (s->end - at) * SCAN_EFFORT};
    return search_on(log, s, offset);
}

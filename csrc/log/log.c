#define _GNU_SOURCE
#include "log/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/copies.h"
#include "log/log_scan.h"
#include "log/log_state.h"
#include "log/reads.h"
#include "log/unproven.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are written as they lie in memory");
_Static_assert(SEGMENT_MAX_BYTES <= UINT32_MAX, "an offset is half of a log_position");
_Static_assert(SEGMENT_MAX_BYTES > sizeof(struct segment_header) + 2 * LOG_RESERVE_BYTES,
               "the largest reservation and what it keeps fit into one segment");

#define ALLOCATE_MIN ((uint64_t)256 << 10)
#define ALLOCATE_MAX ((uint64_t)4 << 20)
#define CLEARED_MAX  ((uint64_t)512 << 10) /* so that what is cleared is in the processor's cache when it is written */

static struct segment *waiting(const struct log *log) {
    return log->active + 1 < log->count && log->large.at == 0 ? &log->segments[log->active + 1] : NULL;
}

/* --- making and freeing ------------------------------------------------------------------------------------------- */

struct log *log_new(uint32_t shard, uint32_t shards) {
    struct log *log = reads_guard() ? calloc(1, sizeof *log) : NULL;
    if (log == NULL) return NULL;
    log->shard = shard;
    log->shards = shards;
    log->prefixes = calloc(1, sizeof *log->prefixes);
    log->lent = calloc(1, sizeof *log->lent);
    /* Address space only: memory is taken as pages are used. */
    log->staging_bytes = LOG_STAGING_BYTES;
    void *staging =
        mmap(NULL, log->staging_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (staging != MAP_FAILED) log->staging = staging;
    if (log->prefixes == NULL || log->lent == NULL || log->staging == NULL) {
        log_free(log);
        return NULL;
    }
    return log;
}

static void close_segment(struct segment *s) {
    copies_close(&s->copies);
    unproven_free(s->unproven);
    (void)munmap(s->map, s->map_bytes);
    (void)close(s->fd);
}

void log_free(struct log *log) {
    if (log == NULL) return;
    for (uint32_t i = 0; i < log->count; i++) close_segment(&log->segments[i]);
    free(log->segments);
    if (log->prefixes != NULL) prefixes_forget(log->prefixes);
    free(log->prefixes);
    free(log->lent);
    free(log->proving);
    free(log->large.gathering);
    if (log->staging != NULL) (void)munmap(log->staging, log->staging_bytes);
    free(log);
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

static uint32_t header_crc(const struct segment_header *h) {
    return crc32c_extend(0, h, offsetof(struct segment_header, crc));
}

enum header { HEADER_RIGHT, HEADER_OLD, HEADER_UNKNOWN, HEADER_FOREIGN, HEADER_DAMAGED, HEADER_UNREADABLE };

static enum header read_header(struct log *log, struct segment *s) {
    struct segment_header h;
    ssize_t n;
    do n = pread(s->fd, &h, sizeof h, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0) return HEADER_UNREADABLE;
    if (n != (ssize_t)sizeof h || h.crc != header_crc(&h)) return HEADER_DAMAGED;
    if (h.magic != SEGMENT_MAGIC) return HEADER_FOREIGN;
    if (h.version < SEGMENT_OLDEST || h.version > SEGMENT_VERSION) return HEADER_UNKNOWN;
    if (h.shard != log->shard || h.shards != log->shards || h.segment != s->number) return HEADER_FOREIGN;
    if (h.log_began_ns) log->began_ns = h.log_began_ns;
    s->missing = h.missing;
    return h.version == SEGMENT_VERSION ? HEADER_RIGHT : HEADER_OLD;
}

static struct segment_header make_header(const struct log *log, uint32_t segment, uint32_t previous_end,
                                         uint64_t time_ns) {
    struct segment_header h = {
        .magic = SEGMENT_MAGIC,
        .version = SEGMENT_VERSION,
        .shard = log->shard,
        .shards = log->shards,
        .segment = segment,
        .time_ns = time_ns,
        .previous_end = previous_end,
        .log_began_ns = log->began_ns,
    };
    h.crc = header_crc(&h);
    return h;
}

/* Writes a damaged header anew, and log_scan reports it. All that a header says is known without it, except where the
 * previous segment ends; and each record has a CRC of its own. */
static bool mend_header(const struct log *log, struct segment *s) {
    struct segment_header h = make_header(log, s->number, 0, 0);
    ssize_t n;
    do n = pwrite(s->fd, &h, sizeof h, 0);
    while (n < 0 && errno == EINTR);
    s->header_damaged = true;
    return n == (ssize_t)sizeof h;
}

/* Whether the file is in memory (tmpfs or a memfd): what is allocated can then be written by copying to the mapping. */
static bool is_memory(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static bool map_segment(struct segment *s, uint64_t bytes) {
    s->copied = is_memory(s->fd);
    void *map = MAP_FAILED;
    if (s->copied) map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (map == MAP_FAILED) {
        s->copied = false;
        map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, s->fd, 0);
    }
    if (map == MAP_FAILED) return false;
    s->map = map;
    s->map_bytes = bytes;
    s->capacity = bytes;
    return true;
}

/* Overwrites a file with zeros from an offset on. False with errno. */
static bool erase(int fd, uint64_t offset) {
    static const uint8_t zeros[1 << 16];
    struct stat status;
    if (fstat(fd, &status) < 0) return false;
    for (uint64_t size = (uint64_t)status.st_size; offset < size;) {
        /* To the end of a page first: whole pages are written without being read before. */
        uint64_t most = sizeof zeros - offset % READS_PAGE, left = size - offset;
        ssize_t written = pwrite(fd, zeros, left < most ? left : most, (off_t)offset);
        if (written < 0 && errno != EINTR) return false;
        if (written > 0) offset += (uint64_t)written;
    }
    /* The log continues in another segment, and this one is not synced again. */
    return fdatasync(fd) == 0;
}

/* Stages the header of a segment that has just become active: it is written with the first records. */
static void stage_header(struct log *log, uint32_t previous_end, uint64_t now_wall_ns) {
    assert(log->to == 0 && log->base == 0);
    struct segment_header h = make_header(log, log->current->number, previous_end, now_wall_ns);
    memcpy(log->staging, &h, sizeof h);
    log->to = sizeof h;
}

static void activate(struct log *log, uint32_t index) {
    log->active = index;
    log->current = &log->segments[index];
    log->base = log->current->end;
    log->reserved = 0;
}

static bool table_has_room(struct log *log) {
    if (log->count < log->room) return true;
    if (log->room >= LOG_MAX_SEGMENTS) return false;
    uint32_t room = log->room == 0 ? 16 : log->room * 2;
    struct segment *segments = realloc(log->segments, room * sizeof *segments);
    if (segments == NULL) return false;
    log->segments = segments;
    log->room = room;
    if (log->current != NULL) log->current = &segments[log->active];
    return true;
}

/* Opens a segment that recovery hands over; `size` is the length of its file. */
static bool open_recovered(struct log *log, struct segment *s, uint64_t size, uint64_t end_offset) {
    enum header header = size < LOG_HEADER_BYTES ? HEADER_FOREIGN : read_header(log, s);
    if (header == HEADER_UNKNOWN) errno = EPROTO;
    if (header == HEADER_FOREIGN || header == HEADER_UNKNOWN) return false;
    /* One that the medium may give again at the next start is left: it says when the log was begun. */
    if (header == HEADER_UNREADABLE && errno != EIO) return false;
    s->header_damaged = header == HEADER_UNREADABLE;
    /* If the medium fails to write the header, the segment is used as it is. */
    if (header == HEADER_DAMAGED && !mend_header(log, s) && errno != EIO) return false;
    s->is_old = header == HEADER_OLD;
    s->end_known = end_offset != UINT64_MAX;
    s->end = s->end_known ? end_offset : size;
    s->allocated = s->end;
    if (!s->end_known) return true;
    if (end_offset < LOG_HEADER_BYTES || end_offset % 8 != 0 || end_offset > s->capacity) return false;
    return end_offset == size || log_cut(s->fd, end_offset);
}

bool log_add_segment(struct log *log, int fd, uint32_t segment, uint64_t bytes, bool is_new, uint64_t end_offset,
                     uint64_t now_wall_ns) {
    errno = EINVAL; /* unless a system call says more */
    if (segment == 0 || (log->count > 0 && segment != log->first + log->count)) return false;
    /* A waiting segment must become active before another is added; staged records belong to the current segment. */
    if (waiting(log) != NULL || log->large.at != 0 || (!is_new && log->from < log->to)) return false;
    struct stat status;
    if (fstat(fd, &status) != 0) return false;
    uint64_t size = (uint64_t)status.st_size;
    uint64_t capacity = bytes > size ? bytes : (size + 7) & ~(uint64_t)7;
    if (capacity < LOG_HEADER_BYTES || capacity > SEGMENT_MAX_BYTES || !table_has_room(log)) return false;

    struct segment s = {.fd = fd, .number = segment, .end_known = is_new};
    const bool is_spare = is_new && spares_use(log->spares, fd, &s);
    if (is_new && size != 0 && !is_spare) return false;
    if (s.map_bytes < capacity) {
        if (is_spare) (void)munmap(s.map, s.map_bytes);
        if (!map_segment(&s, capacity)) return false;
    }
    if (!is_new && !open_recovered(log, &s, size, end_offset)) {
        int why = errno;
        (void)munmap(s.map, s.map_bytes);
        errno = why;
        return false;
    }
    /* Whether the process that wrote this also synced it is not known: it counts as just written. */
    log->flushed += s.end;
    s.mark = s.end > 0 ? log->flushed : 0;
    uint32_t index = log->count++;
    log->segments[index] = s;
    log->wanted = 0;
    if (index == 0) log->first = segment;
    if (index == 0 || !is_new) activate(log, index);
    if (index == 0 && is_new) {
        log->began_ns = now_wall_ns;
        stage_header(log, 0, now_wall_ns);
    }
    return true;
}

bool log_keep_copies(struct log *log, int fd, uint32_t segment) {
    struct segment *s = segment_find(log, segment);
    if (s == NULL || fd <= 0) return false;
    copies_close(&s->copies);
    copies_open(&s->copies, fd);
    return true;
}

void log_copy(struct log *log, log_position position) {
    const struct record *record = log_read(log, position);
    assert(record != NULL && (uint32_t)(position >> 32) == log->current->number);
    copies_add(&log->current->copies, (uint32_t)position, record);
}

struct copies_read log_copies(const struct log *log, uint32_t segment) {
    const struct segment *s = segment_find(log, segment);
    return s != NULL ? copies_read(&s->copies) : (struct copies_read){0};
}

uint64_t log_wants_segment(const struct log *log) {
    if (waiting(log) != NULL || log->large.at != 0) return 0;
    bool is_enough = log->current != NULL && !log->current->is_old && log->wanted == 0;
    if (is_enough && tail_of(log) + log->keep <= log->current->capacity / 2) return 0;
    uint64_t bytes = SEGMENT_BYTES;
    if (log->wanted > bytes) bytes = log->wanted;
    if (LOG_HEADER_BYTES + log->keep > bytes) bytes = LOG_HEADER_BYTES + log->keep;
    return bytes;
}

void log_drop_first(struct log *log) {
    assert(log->active > 0);
    if (log->active == 0) return;
    if (log->prefixes->segment == log->first) prefixes_forget(log->prefixes);
    /* All that was not synced up to the end of this segment was in it, so nothing of that is left to sync. */
    if (log->segments[0].mark > log->synced) log->synced = log->segments[0].mark;
    unproven_free(log->segments[0].unproven);
    log->segments[0].unproven = NULL;
    if (spares_keep(log->spares, &log->segments[0]))
        copies_close(&log->segments[0].copies);
    else
        close_segment(&log->segments[0]);
    log->count--;
    memmove(log->segments, log->segments + 1, log->count * sizeof *log->segments);
    log->first++;
    log->active--;
    log->current = &log->segments[log->active];
}

/* --- room ------------------------------------------------------------------------------------------------------ */

bool log_allocate_ahead(int fd, uint64_t bytes) {
    struct statvfs fs;
    if (fstatvfs(fd, &fs) != 0 || (uint64_t)fs.f_bavail * fs.f_frsize / LOG_ROOMY < bytes) return false;
    int rc;
    do rc = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
    while (rc < 0 && errno == EINTR);
    return rc == 0;
}

static enum log_result allocate_to(struct log *log, struct segment *s, uint64_t target) {
    if (s->allocated < s->stale) {
        spares_clear(s, target);
        if (s->allocated == target) return LOG_OK;
    }
    int rc;
    do rc = fallocate(s->fd, 0, (off_t)s->allocated, (off_t)(target - s->allocated));
    while (rc < 0 && errno == EINTR);
    /* If the file system cannot allocate ahead, we assume that there is room; log_flush fails if not. */
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS) {
        s->allocated = target;
        return LOG_OK;
    }
    log->error = errno;
    if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG) return LOG_FAILING;
    /* Some file systems keep what they allocated before they ran out of space: give it back. A header may have been
     * written without any. */
    (void)log_cut(s->fd, s->allocated > s->end ? s->allocated : s->end);
    return LOG_NO_SPACE;
}

enum log_result log_allocate(struct log *log, struct segment *s, uint64_t upto) {
    assert(upto <= s->capacity);
    if (upto <= s->allocated) return LOG_OK;
    uint64_t chunk = s->allocated < ALLOCATE_MIN ? ALLOCATE_MIN : s->allocated;
    const uint64_t most = s->allocated < s->stale ? CLEARED_MAX : ALLOCATE_MAX;
    if (chunk > most) chunk = most;
    uint64_t ahead = s->allocated + chunk;
    if (ahead < upto) ahead = upto;
    if (ahead > s->capacity) ahead = s->capacity;
    enum log_result result = allocate_to(log, s, ahead);
    if (result == LOG_NO_SPACE && ahead > upto) result = allocate_to(log, s, upto);
    if (result == LOG_OK) log->error = 0;
    return result;
}

struct segment *log_waiting_for(struct log *log, uint64_t upto) {
    struct segment *next = waiting(log);
    if (next == NULL) {
        log->wanted = upto > log->wanted ? upto : log->wanted;
        log->error = ENOSPC;
        return NULL;
    }
    if (upto <= next->capacity) return next;
    struct segment larger = *next;
    if (!map_segment(&larger, (upto + 4095) & ~(uint64_t)4095)) {
        log->error = errno;
        return NULL;
    }
    (void)munmap(next->map, next->map_bytes);
    *next = larger;
    return next;
}

static enum log_result allocate_waiting(struct log *log, uint64_t upto) {
    struct segment *next = log_waiting_for(log, upto);
    return next == NULL ? LOG_NO_SPACE : log_allocate(log, next, upto);
}

void log_prepare_pages(struct log *log) {
    log->prepares = true;
}

void log_leave_uncut(struct log *log) {
    log->leaves_uncut = true;
}

void log_use_spares(struct log *log, struct spares *spares) {
    log->spares = spares;
}

enum log_result log_switch_segment(struct log *log, bool may_leave, uint64_t now_wall_ns) {
    assert(waiting(log) != NULL);
    enum log_result result = log_flush(log);
    if (result != LOG_OK) return result;
    struct segment *sealed = log->current;
    /* Gives the space allocated ahead back; if that fails, zeros remain, which mark the end all the same. */
    bool left = may_leave && log->leaves_uncut;
    if (left || log_cut(sealed->fd, sealed->end)) sealed->allocated = sealed->end;
    /* The copies are closed when synced with their segment; without syncing, when the next one is sealed. */
    if (sealed->copies.mark <= log->synced) copies_close(&sealed->copies);
    if (log->active > 0) copies_close(&log->segments[log->active - 1].copies);
    activate(log, log->active + 1);
    stage_header(log, (uint32_t)sealed->end, now_wall_ns);
    return LOG_OK;
}

bool log_roll(struct log *log, uint64_t now_wall_ns) {
    if (log->current == NULL) return false;
    if (waiting(log) != NULL) return log_switch_segment(log, false, now_wall_ns) == LOG_OK;
    if (log->wanted < LOG_HEADER_BYTES) log->wanted = LOG_HEADER_BYTES;
    return false;
}

static enum log_result reserve_slowly(struct log *log, uint64_t need, uint64_t keep, uint64_t now_wall_ns) {
    if (log->current == NULL) {
        log->wanted = LOG_HEADER_BYTES + need + keep;
        return LOG_NO_SPACE;
    }
    if (!log->current->end_known) return LOG_FAILING;

    uint64_t tail = tail_of(log);
    bool fits = tail + need <= log->current->capacity && !log->current->is_old;
    enum log_result result;
    if (!fits) {
        result = allocate_waiting(log, LOG_HEADER_BYTES + need + keep);
        if (result == LOG_OK) result = log_switch_segment(log, true, now_wall_ns);
    } else if (tail + need + keep <= log->current->capacity) {
        result = log_allocate(log, log->current, tail + need + keep);
    } else {
        result = allocate_waiting(log, LOG_HEADER_BYTES + keep);
        if (result == LOG_OK) result = log_allocate(log, log->current, tail + need);
    }
    /* The disk is full, but the waiting segment has space allocated ahead: use that. */
    uint64_t whole = LOG_HEADER_BYTES + need + keep;
    if (fits && result == LOG_NO_SPACE && waiting(log) != NULL && whole <= waiting(log)->allocated)
        result = log_switch_segment(log, true, now_wall_ns);
    if (result == LOG_OK) result = log_stage_room(log, need);
    return result;
}

uint64_t log_spare(const struct log *log) {
    if (log->current == NULL) return 0;
    const uint64_t tail = tail_of(log);
    return tail < log->current->allocated ? log->current->allocated - tail : 0;
}

enum log_result log_reserve(struct log *log, size_t records, size_t bytes, uint64_t keep_bytes, uint64_t now_wall_ns) {
    if (bytes > LOG_RESERVE_BYTES || records > LOG_RESERVE_BYTES / LOG_RECORD_OVERHEAD ||
        keep_bytes > LOG_RESERVE_BYTES)
        return LOG_NO_SPACE;
    uint64_t need = (uint64_t)bytes + (uint64_t)records * LOG_RECORD_OVERHEAD;
    if (need > LOG_RESERVE_BYTES) return LOG_NO_SPACE;
    if (keep_bytes > 0) log->keep = keep_bytes;

    /* (Recovered segments of unknown end or old version have nothing allocated beyond it: not ready.) */
    bool ready = log->current != NULL && log->to + need <= log->staging_bytes &&
                 tail_of(log) + need + keep_bytes <= log->current->allocated;
    if (!ready) {
        enum log_result result = reserve_slowly(log, need, keep_bytes, now_wall_ns);
        if (result != LOG_OK) return result;
    }
    log->reserved = need;
    return LOG_OK;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static inline bool is_staged(const struct log *log, const struct record *r) {
    return (uintptr_t)r - (uintptr_t)log->staging < log->staging_bytes;
}

const struct record *log_find(const struct log *log, log_position position) {
    uint64_t offset = (uint32_t)position;
    uint32_t i = (uint32_t)(position >> 32) - log->first;
    if (i == log->active && offset >= log->base) {
        uint64_t staged = offset - log->base;
        return staged < log->to ? (const struct record *)(const void *)(log->staging + staged) : NULL;
    }
    if (i >= log->count || offset >= log->segments[i].end) return NULL;
    if (__builtin_expect(log->segments[i].unproven != NULL, 0)) return unproven_record(&log->segments[i], offset);
    return (const struct record *)(const void *)(log->segments[i].map + offset);
}

const struct record *log_read(const struct log *log, log_position position) {
    const struct record *r = log_find(log, position);
    if (log->lent->count > 0 && r != NULL && is_staged(log, r)) log_fill(log, r);
    return r;
}

__attribute__((cold, noinline)) static bool cannot_read(const struct log *log, const uint8_t *failed) {
    size_t bytes;
    const uint8_t *page = reads_page(failed, &bytes);
    uint32_t i = 0;
    while (i < log->count && (page < log->segments[i].map || page >= log->segments[i].map + log->segments[i].map_bytes))
        i++;
    assert(i < log->count);
    segment_map_again(&log->segments[i], (uint64_t)(page - log->segments[i].map), bytes);
    return false;
}

enum log_look log_look(const struct log *log, const struct record *r) {
    const uint8_t *failed;
    if (is_staged(log, r)) return LOG_READS;
    if (!reads_touch(r, sizeof *r, &failed)) return cannot_read(log, failed) ? LOG_READS : LOG_FAILS;
    /* Zeros: somebody else cut the file short and wrote to it again. */
    if (r->bytes < sizeof *r || r->bytes > SEGMENT_MAX_BYTES) return LOG_FAILS;
    if (r->bytes > LOG_LOOK_BYTES) return log->spares ? LOG_READS : LOG_READS_HEAD;
    if (!reads_touch(r, r->bytes, &failed)) return cannot_read(log, failed) ? LOG_READS : LOG_FAILS;
    return !log->proving || unproven_is_whole(log, r) ? LOG_READS : LOG_FAILS;
}

bool log_readable(const struct log *log, const struct record *r) {
    const uint8_t *failed;
    enum log_look look = log_look(log, r);
    if (look != LOG_READS_HEAD) return look == LOG_READS;
    return reads_touch(r, r->bytes, &failed) || cannot_read(log, failed);
}

bool log_readable_part(const struct log *log, const struct record *r, uint64_t from, uint64_t bytes) {
    const uint8_t *failed;
    if (is_staged(log, r)) return true;
    if (from + bytes > record_body_bytes(r)) return false;
    if (log->proving && r->bytes <= LOG_LOOK_BYTES) return log_look(log, r) == LOG_READS;
    return reads_touch((const uint8_t *)record_body(r) + from, bytes, &failed) || cannot_read(log, failed);
}

const struct record *log_read_head(const struct log *log, log_position position) {
    const struct record *r = log_read(log, position);
    const uint8_t *failed;
    if (r == NULL || is_staged(log, r)) return r;
    if (!reads_touch(r, sizeof *r, &failed)) return cannot_read(log, failed) ? r : NULL;
    size_t bytes = sizeof *r + r->attribute_bytes + LOG_PEEK_BYTES;
    if (r->bytes < sizeof *r + r->attribute_bytes) return NULL;
    if (bytes > r->bytes) bytes = r->bytes;
    return reads_touch(r, bytes, &failed) || cannot_read(log, failed) ? r : NULL;
}

/* --- at recovery -------------------------------------------------------------------------------------------------- */

bool log_truncate(struct log *log, uint32_t segment, uint64_t offset) {
    struct segment *s = segment_find(log, segment);
    assert(s != NULL && offset >= LOG_HEADER_BYTES && offset % 8 == 0);
    if (offset > s->capacity) offset = s->capacity & ~(uint64_t)7; /* a larger segment whose file was cut short */
    assert(s != log->current || log->to == 0);
    if (!log_cut(s->fd, offset)) {
        s->uncut = errno;
        s->is_old = true;
        if (!erase(s->fd, offset)) return false;
    }
    s->end = offset;
    s->allocated = offset;
    s->end_known = true;
    if (s == log->current) {
        log->base = offset;
        struct copies_read all = copies_read(&s->copies);
        copies_end_at(&s->copies, &all, segment, offset);
        copies_read_free(&all);
    } else {
        copies_close(&s->copies);
    }
    return true;
}

int log_uncut(const struct log *log, uint32_t segment) {
    const struct segment *s = segment_find(log, segment);
    return s != NULL ? s->uncut : 0;
}

/* --- what there is ------------------------------------------------------------------------------------------------ */

uint32_t log_first_segment(const struct log *log) {
    return log->count > 0 ? log->first : 0;
}

uint32_t log_active_segment(const struct log *log) {
    return log->current != NULL ? log->current->number : 0;
}

uint64_t log_began(const struct log *log) {
    return log->began_ns;
}

uint64_t log_segment_end(const struct log *log, uint32_t segment) {
    const struct segment *s = segment_find(log, segment);
    if (s == NULL) return 0;
    return s == log->current ? tail_of(log) : s->end;
}

uint64_t log_bytes(const struct log *log) {
    uint64_t bytes = log->to - log->from;
    for (uint32_t i = 0; i < log->count; i++) bytes += log->segments[i].end;
    return bytes;
}

uint64_t log_ahead_bytes(const struct log *log) {
    if (log->current == NULL) return 0;
    uint64_t bytes = log->current->allocated > tail_of(log) ? log->current->allocated - tail_of(log) : 0;
    const struct segment *next = waiting(log);
    return next != NULL ? bytes + next->allocated : bytes;
}

uint64_t log_records(const struct log *log) {
    return log->records;
}

int log_errno(const struct log *log) {
    return log->error;
}

int log_fd(const struct log *log) {
    return log->current == NULL ? -1 : log->current->fd;
}

uint64_t log_appended(const struct log *log) {
    return log->flushed + (log->to - log->from);
}

uint64_t log_flushed(const struct log *log) {
    return log->flushed;
}

uint64_t log_synced(const struct log *log) {
    return log->synced;
}

size_t log_unsynced_fds(const struct log *log, int *fds, size_t max, uint64_t *upto) {
    *upto = log->synced;
    if (log->current == NULL || log->flushed == log->synced) return 0;
    uint32_t i = log->active;
    while (i > 0 && log->segments[i - 1].mark > log->synced) i--;
    size_t count = 0;
    for (; i <= log->active; i++) {
        const struct segment *s = &log->segments[i];
        if (s->mark <= log->synced) continue;
        bool copies = s->copies.mark > log->synced && max > 1;
        if (count + copies >= max) break;
        if (copies) fds[count++] = s->copies.fd;
        fds[count++] = s->fd;
        *upto = s->mark;
    }
    return count;
}

void log_mark_synced(struct log *log, uint64_t upto) {
    assert(upto <= log->flushed);
    for (uint32_t i = log->active; i > 0 && log->segments[i - 1].mark > log->synced; i--)
        if (log->segments[i - 1].copies.mark <= upto) copies_close(&log->segments[i - 1].copies);
    if (upto > log->synced) log->synced = upto;
}

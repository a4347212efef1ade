/* As fuzz_shard, but between the end of a worker and the next one something spoils its segments: sectors of zeros,
 * flipped bits, files cut short, or the same in the files with copies of names.
 *
 * What is looked for: no count is wrong afterwards, whatever was hit; and what was held and not hit is held, as long as
 * only the segments or only the copies were hit since the world began.
 */
#define SPOIL
#include "fuzz_shard.c"

#include <sys/stat.h>

#include "log/log.h"

enum { SECTOR = 512, LIVE_MOST = 65536 };

struct range {
    uint64_t from, until; /* of a segment's bytes */
};

static struct {
    uint32_t segments, copies;
} hits;

static bool never_begun(int fd) {
    static const uint8_t zeros[sizeof(struct segment_header)];
    uint8_t header[sizeof zeros];
    return pread(fd, header, sizeof header, 0) < (ssize_t)sizeof header || !memcmp(header, zeros, sizeof header);
}

static uint64_t size_of(int fd) {
    struct stat status;
    int rc = fstat(fd, &status);
    assert(rc == 0);
    return (uint64_t)status.st_size;
}

static struct range zero(int fd, uint64_t size) {
    static const uint8_t zeros[4 * SECTOR];
    uint64_t from = pick((uint32_t)(size / SECTOR) + 1) * (uint64_t)SECTOR;
    uint64_t until = from + (1 + pick(4)) * SECTOR;
    if (until > size) until = size;
    if (until > from) (void)!pwrite(fd, zeros, until - from, (off_t)from);
    return (struct range){from, until};
}

static struct range flip(int fd, uint64_t size) {
    uint64_t at = pick((uint32_t)size);
    uint8_t one = 0;
    (void)!pread(fd, &one, 1, (off_t)at);
    one ^= (uint8_t)(1u << pick(8));
    (void)!pwrite(fd, &one, 1, (off_t)at);
    return (struct range){at, at + 1};
}

static struct range cut_short(int fd, uint64_t size) {
    uint64_t at = pick((uint32_t)size);
    if (at < sizeof(struct segment_header)) at = sizeof(struct segment_header);
    int rc = ftruncate(fd, (off_t)at);
    assert(rc == 0);
    return (struct range){at, UINT64_MAX};
}

static struct range spoil_file(int fd) {
    uint64_t size = size_of(fd);
    switch (pick(4)) {
    case 0: return cut_short(fd, size);
    case 1: return flip(fd, size);
    default: return zero(fd, size);
    }
}

/* Many that were published at once count only together at the end of a log. */
static struct range with_its_batch(const uint8_t *content, uint64_t size, struct range hit) {
    struct range all = hit;
    uint64_t batch = 0;
    for (uint64_t at = sizeof(struct segment_header); at + sizeof(struct record) <= size;) {
        struct record r;
        memcpy(&r, content + at, sizeof r);
        if (!r.bytes) {
            /* Damaged before, or the end: what batch something behind it belongs to is not known. */
            uint64_t begin = batch ? batch : at;
            if (hit.until > begin && begin < all.from) all.from = begin;
            if (hit.until > begin) all.until = UINT64_MAX;
            break;
        }
        uint64_t end = at + record_stride(&r);
        bool more = (r.kind == RECORD_PUBLISH || r.kind == RECORD_PRODUCER) && (r.flags & PUBLISH_MORE);
        if (more && !batch) batch = at;
        if (!more) {
            uint64_t begin = batch ? batch : at;
            if (begin < hit.until && end > hit.from) {
                if (begin < all.from) all.from = begin;
                if (end > all.until) all.until = end;
            }
            batch = 0;
        }
        at = end;
    }
    return all;
}

static struct live {
    uint64_t id;
    log_position position;
    uint64_t bytes;
} live[LIVE_MOST];

static size_t list_live(const struct worker *w, uint32_t shard) {
    const struct shard *s = w->own[shard];
    size_t count = 0;
    for (uint32_t job = 1; job < w->jobs.end && count < LIVE_MOST; job++) {
        const struct job *j = job_at(w, job);
        if (!j->state || topic_at(&w->topics, j->topic)->shard != shard) continue;
        live[count++] = (struct live){j->id, j->position, log_read(s->log, j->position)->bytes};
    }
    for (uint32_t n = 1; n < w->transactions.arena.end; n++) {
        const struct transaction *of = transaction_at(&w->transactions, n);
        for (size_t i = of->shard == s ? of->done : of->count; i < of->count && count < LIVE_MOST; i++) {
            const struct record *r = log_read(s->log, of->staged[i].position);
            live[count++] = (struct live){r->id, of->staged[i].position, r->bytes};
        }
    }
    for (uint32_t i = 0; w->topics.names.slots && i <= w->topics.names.mask; i++) {
        uint32_t topic = w->topics.names.slots[i].number;
        if (!topic || topic_at(&w->topics, topic)->shard != shard) continue;
        const struct stream *stream = &topic_at(&w->topics, topic)->stream;
        for (uint64_t seq = stream_next(stream, 0); seq < stream->end && count < LIVE_MOST;
             seq = stream_next(stream, seq + 1)) {
            log_position position = stream_position(stream, seq);
            const struct record *r = log_read(s->log, position);
            live[count++] = (struct live){r->id, position, r->bytes};
        }
    }
    return count;
}

/* All that could be lost by it is taken out of what was held. */
static void spoil_one(struct segment *s, size_t live_count, struct holdings *held) {
    if (pick(4) == 0) {
        if (size_of(s->copies) > 0) {
            trace("copies of shard %u, segment %u are spoilt", s->shard, s->number);
            (void)spoil_file(s->copies);
            hits.copies++;
        }
        return;
    }
    uint64_t size = size_of(s->fd);
    if (size < sizeof(struct segment_header) || never_begun(s->fd)) return;
    uint8_t *content = malloc(size);
    assert(content);
    (void)!pread(s->fd, content, size, 0);
    s->begun = true;
    struct range direct = spoil_file(s->fd);
    struct range hit = with_its_batch(content, size, direct);
    free(content);
    trace("shard %u, segment %u is spoilt from %llu to %llu", s->shard, s->number, (unsigned long long)direct.from,
          (unsigned long long)direct.until);
    hits.segments++;
    for (size_t i = 0; i < live_count; i++) {
        uint64_t from = (uint32_t)live[i].position;
        if (live[i].position >> 32 != s->number) continue;
        if (from < hit.until && from + live[i].bytes > hit.from) holdings_without(held, live[i].id);
    }
}

static bool spoil(uint32_t worker, struct holdings *held) {
    if (!world.spoilt) memset(&hits, 0, sizeof hits);
    uint32_t shard = pick(SHARDS) / WORKERS * WORKERS + worker;
    size_t live_count = list_live(world.workers[worker], shard);
    worker_stop(worker);
    uint32_t times = pick(3);
    for (uint32_t n = 0; n < times; n++) {
        uint32_t own = 0;
        for (uint32_t i = 0; i < world.segment_count; i++) own += world.segments[i].shard == shard;
        if (!own) break;
        uint32_t chosen = pick(own);
        for (uint32_t i = 0; i < world.segment_count; i++)
            if (world.segments[i].shard == shard && chosen-- == 0) {
                world.spoilt = true;
                spoil_one(&world.segments[i], live_count, held);
                break;
            }
    }
    return !hits.segments || !hits.copies;
}

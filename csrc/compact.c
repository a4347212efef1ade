/* Compaction: live jobs of the oldest segment move to the head of the log, so that the segment can go. */
#include "queue.h"
#include "worker.h"

static bool move(struct worker *w, struct shard *s, const struct record *r, uint32_t job, log_position position) {
    struct job *j = job_at(w, job);
    uint64_t bytes = sizeof(struct moved_attributes) + record_body_bytes(r);
    /* Like a publish, it leaves the room that deletes will need: on a full disk nothing else frees any. */
    if (shard_reserve(w, s, 1, bytes, true) != LOG_OK) return false;
    log_position to = shard_log_moved(w, s, j, r);
    shard_count_out(s, position);
    shard_count_in(s, to);
    j->position = to;
    w->count->records_migrated++;
    return true;
}

bool shard_compact(struct worker *w, struct shard *s, uint64_t budget) {
    uint32_t segment = log_first_segment(s->log);
    if (segment >= s->segment) return false;
    uint64_t end = s->scan_offset + budget;
    while (s->scan_offset < end) {
        uint64_t offset = s->scan_offset, bad;
        const struct record *r;
        int found = log_scan(s->log, segment, &offset, &r, &bad);
        if (found == 0) return true;
        if (found > 0 && (r->kind == RECORD_PUBLISH || r->kind == RECORD_MOVED)) {
            log_position position = (uint64_t)segment << 32 | (offset - record_stride(r));
            uint32_t job = index_find(&w->ids, &w->jobs, r->id);
            if (job && job_at(w, job)->position == position && !move(w, s, r, job, position)) return false;
        }
        s->scan_offset = offset;
    }
    return false;
}

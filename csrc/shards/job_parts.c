/* A batch is many jobs to clients that RESERVE: one for each message in it, with its own id, its own state, and its own
 * log records for changes of that. All lie in one record of the log. One more job stands for the whole batch, under the
 * record's id and in no queue (JOB_SPLIT): it tells whether the job queue has the message, and where it lies.
 *
 * At recovery a batch becomes all its jobs again; later records say what became of each.
 */
#include "shards/job_parts.h"

#include <assert.h>

#include "shards/queue.h"
#include "shards/unreadable.h"

static uint64_t part_id(const struct worker *w, uint64_t id, uint32_t place) {
    return id + (uint64_t)(place + 1) * w->shards;
}

uint32_t queue_add_message(struct worker *w, uint32_t topic, uint64_t id, uint32_t parts, uint32_t pri,
                           log_position position) {
    if (parts < 2) return queue_add(w, topic, id, pri, position);
    if (w->jobs.live + parts + 1 >= WORKER_MAX_JOBS) return 0;
    uint32_t whole = queue_add(w, topic, id, pri, position);
    for (uint32_t i = 0; whole && i < parts; i++) {
        uint32_t part = queue_add(w, topic, part_id(w, id, i), pri, position);
        if (!part) process_die("more jobs than there is room for");
        job_at(w, part)->part = 1;
        worker_step(w);
    }
    if (!whole) return 0;
    job_at(w, whole)->state = JOB_SPLIT;
    job_at(w, whole)->place = parts;
    return whole;
}

uint32_t queue_jobs_of(const struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    if (j->state != JOB_SPLIT) return 1;
    const struct record *r = job_head(w, j);
    return r ? message_packed(r) : PACKED_MAX_PARTS;
}

uint32_t queue_job_of(const struct worker *w, uint32_t job, uint32_t place) {
    const struct job *j = job_at(w, job);
    if (j->state != JOB_SPLIT) return job;
    uint32_t part = index_find(&w->ids, &w->jobs, part_id(w, j->id, place));
    /* If its record cannot be read, more ids are tried than it had; those belong to other messages. */
    return part && job_at(w, part)->part && job_at(w, part)->position == j->position ? part : 0;
}

static bool is_whole_of(const struct worker *w, uint32_t whole, const struct job *part) {
    const struct job *j = job_at(w, whole);
    return whole && j->state == JOB_SPLIT && j->position == part->position;
}

/* Finds the batch without its record: its id is one of those before a part's. */
__attribute__((cold)) static uint32_t look_for_whole(const struct worker *w, const struct job *part) {
    for (uint32_t i = 0; i < PACKED_MAX_PARTS; i++) {
        uint32_t whole = index_find(&w->ids, &w->jobs, part->id - (uint64_t)(i + 1) * w->shards);
        if (is_whole_of(w, whole, part)) return whole;
    }
    return 0;
}

uint32_t queue_whole_of(struct worker *w, uint32_t part) {
    const struct job *j = job_at(w, part);
    if (is_whole_of(w, w->last_whole, j)) return w->last_whole; /* as a rule that of the part before */
    const struct record *r = job_head(w, j);
    uint32_t whole = r ? index_find(&w->ids, &w->jobs, r->id) : look_for_whole(w, j);
    assert(j->part && whole && job_at(w, whole)->state == JOB_SPLIT);
    return w->last_whole = whole;
}

void queue_moved(struct worker *w, uint32_t job, log_position position) {
    uint32_t count = queue_jobs_of(w, job);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t one = queue_job_of(w, job, i);
        if (one) job_at(w, one)->position = position;
    }
    job_at(w, job)->position = position;
}

bool queue_part_over(struct worker *w, uint32_t part) {
    struct job *whole = job_at(w, queue_whole_of(w, part));
    queue_forget(w, part);
    if (--whole->place) return false;
    whole->state = 0;
    return true;
}

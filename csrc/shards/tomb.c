/* Tombs: the streams and jobs of topics that were deleted or emptied, which are freed piece by piece. Until then their
 * messages count as alive, so their segments stay. Nobody can get them, and recovery does not restore them, as the log
 * has the end of the topic.
 *
 * A job has no mark that it is in a tomb: it is, if its record lies before the last deletion of its topic
 * (job_is_gone).
 */
#include "shards/tomb.h"

#include <stdlib.h>

#include "shards/job_parts.h"
#include "shards/queue.h"
#include "shards/shard.h"
#include "shards/sleeping.h"
#include "shards/stream.h"
#include "shards/unreadable.h"

/* How many items of the arena are looked at for reserved jobs, for each message that a turn may touch. */
enum { LOOKED_AT = 16 };

struct tomb {
    struct tomb *next;
    struct worker *worker;
    struct shard *shard;
    uint32_t topic; /* the topic whose jobs these are; 0: there are none */
    log_position since,
        until; /* the range of the log in which they were published; earlier ones are in an earlier tomb */
    struct buried_jobs jobs;
    uint32_t scanned, scan_end; /* in the arena of reservations */
    struct stream stream;
};

static void let_go(void *context, uint64_t position) {
    const struct tomb *tomb = context;
    worker_step(tomb->worker);
    shard_count_out(tomb->shard, position);
}

static bool is_streamed(const struct worker *w, const struct tomb *tomb, const struct job *j) {
    const struct record *r = job_head(w, j);
    uint64_t seq = r ? r->seq : stream_find(&tomb->stream, j->position, &(bool){false});
    return stream_position(&tomb->stream, seq);
}

/* Frees a job. A message that the stream has too is counted there. */
static void let_go_job(struct tomb *tomb, uint32_t job) {
    struct worker *w = tomb->worker;
    if (job_at(w, job)->part) {
        uint32_t whole = queue_whole_of(w, job);
        queue_free(w, job);
        if (--job_at(w, whole)->place) return;
        job = whole;
    }
    const struct job *j = job_at(w, job);
    bool streamed = stream_has_pages(&tomb->stream) && is_streamed(w, tomb, j);
    if (!streamed) shard_count_out(tomb->shard, j->position);
    queue_free(w, job);
}

static bool is_reserved_here(const struct tomb *tomb, uint32_t number) {
    uint32_t job = reservation_at(tomb->worker, number)->timer.of;
    const struct job *j = job_at(tomb->worker, job);
    if (j->state != JOB_RESERVED || j->reservation != number || j->topic != tomb->topic) return false;
    return j->position >= tomb->since && j->position < tomb->until;
}

/* Frees reserved jobs. True if there may be more. */
static bool let_go_reserved(struct tomb *tomb, uint64_t most) {
    struct worker *w = tomb->worker;
    uint32_t looked_at = 0;
    for (; tomb->jobs.reserved && tomb->scanned < tomb->scan_end; tomb->scanned++) {
        if (w->steps >= most || looked_at++ / LOOKED_AT >= w->piece) return true;
        if (!is_reserved_here(tomb, tomb->scanned)) continue;
        uint32_t job = reservation_at(w, tomb->scanned)->timer.of;
        worker_step(w);
        tomb->jobs.reserved--;
        queue_unreserve(w, job);
        let_go_job(tomb, job);
    }
    return false;
}

/* Frees jobs. True if there are more. */
static bool let_go_jobs(struct tomb *tomb, uint64_t most) {
    struct worker *w = tomb->worker;
    for (; buried_jobs_left(&tomb->jobs); worker_step(w)) {
        if (w->steps >= most) return true;
        uint32_t job = queue_exhume(w, &tomb->jobs);
        if (job) let_go_job(tomb, job);
    }
    return let_go_reserved(tomb, most);
}

/* From now on the topic's number may be reused. */
static void close_tomb(struct tomb *tomb) {
    struct worker *w = tomb->worker;
    buried_jobs_free(&tomb->jobs);
    if (tomb->topic) {
        topic_at(&w->topics, tomb->topic)->tombs--;
        shard_settle_topic(w, tomb->topic);
    }
    free(tomb);
}

bool tombs_clear(struct worker *w) {
    struct tomb *tomb = w->tombs;
    uint64_t most = w->steps + w->piece;
    if (!tomb || let_go_jobs(tomb, most)) return tomb != NULL;
    if (w->steps >= most || stream_dismantle(&tomb->stream, 1 + w->piece / STREAM_PAGE, let_go, tomb)) return true;
    w->tombs = tomb->next;
    close_tomb(tomb);
    return w->tombs != NULL;
}

void tombs_free(struct worker *w) {
    for (struct tomb *tomb = w->tombs, *next; tomb; tomb = next) {
        next = tomb->next;
        buried_jobs_free(&tomb->jobs);
        stream_free(&tomb->stream);
        free(tomb);
    }
    w->tombs = NULL;
}

static struct tomb *dig(struct worker *w, uint32_t topic) {
    struct tomb *tomb = calloc(1, sizeof *tomb);
    if (!tomb) process_die("out of memory");
    tomb->next = w->tombs;
    tomb->worker = w;
    tomb->shard = shard_of_topic(w, topic_at(&w->topics, topic));
    w->tombs = tomb;
    return tomb;
}

static void put_stream(struct worker *w, uint32_t topic, struct tomb *tomb) {
    struct topic *t = topic_at(&w->topics, topic);
    tomb->stream = t->stream;
    t->stream = (struct stream){.retains = t->stream.retains};
}

void stream_bury(struct worker *w, uint32_t topic) {
    put_stream(w, topic, dig(w, topic));
    /* On recovery segments may be dropped at once, and after damage the counts are made again. */
    while (w->replaying && w->tombs) (void)tombs_clear(w);
}

void topic_bury(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    if (!topic_jobs(t) && !stream_has_pages(&t->stream)) return;
    struct tomb *tomb = dig(w, topic);
    put_stream(w, topic, tomb);
    if (!topic_jobs(t)) return;
    uint32_t active = log_active_segment(tomb->shard->log);
    tomb->topic = topic;
    tomb->since = t->gone_until;
    tomb->until = t->gone_until = (uint64_t)active << 32 | log_segment_end(tomb->shard->log, active);
    tomb->scanned = 1;
    tomb->scan_end = w->reservations.end;
    t->tombs++;
    queue_bury(w, topic, &tomb->jobs);
}

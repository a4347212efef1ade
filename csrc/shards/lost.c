#include "shards/lost.h"

#include <string.h>

#include "shards/queue.h"
#include "shards/requests.h"

/* One topic's take half of the places at most, so that another's are named too. */
static bool is_to_be_told(const struct worker *w, const struct topic *t) {
    if (w->lost_listed < WORKER_LOST_MOST / 2) return true;
    if (w->lost_listed == WORKER_LOST_MOST) return false;
    for (uint32_t i = 0; i < w->lost_listed; i++)
        if (!w->lost[i].topic[t->name_bytes] && memcmp(w->lost[i].topic, t->name, t->name_bytes) == 0) return false;
    return true;
}

void lost_note(struct worker *w, uint32_t topic, log_position position) {
    const struct topic *t = topic_at(&w->topics, topic);
    w->count->unreadable++;
    w->lost_in_turn++;
    w->lost_count++;
    if (!is_to_be_told(w, t)) return;
    struct lost *l = &w->lost[w->lost_listed++];
    *l = (struct lost){.place = {t->shard, (uint32_t)(position >> 32), (uint32_t)position, (uint32_t)position}};
    memcpy(l->topic, t->name, t->name_bytes); /* TOPIC_NAME_MAX at most, and a zero behind it */
}

uint32_t worker_lost(struct worker *w, struct damage *place, const char **topic) {
    uint32_t left = w->lost_count - w->lost_told;
    if (w->lost_told == w->lost_listed) {
        w->lost_count = w->lost_listed = w->lost_told = 0;
        return 0;
    }
    const struct lost *l = &w->lost[w->lost_told++];
    *place = l->place;
    *topic = l->topic;
    return left;
}

const struct record *message_head(const struct worker *w, const struct topic *t, uint64_t seq) {
    return log_read_head(shard_of_topic(w, t)->log, stream_place(&t->stream, seq));
}

const struct record *message_whole(const struct worker *w, const struct topic *t, uint64_t seq) {
    const struct record *r = log_read(shard_of_topic(w, t)->log, stream_place(&t->stream, seq));
    return r && message_readable(w, t, r) ? r : NULL;
}

const struct record *job_head(const struct worker *w, const struct job *j) {
    return log_read_head(shard_of_job(w, j)->log, j->position);
}

uint64_t job_seq(struct worker *w, const struct job *j) {
    const struct record *r = job_head(w, j);
    bool walked = false;
    if (r) return r->seq;
    uint64_t seq = stream_find(&topic_at(&w->topics, j->topic)->stream, j->position, &walked);
    if (walked) w->lost_in_turn = WORKER_LOST_IN_TURN;
    return seq;
}

/* Those of a batch that nobody has reserved, with it. */
static void lose_parts(struct worker *w, uint32_t whole) {
    uint32_t most = queue_jobs_of(w, whole);
    uint64_t seq = job_seq(w, job_at(w, whole));
    for (uint32_t i = 0; i < most; i++) {
        uint32_t job = queue_job_of(w, whole, i);
        if (!job || job_at(w, job)->state == JOB_RESERVED) continue;
        bool last = job_at(w, whole)->place == 1;
        job_done(w, job, seq);
        if (last) return;
    }
}

__attribute__((cold, noinline)) static void lose_job(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    uint32_t topic = j->topic;
    lost_note(w, topic, j->position);
    if (j->part)
        lose_parts(w, queue_whole_of(w, job));
    else
        job_done(w, job, job_seq(w, j));
    queue_settle(w, topic, true);
}

bool job_readable(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    if (log_readable(shard_of_job(w, j)->log, job_record(w, j))) return true;
    if (j->state != JOB_RESERVED) lose_job(w, job);
    return false;
}

bool serve_later(struct worker *w, uint32_t topic) {
    for (uint32_t i = 0; i < w->unserved_count; i++)
        if (w->unserved[i] == topic) return true;
    if (w->unserved_count == WORKER_LOST_IN_TURN) return false;
    w->unserved[w->unserved_count++] = topic;
    return true;
}

bool serve_now(struct worker *w) {
    uint32_t topics[WORKER_LOST_IN_TURN], count = w->unserved_count;
    memcpy(topics, w->unserved, sizeof topics);
    w->unserved_count = w->lost_in_turn = 0;
    /* One that is another by now has nobody who waits, or is served as at any time. */
    for (uint32_t i = 0; i < count; i++) queue_serve(w, topics[i]);
    return count > 0;
}

#include "shards/lost.h"

#include <string.h>

#include "shards/queue.h"
#include "shards/requests.h"

void lost_note(struct worker *w, uint32_t topic, log_position position) {
    const struct topic *t = topic_at(&w->topics, topic);
    w->count->unreadable++;
    if (w->lost_count++ >= WORKER_LOST_MOST) return;
    struct lost *l = &w->lost[w->lost_count - 1];
    *l = (struct lost){.place = {t->shard, (uint32_t)(position >> 32), (uint32_t)position, (uint32_t)position}};
    memcpy(l->topic, t->name, t->name_bytes); /* TOPIC_NAME_MAX at most, and a zero behind it */
}

uint32_t worker_lost(struct worker *w, struct damage *place, const char **topic) {
    uint32_t left = w->lost_count - w->lost_told;
    if (!left || w->lost_told == WORKER_LOST_MOST) {
        w->lost_count = w->lost_told = 0;
        return 0;
    }
    const struct lost *l = &w->lost[w->lost_told++];
    *place = l->place;
    *topic = l->topic;
    return left;
}

/* What its record says, found without it: seldom, so that it may take long. */
static uint64_t seq_of(const struct topic *t, log_position position) {
    uint64_t seq = stream_next(&t->stream, 0);
    while (seq < t->stream.end && stream_position(&t->stream, seq) != position) seq = stream_next(&t->stream, seq + 1);
    return seq;
}

__attribute__((cold, noinline)) static void lose_job(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    uint32_t topic = j->topic;
    /* How many others it is does not stand anywhere else. */
    if (j->part) worker_die("a batch of messages cannot be read");
    lost_note(w, topic, j->position);
    job_done(w, job, seq_of(topic_at(&w->topics, topic), j->position));
    queue_settle(w, topic, true);
}

bool job_readable(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    if (log_readable(shard_of_job(w, j)->log, job_record(w, j))) return true;
    lose_job(w, job);
    return false;
}

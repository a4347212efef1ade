/* Figures of a topic's job queue or of a job, and pauses of tubes. */
#include "shards/stats.h"

#include <string.h>

#include "shards/answers.h"
#include "shards/give_up.h"
#include "shards/queue.h"
#include "shards/ready.h"

static uint32_t seen_by_name(const struct worker *w, const struct message *m) {
    uint32_t topic = topics_find(&w->topics, (const char *)(m + 1), m->body_bytes);
    return topic && topic_seen(topic_at(&w->topics, topic)) ? topic : 0;
}

void tube_pause(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t topic = seen_by_name(w, m);
    if (topic) queue_pause(w, topic, m->delay_ns);
    request_done(w, client, m, topic ? STATUS_OK : STATUS_NOT_FOUND);
}

void stats_topic(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t topic = seen_by_name(w, m);
    if (!topic) {
        request_done(w, client, m, STATUS_NOT_FOUND);
        return;
    }
    const struct topic *t = topic_at(&w->topics, topic);
    struct {
        struct topic_stats topic;
        char name[TOPIC_NAME_BYTES];
    } stats = {.topic = {
                   .urgent = t->urgent,
                   .ready = ready_count(&t->ready),
                   .reserved = t->reserved,
                   .delayed = t->delayed.count,
                   .buried = t->buried,
                   .total = t->total,
                   .using = t->using,
                   .watching = t->watching,
                   .waiting = t->waiting,
                   .deletes = t->deletes,
                   .pauses = t->pauses,
                   .pause_ns = t->pause_ns,
                   .pause_left_ns = queue_paused(w, t) ? t->unpause_ns - w->now_ns : 0,
               }};
    memcpy(stats.name, t->name, t->name_bytes);
    struct message a = request_answer_of(w, client, m, STATUS_OK);
    request_send(w, client, &a, &stats, (uint32_t)(sizeof stats.topic + t->name_bytes));
}

void stats_id(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t job = job_named(w, m->id);
    const struct job *j = job ? job_at(w, job) : NULL;
    const struct record *r = j ? job_head(w, j) : NULL;
    if (!r) {
        request_done(w, client, m, STATUS_NOT_FOUND);
        return;
    }
    struct publish_attributes attributes = publish_attributes_of(r);
    struct {
        struct job_stats job;
        char name[TOPIC_NAME_BYTES];
    } stats = {.job = {
                   .id = j->id,
                   .state = j->state,
                   .pri = j->pri,
                   .age_ns = w->wall_ns > r->time_ns ? w->wall_ns - r->time_ns : 0,
                   .delay_ns = attributes.delay_ns,
                   .ttr_ns = attributes.ttr_ns,
                   .file = (uint32_t)(j->position >> 32),
               }};
    if (j->reservation) {
        const struct reservation *reservation = reservation_at(w, j->reservation);
        bool timed = j->state == JOB_RESERVED || j->state == JOB_DELAYED;
        stats.job.delay_ns = reservation->delay_ns;
        stats.job.time_left_ns =
            timed && reservation->deadline_ns > w->now_ns ? reservation->deadline_ns - w->now_ns : 0;
        stats.job.reserves = reservation->reserves;
        stats.job.timeouts = reservation->timeouts;
        stats.job.releases = reservation->releases;
        stats.job.buries = reservation->buries;
        stats.job.kicks = reservation->kicks;
    }
    const struct topic *t = topic_at(&w->topics, j->topic);
    memcpy(stats.name, t->name, t->name_bytes);
    struct message a = request_answer_of(w, client, m, STATUS_OK);
    request_send(w, client, &a, &stats, sizeof stats.job + t->name_bytes);
}

/* One message of a backlog changes hands: one that waits becomes a job, or that of a job goes to a channel as well. */
#include "shards/backlog.h"

#include "shards/delivery.h"
#include "shards/job_parts.h"
#include "shards/queue.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/unreadable.h"

/* A message no longer waits. If the topic retains, it now has a reference for the job queue, like one published to
 * both. */
static void waits_no_more(struct topic *t, uint64_t seq) {
    *(stream_delayed(&t->stream, seq) ? &t->waiting_delayed : &t->waiting_messages) -= 1;
    if (!t->stream.retains) stream_release(&t->stream, seq);
}

void topic_waiting_becomes_job(struct worker *w, uint32_t topic, uint64_t seq) {
    struct topic *t = topic_at(&w->topics, topic);
    log_position position = stream_position(&t->stream, seq);
    const struct record *r = message_head(w, t, seq);
    if (!r) return; /* unreadable: it goes on waiting */
    if (index_find(&w->ids, &w->jobs, r->id)) return;
    struct publish_attributes a = publish_attributes_of(r);
    uint32_t whole = queue_add_message(w, topic, r->id, message_packed(r), a.pri, position);
    if (!whole) return; /* it goes on waiting for a subscription */
    uint64_t due_ns = a.delay_ns > UINT64_MAX - r->time_ns ? UINT64_MAX : r->time_ns + a.delay_ns;
    if (t->subscription_count || stream_kept(&t->stream, seq))
        stream_hold(&t->stream, seq);
    else
        waits_no_more(t, seq);
    uint32_t jobs = queue_jobs_of(w, whole);
    t->total += jobs;
    w->count->total_jobs += jobs;
    for (uint32_t i = 0; i < jobs; i++) {
        uint32_t job = queue_job_of(w, whole, i);
        if (w->replaying)
            replay_queue_job(w, job, due_ns);
        else if (due_ns > w->wall_ns)
            queue_make_delayed(w, job, worker_deadline(w, due_ns, a.delay_ns));
        else
            queue_make_ready(w, job);
    }
}

void subscription_adopt(struct worker *w, uint32_t subscription, uint32_t job, uint64_t wall_ns) {
    struct subscription *s = worker_subscription(w, subscription);
    struct topic *t = subscription_topic(w, s);
    const struct job *j = job_at(w, job);
    const struct record *r = job_head(w, j);
    if (!r || (t->keeps && r->seq >= t->stopped_seq)) return; /* kept by the topic, if channels are to get it */
    struct publish_attributes a = publish_attributes_of(r);
    if (delivery_find(w, subscription, r->id)) return;
    uint64_t due_ns = a.delay_ns > UINT64_MAX - r->time_ns ? UINT64_MAX : r->time_ns + a.delay_ns;
    bool delayed = a.delay_ns && due_ns > wall_ns;
    if (stream_position(&t->stream, r->seq)) {
        stream_hold(&t->stream, r->seq);
        delayed = stream_delayed(&t->stream, r->seq);
    } else if (!stream_put(&t->stream, r->seq, j->position, 2, delayed)) {
        process_die("out of memory");
    }
    if (delayed) subscription_defer(w, subscription, r->seq, r->id);
    if (!delayed) t->ahead++;
    s->joined--;
    if (r->seq < s->cursor) s->cursor = s->logged_cursor = r->seq;
}

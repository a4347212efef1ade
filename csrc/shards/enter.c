/* A message whose record is in the log enters its topic: the stream, for its subscriptions, and the job queue. */
#include "shards/enter.h"

#include <string.h>

#include "shards/due.h"
#include "shards/handover_state.h"
#include "shards/job_parts.h"
#include "shards/pause.h"
#include "shards/queue.h"
#include "shards/shard.h"
#include "shards/stream.h"
#include "shards/subscription.h"

/* More messages are dropped than come, so that a subscription that is far behind catches up. */
enum { TRIMMED_AT_ONCE = 64, TRIMMED_LEAST = 2 };

static uint32_t trim_one(struct worker *w, const struct topic *t, uint32_t subscription, uint32_t most) {
    const struct subscription *s = worker_subscription(w, subscription);
    uint32_t left = most;
    uint64_t seq;
    while (left && t->ahead - s->taken > EPHEMERAL_BACKLOG && subscription_front(w, subscription, &seq)) {
        subscription_pass(w, subscription);
        message_release(w, s->topic, seq);
        left--;
    }
    return most - left;
}

uint32_t publish_trim_ephemeral(struct worker *w, const struct topic *t, uint32_t each, uint32_t all) {
    if (handover_goes_on(t)) return all;
    for (uint32_t n = t->subscriptions; n && all; n = worker_subscription(w, n)->next) {
        const struct subscription *s = worker_subscription(w, n);
        if (!s->number && !s->reader) all -= trim_one(w, t, n, each < all ? each : all);
    }
    return all;
}

static void trim_for_one(struct worker *w, const struct topic *t) {
    uint32_t each = w->piece / t->ephemeral_count;
    if (each > TRIMMED_AT_ONCE) each = TRIMMED_AT_ONCE;
    if (each < TRIMMED_LEAST) each = TRIMMED_LEAST;
    worker_walk(w, UINT32_MAX - publish_trim_ephemeral(w, t, each, UINT32_MAX));
}

static void trim_waiting(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    if (handover_goes_on(t)) return; /* a channel being deleted still holds the first messages */
    while (t->waiting_messages + t->kept_messages > EPHEMERAL_BACKLOG) {
        uint64_t seq = stream_next(&t->stream, 0);
        if (stream_kept(&t->stream, seq)) {
            topic_drop_kept(w, topic, seq);
            continue;
        }
        if (stream_delayed(&t->stream, seq))
            t->waiting_delayed--;
        else
            t->waiting_messages--;
        message_release(w, topic, seq);
    }
}

static void defer_for_all(struct worker *w, const struct topic *t, uint64_t seq, uint64_t id) {
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next)
        if (!worker_subscription(w, n)->reader) subscription_defer(w, n, seq, id);
}

/* Keeps a message in the topic itself, besides the job queue. */
static void keep(struct worker *w, uint32_t topic, uint64_t seq, log_position position, bool delayed) {
    struct topic *t = topic_at(&w->topics, topic);
    if (!stream_put(&t->stream, seq, position, goes_to_queue(t) ? 2 : 1, delayed)) process_die("out of memory");
    stream_keep(&t->stream, seq, true);
    *(delayed ? &t->kept_delayed : &t->kept_messages) += 1;
    if (t->ephemeral && !t->subscription_count && !t->tube) trim_waiting(w, topic);
}

void stream_enter(struct worker *w, uint32_t topic, uint64_t seq, uint64_t id, log_position position,
                  enum stream_entry how) {
    struct topic *t = topic_at(&w->topics, topic);
    if (!goes_to_stream(t)) return;
    if (how & ENTER_DUE) topic_waits_until(t, seq);
    if (topic_keeps(t, seq, (how & ENTER_UNAWAITED) != 0)) {
        keep(w, topic, seq, position, (how & ENTER_DELAYED) != 0);
        return;
    }
    bool delayed = (how & ENTER_DELAYED) != 0, queued = goes_to_queue(t);
    /* If the log has lost that the topic retains, the message waits too; otherwise nobody would hold it. */
    bool awaited = !(how & ENTER_UNAWAITED) || !t->stream.retains;
    bool waits = !t->subscription_count && !queued && awaited;
    uint32_t references = t->subscription_count + (queued || waits);
    if (!stream_put(&t->stream, seq, position, references, delayed && references)) process_die("out of memory");
    if (!references) shard_count_out(shard_of_topic(w, t), position);
    if (!delayed) t->ahead++;
    bool last = !(how & ENTER_WITH_MORE), trims = last && t->ephemeral_count && !delayed;
    if (delayed || trims) worker_walk(w, (delayed ? 64 : 1) * (uint64_t)t->subscription_count);
    if (!t->subscription_count) {
        if (last && t->reader_count) topic_due(w, topic);
        if (waits) *(delayed ? &t->waiting_delayed : &t->waiting_messages) += 1;
        if (waits && t->ephemeral) trim_waiting(w, topic);
        return;
    }
    if (delayed) defer_for_all(w, t, seq, id);
    if (last && (!delayed || t->reader_count)) topic_due(w, topic);
    if (trims) trim_for_one(w, t);
}

static uint64_t after(const struct worker *w, uint64_t delay_ns) {
    return delay_ns > UINT64_MAX - w->now_ns ? UINT64_MAX : w->now_ns + delay_ns;
}

void queue_enter(struct worker *w, uint32_t topic, uint64_t id, uint32_t parts, uint32_t pri, uint64_t delay_ns,
                 log_position position) {
    struct topic *t = topic_at(&w->topics, topic);
    bool was_seen = topic_seen(t);
    if (!goes_to_queue(t)) return;
    uint32_t whole = queue_add_message(w, topic, id, parts, pri, position);
    if (!whole) process_die("more jobs than there is room for");
    uint32_t jobs = parts > 1 ? parts : 1;
    t->total += jobs;
    w->count->total_jobs += jobs;
    for (uint32_t i = 0; i < jobs; i++) {
        uint32_t job = queue_job_of(w, whole, i);
        if (delay_ns)
            queue_make_delayed(w, job, after(w, delay_ns));
        else if (jobs > 1 || !queue_serve_at_once(w, job))
            queue_make_ready(w, job);
    }
    if (!t->listed) queue_settle(w, topic, was_seen);
}

/* Gives up messages that cannot be read: jobs as they are to be served, and what compaction could not read. */
#include "shards/give_up.h"

#include <string.h>

#include "shards/compact.h"
#include "shards/consumer.h"
#include "shards/job_parts.h"
#include "shards/pause.h"
#include "shards/queue.h"
#include "shards/ready.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/topic_life.h"
#include "shards/unreadable.h"

/* Removes a batch with those of its jobs that nobody has reserved. */
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
    unreadable_note(w, topic, j->position);
    if (j->part)
        lose_parts(w, queue_whole_of(w, job));
    else
        job_done(w, job, job_seq(w, j));
    queue_settle(w, topic, true);
}

enum readable job_readable(struct worker *w, uint32_t job) {
    const struct job *j = job_at(w, job);
    enum readable readable = record_readable(w, shard_of_job(w, j), job_record(w, j));
    if (readable == READ_FAILS && j->state != JOB_RESERVED) lose_job(w, job);
    return readable;
}

/* Removes jobs that cannot be read from before the first one that a waiting client can have. */
static void lose_first(struct worker *w, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct heap_entry first;
    while (t->waiting_first && !unreadable_enough(w) && ready_first(&t->ready, &w->jobs, &first))
        if (job_readable(w, heap_item(first)) != READ_FAILS) return;
}

bool give_up_unserved(struct worker *w) {
    uint32_t topics[WORKER_UNREADABLE_IN_TURN], count = w->unserved_count;
    w->unreadable_in_turn = 0;
    if (!count) return false;
    if (count > WORKER_UNREADABLE_IN_TURN) count = WORKER_UNREADABLE_IN_TURN;
    w->unserved_count -= count;
    memcpy(topics, w->unserved, sizeof *topics * count);
    memmove(w->unserved, w->unserved + count, sizeof *topics * w->unserved_count);
    /* The number may be another topic's by now: that has no waiting client, or serving it does no harm. */
    for (uint32_t i = 0; i < count; i++) {
        topic_at(&w->topics, topics[i])->unserved = false;
        lose_first(w, topics[i]);
        queue_serve(w, topics[i]);
    }
    return true;
}

/* --- what a segment that is emptied still holds ------------------------------------------------------------------- */

enum { REST_LOOKED_AT = 16 }; /* jobs and messages looked at for each that a turn may touch */

/* Lost messages of one topic, by seq. */
struct losses {
    uint64_t seqs[WORKER_UNREADABLE_IN_TURN];
    uint32_t count;
};

static bool is_among(const struct losses *all, uint64_t seq) {
    uint32_t i = 0;
    while (i < all->count && all->seqs[i] != seq) i++;
    return i < all->count;
}

static bool is_rest(const struct shard *s, log_position position) {
    return position >> 32 == log_first_segment(s->log);
}

static enum readable can_be_read(struct worker *w, const struct shard *s, log_position position) {
    const struct record *r = log_read_head(s->log, position);
    return r ? record_readable(w, s, r) : READ_FAILS;
}

static void lose_whole(struct worker *w, uint32_t job) {
    uint32_t topic = job_at(w, job)->topic;
    if (job_at(w, job)->state != JOB_SPLIT) {
        lose_job(w, job);
        return;
    }
    unreadable_note(w, topic, job_at(w, job)->position);
    lose_parts(w, job);
    queue_settle(w, topic, true);
}

/* A reserved job stays its client's until that is done with it. False: there are more. */
static bool rest_of_jobs(struct worker *w, struct shard *s, uint64_t *looked) {
    for (s->rest_job += !s->rest_job; s->rest_job < w->jobs.end; s->rest_job++) {
        const struct job *j = job_at(w, s->rest_job);
        if (unreadable_enough(w) || !*looked) return false;
        --*looked;
        if (!j->state || j->part || shard_of_job(w, j) != s || job_is_gone(w, j) || !is_rest(s, j->position)) continue;
        enum readable readable = can_be_read(w, s, j->position);
        if (readable == READ_MORE) return false;
        if (readable == READ_FAILS) {
            if (j->state != JOB_RESERVED) lose_whole(w, s->rest_job);
        } else if (shard_move_from(w, s, j->position) != DONE) {
            return false;
        }
    }
    return true;
}

static void drop_among(struct worker *w, uint32_t first, const struct losses *all) {
    for (uint32_t n = first, next; n; n = next) {
        next = worker_delivery(w, n)->following;
        if (is_among(all, worker_delivery(w, n)->seq)) delivery_drop(w, n);
    }
}

static void lose_for(struct worker *w, uint32_t subscription, const struct losses *all) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint64_t from = subscription_held_from(s), until = topic_given_until(t);
    consumers_have_left(w, subscription);
    drop_among(w, s->redelivery_first, all);
    drop_among(w, s->deferred_first, all);
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next)
        drop_among(w, worker_consumer(w, c)->inflight_first, all);
    for (uint32_t i = 0; i < all->count && !s->reader; i++) {
        uint64_t seq = all->seqs[i];
        bool ahead = seq >= from && seq < until && stream_position(&t->stream, seq);
        if (!ahead || stream_kept(&t->stream, seq) || stream_delayed(&t->stream, seq)) continue;
        message_release(w, s->topic, seq);
        s->taken++;
    }
}

/* Removes lost messages from everything but the job queue. */
static void lose_messages(struct worker *w, uint32_t topic, const struct losses *all) {
    struct topic *t = topic_at(&w->topics, topic);
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) lose_for(w, n, all);
    for (uint32_t i = 0; i < all->count; i++) {
        uint64_t seq = all->seqs[i];
        if (stream_kept(&t->stream, seq)) {
            topic_drop_kept(w, topic, seq);
        } else if (!t->subscription_count && !t->tube && stream_position(&t->stream, seq)) {
            *(stream_delayed(&t->stream, seq) ? &t->waiting_delayed : &t->waiting_messages) -= 1;
            message_release(w, topic, seq);
        }
    }
}

/* Does the same for a topic's stream. False: there are more. */
static bool rest_of_topic(struct worker *w, struct shard *s, uint32_t topic, uint64_t *looked) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct losses all = {.count = 0};
    bool more = t->handover != NULL;
    while (!more && (s->rest_seq = stream_next(&t->stream, s->rest_seq)) < t->stream.end) {
        log_position position = stream_position(&t->stream, s->rest_seq);
        more = unreadable_enough(w) || !*looked;
        if (more) break;
        --*looked;
        if (is_rest(s, position)) {
            enum readable readable = can_be_read(w, s, position);
            more = readable == READ_MORE || (readable == READ_WHOLE && shard_move_from(w, s, position) != DONE);
            if (readable == READ_FAILS) {
                unreadable_note(w, topic, position);
                all.seqs[all.count++] = s->rest_seq;
            }
        }
        if (!more) s->rest_seq++;
    }
    if (all.count) lose_messages(w, topic, &all);
    return !more;
}

bool shard_give_up_rest(struct worker *w, struct shard *s) {
    uint64_t looked = REST_LOOKED_AT * (uint64_t)w->piece;
    if (!rest_of_jobs(w, s, &looked)) return false;
    for (s->rest_topic += !s->rest_topic; s->rest_topic < w->topics.arena.end; s->rest_topic++, s->rest_seq = 0) {
        const struct topic *t = topic_at(&w->topics, s->rest_topic);
        if (!t->name || shard_of_topic(w, t) != s) continue;
        if (!rest_of_topic(w, s, s->rest_topic, &looked)) return false;
    }
    s->passed_over = false;
    return true;
}

/* The life of durable topics and their subscriptions: made, wanted as tubes, emptied, deleted. */
#include "shards/topic_life.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/backlog.h"
#include "shards/dismiss.h"
#include "shards/durable.h"
#include "shards/handover.h"
#include "shards/handover_state.h"
#include "shards/job_parts.h"
#include "shards/jobs_of_topic.h"
#include "shards/known.h"
#include "shards/leave.h"
#include "shards/naming.h"
#include "shards/pause.h"
#include "shards/queue.h"
#include "shards/records.h"
#include "shards/retain.h"
#include "shards/room.h"
#include "shards/seek.h"
#include "shards/shard.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/tomb.h"
#include "shards/transaction_end.h"
#include "shards/unreadable.h"

/* --- the tube of a durable topic ---------------------------------------------------------------------------------- */

/* Makes the topic a tube only if the log says so: if it has channels, only they would have the jobs after a crash. */
static enum outcome log_tube(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    enum log_result result = shard_reserve(w, s, 2, shard_topic_bytes(t), false);
    t->tube = result == LOG_OK;
    if (t->tube) shard_log_topic(w, s, topic);
    if (t->tube) return DONE;
    uint8_t status;
    return room_reserved(w, s, result, true, &status);
}

enum outcome topic_make_tube(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    /* Other requests have used up what a turn may touch. */
    if (!w->replaying && t->durable && t->stream.live && !worker_spare(w)) return MORE;
    if (handover_takes_group(t)) return MORE;
    if (t->durable && !w->replaying) {
        enum outcome logged = log_tube(w, topic);
        if (!t->tube) return logged;
    }
    t->tube = true;
    if (!t->durable) return DONE;
    /* Beside channels the tube gets, like them, the messages that its topic keeps. */
    if (t->subscription_count && !t->keeps) return DONE;
    uint64_t from = t->subscription_count ? t->stopped_seq : 0;
    if (handover_leaves(t) || (!w->replaying && t->stream.live > worker_spare(w))) {
        handover_to_queue(w, topic, from);
        return DONE;
    }
    for (uint64_t seq = stream_next(&t->stream, from); seq < t->stream.end; seq = stream_next(&t->stream, seq + 1)) {
        worker_step(w);
        topic_waiting_becomes_job(w, topic, seq);
    }
    if (!w->replaying) queue_serve(w, topic);
    return DONE;
}

/* --- jobs and subscriptions --------------------------------------------------------------------------------------- */

void job_done(struct worker *w, uint32_t job, uint64_t seq) {
    const struct job *j = job_at(w, job);
    uint32_t topic = j->topic;
    struct topic *t = topic_at(&w->topics, topic);
    if (w->replaying && t->replayed_jobs) t->replayed_jobs--;
    if (j->part) {
        uint32_t whole = queue_whole_of(w, job);
        if (!queue_part_over(w, job)) return;
        job = whole;
        j = job_at(w, job);
    }
    bool is_over = handover_adopts(t) && handover_job_done(w, topic, seq, j->id);
    if (t->stream.live && stream_position(&t->stream, seq))
        message_release(w, topic, seq);
    else
        shard_count_out(shard_of_topic(w, t), j->position);
    if (is_over) stream_forget_one(&t->stream, seq);
    queue_forget(w, job);
}

void jobs_done(struct worker *w, uint32_t job, uint64_t seq) {
    uint32_t count = queue_jobs_of(w, job);
    for (uint32_t i = 0; i < count; i++) {
        /* The last job takes the message with it. */
        uint32_t one = queue_job_of(w, job, i);
        if (!one) continue;
        bool last = !job_at(w, one)->part || job_at(w, job)->place == 1;
        job_at(w, one)->state = 0; /* during recovery a job is in no queue */
        job_done(w, one, seq);
        if (last) return;
    }
}

enum { ADOPTED_IN_RECORD = 65536 };

static void adopt(struct worker *w, uint32_t subscription, const struct job_list *jobs) {
    uint64_t *ids = malloc(sizeof *ids * ADOPTED_IN_RECORD);
    struct shard *shard = shard_of_topic(w, topic_at(&w->topics, worker_subscription(w, subscription)->topic));
    if (!ids) process_die("out of memory");
    for (size_t i = 0; i < jobs->count;) {
        size_t count = 0;
        for (; i < jobs->count && count < ADOPTED_IN_RECORD; i++) {
            ids[count++] = job_at(w, jobs->items[i])->id;
            worker_step(w);
            subscription_adopt(w, subscription, jobs->items[i], w->wall_ns);
        }
        if (worker_subscription(w, subscription)->number)
            shard_log_adopted(w, shard, worker_subscription(w, subscription), ids, count, 0);
    }
    free(ids);
}

/* Moves a new channel to where it was asked to begin. */
static void begin(struct worker *w, uint32_t subscription, const struct subscribe_start *start) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    subscription_seek(w, subscription, position_find(w, t, start->start, start->at, t->retention));
    if (s->number) shard_log_seek(w, shard_of_topic(w, t), worker_subscription(w, subscription), 0);
}

static enum outcome make_reader(struct worker *w, uint32_t topic, const struct channel_wish *wish,
                                uint32_t *subscription, uint8_t *status) {
    *subscription = subscription_make_reader(w, topic, wish->name, wish->name_bytes);
    if (!*subscription) *status = STATUS_NO_SPACE;
    if (!*subscription) return DONE;
    begin(w, *subscription, wish->start);
    catalog_changed(w);
    return DONE;
}

/* Makes a channel. The first one of a topic gets what waits for it, and the jobs of its tube: those of a long queue in
 * pieces (handover.c). */
static enum outcome make_channel(struct worker *w, uint32_t topic, const struct channel_wish *wish,
                                 uint32_t *subscription, uint8_t *status) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    bool ephemeral = wish->ephemeral || t->ephemeral;
    size_t name_bytes = wish->name_bytes;
    struct job_list jobs = {0};
    bool first = !t->subscription_count, adopts = first && t->tube && !wish->start, many = jobs_are_many(w, t);
    if (adopts && !many) jobs = jobs_of_topic(w, topic);
    uint32_t records = 4 + (uint32_t)(jobs.count / ADOPTED_IN_RECORD + 1);
    uint64_t bytes = 2 * name_bytes + jobs.count * sizeof(uint64_t);
    enum outcome outcome = room_reserve(w, s, records, bytes, true, status);
    if (outcome == DONE && *status == STATUS_OK) {
        /* Messages that waited now belong to an ephemeral channel, so nobody has them after a restart; except those the
         * topic keeps. */
        if (ephemeral && t->waiting_messages + t->waiting_delayed)
            shard_log_emptied(w, s, topic, 0, t->keeps ? t->stopped_seq : t->next_seq);
        uint32_t number = ephemeral ? 0 : shard_number_for_subscription(s);
        *subscription = subscription_make(w, topic, wish->name, name_bytes, number);
        if (!*subscription || (number && !shard_know_subscription(s, adopts && many ? 0 : *subscription, number))) {
            if (*subscription) subscription_remove(w, *subscription);
            *status = STATUS_NO_SPACE;
        } else if (adopts && many) {
            handover_to_channel(w, topic, *subscription, wish->to_join);
            outcome = MORE;
        } else {
            if (number) shard_log_subscription(w, s, worker_subscription(w, *subscription));
            if (number) shard_note_channel(w, s, topic);
            adopt(w, *subscription, &jobs);
            if (!number && jobs.count) topic_keep_for_all(w, topic);
            if (wish->start) begin(w, *subscription, wish->start);
            catalog_changed(w);
        }
    }
    free(jobs.items);
    return outcome;
}

enum outcome topic_subscription(struct worker *w, uint32_t topic, const struct channel_wish *wish,
                                uint32_t *subscription, uint8_t *status) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (handover_goes_on(t)) return MORE;
    if (topic_make_durable(w, topic, status) == LATER) return LATER;
    /* Who takes the jobs over waits until all are in the stream, too: of those that are deleted meanwhile, recovery has
     * what had entered before. */
    bool jobs_enter = !t->subscription_count && t->keeping && !t->jobs_joined;
    if (*status == STATUS_OK && (wish->start || jobs_enter)) {
        enum outcome outcome = topic_retain_all(w, topic, status);
        if (outcome != DONE) return outcome;
    }
    if (*status != STATUS_OK) return DONE;
    *subscription = subscription_find(w, topic, wish->name, wish->name_bytes);
    bool reads = wish->ephemeral && wish->start;
    if (*subscription && worker_subscription(w, *subscription)->reader != reads) *status = STATUS_INVALID;
    if (*subscription) return DONE;
    return reads ? make_reader(w, topic, wish, subscription, status)
                 : make_channel(w, topic, wish, subscription, status);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static void dismiss_all(struct worker *w, uint32_t subscription) {
    while (worker_subscription(w, subscription)->consumer_first)
        consumer_dismiss(w, worker_subscription(w, subscription)->consumer_first, DISMISSED_DELETED);
}

void subscription_end(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->number) shard_unknow_subscription(w->own[subscription_topic(w, s)->shard], s->number);
    handover_forget(w, s->topic, subscription);
    dismiss_all(w, subscription);
    if (!subscription_leave(w, subscription)) subscription_remove(w, subscription);
    catalog_changed(w);
}

static bool empty_some(struct worker *w, uint32_t topic, uint64_t *from, uint64_t until, uint32_t most) {
    struct topic *t = topic_at(&w->topics, topic);
    if (t->subscription_count && *from < t->stopped_seq) *from = t->stopped_seq;
    uint64_t end = until < t->stream.end ? until : t->stream.end;
    for (uint64_t seq = stream_next(&t->stream, *from); seq < end; seq = stream_next(&t->stream, seq + 1)) {
        *from = seq;
        if (!most--) return false;
        if (stream_kept(&t->stream, seq)) {
            topic_drop_kept(w, topic, seq);
            continue;
        }
        const struct record *r = t->subscription_count ? NULL : message_head(w, t, seq);
        /* A message that the job queue has does not wait; and one that cannot be read is left alone. */
        if (!r || index_find(&w->ids, &w->jobs, r->id)) continue;
        *(stream_delayed(&t->stream, seq) ? &t->waiting_delayed : &t->waiting_messages) -= 1;
        message_release(w, topic, seq);
    }
    return true;
}

bool topic_empty(struct worker *w, uint32_t topic, uint64_t *from, uint64_t until, uint32_t most) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (t->subscription_count && !t->keeps) return true;
    uint64_t before = t->kept_messages + t->kept_delayed;
    bool all = empty_some(w, topic, from, until, most);
    /* No channel will get the messages that the topic kept. */
    uint64_t gone = before - t->kept_messages - t->kept_delayed;
    for (uint32_t n = t->subscriptions; n && gone; n = worker_subscription(w, n)->next)
        worker_subscription(w, n)->joined += gone;
    return all;
}

/* On recovery jobs are in no queues to be taken out of. */
static void end_at_once(struct worker *w, uint32_t topic) {
    struct job_list jobs = jobs_of_topic(w, topic);
    for (size_t i = 0; i < jobs.count; i++) {
        uint64_t seq = job_seq(w, job_at(w, jobs.items[i]));
        jobs_done(w, jobs.items[i], seq);
    }
    free(jobs.items);
    if (stream_has_pages(&topic_at(&w->topics, topic)->stream)) stream_bury(w, topic);
}

void topic_end(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    bool was_seen = topic_seen(t);
    handover_forget(w, topic, 0);
    transactions_forget(w, topic);
    release_forget(w, topic);
    t->stopped = t->keeps = false;
    if (w->replaying)
        end_at_once(w, topic);
    else
        topic_bury(w, topic);
    t->ending = true;
    while (t->subscriptions) subscription_end(w, t->subscriptions);
    t->ending = false;
    topic_retains_no_more(w, topic);
    t->durable = t->ephemeral = t->tube = t->terminated = t->had_ephemeral = false;
    t->kept_messages = t->kept_delayed = 0;
    t->waiting_messages = t->waiting_delayed = t->ahead = t->messages = t->message_bytes = t->replayed_jobs = 0;
    t->read_back = t->read_back_bytes = t->header_bytes = t->more_parts = 0;
    stream_free(&t->stream);
    queue_settle(w, topic, was_seen);
    catalog_changed(w);
}

/* Logs the end of a topic or channel. Without room for that, it is deleted for clients, but back after a crash. */
static void log_end(struct worker *w, enum record_kind kind, uint32_t topic, struct subscription *of) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    if (!topic_at(&w->topics, topic)->number) return;
    if (shard_reserve(w, s, 1, 0, false) == LOG_OK)
        shard_log_end(w, s, kind, topic, of);
    else
        topic_at(&w->topics, topic)->end_unwritten = true;
}

void subscription_idle(struct worker *w, uint32_t subscription) {
    const struct subscription *s = worker_subscription(w, subscription);
    uint32_t topic = s->topic;
    const struct topic *t = topic_at(&w->topics, topic);
    if (s->number || s->consumer_first) return;
    subscription_end(w, subscription);
    if (!t->ephemeral || t->subscriptions) return;
    log_end(w, RECORD_TOPIC_GONE, topic, NULL);
    topic_end(w, topic);
}

bool handovers_go_on(struct worker *w) {
    uint64_t most = w->steps + w->piece;
    for (struct handover *h = w->handovers, *next; h; h = next) {
        next = h->next;
        uint32_t subscription = handover_go_on(w, h, most);
        if (subscription) subscription_idle(w, subscription);
    }
    return w->handovers != NULL;
}

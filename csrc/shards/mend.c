#include "shards/mend.h"

#include <string.h>

#include "shards/delivery.h"
#include "shards/job_parts.h"
#include "shards/shard.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"

static const struct record *record_of(const struct worker *w, const struct topic *t, uint64_t seq) {
    return log_read(shard_of_topic(w, t)->log, stream_position(&t->stream, seq));
}

/* --- deliveries of what is not there ------------------------------------------------------------------------------ */

static void forget_stray(struct worker *w, uint32_t subscription, uint32_t first) {
    const struct topic *t = topic_at(&w->topics, worker_subscription(w, subscription)->topic);
    for (uint32_t n = first, next; n; n = next) {
        const struct delivery *d = worker_delivery(w, n);
        next = d->following;
        bool delayed = stream_delayed(&t->stream, d->seq);
        if (stream_position(&t->stream, d->seq) && record_of(w, t, d->seq)->id == delivery_id(&w->subscriptions, d) &&
            (delayed || d->seq < worker_subscription(w, subscription)->cursor))
            continue;
        delivery_take(w, n);
        delivery_forget(w, n);
    }
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static void give_again(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id, bool delayed) {
    if (delayed) {
        subscription_defer(w, subscription, seq, id);
        return;
    }
    uint32_t delivery = delivery_make(w, subscription, seq, id);
    if (!delivery) process_die("more deliveries than a worker can hold");
    delivery_again(w, delivery);
}

static void mend_message(struct worker *w, uint32_t topic, uint64_t seq) {
    struct topic *t = topic_at(&w->topics, topic);
    uint64_t id = record_of(w, t, seq)->id;
    bool delayed = stream_delayed(&t->stream, seq);
    uint32_t job = index_find(&w->ids, &w->jobs, id);
    if (job) queue_moved(w, job, stream_position(&t->stream, seq));
    uint32_t count = job ? 1 : 0;
    bool kept = stream_kept(&t->stream, seq) && t->keeps && seq >= t->stopped_seq;
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next)
        count += subscription_holds(w, n, seq, id, delayed);
    if (!count && t->keeps && seq >= t->stopped_seq) kept = true;
    if (kept != stream_kept(&t->stream, seq)) stream_keep(&t->stream, seq, kept);
    if (kept) {
        count++;
        *(delayed ? &t->kept_delayed : &t->kept_messages) += 1;
    } else if (!count) {
        for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) give_again(w, n, seq, id, delayed);
        count = t->subscription_count;
    }
    if (!count) {
        count = 1;
        *(delayed ? &t->waiting_delayed : &t->waiting_messages) += 1;
    }
    *stream_page_references(stream_page(&t->stream, seq), seq) =
        (uint16_t)(count | (delayed ? STREAM_MAX_REFERENCES + 1 : 0));
    if (!delayed && !kept) t->ahead++;
    if (!job) shard_count_in(shard_of_topic(w, t), stream_position(&t->stream, seq));
}

static void count_taken(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    s->taken = t->ahead;
    uint64_t end = topic_given_until(t);
    for (uint64_t seq = stream_next(&t->stream, subscription_held_from(s)); seq < end;
         seq = stream_next(&t->stream, seq + 1))
        if (!stream_delayed(&t->stream, seq)) s->taken--;
}

static void mend_topic(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    /* New messages come behind all that were there. */
    if (t->stream.end > t->next_seq) t->next_seq = t->stream.end;
    if (t->keeps && t->stopped_seq > t->next_seq) t->next_seq = t->stopped_seq;
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        if (worker_subscription(w, n)->cursor > t->next_seq) t->next_seq = worker_subscription(w, n)->cursor;
        forget_stray(w, n, worker_subscription(w, n)->redelivery_first);
        forget_stray(w, n, worker_subscription(w, n)->deferred_first);
    }
    t->waiting_messages = t->waiting_delayed = t->kept_messages = t->kept_delayed = t->ahead = 0;
    for (uint64_t seq = stream_next(&t->stream, 0); seq < t->stream.end; seq = stream_next(&t->stream, seq + 1))
        mend_message(w, topic, seq);
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) count_taken(w, n);
}

/* Messages and acknowledgements of open transactions keep their segments too. */
static void count_transactions(const struct worker *w, struct shard *s) {
    for (uint32_t n = 1; n < w->transactions.arena.end; n++) {
        const struct transaction *of = worker_transaction(w, n);
        if (!of->topic || of->shard != s) continue;
        for (size_t i = of->done; i < of->count; i++) shard_count_in(s, of->staged[i].position);
        for (uint32_t a = of->first; a; a = acknowledgement_at(&w->transactions, a)->next)
            shard_count_in(s, acknowledgement_at(&w->transactions, a)->position);
    }
}

void mend_counts(struct worker *w, struct shard *s) {
    for (uint32_t i = 0; i < s->use_count; i++) {
        s->use[i].total -= s->use[i].jobs; /* they are counted again below */
        s->use[i].jobs = 0;
    }
    s->jobs = 0;
    const struct map *names = &w->topics.names;
    for (uint32_t i = 0; names->slots && i <= names->mask; i++) {
        uint32_t topic = names->slots[i].number;
        if (topic && topic_at(&w->topics, topic)->shard == s->number) mend_topic(w, topic);
    }
    for (uint32_t job = 1; job < w->jobs.end; job++) {
        const struct job *j = job_at(w, job);
        if (!j->state || j->part || topic_at(&w->topics, j->topic)->shard != s->number) continue;
        shard_count_in(s, j->position);
    }
    count_transactions(w, s);
    s->damaged = false;
}

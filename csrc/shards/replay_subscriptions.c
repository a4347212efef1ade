/* Recovery: applies the records about subscriptions. Deliveries are put in their places at once, as nothing is
 * delivered before the whole log has been read. */
#include "shards/replay_subscriptions.h"

#include <stdlib.h>
#include <string.h>

#include "shards/backlog.h"
#include "shards/delivery.h"
#include "shards/durable.h"
#include "shards/finished_ahead.h"
#include "shards/job_parts.h"
#include "shards/known.h"
#include "shards/parts.h"
#include "shards/pause.h"
#include "shards/retain.h"
#include "shards/seek.h"
#include "shards/shard.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/topic_life.h"
#include "shards/unheld.h"
#include "shards/unreadable.h"

static uint32_t subscription_of(struct shard *s, uint64_t number) {
    uint32_t subscription = shard_subscription(s, number);
    /* It was deleted, but its number must not be reused while the log knows it. */
    if (!subscription && number <= UINT32_MAX) (void)shard_know_subscription(s, 0, (uint32_t)number);
    return subscription;
}

/* Makes the topic keep a job's message, if it was published during a pause. In an earlier release the channel had it,
 * so if its record was moved, that does not say that the topic keeps it. */
static void keep_job(struct worker *w, uint32_t topic, uint32_t job) {
    struct topic *t = topic_at(&w->topics, topic);
    const struct record *r = job_head(w, job_at(w, job));
    if (!r || !t->keeps || r->seq < t->stopped_seq || stream_place(&t->stream, r->seq)) return;
    bool delayed = publish_attributes_of(r).delay_ns > 0;
    if (!stream_put(&t->stream, r->seq, job_at(w, job)->position, 2, delayed)) process_die("out of memory");
    stream_keep(&t->stream, r->seq, true);
    *(delayed ? &t->kept_delayed : &t->kept_messages) += 1;
}

/* Gives all jobs of its topic to a subscription. */
static void adopt_all(struct worker *w, uint32_t subscription, uint64_t wall_ns, bool earlier) {
    uint32_t topic = worker_subscription(w, subscription)->topic;
    for (uint32_t job = 1; topic_at(&w->topics, topic)->replayed_jobs && job < w->jobs.end; job++) {
        if (!job_at(w, job)->state || job_at(w, job)->part || job_at(w, job)->topic != topic) continue;
        if (earlier) keep_job(w, topic, job);
        subscription_adopt(w, subscription, job, wall_ns);
    }
}

/* Adds a message ahead of a subscription. */
static void take_ahead(struct topic *t, struct subscription *made) {
    /* A first subscription has only its own messages ahead; another one those of all. */
    if (t->subscription_count > 1) {
        made->taken--;
        return;
    }
    t->ahead++;
}

/* Gives a subscription the messages behind the position in its record that were read before it; usually there are none.
 * In a damaged log it also gets messages that became jobs because the record of the subscription was lost: it has these
 * ahead, so its cursor stays before them, and an ADOPT that is still there must not give them again. */
static void begin_at(struct worker *w, struct shard *s, uint32_t subscription, const struct record *r) {
    struct subscription *made = worker_subscription(w, subscription);
    struct topic *t = topic_at(&w->topics, made->topic);
    uint64_t before = made->cursor;
    s->took_from = s->took_until = 0;
    if (s->damaged && t->subscription_count == 1) adopt_all(w, subscription, r->time_ns, false);
    uint64_t held_from = r->seq;
    if (r->attribute_bytes >= sizeof held_from) memcpy(&held_from, record_attributes(r), sizeof held_from);
    if (held_from < r->seq) held_from = r->seq;
    if (r->seq >= made->cursor && held_from == r->seq) {
        if (made->cursor == before) {
            subscription_advance(w, subscription, r->seq);
            return;
        }
        s->took_by = subscription;
        s->took_from = made->cursor;
        s->took_until = r->seq;
        made->passed_until = r->seq;
        return;
    }
    uint64_t given = topic_given_until(t), end = made->cursor < given ? made->cursor : given;
    for (uint64_t seq = stream_next(&t->stream, held_from); seq < end; seq = stream_next(&t->stream, seq + 1)) {
        stream_hold(&t->stream, seq);
        if (stream_delayed(&t->stream, seq))
            subscription_defer(w, subscription, seq, log_read(s->log, stream_position(&t->stream, seq))->id);
        else
            take_ahead(t, made);
    }
    s->took_by = subscription;
    s->took_from = held_from;
    s->took_until = end;
    made->cursor = made->logged_cursor = r->seq;
    made->held_from = held_from;
    subscription_pin(w, subscription);
}

/* A channel whose topic's name is unknown cannot be restored; its messages wait for the next one. */
static void replay_subscription(struct worker *w, struct shard *s, const struct record *r) {
    uint32_t topic = shard_topic(s, r->topic), subscription = subscription_of(s, r->id);
    size_t name_bytes = record_body_bytes(r);
    if (!topic || !r->id || r->id > UINT32_MAX || !name_bytes || name_bytes > CHANNEL_NAME_MAX) return;
    if (!subscription) {
        if (subscription_find(w, topic, record_body(r), name_bytes)) return;
        replay_durable(w, topic, false); /* always true: only durable topics have subscriptions */
        subscription = subscription_make(w, topic, record_body(r), name_bytes, (uint32_t)r->id);
        if (!subscription || !shard_know_subscription(s, subscription, (uint32_t)r->id))
            process_die("too many subscriptions in the log, or out of memory");
        begin_at(w, s, subscription, r);
    } else {
        subscription_advance(w, subscription, r->seq);
    }
    worker_subscription(w, subscription)->paused = (r->flags & SUBSCRIPTION_PAUSED) != 0;
    worker_subscription(w, subscription)->passed_by_age = (r->flags & SUBSCRIPTION_BY_AGE) != 0;
}

static uint32_t delivery_of_seq(struct worker *w, const struct shard *s, uint32_t subscription, uint64_t seq) {
    uint32_t topic = worker_subscription(w, subscription)->topic;
    const struct topic *t = topic_at(&w->topics, topic);
    replay_release(w, topic, seq);
    log_position position = stream_position(&t->stream, seq);
    const struct record *r = position ? log_read(s->log, position) : NULL;
    return r ? delivery_find(w, subscription, r->id) : 0;
}

static void finish(struct worker *w, const struct shard *s, uint32_t subscription, uint64_t seq) {
    uint32_t delivery = delivery_of_seq(w, s, subscription, seq);
    const struct subscription *of = worker_subscription(w, subscription);
    bool ahead = seq >= of->cursor && stream_place(&subscription_topic(w, of)->stream, seq);
    if (!delivery && ahead) finished_ahead_add(w, subscription, seq);
    if (!delivery) return;
    delivery_take(w, delivery);
    delivery_forget(w, delivery);
    message_release(w, worker_subscription(w, subscription)->topic, seq);
}

static void replay_parts(struct worker *w, const struct shard *s, uint32_t subscription, const struct record *r) {
    struct parts_left left;
    uint32_t delivery = delivery_of_seq(w, s, subscription, r->seq);
    size_t words = record_body_bytes(r) / sizeof *left.bits;
    if (!delivery || words > PARTS_MAX_WORDS) return;
    struct parts_span span = {.count = (uint32_t)words, .is_all = r->attribute_bytes < sizeof span.first};
    if (!span.is_all) memcpy(&span.first, record_attributes(r), sizeof span.first);
    if (span.first > PARTS_MAX_WORDS - words) return;
    /* If there is no room for its parts, the whole message is delivered again. */
    if (delivery_parts_without(w, delivery, span, record_body(r), &left)) (void)delivery_parts_set(w, delivery, &left);
}

static void replay_finish(struct worker *w, const struct shard *s, uint32_t subscription, const struct record *r) {
    if (r->flags & FINISH_UPTO) {
        /* Its cursor was behind that, though what it adopted may have been in another order. */
        subscription_advance(w, subscription, r->seq + 1);
        (void)subscription_finish_upto(w, subscription, r->seq, UINT32_MAX);
        return;
    }
    if (r->flags & FINISH_PARTS) {
        replay_parts(w, s, subscription, r);
        return;
    }
    uint32_t count = 0;
    if (r->attribute_bytes >= sizeof count) memcpy(&count, record_attributes(r), sizeof count);
    for (uint32_t i = 0; i < count; i++) finish(w, s, subscription, r->seq + i);
    const uint8_t *offsets = record_body(r);
    for (size_t at = 0; at + sizeof(int32_t) <= record_body_bytes(r); at += sizeof(int32_t)) {
        int32_t offset;
        memcpy(&offset, offsets + at, sizeof offset);
        finish(w, s, subscription, r->seq + (uint64_t)(int64_t)offset);
    }
}

static void depart(struct worker *w, uint32_t delivery, const struct redelivery *redelivery) {
    struct delivery *d = worker_delivery(w, delivery);
    if (d->state) delivery_take(w, delivery);
    d->attempts = redelivery->attempts < UINT16_MAX ? (uint16_t)redelivery->attempts : UINT16_MAX;
    if (redelivery->deferred_until_wall_ns)
        delivery_defer(w, delivery, worker_deadline(w, redelivery->deferred_until_wall_ns, UINT64_MAX));
    else
        delivery_again(w, delivery);
}

static void replay_redelivery(struct worker *w, const struct shard *s, uint32_t subscription, const struct record *r) {
    uint32_t delivery = delivery_of_seq(w, s, subscription, r->seq);
    struct redelivery redelivery;
    if (!delivery || r->attribute_bytes < sizeof redelivery) return;
    memcpy(&redelivery, record_attributes(r), sizeof redelivery);
    depart(w, delivery, &redelivery);
}

/* Whether the subscription got a job's message in begin_at already, so that adopting the job must not make it hold that
 * twice. So it is in a topic that retains, for its first channel in the log, made beside ephemeral ones alone. */
static bool has_taken(const struct worker *w, const struct shard *s, uint32_t subscription, uint32_t job) {
    const struct job *j = job_at(w, job);
    const struct record *r = subscription == s->took_by ? job_head(w, j) : NULL;
    if (!r || r->seq < s->took_from || r->seq >= s->took_until) return false;
    return stream_position(&topic_at(&w->topics, j->topic)->stream, r->seq);
}

/* Moves a subscription. In life it had passed the jobs that begin_at has put ahead of it because of damage. So it
 * passes them first: then it is set back, and takes back what the topic only retains, too. */
static void replay_seek(struct worker *w, uint32_t subscription, const struct record *r) {
    const struct subscription *of = worker_subscription(w, subscription);
    bool retains = subscription_topic(w, of)->stream.retains;
    if (retains && of->passed_until > of->cursor) subscription_release_ahead(w, subscription, of->passed_until);
    if (!(r->flags & SEEK_UPTO)) finished_ahead_forget(w, subscription);
    subscription_seek(w, subscription, r->seq);
}

static void replay_adopt(struct worker *w, const struct shard *s, uint32_t subscription, const struct record *r) {
    struct subscription *of = worker_subscription(w, subscription);
    const struct topic *t = topic_at(&w->topics, of->topic);
    bool earlier = !(r->flags & ADOPT_FROM);
    of->passed_until = 0;
    /* In earlier releases it began behind all messages. */
    if (earlier && t->keeps && of->cursor > t->stopped_seq) of->cursor = of->logged_cursor = t->stopped_seq;
    /* The first message it adopted may have moved with its segment. */
    if ((r->flags & ADOPT_FROM) && r->seq < of->cursor) of->cursor = of->logged_cursor = r->seq;
    if (r->flags & ADOPT_ALL) adopt_all(w, subscription, r->time_ns, earlier);
    uint64_t wall_ns = r->flags & ADOPT_DELAYED ? 0 : r->time_ns;
    const uint8_t *ids = record_body(r);
    for (size_t at = 0; at + sizeof(uint64_t) <= record_body_bytes(r); at += sizeof(uint64_t)) {
        uint64_t id;
        memcpy(&id, ids + at, sizeof id);
        uint32_t job = index_find(&w->ids, &w->jobs, id);
        if (job && earlier) keep_job(w, of->topic, job);
        if (job && !has_taken(w, s, subscription, job)) subscription_adopt(w, subscription, job, wall_ns);
    }
}

/* The topic's stream gets the messages of jobs. */
static void replay_join(struct worker *w, uint32_t topic, const struct record *r) {
    const uint64_t passed = topic_passed_by_all(w, topic);
    const uint8_t *ids = record_body(r);
    for (size_t at = 0; at + sizeof(uint64_t) <= record_body_bytes(r); at += sizeof(uint64_t)) {
        uint64_t id;
        memcpy(&id, ids + at, sizeof id);
        uint32_t job = index_find(&w->ids, &w->jobs, id);
        if (job && job_at(w, job)->topic == topic) (void)topic_join_job(w, job, passed);
    }
}

static bool take_reference(struct worker *w, struct shard *s, uint32_t topic, const struct record *r,
                           const struct reference *reference) {
    struct topic *t = topic_at(&w->topics, topic);
    if (!reference->subscription) {
        if (t->subscription_count || index_find(&w->ids, &w->jobs, r->id)) return false;
        *(r->flags & REFERENCES_DELAYED ? &t->waiting_delayed : &t->waiting_messages) += 1;
        return true;
    }
    uint32_t subscription = subscription_of(s, reference->subscription);
    if (!subscription) return false;
    if (delivery_find(w, subscription, r->id)) return false;
    struct subscription *of = worker_subscription(w, subscription);
    if (reference->ahead && r->seq >= subscription_held_from(of)) {
        of->taken--;
        of->referenced = r->seq + 1;
        return true;
    }
    /* If the reference says ahead, but the message is behind the cursor: it was adopted, and its job was no longer
     * known when this was logged. */
    uint32_t delivery = delivery_make(w, subscription, r->seq, r->id);
    if (!delivery) process_die("more deliveries than a worker can hold");
    depart(w, delivery, &reference->redelivery);
    return true;
}

/* Subscriptions without a reference to a message have passed it, though the log may not say so: they were being emptied
 * or deleted, piece by piece (drain.c). What they still held comes again. */
static void pass_unreferenced(struct worker *w, const struct topic *t, const struct record *r) {
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        struct subscription *s = worker_subscription(w, n);
        if (s->reader || s->referenced == r->seq + 1 || r->seq < subscription_held_from(s)) continue;
        subscription_advance(w, n, r->seq);
        s->cursor = s->logged_cursor = r->seq + 1;
    }
}

/* In releases where subscriptions have the messages of a pause, records say that these are ahead of them. */
static bool is_kept(const struct topic *t, const struct record *r) {
    const uint8_t *references = record_body(r);
    if (!t->keeps || r->seq < t->stopped_seq) return false;
    for (size_t at = 0; at + sizeof(struct reference) <= record_body_bytes(r); at += sizeof(struct reference)) {
        struct reference reference;
        memcpy(&reference, references + at, sizeof reference);
        if (!reference.subscription || reference.ahead) return true;
    }
    return false;
}

void replay_move(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint32_t job, log_position to) {
    struct stream *stream = &topic_at(&w->topics, topic)->stream;
    log_position held = stream_position(stream, seq);
    shard_count_out(s, job ? job_at(w, job)->position : held);
    shard_count_in(s, to);
    if (held) stream_move(stream, seq, to);
    if (job) queue_moved(w, job, to);
}

static void replay_references(struct worker *w, struct shard *s, const struct record *r) {
    uint32_t topic = shard_topic(s, r->topic);
    log_position position = s->moved;
    s->moved = 0;
    if (!topic || !position) return;
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t job = index_find(&w->ids, &w->jobs, r->id);
    if (stream_position(&t->stream, r->seq)) {
        replay_move(w, s, topic, r->seq, job, position);
        return;
    }
    bool kept = is_kept(t, r);
    uint32_t references = (job ? 1u : 0u) + (kept ? 1u : 0u);
    bool delayed = (r->flags & REFERENCES_DELAYED) != 0, given = !delayed && !kept;
    /* It counts as passed by all subscriptions but those whose records say otherwise. */
    if (given) t->ahead++;
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next)
        if (given) worker_subscription(w, n)->taken++;
    const uint8_t *body = record_body(r);
    size_t bytes = kept ? 0 : record_body_bytes(r);
    for (size_t at = 0; at + sizeof(struct reference) <= bytes; at += sizeof(struct reference)) {
        struct reference reference;
        memcpy(&reference, body + at, sizeof reference);
        if (take_reference(w, s, topic, r, &reference)) references++;
    }
    if (given) pass_unreferenced(w, t, r);
    if (!references && !t->stream.retains) return;
    if (!stream_put(&t->stream, r->seq, position, references, delayed)) process_die("out of memory");
    if (kept) stream_keep(&t->stream, r->seq, true);
    if (kept) *(delayed ? &t->kept_delayed : &t->kept_messages) += 1;
    if (!job && references) shard_count_in(s, position);
}

void replay_unreferenced(struct worker *w, struct shard *s, const struct record *next) {
    if (!s->moved) return;
    const struct record *moved = log_read(s->log, s->moved);
    if (next && next->kind == RECORD_REFERENCES && next->id == moved->id && next->topic == moved->topic) return;
    log_position position = s->moved;
    s->moved = 0;
    /* This happens only if its REFERENCES record is damaged, or at the end of a log: then the message is also at its
     * old place. */
    uint32_t topic = shard_topic(s, moved->topic);
    struct topic *t = topic_at(&w->topics, topic);
    if (!s->damaged || !topic || !t->durable || stream_position(&t->stream, moved->seq)) return;
    bool job = index_find(&w->ids, &w->jobs, moved->id) != 0;
    uint32_t references = t->subscription_count + (job ? 1 : 0);
    if (!stream_put(&t->stream, moved->seq, position, references ? references : 1, false)) process_die("out of memory");
    if (!job) shard_count_in(s, position);
    if (!t->subscription_count && !job) t->waiting_messages++;
    /* mend_counts finds that nobody would get it, and gives it to all subscriptions or has the topic keep it. */
}

void replay_place_deferred(struct worker *w) {
    const struct heap *deferred = &w->subscriptions.deadlines;
    size_t count = deferred->count;
    uint32_t *all = malloc(sizeof *all * (count + 1));
    if (!all) process_die("out of memory");
    for (size_t i = 0; i < count; i++) all[i] = heap_item(deferred->entries[i]);
    for (size_t i = 0; i < count; i++) {
        const struct delivery *d = worker_delivery(w, all[i]);
        if (d->deadline_ns == DELIVERY_PENDING_NS) continue;
        uint32_t topic = worker_subscription(w, d->subscription)->topic;
        uint64_t deadline_ns = replay_deadline(w, shard_of_topic(w, topic_at(&w->topics, topic)), d->deadline_ns);
        delivery_take(w, all[i]);
        delivery_defer(w, all[i], deadline_ns);
    }
    free(all);
}

void replay_subscription_record(struct worker *w, struct shard *s, const struct record *r) {
    uint32_t topic = shard_topic(s, r->topic);
    uint32_t subscription =
        r->kind == RECORD_REFERENCES || r->kind == RECORD_TOPIC_GONE ? 0 : subscription_of(s, r->id);
    switch (r->kind) {
    case RECORD_SUBSCRIPTION: replay_subscription(w, s, r); return;
    case RECORD_REFERENCES: replay_references(w, s, r); return;
    case RECORD_TOPIC_GONE:
        if (topic) topic_end(w, topic);
        return;
    case RECORD_EMPTY:
        if (!r->id && topic) (void)topic_empty(w, topic, &(uint64_t){0}, r->seq, UINT32_MAX);
        break;
    case RECORD_ADOPT:
        if (!r->id && topic && topic_at(&w->topics, topic)->stream.retains) replay_join(w, topic, r);
        break;
    default: break;
    }
    if (!subscription) return;
    switch (r->kind) {
    case RECORD_CURSOR: subscription_advance(w, subscription, r->seq); break;
    case RECORD_FINISH: replay_finish(w, s, subscription, r); break;
    case RECORD_REDELIVERY: replay_redelivery(w, s, subscription, r); break;
    case RECORD_EMPTY: subscription_empty(w, subscription, r->seq); break;
    case RECORD_SEEK: replay_seek(w, subscription, r); break;
    case RECORD_ADOPT: replay_adopt(w, s, subscription, r); break;
    case RECORD_UNSUBSCRIBE:
        shard_unknow_subscription(s, (uint32_t)r->id);
        subscription_remove(w, subscription);
        break;
    default: break; /* written by a later version */
    }
}

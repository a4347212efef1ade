/* Requests about positions: a subscription is moved; clients ask where it stands, or for one message. */
#include "shards/position.h"

#include <assert.h>
#include <string.h>

#include "shards/answers.h"
#include "shards/compacted.h"
#include "shards/consumer.h"
#include "shards/delivery.h"
#include "shards/dismiss.h"
#include "shards/drain.h"
#include "shards/finish.h"
#include "shards/finished_ahead.h"
#include "shards/handover_state.h"
#include "shards/known.h"
#include "shards/records.h"
#include "shards/retain.h"
#include "shards/room.h"
#include "shards/seek.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/topic_life.h"
#include "shards/unreadable.h"
#include "shards/upto.h"

static void dismiss_all(struct worker *w, uint32_t subscription) {
    while (worker_subscription(w, subscription)->consumer_first)
        consumer_dismiss(w, worker_subscription(w, subscription)->consumer_first, DISMISSED_MOVED);
    subscription_idle(w, subscription);
}

static enum outcome move(struct worker *w, uint32_t client, uint32_t subscription, const struct message *m,
                         uint8_t *status) {
    struct subscription *s = worker_subscription(w, subscription);
    uint32_t topic = s->topic;
    struct shard *shard = subscription_shard(w, s);
    struct client *c = client_at(&w->clients, client);
    bool finishes = !c->done && c->upto; /* set below, where the move only finishes passed messages */
    if (finishes) (void)subscription_finish_some(w, subscription);
    if (s->over_until) return MORE;
    if (finishes) {
        c->upto = 0;
        return DONE;
    }
    enum outcome retained = topic_retain_all(w, topic, status);
    if (retained != DONE || *status != STATUS_OK) return retained;
    if (!subscription_write(w, subscription)) {
        *status = STATUS_NO_SPACE;
        return w->wanting ? LATER : DONE;
    }
    /* The retention subscription may go back to everything there is. */
    const struct topic *t = topic_at(&w->topics, topic);
    uint64_t to = position_find(w, t, m->start, m->seq, t->retention == subscription ? 0 : t->retention);
    bool only_before = (m->flags & MSG_UPTO) && to <= s->cursor;
    bool by_age = t->retention == subscription && to >= s->cursor && !s->passed_by_age;
    if (!only_before && subscription_drain(w, client, subscription, to, to) == MORE) return MORE;
    if (s->number && room_reserve(w, shard, 3, 2 * s->name_bytes, false, status) == LATER) return LATER;
    if (*status != STATUS_OK) return DONE;
    s->passed_by_age |= by_age;
    if (by_age && s->number) shard_log_subscription(w, shard, s);
    if (only_before) {
        /* Nothing changes behind that: messages in flight stay so, finished ones do not come again. */
        if (to == 0) return DONE;
        /* The log has not seen it pass the messages that it released piece by piece before. */
        if (s->number) shard_log_cursor(w, shard, s);
        subscription_finish_all(w, subscription, to - 1);
        (void)subscription_finish_some(w, subscription);
        if (!s->over_until) return DONE;
        c->upto = 1;
        return MORE;
    }
    if (!(m->flags & MSG_UPTO)) finished_ahead_forget(w, subscription);
    subscription_seek(w, subscription, to);
    if (s->number) shard_log_seek(w, shard, s, m->flags & MSG_UPTO ? SEEK_UPTO : 0);
    return DONE;
}

enum outcome position_seek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    bool exists = topic && topic_at(&w->topics, topic)->durable;
    if (exists && handover_goes_on(topic_at(&w->topics, topic))) return MORE;
    uint32_t subscription = exists ? subscription_find(w, topic, (const char *)(m + 1), m->body_bytes) : 0;
    uint8_t status = subscription ? STATUS_OK : exists ? STATUS_NONE : STATUS_NOT_FOUND;
    if (m->start > START_TIME) status = STATUS_INVALID;
    enum outcome outcome = status == STATUS_OK ? move(w, client, subscription, m, &status) : DONE;
    if (outcome != DONE) return outcome;
    struct message a = request_answer_of(w, client, m, status);
    if (status == STATUS_OK) {
        a.seq = worker_subscription(w, subscription)->cursor;
        a.incarnation = topic_at(&w->topics, topic)->incarnation;
        if (m->flags & MSG_DISMISS) dismiss_all(w, subscription);
    }
    request_send(w, client, &a, NULL, 0);
    return DONE;
}

static uint64_t lowest_of(const struct worker *w, uint32_t first, uint64_t lowest) {
    for (uint32_t n = first; n; n = worker_delivery(w, n)->following)
        if (worker_delivery(w, n)->seq < lowest) lowest = worker_delivery(w, n)->seq;
    return lowest;
}

/* How many deliveries may be looked at for each that a turn may release. */
enum { LOOKED_IN_STEP = 16 };

static uint64_t first_in_lists(struct worker *w, const struct subscription *s) {
    w->steps += ((uint64_t)s->redeliveries + s->deferred + s->inflight) / LOOKED_IN_STEP;
    uint64_t lowest = lowest_of(w, s->redelivery_first, lowest_of(w, s->deferred_first, s->cursor));
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next)
        lowest = lowest_of(w, worker_consumer(w, c)->inflight_first, lowest);
    return lowest;
}

/* The same if the lists are long: they change between turns, so all deliveries of the worker are looked at instead, by
 * their numbers, a piece a turn. One made meanwhile is of a message at or ahead of the cursor at the beginning. */
static enum outcome first_of_many(struct worker *w, struct client *c, uint32_t subscription, uint64_t *lowest) {
    const struct arena *all = &w->subscriptions.deliveries;
    if (!c->done) c->upto = worker_subscription(w, subscription)->cursor;
    for (; c->done + 1 < all->end && worker_spare(w); worker_step(w)) {
        uint64_t end = c->done + LOOKED_IN_STEP < all->end ? c->done + LOOKED_IN_STEP : all->end - 1;
        while (c->done < end) {
            const struct delivery *d = worker_delivery(w, (uint32_t)++c->done);
            if (d->state && d->subscription == subscription && d->seq < c->upto) c->upto = d->seq;
        }
    }
    if (c->done + 1 < all->end) return MORE;
    *lowest =
        c->upto < worker_subscription(w, subscription)->cursor ? c->upto : worker_subscription(w, subscription)->cursor;
    c->done = c->upto = 0;
    return DONE;
}

/* The first message that a subscription has not finished. */
static enum outcome first_unfinished(struct worker *w, uint32_t client, uint32_t subscription, uint64_t *lowest) {
    const struct subscription *s = worker_subscription(w, subscription);
    struct client *c = client_at(&w->clients, client);
    uint64_t steps = ((uint64_t)s->redeliveries + s->deferred + s->inflight) / LOOKED_IN_STEP;
    if (c->done || steps > worker_spare(w)) return first_of_many(w, c, subscription, lowest);
    *lowest = first_in_lists(w, s);
    return DONE;
}

/* The last message that exists and may be delivered. */
static uint64_t last_of(const struct worker *w, const struct topic *t) {
    uint64_t end = t->blocked ? t->blocked_seq : t->stream.end;
    return stream_previous_place(&t->stream, end, retained_oldest(shard_of_topic(w, t)));
}

enum outcome position_tell(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (topic && handover_goes_on(t)) return MORE;
    bool exists = topic && (t->durable || topic_jobs(t));
    uint32_t subscription =
        exists && m->body_bytes ? subscription_find(w, topic, (const char *)(m + 1), m->body_bytes) : 0;
    uint8_t status = !exists ? STATUS_NOT_FOUND : m->body_bytes && !subscription ? STATUS_NONE : STATUS_OK;
    struct position p = {0};
    if (status == STATUS_OK) {
        uint64_t last_seq = last_of(w, t);
        const struct record *last = last_seq != NO_PLACE ? message_head(w, t, last_seq) : NULL;
        struct headers h = {0};
        if (last && message_headers_bytes(last)) memcpy(&h, record_body(last), sizeof h);
        p = (struct position){.incarnation = t->incarnation,
                              .began_seq = t->began_seq,
                              .first_seq = position_find(w, t, START_EARLIEST, 0, t->retention),
                              .next_seq = t->next_seq,
                              .messages = t->stream.live + t->stream.retained,
                              .last_time_ns = last ? last->time_ns : 0,
                              .last_tag = h.tag,
                              .last_parts = h.parts,
                              .terminated = t->terminated,
                              .last_seq = last_seq};
    }
    if (p.messages > p.next_seq - p.first_seq) p.messages = p.next_seq - p.first_seq;
    if (status == STATUS_OK && compacted_position(w, client, t, &p) == MORE) return MORE;
    if (subscription && consumers_give_back(w, subscription)) return MORE;
    if (subscription && first_unfinished(w, client, subscription, &p.unfinished) == MORE) return MORE;
    if (subscription) {
        const struct subscription *s = worker_subscription(w, subscription);
        p.cursor = s->cursor;
        p.depth = subscription_depth(w, s);
        p.in_flight = s->inflight;
        uint32_t consumer = m->consumer_number ? consumer_find(w, client, m->consumer_number) : 0;
        if (consumer) p.consumer_in_flight = (uint32_t)worker_consumer(w, consumer)->inflight_parts;
        if (consumer) p.consumer_blocked = worker_consumer(w, consumer)->blocked;
    }
    struct message a = request_answer_of(w, client, m, status);
    request_send(w, client, &a, &p, status == STATUS_OK ? sizeof p : 0);
    return DONE;
}

_Static_assert((int)PEEK_MOST_BYTES < (int)LARGE_BYTES, "a beginning is looked at, and sent, in one turn");

/* How much of a message a PEEK_SEQ wants, of which it skips some. */
static size_t wanted_bytes(const struct record *r, const struct message *m, size_t skipped) {
    const size_t headers_bytes = message_headers_bytes(r), all = record_body_bytes(r);
    const bool goes_on = headers_bytes >= sizeof(struct headers) + HEADERS_MAX_BYTES;
    if (m->flags & MSG_HEAD && !goes_on) return headers_bytes;
    if (!m->most || all - skipped <= m->most) return all;
    return skipped + (m->most < PEEK_MOST_BYTES ? (size_t)m->most : PEEK_MOST_BYTES);
}

enum outcome position_peek(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    const struct topic *t = topic ? topic_at(&w->topics, topic) : NULL;
    uint64_t seq = m->seq;
    if (t && m->pri) seq = stream_next_place(&t->stream, seq, retained_oldest(shard_of_topic(w, t)));
    const struct record *r = t ? message_head(w, t, seq) : NULL;
    const size_t skipped = r && !(m->flags & MSG_HEADERS) ? message_headers_bytes(r) : 0;
    const size_t bytes = r ? wanted_bytes(r, m, skipped) : 0;
    enum readable readable = r ? READ_WHOLE : READ_FAILS;
    if (r && bytes == record_body_bytes(r)) readable = message_readable(w, t, r);
    if (r && bytes && bytes < record_body_bytes(r) && !log_readable_part(shard_of_topic(w, t)->log, r, 0, bytes))
        readable = READ_FAILS;
    if (readable == READ_MORE || (r && !request_may_send(w, client, bytes))) return MORE;
    if (readable == READ_FAILS) r = NULL;
    struct message a = request_answer_of(w, client, m, r ? STATUS_OK : STATUS_NOT_FOUND);
    a.seq = seq;
    if (!r) {
        request_send(w, client, &a, NULL, 0);
        return DONE;
    }
    if (message_headers_bytes(r) > skipped) a.flags |= MSG_HEADERS;
    a.whole_bytes = (uint32_t)(record_body_bytes(r) - skipped);
    a.id = r->id;
    a.time_ns = r->time_ns;
    request_send_logged(w, client, shard_of_topic(w, topic_at(&w->topics, topic)), &a,
                        (const uint8_t *)record_body(r) + skipped, bytes > skipped ? bytes - skipped : 0);
    return DONE;
}

/* Most messages that a BACKLOG looks at, each of which may not be in the page cache. */
enum { BACKLOG_MOST = 512 };

static void count_entry(struct backlog_figures *figures, const struct record *r) {
    struct headers h = {0};
    if (message_headers_bytes(r)) memcpy(&h, record_body(r), sizeof h);
    if (!figures->entries++) figures->first_seq = r->seq;
    figures->last_seq = r->seq;
    figures->messages += h.parts ? h.parts : 1;
}

enum outcome position_backlog(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (topic && handover_goes_on(t)) return MORE;
    uint32_t subscription = topic ? subscription_find(w, topic, (const char *)(m + 1), m->body_bytes) : 0;
    uint8_t status = subscription ? STATUS_OK : topic ? STATUS_NONE : STATUS_NOT_FOUND;
    struct message a = request_answer_of(w, client, m, status);
    struct backlog_figures figures = {.first_seq = NO_PLACE, .last_seq = NO_PLACE};
    if (subscription) {
        const struct subscription *s = worker_subscription(w, subscription);
        uint64_t oldest = retained_oldest(shard_of_topic(w, t)), seq = m->seq, end = subscription_horizon(t);
        for (uint32_t left = BACKLOG_MOST; left; left--, seq++) {
            seq = stream_next_place(&t->stream, seq, oldest);
            if (seq >= end) break;
            worker_step(w);
            const struct record *r = message_head(w, t, seq);
            bool ahead =
                seq >= s->cursor && !stream_delayed(&t->stream, seq) && !finished_ahead_has(w, subscription, seq);
            if (r && (seq < m->id || ahead || delivery_find(w, subscription, r->id))) count_entry(&figures, r);
        }
        a.seq = seq < end ? seq : end;
        a.incarnation = t->incarnation;
    }
    request_send(w, client, &a, &figures, subscription ? sizeof figures : 0);
    return DONE;
}

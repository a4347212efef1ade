/* Handovers: a topic's backlog is given to another kind of reader, piece by piece. The first channel of a tube with
 * many jobs gets all of these too. Messages that waited for a first channel become jobs when the topic is wanted as a
 * tube.
 *
 * Also releases the messages of deleted channels that had many (leave.c).
 *
 * The request waits (MORE), and so do all requests that change the topic or its channels. A channel is logged when it
 * has everything: after a crash before that it was never made. That a tube is wanted is logged first, so that after a
 * crash all messages that waited are jobs.
 */
#include "shards/handover.h"

#include <stdlib.h>

#include "shards/backlog.h"
#include "shards/consumer.h"
#include "shards/delivery.h"
#include "shards/handover_state.h"
#include "shards/jobs_of_topic.h"
#include "shards/known.h"
#include "shards/queue.h"
#include "shards/records.h"
#include "shards/retain.h"
#include "shards/room.h"
#include "shards/shard.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/unreadable.h"

/* How many jobs of any topic may be looked at for each one that a turn may touch. */
enum { LOOKED_AT = 16 };

/* --- to a channel ------------------------------------------------------------------------------------------------- */

static bool is_to_be_adopted(const struct worker *w, const struct handover *h, uint32_t job) {
    if (!job_is_of_topic(w, h->topic, job)) return false;
    const struct record *r = job_head(w, job_at(w, job));
    return r && r->seq < h->end;
}

/* Gives some jobs to the channel as well. False: there are more. */
static bool adopt_some(struct worker *w, struct handover *h, uint64_t most) {
    for (uint32_t looked_at = 0; h->job < h->jobs_end; h->job++) {
        if (w->steps >= most || looked_at++ / LOOKED_AT >= w->piece) return false;
        if (!is_to_be_adopted(w, h, h->job)) continue;
        worker_step(w);
        subscription_adopt(w, h->subscription, h->job, h->wall_ns);
    }
    return true;
}

/* Logs the channel. False: not yet. Without room in the log it was never made. */
static bool write_channel(struct worker *w, struct handover *h) {
    struct subscription *s = worker_subscription(w, h->subscription);
    const struct topic *t = topic_at(&w->topics, h->topic);
    struct shard *shard = shard_of_topic(w, t);
    uint8_t status;
    h->written = true;
    if (!s->number) topic_keep_for_all(w, h->topic);
    if (!s->number) return true;
    h->written = room_reserve(w, shard, 3, 2 * s->name_bytes, true, &status) == DONE;
    if (!h->written) return false;
    if (status != STATUS_OK || !shard_know_subscription(shard, h->subscription, s->number)) {
        subscription_remove(w, h->subscription);
        h->subscription = 0;
        return true;
    }
    /* On recovery it begins behind all messages but those its topic keeps, and then gets those there are. */
    uint64_t cursor = s->cursor;
    s->cursor = t->keeps ? t->stopped_seq : t->next_seq;
    shard_log_subscription(w, shard, s);
    shard_note_channel(w, shard, s->topic);
    s->cursor = s->logged_cursor = cursor;
    shard_log_adopted_all(w, shard, s, h->wall_ns);
    return true;
}

/* A job is done before the channel is logged: the channel does not get it, as at recovery. */
bool handover_job_done(struct worker *w, uint32_t topic, uint64_t seq, uint64_t id) {
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t subscription = t->handover->subscription;
    struct subscription *s = worker_subscription(w, subscription);
    if (t->handover->written || !stream_position(&t->stream, seq) || stream_kept(&t->stream, seq)) return false;
    uint32_t delivery = delivery_find(w, subscription, id);
    uint16_t references = *stream_page_references(stream_page(&t->stream, seq), seq);
    if (!delivery && references != 2) return false; /* the handover has not reached that one yet */
    s->joined++;
    if (delivery) {
        delivery_drop(w, delivery);
    } else {
        message_release(w, topic, seq);
        t->ahead--;
    }
    return seq < t->began_seq;
}

/* --- to the job queue --------------------------------------------------------------------------------------------- */

static bool queue_some(struct worker *w, struct handover *h, uint64_t most) {
    const struct stream *stream = &topic_at(&w->topics, h->topic)->stream;
    uint64_t end = h->end < stream->end ? h->end : stream->end;
    while ((h->seq = stream_next(stream, h->seq)) < end && w->steps < most) {
        worker_step(w);
        topic_waiting_becomes_job(w, h->topic, h->seq++);
    }
    queue_serve(w, h->topic);
    return h->seq >= end;
}

/* --- from a channel ----------------------------------------------------------------------------------------------- */

/* Releases some messages of unlinked channels. False: there are more. */
static bool leave_some(struct worker *w, struct handover *h, uint64_t most) {
    struct subscription *s = worker_subscription(w, h->leaving);
    struct topic *t = topic_at(&w->topics, h->topic);
    const struct stream *stream = &t->stream;
    for (; (s->redelivery_first || s->deferred_first) && w->steps < most; worker_step(w))
        delivery_drop(w, s->redelivery_first ? s->redelivery_first : s->deferred_first);
    uint64_t end = s->held_from < stream->end ? s->held_from : stream->end, seq = s->cursor;
    for (; w->steps < most && (seq = stream_next(stream, seq)) < end; seq++) {
        worker_step(w);
        if (!stream_delayed(stream, seq)) message_release(w, h->topic, seq);
    }
    s->cursor = seq;
    return seq >= end && !s->redelivery_first && !s->deferred_first && !consumers_give_back(w, h->leaving);
}

/* --- all --------------------------------------------------------------------------------------------------------- */

static void end(struct worker *w, struct handover *h) {
    struct handover **link = &w->handovers;
    while (*link != h) link = &(*link)->next;
    *link = h->next;
    if (h->of_group) shard_of_topic(w, topic_at(&w->topics, h->topic))->group.is_nobodys = true;
    topic_at(&w->topics, h->topic)->handover = NULL;
    free(h);
}

static struct handover *begin(struct worker *w, uint32_t topic) {
    struct handover *h = calloc(1, sizeof *h);
    if (!h) process_die("out of memory");
    h->next = w->handovers;
    h->topic = topic;
    h->end = topic_at(&w->topics, topic)->next_seq;
    h->wall_ns = w->wall_ns;
    w->handovers = h;
    topic_at(&w->topics, topic)->handover = h;
    return h;
}

void handover_to_channel(struct worker *w, uint32_t topic, uint32_t subscription, bool to_join) {
    struct handover *h = begin(w, topic);
    h->subscription = subscription;
    h->to_join = to_join;
    h->job = 1;
    h->jobs_end = w->jobs.end;
}

void handover_to_queue(struct worker *w, uint32_t topic, uint64_t from) {
    struct handover *h = topic_at(&w->topics, topic)->handover;
    if (!h) h = begin(w, topic);
    h->to_queue = true;
    h->seq = from;
    h->end = topic_at(&w->topics, topic)->next_seq;
    if (!h->leaving && queue_some(w, h, w->steps + worker_spare(w))) end(w, h);
}

void handover_from_channel(struct worker *w, uint32_t topic, uint32_t subscription) {
    struct handover *h = topic_at(&w->topics, topic)->handover;
    struct subscription *s = worker_subscription(w, subscription);
    if (!h) h = begin(w, topic);
    s->cursor = subscription_held_from(s);
    s->held_from = topic_given_until(topic_at(&w->topics, topic));
    s->next = h->leaving;
    h->leaving = subscription;
}

void handover_of_group(struct worker *w, uint32_t topic) {
    begin(w, topic)->of_group = true;
}

void handover_group_over(struct worker *w, uint32_t topic) {
    struct handover *h = topic_at(&w->topics, topic)->handover;
    h->of_group = false;
    if (!h->leaving) end(w, h);
}

void handover_forget(struct worker *w, uint32_t topic, uint32_t subscription) {
    struct handover *h = topic_at(&w->topics, topic)->handover;
    if (!h || (subscription && h->subscription != subscription)) return;
    for (uint32_t n = h->leaving, next; n; n = next) {
        next = worker_subscription(w, n)->next;
        subscription_orphan(w, n);
    }
    end(w, h);
}

static void has_left(struct worker *w, struct handover *h) {
    uint32_t left = h->leaving;
    h->leaving = worker_subscription(w, left)->next;
    subscription_free(w, left);
    if (!h->leaving && !h->to_queue && !h->of_group) end(w, h);
}

/* Whether a consumer may still join: its policy may first need the redeliveries in order, half a piece a turn. */
static bool may_yet_be_joined(const struct worker *w, struct handover *h) {
    const struct subscription *s = worker_subscription(w, h->subscription);
    bool alone = h->to_join && h->subscription && !s->consumers;
    return alone && h->waited++ < 2 * (s->redeliveries / (w->piece / 2 + 1));
}

uint32_t handover_go_on(struct worker *w, struct handover *h, uint64_t most) {
    if (h->leaving) {
        if (leave_some(w, h, most)) has_left(w, h);
    } else if (h->of_group) {
        return 0;
    } else if (h->written) {
        if (may_yet_be_joined(w, h)) return 0;
        uint32_t subscription = h->to_join ? h->subscription : 0;
        end(w, h);
        return subscription;
    } else if (h->subscription) {
        if (adopt_some(w, h, most) && write_channel(w, h)) catalog_changed(w);
    } else if (queue_some(w, h, most)) {
        end(w, h);
    }
    return 0;
}

void handovers_free(struct worker *w) {
    for (struct handover *h = w->handovers, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    w->handovers = NULL;
}

/* Messages that a topic retains though nobody holds them: from when on, which earlier ones must be logged again, and
 * which were in dropped segments.
 *
 * A topic begins to retain when a client first asks for a position in it. Messages that only ephemeral channels hold
 * then, or these and the job queue, are in the log for nobody, or only as jobs. They are logged again, a piece a turn,
 * so that a client that goes back to them has them after a restart too. The same is done for jobs that are given to an
 * ephemeral channel, the first one of a topic that retains. Messages of jobs that were put before enter the stream, and
 * the log says which (ADOPT). Requests for a position wait for all that.
 */
#include "shards/retain.h"

#include <stdlib.h>

#include "shards/compact.h"
#include "shards/durable.h"
#include "shards/handover_state.h"
#include "shards/jobs_of_topic.h"
#include "shards/known.h"
#include "shards/naming.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/unreadable.h"

enum {
    FORGOTTEN_PAGES = 64,  /* messages of a topic looked at in one turn */
    KEPT_BYTES = 1 << 20,  /* bytes written again in one turn */
    KEPT_LOOKED = 1 << 14, /* looks at channels in one turn */
    JOINED_IN_RECORD = 512,
    LOOKED_AT = 16, /* how many jobs of any topic may be looked at for each one that a turn may touch */
};

/* --- what of before the log is to have ---------------------------------------------------------------------------- */

struct keeping {
    struct keeping *next;
    uint32_t topic;
    uint32_t job, jobs_end; /* the next of all the worker's jobs whose message may have to enter the stream */
    uint64_t seq, end;      /* the next to be looked at; what came from here on the log has */
    bool no_room;           /* there was no room for the next message */
    log_position moving;    /* where the next message, which is large, is being moved from; 0: it is not */
    uint64_t moving_seq;    /* ... and its seq */
};

uint64_t topic_passed_by_all(struct worker *w, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    uint64_t seq = t->keeps ? t->stopped_seq : UINT64_MAX;
    worker_walk(w, t->subscription_count);
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        const struct subscription *s = worker_subscription(w, n);
        if (!s->reader && subscription_held_from(s) < seq) seq = subscription_held_from(s);
    }
    return seq;
}

bool topic_join_job(struct worker *w, uint32_t job, uint64_t passed) {
    const struct job *j = job_at(w, job);
    struct topic *t = topic_at(&w->topics, j->topic);
    const struct record *r = job_head(w, j);
    if (!r) return false;
    if (r->seq < t->began_seq) t->began_seq = r->seq;
    if (stream_place(&t->stream, r->seq)) return false;
    /* What is held in front of a channel's cursor would be that channel's, which does not hold this one. */
    bool held = r->seq < passed, delayed = publish_attributes_of(r).delay_ns > 0;
    if (!stream_put(&t->stream, r->seq, j->position, held, held && delayed)) process_die("out of memory");
    return true;
}

/* Lets the messages of some jobs enter the stream. False: there are more, or no room to log them. */
static bool join_some(struct worker *w, struct keeping *k, uint64_t most) {
    struct topic *t = topic_at(&w->topics, k->topic);
    struct shard *s = shard_of_topic(w, t);
    uint64_t ids[JOINED_IN_RECORD];
    size_t count = 0;
    if (k->job == k->jobs_end) return true;
    k->no_room = shard_reserve(w, s, 2, sizeof ids + shard_topic_bytes(t), false) != LOG_OK;
    if (k->no_room) return false;
    const uint64_t passed = topic_passed_by_all(w, k->topic);
    for (; k->job < k->jobs_end && count < JOINED_IN_RECORD && w->steps < most; k->job++) {
        bool is_its = job_is_of_topic(w, k->topic, k->job);
        if (is_its || k->job % LOOKED_AT == 0) worker_step(w);
        if (is_its && topic_join_job(w, k->job, passed)) ids[count++] = job_at(w, k->job)->id;
    }
    if (count) shard_log_joined(w, s, k->topic, ids, count);
    if (k->job < k->jobs_end) return false;
    t->jobs_joined = true;
    shard_log_topic(w, s, k->topic);
    return true;
}

/* Whether recovery would have the message in the topic's stream. */
static bool is_logged(struct worker *w, const struct topic *t, const struct record *r) {
    bool delayed = stream_delayed(&t->stream, r->seq);
    if (stream_kept(&t->stream, r->seq)) return true;
    for (uint32_t n = t->subscriptions, next; n; n = next) {
        const struct subscription *s = worker_subscription(w, n);
        next = s->next;
        worker_walk(w, 1);
        if (s->number && subscription_holds(w, n, r->seq, r->id, delayed)) return true;
    }
    return false;
}

/* Whether the next message has been moved meanwhile, as it is large. */
static bool has_moved(struct keeping *k, log_position place) {
    bool moved = k->moving && k->moving_seq == k->seq && k->moving != place;
    if (k->moving_seq != k->seq || moved) k->moving = 0;
    return moved;
}

/* Writes some messages again. False: there are more, or no room. */
static bool keep_some(struct worker *w, struct keeping *k, uint64_t most) {
    struct topic *t = topic_at(&w->topics, k->topic);
    struct shard *s = shard_of_topic(w, t);
    if (!join_some(w, k, most)) return false;
    uint64_t end = k->end < t->stream.end ? k->end : t->stream.end, walk = w->walked + KEPT_LOOKED, bytes = 0;
    while ((k->seq = stream_next_place(&t->stream, k->seq, retained_oldest(s))) < end) {
        if (w->steps >= most || w->walked >= walk || bytes >= KEPT_BYTES) return false;
        worker_step(w);
        log_position place = stream_place(&t->stream, k->seq);
        k->no_room = false;
        if (s->large_from) return false;
        const struct record *r = has_moved(k, place) ? NULL : message_head(w, t, k->seq);
        enum readable readable = r && !is_logged(w, t, r) ? message_readable(w, t, r) : READ_FAILS;
        if (readable == READ_MORE) return false;
        if (readable == READ_WHOLE) {
            bytes += r->bytes;
            enum outcome moved = shard_move_message(w, s, k->topic, r);
            k->no_room = moved == LATER;
            if (s->large_from == place) k->moving = place, k->moving_seq = k->seq;
            if (moved != DONE) return false;
        }
        k->seq++;
    }
    return true;
}

static void append(struct worker *w, struct keeping *k) {
    struct keeping **link = &w->keepings;
    while (*link) link = &(*link)->next;
    k->next = NULL;
    *link = k;
}

static void end(struct worker *w, struct keeping *k) {
    struct keeping **link = &w->keepings;
    while (*link != k) link = &(*link)->next;
    *link = k->next;
    topic_at(&w->topics, k->topic)->keeping = NULL;
    free(k);
}

static struct keeping *keeping_of(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    if (t->keeping) return t->keeping;
    struct keeping *k = calloc(1, sizeof *k);
    if (!k) process_die("out of memory");
    k->topic = topic;
    t->keeping = k;
    append(w, k);
    return k;
}

void topic_join_jobs(struct worker *w, uint32_t topic) {
    if (topic_at(&w->topics, topic)->keeping) return;
    struct keeping *k = keeping_of(w, topic);
    k->job = 1;
    k->jobs_end = w->jobs.end;
}

/* Only if there was an ephemeral channel in this process: otherwise the log has all messages anyway. */
void topic_keep_for_all(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    if (!t->had_ephemeral || t->ephemeral || !t->stream.live || !t->stream.retains) return;
    struct keeping *k = keeping_of(w, topic);
    k->seq = k->moving = 0;
    k->end = t->next_seq;
    if (!t->handover && keep_some(w, k, w->steps + w->piece)) end(w, k);
}

bool keepings_go_on(struct worker *w) {
    uint64_t most = w->steps + w->piece;
    bool more = false;
    uint32_t last = 0;
    /* In rotation, so that all get their turn. */
    for (struct keeping *k; (k = w->keepings) != NULL && k->topic != last && w->steps < most;) {
        bool waits = topic_at(&w->topics, k->topic)->handover != NULL;
        if (!waits && keep_some(w, k, most)) {
            end(w, k);
            more = true;
            continue;
        }
        more |= !waits && !k->no_room;
        if (!last) last = k->topic;
        w->keepings = k->next;
        append(w, k);
    }
    return more;
}

void keepings_free(struct worker *w) {
    for (struct keeping *k = w->keepings, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    w->keepings = NULL;
}

/* --- a topic that retains ----------------------------------------------------------------------------------------- */

void topic_retains(struct worker *w, uint32_t topic, uint64_t incarnation, uint64_t began_seq) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    t->incarnation = incarnation;
    t->began_seq = began_seq;
    if (incarnation > s->top_id) s->top_id = incarnation;
    if (t->stream.retains) return;
    t->stream.retains = true;
    t->previous_retaining = 0;
    t->next_retaining = s->retaining;
    if (s->retaining) topic_at(&w->topics, s->retaining)->previous_retaining = topic;
    s->retaining = topic;
}

void topic_retains_no_more(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    if (!t->stream.retains) return;
    *(t->previous_retaining ? &topic_at(&w->topics, t->previous_retaining)->next_retaining : &s->retaining) =
        t->next_retaining;
    if (t->next_retaining) topic_at(&w->topics, t->next_retaining)->previous_retaining = t->previous_retaining;
    if (s->forgetting == topic) {
        s->forgetting = t->next_retaining;
        s->forgetting_page = 0;
    }
    if (s->needed.topic == topic) s->needed.looks = false;
    if (t->keeping) end(w, t->keeping);
    t->stream.retains = t->jobs_joined = false;
    t->incarnation = t->began_seq = t->epochs = 0;
}

/* Lets the messages of a few jobs enter the stream. */
static void join_listed(struct worker *w, uint32_t topic, const struct job_list *jobs) {
    if (!jobs->count) return;
    uint64_t *ids = malloc(jobs->count * sizeof *ids);
    size_t count = 0;
    if (!ids) process_die("out of memory");
    const uint64_t passed = topic_passed_by_all(w, topic);
    for (size_t i = 0; i < jobs->count; i++) {
        worker_step(w);
        if (topic_join_job(w, jobs->items[i], passed)) ids[count++] = job_at(w, jobs->items[i])->id;
    }
    if (count) shard_log_joined(w, shard_of_topic(w, topic_at(&w->topics, topic)), topic, ids, count);
    free(ids);
}

/* Whether a channel of the topic is being emptied or deleted piece by piece. */
static bool any_lets_go(struct worker *w, const struct topic *t) {
    uint32_t n = t->subscriptions;
    for (; n && !worker_subscription(w, n)->lets_go; worker_walk(w, 1)) n = worker_subscription(w, n)->next;
    return n != 0;
}

enum outcome topic_retain(struct worker *w, uint32_t topic, uint8_t *status) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    if (topic_make_durable(w, topic, status) == LATER) return LATER;
    if (*status != STATUS_OK || t->stream.retains || topic_non_persistent(t)) return DONE;
    /* Recovery does all of that where it began: what is still in the stream would then not be retained. */
    if (handover_goes_on(t) || any_lets_go(w, t)) return MORE;
    bool many = topic_jobs(t) && (t->handover || jobs_are_many(w, t));
    struct job_list jobs = {0};
    if (!many) jobs = jobs_of_topic(w, topic);
    enum outcome outcome = room_reserve(w, s, 2, shard_topic_bytes(t) + jobs.count * sizeof(uint64_t), true, status);
    if (outcome == DONE && *status == STATUS_OK) {
        uint64_t n = atomic_fetch_add_explicit(&w->board->next_id, 1, memory_order_relaxed);
        topic_retains(w, topic, n * w->shards + s->number, t->stream.live ? stream_next(&t->stream, 0) : t->next_seq);
        t->jobs_joined = !many;
        shard_log_topic(w, s, topic);
        join_listed(w, topic, &jobs);
        if (many) topic_join_jobs(w, topic);
        topic_keep_for_all(w, topic);
    }
    free(jobs.items);
    return outcome;
}

enum outcome topic_retain_all(struct worker *w, uint32_t topic, uint8_t *status) {
    const struct topic *t = topic_at(&w->topics, topic);
    enum outcome outcome = topic_retain(w, topic, status);
    if (outcome != DONE || *status != STATUS_OK || !t->keeping) return outcome;
    if (!t->keeping->no_room || !shard_of_topic(w, t)->refused) return MORE;
    w->no_space = true;
    *status = STATUS_NO_SPACE;
    return DONE;
}

/* --- what went with its segment ----------------------------------------------------------------------------------- */

void shard_forget_retained(struct worker *w, struct shard *s) {
    s->forgetting = s->retaining;
    s->forgetting_page = 0;
    if (s->forgetting) w->forgetting = true;
}

bool shards_forget_retained(struct worker *w) {
    if (!w->forgetting) return false;
    w->forgetting = false;
    for (uint32_t n = 0; n < w->shards; n++) {
        struct shard *s = w->own[n];
        if (!s || !s->forgetting) continue;
        struct topic *t = topic_at(&w->topics, s->forgetting);
        if (!stream_forget(&t->stream, retained_oldest(s), FORGOTTEN_PAGES, &s->forgetting_page)) {
            s->forgetting = t->next_retaining;
            s->forgetting_page = 0;
        }
        w->forgetting |= s->forgetting != 0;
    }
    return w->forgetting;
}

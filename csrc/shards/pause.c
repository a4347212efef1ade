/* A paused topic. The topic itself keeps messages that are published during the pause, once, whatever
 * channels and tube it has or gets; these hold nothing of them. When the pause ends, the messages are given to the
 * channels and the tube there are then, the oldest first, a piece a turn. Meanwhile messages before stopped_seq have
 * been given, and the others are kept. So no request has to wait for the end of that, and a channel that is made or
 * deleted meanwhile gets its share by its cursor.
 *
 * Each piece is logged as a TOPIC, and recovery then gives the same messages. If there are only ephemeral channels, an
 * EMPTY before it says that the messages are theirs, so that nobody has them after a restart.
 */
#include "shards/pause.h"

#include <stdlib.h>

#include "shards/due.h"
#include "shards/durable.h"
#include "shards/handover_state.h"
#include "shards/known.h"
#include "shards/naming.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/unreadable.h"

/* A number of steps that is enough for all. */
#define ALL (UINT64_MAX / 2)

/* The most pieces in one turn, if much was published since the last one or the disk is full. */
enum { MOST_PIECES = 16 };

struct release {
    struct release *previous, *next;
    uint32_t topic;
    uint64_t end;   /* the topic's next_seq at the previous piece */
    uint64_t still; /* the turn in which nothing is given, because a request is releasing messages */
};

/* --- one message -------------------------------------------------------------------------------------------------- */

static void unkeep(struct topic *t, uint64_t seq) {
    stream_keep(&t->stream, seq, false);
    *(stream_delayed(&t->stream, seq) ? &t->kept_delayed : &t->kept_messages) -= 1;
}

void topic_drop_kept(struct worker *w, uint32_t topic, uint64_t seq) {
    struct topic *t = topic_at(&w->topics, topic);
    unkeep(t, seq);
    message_release(w, topic, seq);
    if (stream_position(&t->stream, seq)) (void)stream_release(&t->stream, seq);
}

/* Gives a message to all subscriptions that have not been moved past it. */
static void give(struct worker *w, struct topic *t, uint64_t seq) {
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        if (worker_subscription(w, n)->reader) continue;
        worker_step(w);
        if (seq >= subscription_held_from(worker_subscription(w, n)))
            stream_hold(&t->stream, seq);
        else
            worker_subscription(w, n)->taken++;
    }
}

/* Gives a delayed message: each subscription gets a deferred delivery. */
static void give_delayed(struct worker *w, struct topic *t, uint64_t seq) {
    const struct record *r = message_head(w, t, seq);
    for (uint32_t n = r ? t->subscriptions : 0; n; n = worker_subscription(w, n)->next) {
        if (worker_subscription(w, n)->reader || seq < subscription_held_from(worker_subscription(w, n))) continue;
        worker_step(w);
        stream_hold(&t->stream, seq);
        subscription_defer(w, n, seq, r->id);
    }
}

/* Gives one message. `all_alike`: no subscription is behind it. */
static void release_one(struct worker *w, uint32_t topic, uint64_t seq, bool all_alike) {
    struct topic *t = topic_at(&w->topics, topic);
    bool delayed = stream_delayed(&t->stream, seq);
    if (!delayed) t->ahead++;
    if (!t->subscription_count && t->tube) {
        topic_drop_kept(w, topic, seq);
        return;
    }
    unkeep(t, seq);
    if (!t->subscription_count) {
        worker_step(w);
        *(delayed ? &t->waiting_delayed : &t->waiting_messages) += 1;
        return;
    }
    if (delayed)
        give_delayed(w, t, seq);
    else if (all_alike)
        stream_hold_by(&t->stream, seq, t->subscription_count);
    else
        give(w, t, seq);
    message_release(w, topic, seq);
}

/* --- a piece ------------------------------------------------------------------------------------------------------ */

static bool all_stand_before(const struct worker *w, const struct topic *t) {
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next)
        if (!worker_subscription(w, n)->reader && subscription_held_from(worker_subscription(w, n)) > t->stopped_seq)
            return false;
    return true;
}

/* Whether there is room for the deliveries of a message, if it is a delayed one. */
static bool fits(const struct worker *w, const struct topic *t, uint64_t seq) {
    return w->replaying || !stream_delayed(&t->stream, seq) || deliveries_fit(w, t->subscription_count);
}

/* Gives kept messages before `until`, in at most `most` steps. */
static void release_some(struct worker *w, uint32_t topic, uint64_t until, uint64_t most) {
    struct topic *t = topic_at(&w->topics, topic);
    bool all_alike = all_stand_before(w, t);
    uint64_t end = until < t->stream.end ? until : t->stream.end, last = w->steps + most, seq = t->stopped_seq;
    for (; (seq = stream_next(&t->stream, seq)) < end && w->steps < last; seq++) {
        if (!fits(w, t, seq)) break;
        if (stream_kept(&t->stream, seq))
            release_one(w, topic, seq, all_alike);
        else
            worker_step(w);
    }
    t->stopped_seq = seq < end ? seq : until;
}

static void append_release(struct worker *w, struct release *r) {
    r->previous = w->releases_last;
    r->next = NULL;
    *(r->previous ? &r->previous->next : &w->releases) = r;
    w->releases_last = r;
}

static void remove_release(struct worker *w, struct release *r) {
    *(r->previous ? &r->previous->next : &w->releases) = r->next;
    *(r->next ? &r->next->previous : &w->releases_last) = r->previous;
}

static void end(struct worker *w, struct release *r) {
    remove_release(w, r);
    topic_at(&w->topics, r->topic)->release = NULL;
    free(r);
}

static void begin(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct release *r = calloc(1, sizeof *r);
    if (!r) process_die("out of memory");
    r->topic = topic;
    r->end = t->next_seq;
    t->release = r;
    append_release(w, r);
}

/* Gives a piece, for which the log has room: more messages than were published since the last one, so that this comes
 * to an end. False: there is no room for more deliveries. */
static bool release_piece(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    uint64_t before = t->stopped_seq, published = t->next_seq - t->release->end;
    t->release->end = t->next_seq;
    uint64_t most = MOST_PIECES * (uint64_t)w->piece, more = 2 * published;
    /* On a full disk each piece takes room in which channels log finished messages, so pieces are few and large. */
    if (more > most || s->refused) more = most;
    release_some(w, topic, t->next_seq, w->piece + more);
    if (t->stopped_seq == before && before < t->next_seq) return false;
    if (only_ephemeral(t)) shard_log_emptied(w, s, topic, 0, t->stopped_seq);
    if (t->stopped_seq == t->next_seq) {
        t->keeps = false;
        end(w, t->release);
    }
    shard_log_topic(w, s, topic);
    topic_due(w, topic);
    return true;
}

void release_wait(struct worker *w, uint32_t topic) {
    struct release *r = topic_at(&w->topics, topic)->release;
    if (r) r->still = w->turns;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

/* Gives a piece of one topic. False: that waits for another operation on the topic, or for room. */
static bool go_on(struct worker *w, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    if (handover_goes_on(t) || t->release->still == w->turns) return false;
    enum log_result result = shard_reserve(w, s, 2, shard_topic_bytes(t), false);
    if (result != LOG_OK) {
        (void)room_await(w, s, result);
        return false;
    }
    return release_piece(w, topic);
}

bool releases_go_on(struct worker *w) {
    uint64_t most = w->steps + w->piece;
    bool more = false;
    uint32_t last = 0;
    /* In rotation, so that all get their turn. */
    for (struct release *r; (r = w->releases) != NULL && r->topic != last && w->steps < most;) {
        uint32_t topic = r->topic;
        more |= go_on(w, topic);
        r = topic_at(&w->topics, topic)->release;
        if (!r) continue;
        if (!last) last = topic;
        remove_release(w, r);
        append_release(w, r);
    }
    return more;
}

void release_forget(struct worker *w, uint32_t topic) {
    if (topic_at(&w->topics, topic)->release) end(w, topic_at(&w->topics, topic)->release);
}

void releases_free(struct worker *w) {
    for (struct release *r = w->releases, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    w->releases = w->releases_last = NULL;
}

static void keep_from(struct topic *t, uint64_t seq) {
    if (!t->keeps) t->stopped_seq = seq;
    t->keeps = t->stopped = true;
}

enum outcome topic_pause(struct worker *w, uint32_t topic, bool stop, uint8_t *status) {
    struct topic *t = topic_at(&w->topics, topic);
    *status = STATUS_OK;
    if (t->stopped == stop) return DONE;
    if (topic_make_durable(w, topic, status) == LATER) return LATER;
    if (*status != STATUS_OK) return DONE;
    if (topic_reserve(w, topic, stop, status) == LATER) return LATER;
    if (*status != STATUS_OK) return DONE;
    t->stopped = stop;
    if (stop) {
        /* What it kept in the previous pause and has not given yet, it goes on keeping. */
        release_forget(w, topic);
        keep_from(t, t->next_seq);
        shard_log_topic(w, shard_of_topic(w, t), topic);
    } else {
        begin(w, topic);
        if (!release_piece(w, topic)) shard_log_topic(w, shard_of_topic(w, t), topic);
    }
    return DONE;
}

/* --- recovery ----------------------------------------------------------------------------------------------------- */

void replay_pause(struct worker *w, uint32_t topic, uint16_t flags, uint64_t stopped_seq) {
    struct topic *t = topic_at(&w->topics, topic);
    if (!(flags & TOPIC_STOPPED)) {
        if (t->keeps) release_some(w, topic, UINT64_MAX, ALL);
        t->keeps = t->stopped = false;
        release_forget(w, topic);
        return;
    }
    if (t->keeps && stopped_seq > t->stopped_seq) release_some(w, topic, stopped_seq, ALL);
    keep_from(t, stopped_seq);
    t->stopped = !(flags & TOPIC_RELEASES);
    if (t->stopped)
        release_forget(w, topic);
    else if (!t->release)
        begin(w, topic);
}

void replay_release(struct worker *w, uint32_t topic, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (!stream_kept(&t->stream, seq) || !stream_delayed(&t->stream, seq)) return;
    release_one(w, topic, seq, false);
}

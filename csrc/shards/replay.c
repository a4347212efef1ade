/* Recovery: applies the records of a log in the order in which they were written.
 *
 * Jobs get their state at once, but their places in the queues only at the end, when all deletes have been applied.
 */
#include "shards/replay.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "log/copies.h"
#include "log/log_scan.h"
#include "log/unproven.h"
#include "shards/calls.h"
#include "shards/durable.h"
#include "shards/enter.h"
#include "shards/forgotten.h"
#include "shards/job_parts.h"
#include "shards/known.h"
#include "shards/mend.h"
#include "shards/older_topics.h"
#include "shards/pause.h"
#include "shards/producers.h"
#include "shards/queue.h"
#include "shards/replay_subscriptions.h"
#include "shards/retain.h"
#include "shards/shard.h"
#include "shards/skip.h"
#include "shards/sleeping.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/topic_life.h"
#include "shards/transaction_acks.h"
#include "shards/transaction_end.h"

/* An invented name that hashes to this shard, for messages whose topic's name is damaged, so that they can be found and
 * consumed. */
static uint32_t stand_in(struct worker *w, struct shard *s, uint32_t number) {
    char name[64];
    int bytes = 0;
    for (uint32_t n = 0; !bytes || crc32c_extend(0, name, (size_t)bytes) % w->shards != s->number; n++)
        bytes = snprintf(name, sizeof name, "lost+found/shard-%u/topic-%u/%u", s->number, number, n);
    uint32_t topic = topics_find(&w->topics, name, (size_t)bytes);
    if (!topic) topic = shard_make_topic(w, s, name, (size_t)bytes);
    if (!topic || !shard_know_topic(w, s, topic, number)) process_die("too many topics in the log, or out of memory");
    topic_at(&w->topics, topic)->nameless = true;
    return topic;
}

/* Gives a topic with an invented name its real one. If another topic has that by now (the topic was forgotten, and made
 * anew), later records belong to the other topic, and earlier ones stay with this. */
static uint32_t named(struct worker *w, struct shard *s, uint32_t topic, const struct record *r) {
    struct topic *t = topic_at(&w->topics, topic);
    if (!t->nameless) return topic;
    const char *name = record_body(r);
    size_t name_bytes = record_body_bytes(r);
    if (t->name_bytes == name_bytes && memcmp(t->name, name, name_bytes) == 0) return topic;
    if (topics_rename(&w->topics, topic, name, name_bytes)) {
        t->nameless = false;
        return topic;
    }
    uint32_t other = topics_find(&w->topics, name, name_bytes);
    if (!other) return topic;
    shard_unknow_topic(w, topic);
    if (!shard_know_topic(w, s, other, r->topic)) process_die("out of memory");
    return other;
}

static uint8_t said_in(const struct record *r) {
    const bool says = r->flags & TOPIC_SAID, passing = r->flags & TOPIC_NON_PERSISTENT;
    return (uint8_t)((r->flags & TOPIC_EPHEMERAL ? MSG_TOPIC_EPHEMERAL : 0) |
                     ((says ? passing : older_topic_non_persistent(r)) ? MSG_TOPIC_NON_PERSISTENT : 0));
}

/* Whether a start has let go of it. */
static bool is_passing(const struct topic *t) {
    return t->durable && (t->ephemeral || topic_non_persistent(t));
}

static void replay_topic(struct worker *w, struct shard *s, const struct record *r) {
    size_t name_bytes = record_body_bytes(r);
    if (!r->topic || !name_bytes || name_bytes > TOPIC_NAME_BYTES) return;
    uint32_t topic = shard_topic(s, r->topic);
    const bool stays = (r->flags & TOPIC_DURABLE) && !said_in(r);
    if (topic && stays && is_passing(topic_at(&w->topics, topic))) {
        /* There was a start in between: this is another topic of the same name. */
        topic_end(w, topic);
        topic = shard_topic(s, r->topic);
    }
    if (!topic) {
        topic = topics_find(&w->topics, record_body(r), name_bytes);
        if (!topic) topic = topics_add(&w->topics, record_body(r), name_bytes, s->number, r->seq);
        if (!topic || !shard_know_topic(w, s, topic, r->topic))
            process_die("too many topics in the log, or out of memory");
    }
    topic = named(w, s, topic, r);
    struct topic *t = topic_at(&w->topics, topic);
    if (r->seq > t->next_seq) t->next_seq = r->seq;
    skip_nothing(s, t);
    t->said = said_in(r);
    struct topic_attributes a = {0};
    memcpy(&a, record_attributes(r), r->attribute_bytes < sizeof a ? r->attribute_bytes : sizeof a);
    if (!(r->flags & TOPIC_DURABLE)) {
        /* Its deletion could not be logged, or the log has forgotten it: this is another topic of the same name. */
        if (t->durable) topic_end(w, topic);
        return;
    }
    replay_durable(w, topic, (r->flags & TOPIC_EPHEMERAL) != 0);
    if (r->flags & TOPIC_RETAINS) topic_retains(w, topic, a.incarnation, a.began_seq);
    t->jobs_joined = (r->flags & TOPIC_JOBS_JOINED) != 0;
    t->terminated = (r->flags & TOPIC_TERMINATED) != 0;
    t->epochs = a.epochs;
    replay_pause(w, topic, r->flags, a.stopped_seq);
    if (r->flags & TOPIC_TUBE) (void)topic_want_tube(w, topic);
}

static void replay_job(struct worker *w, uint32_t topic, const struct record *r, log_position position) {
    struct publish_attributes a = publish_attributes_of(r);
    uint32_t whole = queue_add_message(w, topic, r->id, message_packed(r), a.pri, position);
    if (!whole) process_die("more messages in the log than a worker can hold");
    uint32_t jobs = queue_jobs_of(w, whole);
    struct state_attributes state = {.pri = a.pri, .state = JOB_DELAYED, .delay_ns = a.delay_ns};
    state.deadline_wall_ns = a.delay_ns > UINT64_MAX - r->time_ns ? UINT64_MAX : r->time_ns + a.delay_ns;
    for (uint32_t i = 0; i < jobs; i++) {
        uint32_t job = queue_job_of(w, whole, i);
        job_at(w, job)->state = JOB_READY;
        topic_at(&w->topics, topic)->replayed_jobs++;
        if (a.delay_ns) queue_replay_state(w, job, &state, r->time_ns);
    }
}

/* Applies a change to a message's job, or to all jobs it has become since that was written. */
static void apply_to_all(struct worker *w, uint32_t job, const struct state_attributes *a, uint64_t time_ns) {
    uint32_t jobs = queue_jobs_of(w, job);
    for (uint32_t i = 0; i < jobs; i++) {
        uint32_t one = queue_job_of(w, job, i);
        if (one) queue_replay_state(w, one, a, time_ns);
    }
}

static uint32_t topic_of_message(struct worker *w, struct shard *s, const struct record *r) {
    uint32_t topic = shard_topic(s, r->topic);
    if (!topic) topic = stand_in(w, s, r->topic);
    struct topic *t = topic_at(&w->topics, topic);
    if (r->seq >= t->next_seq) {
        t->next_seq = r->seq + 1;
        bool is_new = r->kind == RECORD_STAGED || (r->kind == RECORD_PUBLISH && !(r->flags & PUBLISH_COMMITTED));
        if (is_new) skip_nothing(s, t);
    }
    uint64_t last_id = message_last_id(r, w->shards);
    if (last_id > s->top_id) s->top_id = last_id;
    return topic;
}

static void replay_publish(struct worker *w, struct shard *s, const struct record *r, log_position position) {
    if (!r->topic) return;
    uint32_t known = shard_topic(s, r->topic);
    bool staged = known && r->seq < topic_at(&w->topics, known)->next_seq;
    uint32_t topic = topic_of_message(w, s, r);
    struct topic *t = topic_at(&w->topics, topic);
    if (t->ephemeral || (r->flags & PUBLISH_FLEETING)) {
        if (staged) transactions_published(w, topic, r->seq);
        return;
    }
    if (index_find(&w->ids, &w->jobs, r->id) || stream_place(&t->stream, r->seq)) return;
    if (!t->durable) t->tube = true;
    shard_count_in(s, position);
    t->messages++;
    t->message_bytes += record_body_bytes(r) - message_headers_bytes(r);
    stream_enter(w, topic, r->seq, r->id, position,
                 (publish_attributes_of(r).delay_ns ? enter_delayed(r->flags) : 0) |
                     (r->flags & PUBLISH_UNAWAITED ? ENTER_UNAWAITED : 0));
    if (staged) transactions_published(w, topic, r->seq);
    if (goes_to_queue(t)) replay_job(w, topic, r, position);
}

/* Applies a MOVED. The record that it is a copy of may have been read before, with what became of it; if not, this and
 * the REFERENCES that follows are all that is known of the message. A MOVED without its REFERENCES, which a crash has
 * cut off, does not count: once the copied record's segment is gone, nobody would know who holds the message. */
static void replay_moved(struct worker *w, struct shard *s, const struct record *r, log_position position) {
    if (!r->topic) return;
    uint32_t topic = topic_of_message(w, s, r);
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t job = index_find(&w->ids, &w->jobs, r->id);
    if (publish_attributes_of(r).delay_ns) topic_waits_until(t, r->seq);
    if (s->damaged && (r->flags & MOVED_REFERENCED)) replay_durable(w, topic, false); /* it must have been there */
    log_position held = stream_position(&t->stream, r->seq);
    s->moved = r->flags & MOVED_REFERENCED ? position : 0;
    if (held && s->moved) {
        /* moved when its REFERENCES is read */
    } else if (job || held) {
        replay_move(w, s, topic, r->seq, job, position);
    } else if (!(r->flags & MOVED_NO_JOB)) {
        shard_count_in(s, position);
        if (!t->durable) t->tube = true;
        replay_job(w, topic, r, position);
        job = index_find(&w->ids, &w->jobs, r->id);
    }
    if (!job || (r->flags & MOVED_IN_JOBS) || r->attribute_bytes < sizeof(struct moved_attributes)) return;
    struct moved_attributes moved;
    memcpy(&moved, record_attributes(r), sizeof moved);
    apply_to_all(w, job, &moved.state, r->time_ns);
}

static void replay_delete(struct worker *w, struct shard *s, const struct record *r) {
    uint32_t topic = shard_topic(s, r->topic);
    struct topic *t = topic ? topic_at(&w->topics, topic) : NULL;
    if (t && r->seq >= t->next_seq) t->next_seq = r->seq + 1;
    uint32_t job = index_find(&w->ids, &w->jobs, r->id);
    log_position held = t ? stream_position(&t->stream, r->seq) : 0;
    if (job) {
        jobs_done(w, job, r->seq);
    } else if (held && t->waiting_messages && !t->subscription_count && !stream_kept(&t->stream, r->seq) &&
               log_read(s->log, held)->id == r->id) {
        /* There was no room to log that its tube was wanted. */
        t->waiting_messages--;
        message_release(w, topic, r->seq);
    }
}

static void replay_state(struct worker *w, const struct record *r) {
    uint32_t job = index_find(&w->ids, &w->jobs, r->id);
    struct state_attributes a;
    if (!job || r->attribute_bytes < sizeof a) return;
    memcpy(&a, record_attributes(r), sizeof a);
    apply_to_all(w, job, &a, w->now_ns);
}

/* Ephemeral subscriptions are not meant to outlive the process, nor are topics that are not persistent. */
void replay_forget_ephemeral(struct worker *w) {
    for (uint32_t n = 0; n < w->shards; n++) {
        struct shard *s = w->own[n];
        for (uint32_t topic = s ? s->known_first : 0, next; topic; topic = next) {
            next = topic_at(&w->topics, topic)->known_next;
            struct topic *t = topic_at(&w->topics, topic);
            if (!is_passing(t)) continue;
            t->end_unwritten = true;
            topic_end(w, topic);
        }
    }
}

static void replay_producer(struct shard *s, const struct record *r) {
    struct producer_part part = {.key = r->id, .batch = r->seq};
    struct producer_attributes a = {.used_wall_ns = r->time_ns};
    if (r->attribute_bytes < sizeof a.part) return;
    memcpy(&a, record_attributes(r), r->attribute_bytes < sizeof a ? sizeof a.part : sizeof a);
    part.part = a.part;
    if (!producers_note(r->flags & PRODUCER_NAMED ? &s->named_producers : &s->batch_producers, &part, a.used_wall_ns))
        process_die("out of memory");
}

static void replay_forgotten(struct shard *s, const struct record *r) {
    if (r->flags & FLOOR_ALL_FORGOTTEN) forgotten_clear(&s->forgotten, false);
    const uint8_t *all = record_attributes(r);
    for (size_t at = 0; at + sizeof(struct forgotten_topic) <= r->attribute_bytes;
         at += sizeof(struct forgotten_topic)) {
        struct forgotten_topic topic;
        memcpy(&topic, all + at, sizeof topic);
        forgotten_note(&s->forgotten, topic.key, topic.next_seq);
    }
}

/* Applies a FLOOR. The topics in it were empty when it was written. If one has jobs or messages all the same, since the
 * record that ended them was damaged or could not be written, it keeps its number. */
static void replay_floor(struct worker *w, struct shard *s, const struct record *r) {
    if (r->seq > s->floor) s->floor = r->seq;
    if (r->id > s->top_id) s->top_id = r->id;
    if (r->flags & FLOOR_LOST) {
        skip_read(s, r);
        return;
    }
    s->lost_ids = false; /* who wrote it knew all ids before */
    replay_forgotten(s, r);
    const uint8_t *numbers = record_body(r);
    for (size_t at = 0; at + sizeof(uint32_t) <= record_body_bytes(r); at += sizeof(uint32_t)) {
        uint32_t number;
        memcpy(&number, numbers + at, sizeof number);
        uint32_t topic = shard_topic(s, number);
        if (!topic) continue;
        if (topic_at(&w->topics, topic)->durable) topic_end(w, topic);
        const struct topic *t = topic_at(&w->topics, topic);
        if (t->replayed_jobs || t->stream.live) continue;
        shard_unknow_topic(w, topic);
        topics_remove(&w->topics, topic);
    }
}

static void replay_transaction(struct worker *w, struct shard *s, const struct record *r, log_position position) {
    uint32_t topic = r->kind == RECORD_STAGED && r->topic ? topic_of_message(w, s, r) : shard_topic(s, r->topic);
    if (!topic) return;
    switch (r->kind) {
    case RECORD_STAGED: replay_staged(w, s, topic, r, position); break;
    case RECORD_PENDING: replay_pending(w, s, topic, r, position); break;
    case RECORD_TXN_END: replay_end(w, topic, r); break;
    default: break; /* there is none: replay_segment has looked */
    }
}

static void replay_record(struct worker *w, struct shard *s, const struct record *r, log_position position) {
    replay_unreferenced(w, s, r);
    if (r->kind == RECORD_PRODUCER) {
        replay_producer(s, r);
        return;
    }
    if (r->kind >= RECORD_STAGED) {
        replay_transaction(w, s, r, position);
        return;
    }
    if (r->kind >= RECORD_SUBSCRIPTION) {
        replay_subscription_record(w, s, r);
        return;
    }
    switch (r->kind) {
    case RECORD_TOPIC: replay_topic(w, s, r); break;
    case RECORD_FLOOR: replay_floor(w, s, r); break;
    case RECORD_PUBLISH: replay_publish(w, s, r, position); break;
    case RECORD_MOVED: replay_moved(w, s, r, position); break;
    case RECORD_DELETE: replay_delete(w, s, r); break;
    case RECORD_STATE: replay_state(w, r); break;
    default: break; /* there is none: replay_segment has looked */
    }
}

/* Lets time pass as it did when the records were written; a wall clock that was set back takes none away. A MOVED does
 * not count, as it has the time of its publish, nor an ADOPT, which has that of its channel's beginning. */
static void pass_time(struct worker *w, const struct record *r) {
    if (!w->wall_ns) w->now_ns = w->wall_ns = r->time_ns;
    if (r->kind == RECORD_MOVED || r->kind == RECORD_ADOPT) return;
    if (r->time_ns > w->wall_ns) w->now_ns += r->time_ns - w->wall_ns;
    w->wall_ns = r->time_ns;
}

static void note_damage(struct replay *out, uint32_t shard, uint32_t segment, uint64_t bad, uint64_t until) {
    if (out->damages < sizeof out->damage / sizeof *out->damage)
        out->damage[out->damages] = (struct damage){shard, segment, bad, until};
    out->damages++;
}

/* Whether a record counts only if the next one is there. */
static bool joins_next(const struct record *r) {
    return (r->kind == RECORD_PUBLISH || r->kind == RECORD_PRODUCER) && (r->flags & PUBLISH_MORE) != 0;
}

/* Whether all records of a PUBLISH_MANY are there; the first ends at *offset. If not, *offset is where they end. */
static bool is_complete(const struct shard *s, uint32_t segment, uint64_t *offset) {
    uint64_t bad;
    const struct record *r;
    int found;
    do found = log_scan(s->log, segment, offset, &r, &bad);
    while (found > 0 && joins_next(r));
    return found != 0;
}

/* Replays the copies of records that lie within damage or behind the end. Returns where the last one ends. */
static uint64_t replay_copies(struct worker *w, struct shard *s, uint32_t segment, uint64_t from, uint64_t until) {
    struct copies_read all = log_copies(s->log, segment);
    uint64_t end = from;
    uint32_t offset;
    const struct record *r;
    for (size_t at = 0; (r = copies_next(&all, &at, segment, &offset)) != NULL;) {
        if (offset < from || offset >= until || r->kind >= RECORD_KINDS) continue;
        s->damaged = true;
        pass_time(w, r);
        replay_record(w, s, r, (uint64_t)segment << 32 | offset);
        end = offset + record_stride(r);
    }
    copies_read_free(&all);
    return end;
}

/* How many bytes of the log's last segment are lost from `offset` on. What a crash cut short is not: nobody was told of
 * that. `whole`: where its last whole record ends; `end`: where it goes on. */
static uint64_t lost_at_end(const struct shard *s, uint32_t segment, uint64_t offset, uint64_t whole, uint64_t end) {
    struct record head;
    uint64_t until = log_written_until(s->log, segment, whole);
    if (until <= whole ||
        (log_cut_short(s->log, segment, whole, until, &head) && head.kind < RECORD_KINDS && head.flags <= RECORD_FLAGS))
        until = offset;
    if (s->ended >> 32 == segment && (uint32_t)s->ended > until) until = (uint32_t)s->ended;
    if (end > until) until = end;
    return until - offset;
}

/* Whether older segments are not read. If anything of those that are is lost they have to be: what was moved out of
 * them is whole there, whatever has become of what it was moved to. */
static bool passes_over(const struct shard *s) {
    return s->read_from > log_first_segment(s->log);
}

static uint64_t needs_all(struct shard *s) {
    s->needs_all = true;
    return 0;
}

static uint64_t replay_segment(struct worker *w, struct shard *s, uint32_t segment, struct replay *out, bool *cut) {
    uint64_t offset = 0, bad = 0, whole = 0;
    const struct record *r;
    bool among_many = false;
    int found;
    skip_segments(s, log_missing(s->log, segment));
    while ((found = log_scan(s->log, segment, &offset, &r, &bad)) != 0) {
        if (found < 0 && passes_over(s)) return needs_all(s);
        if (found < 0) {
            note_damage(out, s->number, segment, bad, offset);
            shard_doubt(s, segment);
            s->damaged = true;
            replay_copies(w, s, segment, bad, offset);
            skip_lost(s, offset - bad);
            continue;
        }
        if (r->kind >= RECORD_KINDS) {
            out->unknown = (struct unknown){s->number, segment, offset - record_stride(r), r->kind};
            return 0;
        }
        bool more = joins_next(r);
        /* Only at the end of the log can a PUBLISH_MANY be cut off in the middle. */
        whole = offset;
        if (more && !among_many && segment == log_active_segment(s->log) && !is_complete(s, segment, &whole)) {
            bad = offset -= record_stride(r);
            break;
        }
        among_many = more;
        pass_time(w, r);
        replay_record(w, s, r, (uint64_t)segment << 32 | (offset - record_stride(r)));
        out->records++;
    }
    if (passes_over(s) && s->ended >> 32 == segment && offset < (uint32_t)s->ended) return needs_all(s);
    /* Nothing valid follows: a crash in the middle of a write leaves this behind. It was never acknowledged. */
    if (bad) note_damage(out, s->number, segment, bad, bad);
    /* The log was longer if there are copies of records behind this. */
    uint64_t end = replay_copies(w, s, segment, offset, UINT64_MAX);
    if (end > offset && !bad) note_damage(out, s->number, segment, offset, offset);
    if (whole < offset || !whole) whole = offset;
    uint64_t lost = lost_at_end(s, segment, offset, whole, end);
    if (lost) skip_lost(s, lost);
    /* The log continues behind them, so that they keep their places. What lies between is cut off: it does not count,
     * and must not count later because of records behind it. */
    if (end > offset && segment == log_active_segment(s->log)) {
        *cut = log_truncate(s->log, segment, offset);
        offset = end;
    }
    out->bytes += offset;
    out->end = offset;
    if (lost && segment == log_active_segment(s->log)) skip_write(w, s, &offset, lost);
    return offset;
}

/* The same from the heads of a segment, which is whole: nothing is damaged, or ends early. */
static void replay_heads(struct worker *w, struct shard *s, uint32_t segment, struct replay *out) {
    uint64_t at = 0;
    log_position position;
    const struct record *r;
    skip_segments(s, log_missing(s->log, segment));
    while ((r = log_next_head(s->log, segment, &at, &position)) != NULL) {
        if (r->kind >= RECORD_KINDS) {
            out->unknown = (struct unknown){s->number, segment, (uint32_t)position, r->kind};
            return;
        }
        pass_time(w, r);
        replay_record(w, s, r, position);
        out->records++;
        out->bytes += record_kept_bytes(r);
    }
}

bool shard_replay(struct worker *w, struct shard *s, struct replay *out) {
    uint64_t before = s->jobs, now_ns = w->now_ns, wall_ns = w->wall_ns;
    uint32_t last = log_active_segment(s->log);
    w->now_ns = w->wall_ns = 0;
    bool cut = true;
    for (uint32_t n = log_first_segment(s->log); n && n <= last; n++) {
        if (n < s->read_from && n < last) {
            log_pass_over(s->log, n);
            continue;
        }
        if (log_has_heads(s->log, n)) {
            replay_heads(w, s, n, out);
            if (!out->unknown.kind) continue;
            errno = EPROTO;
            return false;
        }
        uint64_t records = out->records;
        uint64_t end = replay_segment(w, s, n, out, &cut);
        if (s->needs_all) {
            errno = EAGAIN;
            return false;
        }
        /* It was lost, and an earlier release has put an empty one in its place. */
        if (out->records == records && n < last && !log_missing(s->log, n)) skip_segments(s, 1);
        if (out->unknown.kind) {
            errno = EPROTO;
            return false;
        }
        if (!cut || !log_truncate(s->log, n, end)) return false;
        int why = log_uncut(s->log, n);
        if (why) out->uncut = n, out->uncut_errno = why;
    }
    replay_unreferenced(w, s, NULL);
    s->forgotten.doubtful = false;
    s->heals |= s->damaged;
    skip_end(s);
    skip_all(w, s);
    if (s->damaged) mend_counts(w, s);
    shard_names_recovered(w, s);
    log_heads_over(s->log);
    s->replayed_ns = w->now_ns + (w->wall_ns && wall_ns > w->wall_ns ? wall_ns - w->wall_ns : 0);
    w->now_ns = now_ns;
    w->wall_ns = wall_ns;
    s->segment = last;
    s->headless = last > 0;
    out->jobs += s->jobs - before;
    return true;
}

struct buried {
    uint64_t time_ns;
    uint64_t id;
    uint32_t job;
};

static int by_time(const void *a, const void *b) {
    const struct buried *x = a, *y = b;
    if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void place_job(struct worker *w, uint32_t job) {
    struct job *j = job_at(w, job);
    uint8_t state = j->state;
    j->state = 0;
    if (state == JOB_READY) {
        queue_make_ready(w, job);
        return;
    }
    uint64_t deadline_ns = reservation_at(w, j->reservation)->deadline_ns;
    queue_make_delayed(w, job, replay_deadline(w, shard_of_job(w, j), deadline_ns));
}

void replay_place_jobs(struct worker *w) {
    struct buried *buried = NULL;
    size_t count = 0, capacity = 0;
    for (uint32_t job = 1; job < w->jobs.end; job++) {
        struct job *j = job_at(w, job);
        if (!j->state || j->state == JOB_SPLIT) continue;
        struct topic *t = topic_at(&w->topics, j->topic);
        bool was_seen = topic_seen(t);
        t->replayed_jobs = 0;
        if (t->stream.retains && !t->jobs_joined) topic_join_jobs(w, j->topic);
        if (j->state != JOB_BURIED) {
            place_job(w, job);
            queue_settle(w, j->topic, was_seen);
            continue;
        }
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 1024;
            struct buried *larger = realloc(buried, sizeof *buried * capacity);
            if (!larger) process_die("out of memory");
            buried = larger;
        }
        buried[count++] = (struct buried){reservation_at(w, j->reservation)->deadline_ns, j->id, job};
    }
    if (count) qsort(buried, count, sizeof *buried, by_time);
    for (size_t i = 0; i < count; i++) {
        struct job *j = job_at(w, buried[i].job);
        bool was_seen = topic_seen(topic_at(&w->topics, j->topic));
        j->state = 0;
        queue_make_buried(w, buried[i].job);
        queue_settle(w, j->topic, was_seen);
    }
    free(buried);
}

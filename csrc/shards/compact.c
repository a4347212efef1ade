/* Compaction: appends live messages of an old segment to the log again, so that the segment can be dropped, or passed
 * over by a start. */
#include "shards/compact.h"

#include "log/large.h"
#include "log/log_scan.h"
#include "shards/delivery.h"
#include "shards/finished_ahead.h"
#include "shards/job_parts.h"
#include "shards/known.h"
#include "shards/large.h"
#include "shards/naming.h"
#include "shards/parts.h"
#include "shards/records.h"
#include "shards/shard.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/transaction_acks.h"

static void add_reference(const struct worker *w, struct references *references, uint32_t subscription,
                          const struct record *r, bool delayed) {
    const struct subscription *s = worker_subscription(w, subscription);
    uint64_t given = topic_given_until(subscription_topic(w, s));
    struct reference reference = {.subscription = s->number};
    uint32_t delivery = delivery_find(w, subscription, r->id);
    if (delivery && r->seq < s->over_until) return;
    if (delivery)
        reference.redelivery = shard_redelivery_of(w, worker_delivery(w, delivery));
    else if (r->seq >= subscription_held_from(s) && r->seq < given && !delayed)
        reference.ahead = 1;
    else
        return;
    if (!s->number) return;
    references->items[references->count++] = reference;
    const struct parts_left *left = delivery ? delivery_parts(w, delivery) : NULL;
    if (!left) return;
    references->in_parts++;
    references->parts_bytes += left->words * sizeof *left->bits;
}

/* Adds references for a message that the topic keeps in a pause. An earlier release reads them as they are, since there
 * the subscriptions had such messages; this release sees from them that the topic keeps the message. */
static void add_kept(const struct worker *w, struct references *references, uint32_t subscription,
                     const struct record *r, bool delayed) {
    const struct subscription *s = worker_subscription(w, subscription);
    struct reference reference = {.subscription = s->number, .ahead = !delayed};
    if (!s->number || r->seq < subscription_held_from(s)) return;
    uint64_t delay_ns = publish_attributes_of(r).delay_ns;
    if (delayed)
        reference.redelivery.deferred_until_wall_ns =
            delay_ns > UINT64_MAX - r->time_ns ? UINT64_MAX : r->time_ns + delay_ns;
    references->items[references->count++] = reference;
}

static void find_references(const struct worker *w, const struct topic *t, const struct record *r, bool job,
                            struct references *references) {
    bool delayed = stream_delayed(&t->stream, r->seq);
    references->count = references->in_parts = 0;
    references->parts_bytes = 0;
    bool kept = stream_kept(&t->stream, r->seq);
    bool waits = !t->subscription_count && !job && stream_position(&t->stream, r->seq);
    if (kept || waits) references->items[references->count++] = (struct reference){0};
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next)
        if (kept)
            add_kept(w, references, n, r, delayed);
        else
            add_reference(w, references, n, r, delayed);
}

static void log_parts(struct worker *w, struct shard *s, const struct topic *t, const struct record *r) {
    uint64_t id = r->id, seq = r->seq;
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        uint32_t delivery = delivery_find(w, n, id);
        const struct subscription *of = worker_subscription(w, n);
        bool logged = delivery && of->number && seq >= of->over_until;
        const struct parts_left *left = logged ? delivery_parts(w, delivery) : NULL;
        const struct parts_span all = {.count = left ? left->words : 0, .is_all = true};
        if (left) shard_log_finish_parts(w, s, of, seq, left, all);
    }
}

/* Counts, and logs, for which subscriptions a message is finished ahead of the cursor. */
static uint32_t count_finished(const struct worker *w, const struct topic *t, uint64_t seq) {
    uint32_t count = 0, n = w->subscriptions.finished_ahead.arena.live ? t->subscriptions : 0;
    for (; n; n = worker_subscription(w, n)->next) count += finished_ahead_has(w, n, seq);
    return count;
}

static void log_finished(struct worker *w, struct shard *s, const struct topic *t, uint64_t seq) {
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next)
        if (finished_ahead_has(w, n, seq)) shard_log_finish_one(w, s, worker_subscription(w, n), seq);
}

/* Logs the state of a batch's jobs. On recovery all of them are first taken to be there and ready. */
static void log_jobs(struct worker *w, struct shard *s, uint32_t whole, uint32_t jobs) {
    const struct job *all = job_at(w, whole);
    for (uint32_t i = 0; i < jobs; i++) {
        uint32_t job = queue_job_of(w, whole, i);
        if (!job) {
            shard_log_delete_part(w, s, all, all->id + (uint64_t)(i + 1) * w->shards);
        } else if (job_at(w, job)->reservation || job_at(w, job)->pri != all->pri) {
            shard_log_state(w, s, job_at(w, job));
        }
    }
}

/* What is written behind a MOVED. */
struct behind {
    uint32_t records;
    uint64_t bytes; /* of attributes and bodies */
    uint32_t in_parts, jobs, pending, finished;
};

static struct behind find_behind(struct worker *w, uint32_t topic, const struct record *r, uint32_t job, bool held) {
    struct references *references = &w->references;
    const struct topic *t = topic_at(&w->topics, topic);
    struct behind b = {0};
    references->count = references->in_parts = 0;
    references->parts_bytes = 0;
    if (held) find_references(w, t, r, job != 0, references);
    b.in_parts = references->in_parts;
    b.jobs = job && job_at(w, job)->state == JOB_SPLIT ? queue_jobs_of(w, job) : 0;
    b.pending = t->transactions ? transactions_pending(w, t, r->seq, &b.bytes) : 0;
    b.finished = held ? count_finished(w, t, r->seq) : 0;
    b.records = 1 + b.in_parts + b.jobs + b.pending + b.finished;
    b.bytes += references->count * sizeof *references->items + references->parts_bytes;
    b.bytes += b.jobs * sizeof(struct state_attributes) + b.finished * sizeof(uint32_t);
    return b;
}

/* By how much what is written behind a large message may grow while that is moved. */
enum { BEHIND_MEANWHILE = 256 << 10 };

static uint64_t size_behind(const struct behind *b) {
    return b->records * (uint64_t)LOG_RECORD_OVERHEAD + b->bytes;
}

/* Moves a piece of a large message. DONE: all of it, so that its MOVED must be appended, and what follows. */
static enum outcome move_piece(struct worker *w, uint32_t topic, const struct record *r, log_position place,
                               uint64_t behind_bytes) {
    const struct large_message large = {.id = r->id,
                                        .content = record_body(r),
                                        .content_bytes = (uint32_t)record_body_bytes(r),
                                        .attribute_bytes = sizeof(struct moved_attributes),
                                        .from = place,
                                        .behind_bytes = behind_bytes + BEHIND_MEANWHILE};
    uint8_t status = STATUS_OK;
    enum outcome written = large_write(w, topic, &large, &status);
    return written == DONE && status != STATUS_OK ? LATER : written;
}

/* Makes room for the record of a message and what is written behind it. */
static enum outcome make_room(struct worker *w, struct shard *s, uint32_t topic, const struct record *r,
                              log_position place, const struct behind *b) {
    if (record_body_bytes(r) >= LARGE_BYTES) {
        if (s->large_from == place && size_behind(b) > s->large_behind_bytes) return LATER;
        return move_piece(w, topic, r, place, size_behind(b));
    }
    uint64_t bytes = sizeof(struct moved_attributes) + record_body_bytes(r) + b->bytes;
    /* Like a publish, this leaves the room that deletes will need: on a full disk only they free any. */
    return shard_reserve_named(w, s, topic, 1 + b->records, bytes) == LOG_OK ? DONE : LATER;
}

/* Moves a message. `job` 0: the job queue does not have it; !held: the stream has no reference to it, though it may
 * retain it. */
static enum outcome move(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, uint32_t job,
                         bool held) {
    struct topic *t = topic_at(&w->topics, topic);
    log_position from = job ? job_at(w, job)->position : stream_position(&t->stream, r->seq);
    log_position place = from ? from : stream_place(&t->stream, r->seq);
    if (s->large_from == place && log_large_left(s->log) > 0) return move_piece(w, topic, r, place, 0);
    const struct behind b = find_behind(w, topic, r, job, held);
    worker_walk(w, (held ? t->subscription_count : 0) + (uint64_t)b.jobs + b.pending);
    enum outcome room = make_room(w, s, topic, r, place, &b);
    if (room != DONE) return room;
    r = log_read(s->log, place); /* records appended in this turn may have been written out and moved in memory */
    uint16_t flags =
        (uint16_t)((job ? 0 : MOVED_NO_JOB) | (held ? MOVED_REFERENCED : 0) | (b.jobs ? MOVED_IN_JOBS : 0));
    log_position to = shard_log_moved(w, s, topic, job ? job_at(w, job) : NULL, r, flags);
    if (record_body_bytes(r) >= LARGE_BYTES) shard_reserve_behind_large(w, s, b.records, b.bytes);
    if (held) {
        uint16_t delayed = stream_delayed(&t->stream, r->seq) ? REFERENCES_DELAYED : 0;
        shard_log_references(w, s, topic, r, delayed, w->references.items, w->references.count);
        stream_move(&t->stream, r->seq, to);
        if (b.in_parts) log_parts(w, s, t, r);
        if (b.pending) transactions_moved(w, s, t, r->seq);
        if (b.finished) log_finished(w, s, t, r->seq);
    }
    if (job) queue_moved(w, job, to);
    if (b.jobs) log_jobs(w, s, job, b.jobs);
    shard_count_in(s, to);
    shard_count_out(s, from ? from : to);
    w->count->records_migrated++;
    return DONE;
}

/* Moves the message of a record if it is live at this place. */
static enum outcome move_if_live(struct worker *w, struct shard *s, const struct record *r, log_position position) {
    uint32_t topic = shard_topic(s, r->topic);
    /* During a handover its references would be logged wrongly. */
    if (topic && topic_at(&w->topics, topic)->handover) return LATER;
    if (topic && topic_at(&w->topics, topic)->transactions) transactions_settle(w, topic, r->seq);
    uint32_t job = job_of_message(w, r->id);
    if (job && job_at(w, job)->position != position) job = 0;
    bool held = topic && stream_position(&topic_at(&w->topics, topic)->stream, r->seq) == position;
    return topic && (job || held) ? move(w, s, topic, r, job, held) : DONE;
}

enum outcome shard_move_from(struct worker *w, struct shard *s, log_position position) {
    return move_if_live(w, s, log_read(s->log, position), position);
}

enum outcome shard_move_message(struct worker *w, struct shard *s, uint32_t topic, const struct record *r) {
    const struct stream *stream = &topic_at(&w->topics, topic)->stream;
    uint32_t job = job_of_message(w, r->id);
    /* A message that its topic kept may be a job at another place. */
    if (job && job_at(w, job)->position != stream_position(stream, r->seq)) return DONE;
    log_position place = stream_place(stream, r->seq);
    enum outcome moved = move(w, s, topic, r, job, true);
    if (s->large_from == place) s->large_is_kept = true;
    return moved;
}

/* Whether the next piece of the message that is being moved can be read. */
static bool is_piece_readable(const struct shard *s, const struct record *r) {
    uint64_t left = log_large_left(s->log), bytes = left < LARGE_PIECE_BYTES ? left : LARGE_PIECE_BYTES;
    return !bytes || (left <= record_body_bytes(r) && log_readable_part(s->log, r, record_body_bytes(r) - left, bytes));
}

void shard_move_piece(struct worker *w, struct shard *s) {
    log_position place = s->large_from;
    const struct record *r = log_read_head(s->log, place);
    uint32_t topic = r ? shard_topic(s, r->topic) : 0;
    enum outcome moved = LATER;
    if (topic && !is_piece_readable(s, r))
        log_check_again(s->log);
    else if (topic && !s->large_is_kept)
        moved = move_if_live(w, s, r, place);
    else if (topic && stream_place(&topic_at(&w->topics, topic)->stream, r->seq) == place)
        moved = topic_at(&w->topics, topic)->handover ? LATER : shard_move_message(w, s, topic, r);
    if (moved != MORE && s->large_from == place) large_forget(w, s, s->large_id);
}

/* Items of lists, such as a topic's subscriptions, that are walked for messages before others have their turn. */
enum { COMPACT_WALK = WORKER_TURN_WALK / 4 };

static void begin(struct shard *s, uint32_t segment) {
    s->compacting = segment;
    s->scan_offset = s->rest_seq = 0;
    s->rest_job = s->rest_topic = 0;
    s->passed_over = false;
}

bool shard_compact(struct worker *w, struct shard *s, uint32_t segment, uint64_t budget) {
    if (segment >= s->segment || s->large_from) return false;
    if (segment != s->compacting) begin(s, segment);
    const uint64_t end = s->scan_offset + budget, most = w->walked + COMPACT_WALK;
    while (s->scan_offset < end && w->walked < most) {
        uint64_t offset = s->scan_offset;
        const struct record *r;
        int found = log_scan_sealed(s->log, segment, &offset, &r);
        if (found == 0) return true;
        if (found == 2) return false;
        s->passed_over |= found < 0;
        if (found > 0 && (r->kind == RECORD_PUBLISH || r->kind == RECORD_MOVED)) {
            log_position position = (uint64_t)segment << 32 | (offset - record_stride(r));
            if (move_if_live(w, s, r, position) != DONE) return false;
        }
        s->scan_offset = offset;
    }
    return false;
}

/* The records that a shard's log is made of are appended. The caller has reserved room for them. */
#include "shards/records.h"

#include <assert.h>
#include <stddef.h>

#include "log/large.h"
#include "shards/forgotten.h"
#include "shards/known.h"
#include "shards/producers.h"
#include "shards/shard.h"
#include "shards/unreadable.h"

/* --- appending ---------------------------------------------------------------------------------------------------- */

static void count_append(struct worker *w, struct shard *s) {
    if (!s->dirty) {
        s->dirty = true;
        w->dirty[w->dirty_count++] = s;
    }
    w->count->records_written++;
}

static log_position append(struct worker *w, struct shard *s, const struct record *head, const void *attributes,
                           const void *body, size_t body_bytes) {
    count_append(w, s);
    return log_append(s->log, head, attributes, body, body_bytes);
}

/* Appends the record of a large message, whose body is in the log. */
static log_position append_large(struct worker *w, struct shard *s, const struct record *head, const void *attributes) {
    count_append(w, s);
    s->large_id = s->large_from = 0;
    s->large_staged_topic = 0;
    s->large_is_kept = false;
    log_position position = log_large_append(s->log, head, attributes);
    if (!position) process_die("the log cannot be written");
    return position;
}

/* Smaller bodies are copied, which costs no more than writing them from where they lie. */
enum { LENT_BODY_BYTES = 8 << 10 };

/* A body in a ring stays there until all logs are written: see worker_turn. (Not inlined, for the sake of small
 * ones.) */
__attribute__((noinline)) static log_position append_from_ring(struct worker *w, struct shard *s,
                                                               const struct record *head, const void *attributes,
                                                               const void *body, size_t body_bytes) {
    if (body_bytes >= LARGE_BYTES / 2 && log_large_switched(s->log)) return append_large(w, s, head, attributes);
    if (!w->taking || !channel_keeps(w->taking, body)) return append(w, s, head, attributes, body, body_bytes);
    count_append(w, s);
    return log_append_lent(s->log, head, attributes, body, body_bytes);
}

/* As message_last_id() of the record. */
static uint64_t last_id_of(const struct worker *w, const struct record *head, const void *content,
                           uint32_t content_bytes) {
    size_t bytes;
    if (!(head->flags & MESSAGE_HEADERS) || !headers_fit(content, content_bytes, &bytes)) return head->id;
    const uint32_t parts = headers_packed(content);
    return head->id + (parts > 1 ? (uint64_t)parts * w->shards : 0);
}

/* Appends the record of a message. */
__attribute__((always_inline)) static inline log_position append_message(struct worker *w, struct shard *s,
                                                                         const struct record *head,
                                                                         const void *attributes, const void *body,
                                                                         uint32_t body_bytes) {
    log_position position = body_bytes < LENT_BODY_BYTES ? append(w, s, head, attributes, body, body_bytes)
                                                         : append_from_ring(w, s, head, attributes, body, body_bytes);
    const uint64_t last_id = last_id_of(w, head, body, body_bytes);
    if (last_id > s->top_id) s->top_id = last_id;
    shard_count_in(s, position);
    return position;
}

/* Appends a record without which others mean nothing: a copy of it is kept in another file. */
static void append_twice(struct worker *w, struct shard *s, const struct record *head, const void *attributes,
                         const void *body, size_t body_bytes) {
    log_copy(s->log, append(w, s, head, attributes, body, body_bytes));
}

static struct record head_of(const struct worker *w, uint8_t kind, uint32_t topic, uint64_t seq, uint64_t id) {
    return (struct record){.kind = kind, .topic = topic, .seq = seq, .time_ns = w->wall_ns, .id = id};
}

/* In the order in which the producers wrote last, so that the order is the same after a recovery. */
void shard_log_producers(struct worker *w, struct shard *s, const struct producers *all, uint16_t flags) {
    for (uint32_t n = all->oldest; n; n = all->items[n].newer) {
        const struct producer_last *last = &all->items[n];
        struct record head = head_of(w, RECORD_PRODUCER, 0, last->part.batch, last->part.key);
        struct producer_attributes a = {.part = last->part.part, .used_wall_ns = last->used_ns};
        head.flags = flags;
        head.attribute_bytes = sizeof a;
        if (flags & PRODUCER_NAMED)
            append(w, s, &head, &a, NULL, 0);
        else
            append_twice(w, s, &head, &a, NULL, 0);
    }
}

void shard_log_lost(struct worker *w, struct shard *s, uint64_t seqs) {
    struct record head = head_of(w, RECORD_FLOOR, 0, s->floor, s->top_id);
    head.flags = FLOOR_LOST;
    head.attribute_bytes = sizeof seqs;
    append_twice(w, s, &head, &seqs, NULL, 0);
}

void shard_log_floor(struct worker *w, struct shard *s, const struct floor *floor) {
    struct record head = head_of(w, RECORD_FLOOR, 0, s->floor, s->top_id);
    for (size_t at = 0, some; at < floor->count; at += some) {
        some = floor->count - at < SHARD_FORGOTTEN_RECORD ? floor->count - at : SHARD_FORGOTTEN_RECORD;
        head.attribute_bytes = (uint8_t)(some * sizeof *floor->topics);
        append_twice(w, s, &head, floor->topics + at, floor->numbers + at, some * sizeof *floor->numbers);
    }
}

void shard_log_forgotten(struct worker *w, struct shard *s) {
    struct record floor = head_of(w, RECORD_FLOOR, 0, s->floor, s->top_id);
    struct forgotten_topic some[SHARD_FORGOTTEN_RECORD];
    uint32_t at = 0;
    size_t count = forgotten_some(&s->forgotten, &at, some, SHARD_FORGOTTEN_RECORD);
    floor.flags = FLOOR_ALL_FORGOTTEN;
    floor.attribute_bytes = (uint8_t)(count * sizeof *some);
    append_twice(w, s, &floor, some, NULL, 0);
    floor.flags = 0;
    while ((count = forgotten_some(&s->forgotten, &at, some, SHARD_FORGOTTEN_RECORD)) > 0) {
        floor.attribute_bytes = (uint8_t)(count * sizeof *some);
        append(w, s, &floor, some, NULL, 0);
    }
}

void shard_log_filler(struct worker *w, struct shard *s, uint64_t bytes) {
    static const uint32_t no_topic[SHARD_FILLER_BYTES / sizeof(uint32_t)];
    assert(bytes == 0 || bytes >= sizeof(struct record));
    while (bytes > 0) {
        uint64_t some = bytes < SHARD_FILLER_BYTES ? bytes : SHARD_FILLER_BYTES;
        /* Leaves nothing for the next record, or enough for one. */
        if (bytes - some > 0 && bytes - some < sizeof(struct record)) some -= sizeof(struct record);
        struct record floor = head_of(w, RECORD_FLOOR, 0, s->floor, s->top_id);
        append(w, s, &floor, NULL, no_topic, some - sizeof floor);
        bytes -= some;
    }
}

void shard_log_topic(struct worker *w, struct shard *s, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct record head = head_of(w, RECORD_TOPIC, t->number, t->next_seq, 0);
    head.flags =
        (uint16_t)((t->durable ? TOPIC_DURABLE : 0) | (t->durable && t->tube ? TOPIC_TUBE : 0) |
                   (t->keeps ? TOPIC_STOPPED : 0) | (t->keeps && !t->stopped ? TOPIC_RELEASES : 0) |
                   (t->ephemeral ? TOPIC_EPHEMERAL : 0) | (t->stream.retains ? TOPIC_RETAINS : 0) |
                   (t->terminated ? TOPIC_TERMINATED : 0) | TOPIC_SAID |
                   (topic_non_persistent(t) ? TOPIC_NON_PERSISTENT : 0) | (t->jobs_joined ? TOPIC_JOBS_JOINED : 0));
    struct topic_attributes a = {t->keeps ? t->stopped_seq : 0, t->incarnation, t->began_seq, t->epochs};
    if (t->keeps) head.attribute_bytes = sizeof a.stopped_seq;
    if (t->stream.retains) head.attribute_bytes = sizeof a;
    append_twice(w, s, &head, &a, t->name, t->name_bytes);
    if (!t->durable) t->end_unwritten = false; /* this record says it */
    /* It has no channels that must be named too. */
    if (t->subscription_count == t->ephemeral_count) shard_note_named(w, s, topic);
}

log_position shard_log_publish(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq,
                               const struct arrival *one, struct publish_attributes attributes, uint16_t flags) {
    struct record head = head_of(w, RECORD_PUBLISH, topic_at(&w->topics, topic)->number, seq, one->id);
    struct publish_attributes packed;
    head.flags = flags;
    head.attribute_bytes = publish_attributes_pack(&attributes, &packed);
    return append_message(w, s, &head, &packed, one->content, one->content_bytes);
}

log_position shard_log_staged(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq,
                              const struct arrival *one, const struct staged_attributes *a, uint16_t flags) {
    struct record head = head_of(w, RECORD_STAGED, topic_at(&w->topics, topic)->number, seq, one->id);
    head.flags = flags;
    head.attribute_bytes = sizeof *a;
    return append_message(w, s, &head, a, one->content, one->content_bytes);
}

log_position shard_log_pending(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                               uint64_t txn, const struct parts_left *left, bool upto) {
    struct record head = head_of(w, RECORD_PENDING, topic_at(&w->topics, of->topic)->number, seq, of->number);
    head.attribute_bytes = sizeof txn;
    head.flags = (uint16_t)((left ? PENDING_PARTS : 0) | (upto ? PENDING_UPTO : 0));
    log_position position =
        append(w, s, &head, &txn, left ? left->bits : NULL, left ? left->words * sizeof *left->bits : 0);
    shard_count_in(s, position);
    return position;
}

void shard_log_txn_end(struct worker *w, struct shard *s, uint32_t topic, uint64_t txn, bool commit) {
    struct record head = head_of(w, RECORD_TXN_END, topic_at(&w->topics, topic)->number, 0, txn);
    head.flags = commit ? TXN_COMMIT : 0;
    append(w, s, &head, NULL, NULL, 0);
}

void shard_log_producer(struct worker *w, struct shard *s, const struct producer_part *part, uint16_t flags) {
    struct record head = head_of(w, RECORD_PRODUCER, 0, part->batch + part->more, part->key);
    head.flags = flags;
    head.attribute_bytes = sizeof part->part;
    append(w, s, &head, &part->part, NULL, 0);
    if (!producers_note(flags & PRODUCER_NAMED ? &s->named_producers : &s->batch_producers, part, w->wall_ns))
        process_die("out of memory");
}

void shard_log_delete(struct worker *w, struct shard *s, const struct job *job, uint64_t seq) {
    struct record head = head_of(w, RECORD_DELETE, topic_at(&w->topics, job->topic)->number, seq, job->id);
    append(w, s, &head, NULL, NULL, 0);
}

void shard_log_delete_part(struct worker *w, struct shard *s, const struct job *whole, uint64_t id) {
    struct record head =
        head_of(w, RECORD_DELETE, topic_at(&w->topics, whole->topic)->number, job_record(w, whole)->seq, id);
    append(w, s, &head, NULL, NULL, 0);
}

static struct state_attributes state_of(const struct worker *w, const struct job *job) {
    bool apart = job->state == JOB_DELAYED || job->state == JOB_BURIED;
    struct state_attributes a = {.pri = job->pri, .state = apart ? job->state : JOB_READY};
    if (!job->reservation) {
        a.delay_ns = job_attributes(w, job).delay_ns;
        return a;
    }
    const struct reservation *reservation = reservation_at(w, job->reservation);
    a.reserves = reservation->reserves;
    a.timeouts = reservation->timeouts;
    a.releases = reservation->releases;
    a.buries = reservation->buries;
    a.kicks = reservation->kicks;
    a.delay_ns = reservation->delay_ns;
    if (job->state == JOB_DELAYED) {
        uint64_t left = reservation->deadline_ns > w->now_ns ? reservation->deadline_ns - w->now_ns : 0;
        a.deadline_wall_ns = left > UINT64_MAX - w->wall_ns ? UINT64_MAX : w->wall_ns + left;
    }
    return a;
}

void shard_log_state(struct worker *w, struct shard *s, const struct job *job) {
    struct state_attributes attributes = state_of(w, job);
    struct record head = head_of(w, RECORD_STATE, topic_at(&w->topics, job->topic)->number, job_seq(w, job), job->id);
    head.attribute_bytes = sizeof attributes;
    append(w, s, &head, &attributes, NULL, 0);
}

log_position shard_log_moved(struct worker *w, struct shard *s, uint32_t topic, const struct job *job,
                             const struct record *from, uint16_t flags) {
    struct moved_attributes attributes = {.publish = publish_attributes_of(from)};
    if (job) attributes.state = state_of(w, job);
    struct record head = *from;
    head.kind = RECORD_MOVED;
    head.topic = topic_at(&w->topics, topic)->number;
    head.flags = (uint16_t)(flags | (from->flags & MESSAGE_HEADERS));
    head.attribute_bytes = sizeof attributes;
    if (log_large_switched(s->log)) return append_large(w, s, &head, &attributes);
    return append(w, s, &head, &attributes, record_body(from), record_body_bytes(from));
}

/* --- subscriptions ------------------------------------------------------------------------------------------------ */

static struct record head_of_subscription(const struct worker *w, uint8_t kind, const struct subscription *of,
                                          uint64_t seq) {
    return head_of(w, kind, topic_at(&w->topics, of->topic)->number, seq, of->number);
}

void shard_log_subscription(struct worker *w, struct shard *s, struct subscription *of) {
    struct record head = head_of_subscription(w, RECORD_SUBSCRIPTION, of, of->cursor);
    head.flags = (uint16_t)((of->paused ? SUBSCRIPTION_PAUSED : 0) | (of->passed_by_age ? SUBSCRIPTION_BY_AGE : 0));
    if (of->cursor < of->held_from) head.attribute_bytes = sizeof of->held_from;
    append_twice(w, s, &head, &of->held_from, of->name, of->name_bytes);
    of->logged_cursor = of->cursor;
}

void shard_log_seek(struct worker *w, struct shard *s, struct subscription *of, uint16_t flags) {
    struct record head = head_of_subscription(w, RECORD_SEEK, of, of->cursor);
    head.flags = flags;
    append_twice(w, s, &head, NULL, NULL, 0);
    of->logged_cursor = of->cursor;
}

void shard_log_cursor(struct worker *w, struct shard *s, struct subscription *of) {
    struct record head = head_of_subscription(w, RECORD_CURSOR, of, of->cursor);
    append(w, s, &head, NULL, NULL, 0);
    of->logged_cursor = of->cursor;
}

static bool is_run(const struct subscription *of) {
    for (uint32_t i = 1; i < of->ack_count; i++)
        if (of->acks[i] != (int32_t)i) return false;
    return true;
}

uint64_t shard_finish_bytes(const struct subscription *of) {
    return sizeof of->ack_count + of->ack_count * sizeof *of->acks;
}

void shard_log_finish(struct worker *w, struct shard *s, struct subscription *of) {
    struct record head = head_of_subscription(w, RECORD_FINISH, of, of->ack_base);
    if (is_run(of)) {
        head.attribute_bytes = sizeof of->ack_count;
        append(w, s, &head, &of->ack_count, NULL, 0);
    } else {
        append(w, s, &head, NULL, of->acks, of->ack_count * sizeof *of->acks);
    }
    of->ack_count = 0;
}

void shard_log_finish_one(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq) {
    struct record head = head_of_subscription(w, RECORD_FINISH, of, seq);
    const uint32_t one = 1;
    head.attribute_bytes = sizeof one;
    append(w, s, &head, &one, NULL, 0);
}

void shard_log_finish_upto(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq) {
    struct record head = head_of_subscription(w, RECORD_FINISH, of, seq);
    head.flags = FINISH_UPTO;
    append(w, s, &head, NULL, NULL, 0);
}

void shard_log_finish_parts(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                            const struct parts_left *left, struct parts_span span) {
    struct record head = head_of_subscription(w, RECORD_FINISH, of, seq);
    head.flags = FINISH_PARTS;
    head.attribute_bytes = span.is_all ? 0 : sizeof span.first;
    append(w, s, &head, &span.first, left->bits + span.first, span.count * sizeof *left->bits);
}

struct redelivery shard_redelivery_of(const struct worker *w, const struct delivery *d) {
    struct redelivery redelivery = {.attempts = d->attempts};
    if (d->state != DELIVERY_DEFERRED || d->deadline_ns == DELIVERY_PENDING_NS) return redelivery;
    uint64_t left_ns = d->deadline_ns > w->now_ns ? d->deadline_ns - w->now_ns : 0;
    redelivery.deferred_until_wall_ns =
        left_ns < DELIVERY_LATEST_NS - w->wall_ns ? w->wall_ns + left_ns : DELIVERY_LATEST_NS;
    return redelivery;
}

void shard_log_redelivery(struct worker *w, struct shard *s, const struct subscription *of, const struct delivery *d) {
    struct redelivery redelivery = shard_redelivery_of(w, d);
    struct record head = head_of_subscription(w, RECORD_REDELIVERY, of, d->seq);
    head.attribute_bytes = sizeof redelivery;
    append(w, s, &head, &redelivery, NULL, 0);
}

void shard_log_references(struct worker *w, struct shard *s, uint32_t topic, const struct record *of, uint16_t flags,
                          const struct reference *references, size_t count) {
    struct record head = head_of(w, RECORD_REFERENCES, topic_at(&w->topics, topic)->number, of->seq, of->id);
    head.flags = flags;
    append(w, s, &head, NULL, references, count * sizeof *references);
}

void shard_log_adopted(struct worker *w, struct shard *s, const struct subscription *by, const uint64_t *ids,
                       size_t count, uint16_t flags) {
    struct record head = head_of_subscription(w, RECORD_ADOPT, by, by->cursor);
    head.flags = (uint16_t)(flags | ADOPT_FROM);
    append_twice(w, s, &head, NULL, ids, count * sizeof *ids);
}

void shard_log_joined(struct worker *w, struct shard *s, uint32_t topic, const uint64_t *ids, size_t count) {
    struct record head = head_of(w, RECORD_ADOPT, topic_at(&w->topics, topic)->number, 0, 0);
    append_twice(w, s, &head, NULL, ids, count * sizeof *ids);
}

void shard_log_adopted_all(struct worker *w, struct shard *s, const struct subscription *by, uint64_t wall_ns) {
    struct record head = head_of_subscription(w, RECORD_ADOPT, by, by->cursor);
    head.flags = ADOPT_ALL | ADOPT_FROM;
    head.time_ns = wall_ns;
    append_twice(w, s, &head, NULL, NULL, 0);
}

void shard_log_end(struct worker *w, struct shard *s, enum record_kind kind, uint32_t topic, struct subscription *of) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct record head = head_of(w, (uint8_t)kind, t->number, t->next_seq, 0);
    if (of) head = head_of_subscription(w, (uint8_t)kind, of, of->cursor);
    append_twice(w, s, &head, NULL, NULL, 0);
    if (of) of->logged_cursor = of->cursor;
}

void shard_log_emptied(struct worker *w, struct shard *s, uint32_t topic, uint32_t subscription, uint64_t until) {
    struct record head = head_of(w, RECORD_EMPTY, topic_at(&w->topics, topic)->number, until, subscription);
    append_twice(w, s, &head, NULL, NULL, 0);
}

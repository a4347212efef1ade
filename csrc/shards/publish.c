/* Carries out a PUBLISH: writes the record, and enters the message into stream and job queue. Many at once: many.c. */
#include "shards/publish.h"

#include <assert.h>
#include <string.h>

#include "base/modulo.h"
#include "shards/answers.h"
#include "shards/catalog.h"
#include "shards/delays.h"
#include "shards/durable.h"
#include "shards/enter.h"
#include "shards/handover_state.h"
#include "shards/large.h"
#include "shards/non_persistent.h"
#include "shards/producers.h"
#include "shards/queue.h"
#include "shards/records.h"
#include "shards/retain.h"
#include "shards/room.h"
#include "shards/topic_life.h"
#include "shards/transaction_end.h"
#include "shards/transactions.h"

/* A PRODUCER record, whose attributes are its part. */
enum { PRODUCER_RECORD_BYTES = (sizeof(struct record) + sizeof(uint32_t) + 7) / 8 * 8 };

/* How long after its record's time a message is due. */
static uint64_t delay_of(const struct worker *w, const struct message *m) {
    return m->flags & MSG_DUE && m->delay_ns ? delay_until(w, m->delay_ns, m->ttr_ns) : m->delay_ns;
}

static uint8_t attribute_bytes_of(const struct worker *w, const struct message *m) {
    struct publish_attributes packed;
    const struct publish_attributes a = {.pri = m->pri, .delay_ns = delay_of(w, m), .ttr_ns = m->ttr_ns};
    return m->flags & MSG_TXN ? sizeof(struct staged_attributes) : publish_attributes_pack(&a, &packed);
}

/* Whether the body is written in pieces; then *large says how. */
static bool is_large(const struct worker *w, const struct message *m, const struct arrival *one,
                     struct large_message *large) {
    if (m->body_bytes < LARGE_BYTES) return false;
    *large = (struct large_message){.id = m->id,
                                    .content = one->content,
                                    .content_bytes = one->content_bytes,
                                    .attribute_bytes = attribute_bytes_of(w, m),
                                    .beside_bytes = m->flags & MSG_IDEMPOTENT ? PRODUCER_RECORD_BYTES : 0};
    return true;
}

bool publish_split_headers(const struct message *m, struct arrival *one) {
    size_t bytes = 0;
    one->headers_bytes = 0;
    if (!(m->flags & MSG_HEADERS)) return true;
    if (!headers_fit(one->content, one->content_bytes, &bytes)) return false;
    one->headers_bytes = (uint32_t)bytes;
    return true;
}

/* Whether only ephemeral subscriptions get a message, and nobody after a restart, ... */
static bool is_fleeting(const struct topic *t) {
    return only_ephemeral(t) && !goes_to_queue(t) && !t->keeps;
}

/* ... unless it is retained: then it waits for no subscription. */
uint32_t publish_who_waits(const struct topic *t, const struct message *m) {
    if (is_fleeting(t)) return t->stream.retains ? PUBLISH_UNAWAITED : PUBLISH_FLEETING;
    return m->flags & MSG_RETAIN && !topic_keeps(t, UINT64_MAX, true) ? PUBLISH_UNAWAITED : 0;
}

/* Whether all tables that have limits have room for `count` messages. */
static bool fits(const struct worker *w, const struct topic *t, uint64_t count, bool delayed) {
    if (goes_to_queue(t) && worker_jobs(w) + count >= WORKER_MAX_JOBS) return false;
    return !delayed || deliveries_fit(w, count * t->subscription_count);
}

void publish_answer(struct worker *w, uint32_t client, uint32_t topic, const struct message *m, uint8_t status,
                    uint64_t seq) {
    if (!client) return; /* the client has left */
    struct message a = request_answer_of(w, client, m, status);
    a.id = m->id;
    if (status == STATUS_OK) {
        const struct topic *t = topic_at(&w->topics, topic);
        a.incarnation = t->incarnation;
        a.seq = topic_non_persistent(t) ? 0 : seq;
        if (m->kind == MSG_PUBLISH && m->flags & MSG_JOINED) {
            a.topic = m->topic;
            request_joined(w, client, &a, 1);
            return;
        }
    }
    request_send(w, client, &a, NULL, 0);
}

void publish_take_in(struct worker *w, uint32_t topic, const struct message *m, const struct arrival *one,
                     const struct publish_record *record) {
    struct topic *t = topic_at(&w->topics, topic);
    const uint16_t flags = record->flags;
    t->messages++;
    w->count->published++;
    arrival_count(t, one);
    stream_enter(w, topic, record->seq, one->id, record->position,
                 (m->delay_ns ? enter_delayed(flags) : 0) | (flags & PUBLISH_UNAWAITED ? ENTER_UNAWAITED : 0) |
                     (flags & PUBLISH_MORE ? ENTER_WITH_MORE : 0));
    queue_enter(w, topic, one->id, one->headers_bytes ? headers_packed(one->content) : 0, m->pri, delay_of(w, m),
                record->position);
}

/* Inlines all calls, which took a twentieth of the time of a message. */
__attribute__((flatten)) void publish_enter(struct worker *w, uint32_t topic, const struct message *m,
                                            const struct arrival *one, bool more) {
    struct topic *t = topic_at(&w->topics, topic);
    if (topic_non_persistent(t)) {
        non_persistent_publish(w, topic, one);
        return;
    }
    struct publish_attributes attributes = {.pri = m->pri, .delay_ns = delay_of(w, m), .ttr_ns = m->ttr_ns};
    struct publish_record record = {.seq = t->next_seq++, .flags = publish_flags(t, m, one, more)};
    record.position = shard_log_publish(w, shard_of_topic(w, t), topic, record.seq, one, attributes, record.flags);
    publish_take_in(w, topic, m, one, &record);
}

enum outcome publish_make_ready(struct worker *w, uint32_t topic, const struct message *m, uint32_t count,
                                uint8_t *status) {
    struct topic *t = topic_at(&w->topics, topic);
    if (handover_takes_group(t)) return MORE;
    *status = t->terminated ? STATUS_TERMINATED : STATUS_NO_SPACE;
    if (modulo(m->id, w->shards) != t->shard || t->terminated) return DONE;
    bool durable = (m->flags & MSG_DURABLE) != 0, retain = m->flags & MSG_RETAIN && !topic_non_persistent(t);
    if (durable && !t->durable && (topic_make_durable(w, topic, status) == LATER)) return LATER;
    if (durable && !t->durable) return DONE;
    enum outcome retained = retain && !t->stream.retains ? topic_retain(w, topic, status) : DONE;
    if (retained != DONE) return retained;
    if (retain && !t->stream.retains) return DONE;
    *status = STATUS_NO_SPACE;
    enum outcome wanted = durable ? DONE : topic_want_tube(w, topic);
    if (wanted != DONE) return wanted;
    if (!durable && !t->tube) return DONE;
    if (fits(w, t, count, m->delay_ns && !(m->flags & MSG_DUE))) *status = STATUS_OK;
    return DONE;
}

enum outcome publish_prepare(struct worker *w, uint32_t topic, const struct message *m, uint32_t count, uint64_t bytes,
                             const struct large_message *large, uint8_t *status) {
    enum outcome ready = publish_make_ready(w, topic, m, count, status);
    if (ready != DONE || *status != STATUS_OK) return ready;
    if (topic_non_persistent(topic_at(&w->topics, topic))) return DONE;
    if (large) return large_write(w, topic, large, status);
    return room_reserve_named(w, topic, count + 1, bytes, status);
}

/* What a producer puts before its message. */
struct origin {
    uint64_t arrival; /* UINT64_MAX: not said, so the message cannot be fenced off */
    struct producer_part part;
    bool is_named; /* there is a part */
    uint64_t txn;
};

static bool split(struct arrival *one, void *out, uint32_t bytes) {
    if (one->content_bytes < bytes) return false;
    memcpy(out, one->content, bytes);
    one->content += bytes;
    one->content_bytes -= bytes;
    return true;
}

/* False: it is missing or wrong. */
static bool split_origin(const struct message *m, struct arrival *one, struct origin *origin) {
    *origin = (struct origin){.arrival = UINT64_MAX, .is_named = (m->flags & MSG_IDEMPOTENT) != 0};
    if (m->flags & MSG_OF_PRODUCER && !split(one, &origin->arrival, sizeof origin->arrival)) return false;
    if (origin->is_named && (!split(one, &origin->part, sizeof origin->part) || origin->part.part != 0)) return false;
    return !(m->flags & MSG_TXN) || split(one, &origin->txn, sizeof origin->txn);
}

/* Answers a message that was published before; its place is not known. */
static void answer_repeated(struct worker *w, uint32_t client, const struct message *m) {
    if (!client) return;
    struct message a = request_answer_of(w, client, m, STATUS_OK);
    a.id = m->id;
    a.incarnation = a.seq = NO_PLACE;
    request_send(w, client, &a, NULL, 0);
}

/* Answers a message that must not be stored: a producer that was fenced off sends it, or it was published before.
 * False: it is to be stored. */
static bool is_unwanted(struct worker *w, uint32_t client, uint32_t topic, const struct message *m,
                        const struct origin *origin) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *shard = shard_of_topic(w, t);
    bool is_fenced = origin->arrival < t->fenced_before;
    if (!is_fenced && !origin->is_named) return false;
    if (!is_fenced && producers_ask(&shard->named_producers, &origin->part, w->wall_ns) == PRODUCER_NEXT) return false;
    large_forget(w, shard, m->id);
    if (is_fenced)
        publish_answer(w, client, topic, m, STATUS_FENCED, 0);
    else
        answer_repeated(w, client, m);
    return true;
}

/* Whether there is a job with the id of the message, or of one of its parts. */
static bool is_known(const struct worker *w, uint32_t topic, uint64_t id, uint32_t parts) {
    if (!goes_to_queue(topic_at(&w->topics, topic))) return false;
    bool known = index_find(&w->ids, &w->jobs, id) != 0;
    for (uint32_t i = 0; parts > 1 && !known && i < parts; i++)
        known = index_find(&w->ids, &w->jobs, id + (uint64_t)(i + 1) * w->shards) != 0;
    return known;
}

/* Whether the message may be of a transaction, if it is: one that is stored, in a topic that retains. */
static bool may_be_staged(const struct topic *t, const struct message *m) {
    if (!(m->flags & MSG_TXN)) return true;
    return !topic_non_persistent(t) && !(~m->flags & (MSG_DURABLE | MSG_RETAIN)) &&
           (m->flags & MSG_DUE || !m->delay_ns);
}

/* Whether the message's transaction, if it has one, is open and has room; it is begun if need be. But one that has
 * ended while a large message was being written is not begun again. */
static bool takes_part(struct worker *w, uint32_t topic, const struct message *m, uint64_t txn) {
    if (!(m->flags & MSG_TXN)) return true;
    bool is_begun = shard_of_topic(w, topic_at(&w->topics, topic))->large_id == m->id;
    return (!is_begun || transaction_find(w, topic, txn)) && transaction_take(w, topic, txn);
}

/* Makes room for a message. As publish_prepare. */
static enum outcome make_room(struct worker *w, uint32_t topic, const struct message *m, const struct arrival *one,
                              uint64_t txn, uint8_t *status) {
    const uint32_t parts = one->headers_bytes ? headers_packed(one->content) : 0;
    *status = STATUS_NO_SPACE;
    if (is_known(w, topic, m->id, parts) || !takes_part(w, topic, m, txn)) return DONE;
    struct large_message pieces;
    const struct large_message *large = is_large(w, m, one, &pieces) ? &pieces : NULL;
    const uint64_t bytes = sizeof(struct staged_attributes) + m->body_bytes;
    enum outcome prepared = publish_prepare(w, topic, m, 1 + parts, bytes, large, status);
    if (prepared != LATER || !large || shard_of_topic(w, topic_at(&w->topics, topic))->large_id != m->id)
        return prepared;
    /* The topic was deleted, and making it anew needs the segment that comes with this message: a deadlock. */
    *status = STATUS_NO_SPACE;
    return DONE;
}

/* Stores a message for which there is room, and enters it, unless that waits for its transaction. */
static void store(struct worker *w, uint32_t topic, const struct message *m, const struct arrival *one,
                  const struct origin *origin) {
    struct topic *t = topic_at(&w->topics, topic);
    bool unheard = t->messages == 0;
    if (origin->is_named) shard_log_producer(w, shard_of_topic(w, t), &origin->part, PUBLISH_MORE | PRODUCER_NAMED);
    if (m->flags & MSG_TXN)
        transaction_stage(w, topic, m, origin->txn, delay_of(w, m), one);
    else
        publish_enter(w, topic, m, one, false);
    if (unheard) catalog_heard(w, topic);
}

enum outcome publish(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    struct arrival one = {.id = m->id, .content = (const uint8_t *)(m + 1), .content_bytes = m->body_bytes};
    struct origin origin;
    uint8_t status = STATUS_INVALID;
    if (!topic) {
        publish_answer(w, client, topic, m, STATUS_TOO_MANY, 0);
        return DONE;
    }
    struct topic *t = topic_at(&w->topics, topic);
    bool has_origin = split_origin(m, &one, &origin);
    if (topic_non_persistent(t)) origin.is_named = false; /* what is not stored is not stored twice */
    if (has_origin && is_unwanted(w, client, topic, m, &origin)) return DONE;
    if (has_origin && publish_split_headers(m, &one) && may_be_staged(t, m)) {
        enum outcome prepared = make_room(w, topic, m, &one, origin.txn, &status);
        if (prepared != DONE) return prepared;
    }
    if (status == STATUS_OK)
        store(w, topic, m, &one, &origin);
    else
        large_forget(w, shard_of_topic(w, t), m->id);
    publish_answer(w, client, topic, m, status, t->next_seq - 1);
    if (status == STATUS_OK && !m->delay_ns && !(m->flags & MSG_TXN)) queue_serve(w, topic);
    return DONE;
}

/* --- several that are answered each ------------------------------------------------------------------------------- */

static const struct publish_each *each_at(const uint8_t *at) {
    return (const struct publish_each *)(const void *)at;
}

enum { FETCH_AHEAD_BYTES = 1024, LINE_BYTES = 64 };

/* Prefetches messages, which the acceptor's core has in its cache. Where one begins is known only when the previous one
 * has been loaded, so without this the loads would follow each other. */
static const uint8_t *fetch(const uint8_t *from, const uint8_t *upto) {
    for (; from < upto; from += LINE_BYTES) __builtin_prefetch(from);
    return from;
}

/* Whether the body has exactly `several` messages, all whole. */
static bool each_whole(const struct message *m) {
    const uint8_t *at = (const uint8_t *)(m + 1), *fetched = at;
    uint32_t count = 0, left = m->body_bytes;
    while (left >= sizeof(struct publish_each) && count < m->several) {
        const struct publish_each *each = each_at(at);
        fetched = fetch(fetched, at + (left < FETCH_AHEAD_BYTES ? left : FETCH_AHEAD_BYTES));
        if (each->bytes > EACH_BODY_BYTES || publish_each_bytes(each->bytes) > left) return false;
        left -= publish_each_bytes(each->bytes);
        at += publish_each_bytes(each->bytes);
        count++;
    }
    return count > 0 && count == m->several && count <= EACH_MOST && left == 0;
}

/* Whether all have new, rising ids of the topic's shard. All must be whole. */
static bool each_new(const struct worker *w, uint32_t topic, const struct message *m) {
    const uint8_t *at = (const uint8_t *)(m + 1);
    uint64_t last = 0;
    for (uint32_t left = m->several; left > 0; left--) {
        const struct publish_each *each = each_at(at);
        if (each->id <= last || modulo(each->id, w->shards) != topic_at(&w->topics, topic)->shard) return false;
        if (is_known(w, topic, each->id, 0)) return false;
        last = each->id;
        at += publish_each_bytes(each->bytes);
    }
    return true;
}

static void enter_each(struct worker *w, uint32_t topic, const struct message *m) {
    const uint8_t *at = (const uint8_t *)(m + 1);
    bool unheard = topic_at(&w->topics, topic)->messages == 0;
    for (uint32_t left = m->several; left > 0; left--) {
        const struct publish_each *each = each_at(at);
        struct arrival one = {.id = each->id, .content = at + sizeof *each, .content_bytes = each->bytes};
        publish_enter(w, topic, m, &one, false);
        at += publish_each_bytes(each->bytes);
    }
    if (unheard) catalog_heard(w, topic);
}

static void answer_each(struct worker *w, uint32_t client, uint32_t topic, const struct message *m, uint8_t status) {
    struct message a = request_answer_of(w, client, m, status);
    a.kind = MSG_PUBLISH;
    if (status == STATUS_OK) {
        const struct topic *t = topic_at(&w->topics, topic);
        a.incarnation = t->incarnation;
        a.seq = topic_non_persistent(t) ? 0 : t->next_seq - m->several;
        a.topic = m->topic;
        a.id = m->id;
        request_joined(w, client, &a, m->several);
        return;
    }
    const uint8_t *at = (const uint8_t *)(m + 1);
    for (uint32_t left = m->several; left > 0; left--, a.slot++) {
        a.id = each_at(at)->id;
        at += publish_each_bytes(each_at(at)->bytes);
        request_send(w, client, &a, NULL, 0);
    }
}

enum outcome publish_each(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    uint8_t status = topic ? STATUS_NO_SPACE : STATUS_TOO_MANY;
    if (!each_whole(m)) {
        request_done(w, client, m, STATUS_INVALID);
        return DONE;
    }
    struct message each = *m;
    each.flags &= MSG_DURABLE;
    uint64_t bytes = m->several * (uint64_t)sizeof(struct publish_attributes) + m->body_bytes;
    bool fresh = topic && each_new(w, topic, m);
    enum outcome prepared = fresh ? publish_prepare(w, topic, &each, m->several, bytes, NULL, &status) : DONE;
    if (prepared != DONE) return prepared;
    if (fresh && status == STATUS_OK) enter_each(w, topic, m);
    answer_each(w, client, topic, m, status);
    if (status == STATUS_OK && !m->delay_ns) queue_serve(w, topic);
    return DONE;
}

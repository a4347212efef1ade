/* A group: the messages of one PUBLISH_MANY that are too many for one turn. They are written to the log in pieces
 * (log/group.c). None counts until all are written; then all count, and are entered into the topic, in pieces again. A
 * shard has one group at a time.
 *
 * The request is parked meanwhile, and the messages are read from it. Other publishes to the topic wait, so that the
 * group's seqs are consecutive. Requests that change the topic or its channels wait too, as the records, written before
 * they count, depend on these. The group goes on to its end even if its client leaves.
 */
#include "shards/group.h"

#include <string.h>

#include "log/group.h"
#include "log/large.h"
#include "shards/handover.h"
#include "shards/large.h"
#include "shards/naming.h"
#include "shards/producers.h"
#include "shards/publish.h"
#include "shards/queue.h"
#include "shards/room.h"
#include "shards/shard.h"

/* Bytes of the log for each step of a turn: 6 MiB with WORKER_TURN_STEPS. Less is written at once; that much or more is
 * a group, and begins a segment. */
enum { GROUP_BYTES = 1536 };

/* How much of a request is entered in one turn, and given back to the kernel. */
enum { TAKEN_IN_BYTES = 4 << 20 };

static struct group *group_of(const struct worker *w, uint32_t topic) {
    return &shard_of_topic(w, topic_at(&w->topics, topic))->group;
}

bool group_takes(const struct worker *w, const struct message *m) {
    uint64_t bytes = m->body_bytes + m->count * (uint64_t)(LOG_RECORD_OVERHEAD + sizeof(uint64_t));
    return bytes >= w->piece * (uint64_t)GROUP_BYTES;
}

static uint8_t pack_attributes(const struct message *m, uint32_t pri, struct publish_attributes *out) {
    const struct publish_attributes a = {.pri = pri, .delay_ns = m->delay_ns, .ttr_ns = m->ttr_ns};
    return publish_attributes_pack(&a, out);
}

static uint64_t stride(uint64_t attribute_bytes, uint64_t body_bytes) {
    return (sizeof(struct record) + attribute_bytes + body_bytes + 7) & ~(uint64_t)7;
}

enum { PRODUCER_BYTES = (sizeof(struct record) + sizeof(uint32_t) + 7) / 8 * 8 };

/* The bytes that the whole group takes in the log. */
static uint64_t size_of(const struct message *m, struct many many, uint8_t attribute_bytes) {
    uint64_t bytes = many.idempotent ? PRODUCER_BYTES : 0;
    for (uint32_t left = m->count; left > 0; left--)
        bytes += stride(attribute_bytes, next_of_many(&many).content_bytes);
    return bytes;
}

enum outcome group_begin(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                         bool *begun, uint8_t *status) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    struct publish_attributes packed;
    if (s->group.id || log_large_goes_on(s->log) || t->handover) return MORE;
    uint64_t bytes = size_of(m, *many, pack_attributes(m, many->pri, &packed));
    enum log_result result = shard_begin_group(w, s, topic, bytes);
    /* MORE, not LATER: a client that waits for a segment must not keep its acceptor's other clients waiting. */
    if (room_reserved(w, s, result, true, status) == LATER) return MORE;
    if (*status != STATUS_OK) return DONE;
    s->group = (struct group){.id = m->id,
                              .flags = (uint16_t)publish_who_waits(t, m),
                              .at = (uint64_t)(many->at - (const uint8_t *)(m + 1)),
                              .seq = t->next_seq,
                              .topic_number = t->number,
                              .wall_ns = w->wall_ns,
                              .next = log_group_next(s->log) + (many->idempotent ? PRODUCER_BYTES : 0)};
    handover_of_group(w, topic);
    *begun = true;
    return MORE;
}

bool group_is_outdated(const struct worker *w, uint32_t topic, const struct message *m) {
    const struct topic *t = topic_at(&w->topics, topic);
    const struct group *g = group_of(w, topic);
    return g->is_nobodys || g->topic_number != t->number || g->flags != (uint16_t)publish_who_waits(t, m) ||
           g->seq != t->next_seq;
}

void group_drop(struct worker *w, uint32_t topic) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    if (!s->group.is_nobodys) handover_group_over(w, topic);
    s->group = (struct group){0};
    log_large_drop(s->log);
    w->larges_left = true;
}

/* --- to the log --------------------------------------------------------------------------------------------------- */

/* The next message of the group. */
static struct arrival next_of_group(const struct worker *w, const struct message *m, const struct group *g,
                                    struct many *rest) {
    rest->at = (const uint8_t *)(m + 1) + g->at;
    struct arrival one = next_of_many(rest);
    one.id = m->id + (uint64_t)g->done * w->shards;
    if (m->flags & MSG_HEADERS) (void)publish_split_headers(m, &one);
    return one;
}

static void passed(struct group *g, const struct message *m, const struct many *rest) {
    g->at = (uint64_t)(rest->at - (const uint8_t *)(m + 1));
    g->body_at = 0;
    g->done++;
}

static bool write_producer(struct worker *w, struct shard *s, const struct many *many) {
    const struct record head = {.kind = RECORD_PRODUCER,
                                .flags = PUBLISH_MORE,
                                .attribute_bytes = sizeof many->part.part,
                                .seq = many->part.batch + many->part.more,
                                .time_ns = w->wall_ns,
                                .id = many->part.key};
    return log_group_append(s->log, &head, &many->part.part, NULL, 0);
}

/* Writes some of a message that is larger than LOG_GROUP_PIECE. */
static bool write_some(struct shard *s, const struct arrival *one, const struct record *head, const void *attributes) {
    struct group *g = &s->group;
    uint64_t left = one->content_bytes - g->body_at;
    size_t bytes = left < LARGE_PIECE_BYTES ? (size_t)left : LARGE_PIECE_BYTES;
    if (!g->body_at && !log_group_open(s->log, head->attribute_bytes)) return false;
    if (!log_large_write(s->log, one->content + g->body_at, bytes)) return false;
    g->body_at += bytes;
    return g->body_at < one->content_bytes || log_group_close(s->log, head, attributes, one->content_bytes);
}

/* Writes the next message, or, if it is large, some of it. */
static bool write_next(struct worker *w, uint32_t topic, const struct message *m, struct many *rest) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    struct group *g = &s->group;
    const struct arrival one = next_of_group(w, m, g, rest);
    struct publish_attributes packed;
    const uint16_t more = g->done + 1 < m->count ? PUBLISH_MORE : 0;
    const struct record head = {.kind = RECORD_PUBLISH,
                                .flags = (uint16_t)(g->flags | more | (one.headers_bytes ? MESSAGE_HEADERS : 0)),
                                .attribute_bytes = pack_attributes(m, rest->pri, &packed),
                                .topic = g->topic_number,
                                .seq = g->seq + g->done,
                                .time_ns = g->wall_ns,
                                .id = one.id};
    bool is_large = stride(head.attribute_bytes, one.content_bytes) > LOG_GROUP_PIECE, done;
    if (is_large)
        done = write_some(s, &one, &head, &packed);
    else
        done = log_group_append(s->log, &head, &packed, one.content, one.content_bytes);
    if (done && (!is_large || g->body_at == one.content_bytes)) passed(g, m, rest);
    return done;
}

enum outcome group_write(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                         uint8_t *status) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    struct group *g = &s->group;
    struct many rest = *many;
    const uint64_t until = log_large_left(s->log) > LARGE_PIECE_BYTES ? log_large_left(s->log) - LARGE_PIECE_BYTES : 0;
    bool written = g->done || g->body_at || !many->idempotent || write_producer(w, s, many);
    while (written && g->done < m->count && worker_spare(w) && log_large_left(s->log) > until) {
        worker_step(w);
        written = write_next(w, topic, m, &rest);
    }
    written = written && log_group_write(s->log);
    worker_walk(w, WORKER_TURN_WALK / 4);
    *status = written ? STATUS_OK : STATUS_NO_SPACE;
    w->no_space |= !written;
    return written && g->done < m->count ? MORE : DONE;
}

bool group_count(struct worker *w, uint32_t topic, const struct message *m, const struct many *many, uint8_t *status) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    *status = STATUS_NO_SPACE;
    if (goes_to_queue(t) && worker_jobs(w) + m->count >= WORKER_MAX_JOBS) return false;
    if (shard_end_large(w, s, topic, 0) != LOG_OK) return false;
    const uint64_t records = m->count + (many->idempotent ? 1 : 0);
    if (!log_group_end(s->log, records)) process_die("the log cannot be written");
    w->count->records_written += records;
    shard_count_in_many(s, (uint32_t)(s->group.next >> 32), m->count);
    const uint64_t last_id = m->id + (m->count - 1) * (uint64_t)w->shards;
    if (last_id > s->top_id) s->top_id = last_id;
    if (many->idempotent && !producers_note(&s->batch_producers, &many->part, w->wall_ns)) process_die("out of memory");
    s->group.is_queued = goes_to_queue(t);
    if (s->group.is_queued) w->jobs_to_come += m->count;
    s->group.counts = true;
    s->group.done = 0;
    s->group.at = (uint64_t)(many->at - (const uint8_t *)(m + 1));
    return true;
}

/* --- into the topic ----------------------------------------------------------------------------------------------- */

static void take_in_next(struct worker *w, uint32_t topic, const struct message *each, const struct arrival *one,
                         bool more) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    const struct group *g = &s->group;
    const struct publish_record record = {
        .seq = g->seq + g->done, .position = g->next, .flags = (uint16_t)(g->flags | (more ? PUBLISH_MORE : 0))};
    /* Its topic, or the only channels it was for, were deleted. */
    bool is_nobodys = g->is_nobodys || (g->flags & PUBLISH_FLEETING && !t->subscription_count);
    if (!g->is_nobodys) t->next_seq = record.seq + 1;
    if (is_nobodys)
        shard_count_out(s, g->next);
    else
        publish_take_in(w, topic, each, one, &record);
}

/* Whether the next message can be entered in this turn. If it is delayed, each subscription gets a delivery of it. */
static bool may_take_in(const struct worker *w, const struct topic *t, const struct message *m) {
    if (!worker_spare(w)) return false;
    return !m->delay_ns || (w->walked < WORKER_TURN_WALK && deliveries_fit(w, t->subscription_count));
}

enum outcome group_take_in(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                           uint64_t *first) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    struct group *g = &s->group;
    struct publish_attributes packed;
    struct message each = *m;
    struct many rest = *many;
    each.pri = many->pri;
    const uint8_t attribute_bytes = pack_attributes(m, many->pri, &packed);
    const uint8_t *begin = (const uint8_t *)(m + 1);
    const uint64_t from = g->at;
    while (g->done < m->count && may_take_in(w, t, m) && g->at - from < TAKEN_IN_BYTES) {
        worker_step(w);
        const struct arrival one = next_of_group(w, m, g, &rest);
        const bool is_full = (uint64_t)(rest.at - begin) - from >= TAKEN_IN_BYTES;
        take_in_next(w, topic, &each, &one, g->done + 1 < m->count && worker_spare(w) && !is_full);
        if (g->is_queued) w->jobs_to_come--;
        g->next += stride(attribute_bytes, one.content_bytes);
        passed(g, m, &rest);
    }
    /* Not of the first piece, whose beginning is read each time. */
    if (m->body_bytes >= LARGE_BYTES && begin + from > many->at) large_give_back(begin + from, begin + g->at);
    if (g->done < m->count) {
        queue_serve(w, topic);
        return MORE;
    }
    *first = g->seq;
    if (!g->is_nobodys) handover_group_over(w, topic);
    s->group = (struct group){0};
    return DONE;
}

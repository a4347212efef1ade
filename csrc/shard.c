#include "shard.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

/* What a publish leaves free so that deletes can still be written when the disk is full: a record for each job, up to a
 * bound, after which segments that the deletes have emptied give room. */
enum { KEEP_LEAST = 64 << 10, KEEP_MOST = 1 << 20 };

struct shard *shard_new(uint32_t number, uint32_t shards) {
    struct shard *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->number = number;
    s->log = log_new(number, shards);
    if (!s->log) {
        free(s);
        return NULL;
    }
    return s;
}

void shard_free(struct shard *shard) {
    log_free(shard->log);
    free(shard->topics);
    free(shard->use);
    free(shard);
}

/* --- appending ---------------------------------------------------------------------------------------------------- */

static log_position append(struct worker *w, struct shard *s, const struct record *head, const void *attributes,
                           const void *body, size_t body_bytes) {
    if (!s->dirty) {
        s->dirty = true;
        w->dirty[w->dirty_count++] = s;
    }
    w->count->records_written++;
    return log_append(s->log, head, attributes, body, body_bytes);
}

static struct record head_of(const struct worker *w, uint8_t kind, uint32_t topic, uint64_t seq, uint64_t id) {
    return (struct record){.kind = kind, .topic = topic, .seq = seq, .time_ns = w->wall_ns, .id = id};
}

static const struct topic *known(const struct worker *w, const struct shard *s, uint32_t number) {
    return s->topics[number] ? topic_at(&w->topics, s->topics[number]) : NULL;
}

/* A segment begins with all that the segments before it are needed for besides live messages. */
static enum log_result begin_segment(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes,
                                     uint64_t keep) {
    uint64_t head = 0;
    for (uint32_t n = 1; n <= s->topics_known; n++) {
        const struct topic *t = known(w, s, n);
        if (t) head += 2 * t->name_bytes;
    }
    enum log_result result = log_reserve(s->log, 2 * s->topics_known + 1 + records, head + bytes, keep, w->wall_ns);
    if (result != LOG_OK) return result;
    s->segment = log_active_segment(s->log);
    struct record floor = head_of(w, RECORD_FLOOR, 0, s->floor, s->top_id);
    append(w, s, &floor, NULL, NULL, 0);
    for (uint32_t n = 1; n <= s->topics_known; n++)
        if (known(w, s, n)) shard_log_topic(w, s, s->topics[n]);
    return LOG_OK;
}

enum log_result shard_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish) {
    uint64_t keep = 0;
    if (publish) {
        keep = KEEP_LEAST + s->jobs * LOG_RECORD_OVERHEAD;
        if (keep > KEEP_MOST) keep = KEEP_MOST;
    }
    enum log_result result = log_reserve(s->log, records, bytes, keep, w->wall_ns);
    if (result == LOG_OK && log_active_segment(s->log) != s->segment)
        result = begin_segment(w, s, records, bytes, keep);
    return result;
}

bool shard_know_topic(struct worker *w, struct shard *s, uint32_t topic, uint32_t number) {
    if (number >= s->topics_capacity) {
        uint32_t capacity = s->topics_capacity ? s->topics_capacity : 64;
        while (capacity <= number) capacity *= 2;
        uint32_t *topics = realloc(s->topics, sizeof *topics * capacity);
        if (!topics) return false;
        memset(topics + s->topics_capacity, 0, sizeof *topics * (capacity - s->topics_capacity));
        s->topics = topics;
        s->topics_capacity = capacity;
    }
    s->topics[number] = topic;
    if (number > s->topics_known) s->topics_known = number;
    topic_at(&w->topics, topic)->number = number;
    return true;
}

void shard_log_topic(struct worker *w, struct shard *s, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct record head = head_of(w, RECORD_TOPIC, t->number, t->next_seq, 0);
    for (int copy = 0; copy < 2; copy++) append(w, s, &head, NULL, t->name, t->name_bytes);
}

/* Most jobs have a time to run of whole milliseconds and no delay: eight bytes say all of it. */
struct short_attributes {
    uint32_t pri;
    uint32_t ttr_ms;
    uint32_t delay_ms; /* left out if 0 */
};

enum { MS_NS = 1000000, WITHOUT_DELAY = offsetof(struct short_attributes, delay_ms) };

static bool is_short(uint64_t ns) {
    return ns % MS_NS == 0 && ns / MS_NS <= UINT32_MAX;
}

/* How long the short form is; 0: it does not do. */
static uint8_t shorten(const struct publish_attributes *a, struct short_attributes *out) {
    if (!is_short(a->ttr_ns) || !is_short(a->delay_ns)) return 0;
    *out = (struct short_attributes){a->pri, (uint32_t)(a->ttr_ns / MS_NS), (uint32_t)(a->delay_ns / MS_NS)};
    return a->delay_ns ? sizeof *out : WITHOUT_DELAY;
}

struct publish_attributes publish_attributes_of(const struct record *r) {
    struct publish_attributes a = {0};
    struct short_attributes brief = {0};
    if (r->attribute_bytes >= sizeof a) {
        memcpy(&a, record_attributes(r), sizeof a);
        return a;
    }
    memcpy(&brief, record_attributes(r), r->attribute_bytes < sizeof brief ? r->attribute_bytes : sizeof brief);
    a.pri = brief.pri;
    a.ttr_ns = (uint64_t)brief.ttr_ms * MS_NS;
    a.delay_ns = (uint64_t)brief.delay_ms * MS_NS;
    return a;
}

log_position shard_log_publish(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint64_t id,
                               struct publish_attributes attributes, const void *body, uint32_t body_bytes) {
    struct topic *t = topic_at(&w->topics, topic);
    struct record head = head_of(w, RECORD_PUBLISH, t->number, seq, id);
    struct short_attributes brief;
    head.attribute_bytes = shorten(&attributes, &brief);
    const void *form = head.attribute_bytes ? (const void *)&brief : &attributes;
    if (!head.attribute_bytes) head.attribute_bytes = sizeof attributes;
    log_position position = append(w, s, &head, form, body, body_bytes);
    if (id > s->top_id) s->top_id = id;
    t->last_segment = s->segment;
    shard_count_in(s, position);
    return position;
}

void shard_log_delete(struct worker *w, struct shard *s, const struct job *job) {
    struct record head =
        head_of(w, RECORD_DELETE, topic_at(&w->topics, job->topic)->number, job_record(w, job)->seq, job->id);
    append(w, s, &head, NULL, NULL, 0);
}

static struct state_attributes state_of(const struct worker *w, const struct job *job) {
    struct state_attributes a = {.pri = job->pri, .state = job->state == JOB_RESERVED ? JOB_READY : job->state};
    if (!job->trail) {
        a.delay_ns = job_attributes(w, job).delay_ns;
        return a;
    }
    const struct trail *trail = trail_at(w, job->trail);
    a.reserves = trail->reserves;
    a.timeouts = trail->timeouts;
    a.releases = trail->releases;
    a.buries = trail->buries;
    a.kicks = trail->kicks;
    a.delay_ns = trail->delay_ns;
    if (job->state == JOB_DELAYED) {
        uint64_t left = trail->deadline_ns > w->now_ns ? trail->deadline_ns - w->now_ns : 0;
        a.deadline_wall_ns = left > UINT64_MAX - w->wall_ns ? UINT64_MAX : w->wall_ns + left;
    }
    return a;
}

void shard_log_state(struct worker *w, struct shard *s, const struct job *job) {
    struct state_attributes attributes = state_of(w, job);
    struct record head =
        head_of(w, RECORD_STATE, topic_at(&w->topics, job->topic)->number, job_record(w, job)->seq, job->id);
    head.attribute_bytes = sizeof attributes;
    append(w, s, &head, &attributes, NULL, 0);
}

log_position shard_log_moved(struct worker *w, struct shard *s, const struct job *job, const struct record *from) {
    struct moved_attributes attributes = {.publish = publish_attributes_of(from), .state = state_of(w, job)};
    struct record head = *from;
    head.kind = RECORD_MOVED;
    head.attribute_bytes = sizeof attributes;
    topic_at(&w->topics, job->topic)->last_segment = s->segment;
    return append(w, s, &head, &attributes, record_body(from), record_body_bytes(from));
}

/* --- what keeps a segment alive ----------------------------------------------------------------------------------- */

static struct segment_use *use_of(struct shard *s, log_position position) {
    uint32_t segment = (uint32_t)(position >> 32);
    if (!s->use_count) s->first_use = segment;
    assert(segment >= s->first_use);
    uint32_t index = segment - s->first_use;
    if (index >= s->use_capacity) {
        uint32_t capacity = s->use_capacity ? s->use_capacity : 16;
        while (capacity <= index) capacity *= 2;
        struct segment_use *use = realloc(s->use, sizeof *use * capacity);
        if (!use) worker_die("out of memory");
        s->use = use;
        s->use_capacity = capacity;
    }
    while (s->use_count <= index) s->use[s->use_count++] = (struct segment_use){0};
    return &s->use[index];
}

void shard_count_in(struct shard *s, log_position position) {
    struct segment_use *use = use_of(s, position);
    use->jobs++;
    use->total++;
    s->jobs++;
}

void shard_count_out(struct shard *s, log_position position) {
    struct segment_use *use = use_of(s, position);
    assert(use->jobs > 0);
    use->jobs--;
    s->jobs--;
}

uint32_t shard_dead_segments(const struct shard *s) {
    uint32_t dead = 0;
    for (uint32_t n = log_first_segment(s->log); n < s->segment; n++, dead++)
        if (s->use_count && n >= s->first_use && n - s->first_use < s->use_count && s->use[n - s->first_use].jobs)
            break;
    return dead;
}

/* Topics of which the log holds nothing any more are forgotten; later ones count on from where they stopped, so that no
 * (topic, seq) is ever given out twice. */
static void forget_topics(struct worker *w, struct shard *s, uint32_t first_segment) {
    for (uint32_t n = 1; n <= s->topics_known; n++) {
        uint32_t topic = s->topics[n];
        if (!topic) continue;
        struct topic *t = topic_at(&w->topics, topic);
        if (topic_seen(t) || t->last_segment >= first_segment) continue;
        if (t->next_seq > s->floor) s->floor = t->next_seq;
        s->topics[n] = 0;
        topics_remove(&w->topics, topic);
    }
}

void shard_drop_first(struct worker *w, struct shard *s) {
    uint32_t dropped = log_first_segment(s->log);
    log_drop_first(s->log);
    if (s->use_count && s->first_use <= dropped) {
        uint32_t gone = dropped - s->first_use + 1;
        if (gone > s->use_count) gone = s->use_count;
        memmove(s->use, s->use + gone, sizeof *s->use * (s->use_count - gone));
        s->use_count -= gone;
        s->first_use = dropped + 1;
    }
    s->scan_offset = 0;
    forget_topics(w, s, dropped + 1);
}

/* Where in a shard's log its topics are named, and what each segment begins with.
 *
 * Naming a topic means to write its TOPIC and a SUBSCRIPTION for each of its durable channels, as they are at that
 * time. A segment with messages of a topic names it before the first of them; other segments do not. So a log can be
 * read from any segment on, and a topic without messages is named only where it was written last. Before a segment is
 * dropped, topics that no later one names are named again in the active segment, piece by piece; or forgotten, if
 * nothing of them is left.
 *
 * The shard's list of known topics is in the order in which they were last named: those that only the oldest segment
 * names come first.
 */
#include <stdlib.h>

#include "shards/worker.h"

enum {
    /* What a publish leaves free so that deletes can still be written when the disk is full: a record for each job, up
     * to a bound; beyond that, segments that the deletes have emptied give room. */
    KEEP_LEAST = 64 << 10,
    KEEP_MOST = 1 << 20,
    /* What only names may take, beside a segment's head: their own size, up to a bound, so that segments can go. */
    KEEP_FOR_HEAD = 4 << 10,
    KEEP_FOR_NAMES = 16 << 20,
    /* How many naming records are written between two turns, as a fraction of what a turn may write. */
    NAMED_PART = 8,
    /* By how much names may grow while a large message is written. */
    NAMES_MEANWHILE = 256 << 10,
};

/* --- how much that takes ------------------------------------------------------------------------------------------ */

struct size {
    size_t records;
    uint64_t bytes; /* bytes of attributes and bodies */
};

static uint64_t size_in_log(struct size size) {
    return size.records * LOG_RECORD_OVERHEAD + size.bytes;
}

/* Whether a subscription is in the log; one that is being handed a backlog is not yet. */
static bool is_logged(const struct shard *s, const struct subscription *of, uint32_t subscription) {
    return of->number && s->subscriptions[of->number] == subscription;
}

static struct size size_of_name(const struct worker *w, const struct shard *s, const struct topic *t) {
    struct size size = {1, shard_topic_bytes(t)};
    for (uint32_t n = t->subscriptions; n; n = subscription_at(&w->subscriptions, n)->next) {
        const struct subscription *of = subscription_at(&w->subscriptions, n);
        if (!is_logged(s, of, n)) continue;
        size.records++;
        size.bytes += of->name_bytes + sizeof of->cold;
    }
    return size;
}

static uint64_t *names_in(struct shard *s, const struct topic *t) {
    return t->named_in ? &shard_use_of(s, (uint64_t)t->named_in << 32)->names : &s->names_recovered;
}

static void count_name(struct worker *w, struct shard *s, struct topic *t, uint32_t segment) {
    t->named_in = segment;
    t->named_bytes = (uint32_t)size_in_log(size_of_name(w, s, t));
    *names_in(s, t) += t->named_bytes;
    s->names_bytes += t->named_bytes;
}

void shard_uncount_name(struct shard *s, struct topic *t) {
    *names_in(s, t) -= t->named_bytes;
    s->names_bytes -= t->named_bytes;
    t->named_bytes = t->named_in = 0;
}

void shard_note_named(struct worker *w, struct shard *s, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    shard_uncount_name(s, t);
    shard_list_last(w, s, topic);
    count_name(w, s, t, s->segment);
}

void shard_note_channel(struct worker *w, struct shard *s, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t segment = t->named_in;
    if (!t->named_bytes) return;
    shard_uncount_name(s, t);
    count_name(w, s, t, segment);
}

/* After recovery earlier records of a name may be damaged, so none is relied on. */
void shard_names_recovered(struct worker *w, struct shard *s) {
    for (uint32_t topic = s->known_first; topic; topic = topic_at(&w->topics, topic)->known_next)
        count_name(w, s, topic_at(&w->topics, topic), 0);
}

uint64_t shard_segment_names(const struct shard *s, uint32_t segment) {
    uint64_t names = segment == log_first_segment(s->log) ? s->names_recovered : 0;
    if (!s->use_count || segment < s->first_use || segment - s->first_use >= s->use_count) return names;
    return names + s->use[segment - s->first_use].names;
}

/* --- a segment's head --------------------------------------------------------------------------------------------- */

/* The topic of a kept name that the log knows; 0: none. */
static uint32_t kept_topic(const struct worker *w, const struct shard *s, uint32_t slot) {
    if (!s->keep.slots[slot].number) return 0;
    uint32_t topic = map_find(&w->topics.names, s->keep.slots[slot].key);
    const struct topic *t = topic ? topic_at(&w->topics, topic) : NULL;
    return t && t->shard == s->number && t->number ? topic : 0;
}

static uint32_t kept_slots(const struct shard *s) {
    return s->keep.slots ? s->keep.mask + 1 : 0;
}

static struct size size_of_forgotten(const struct shard *s) {
    return (struct size){1 + s->forgotten.places.count / SHARD_FORGOTTEN_RECORD,
                         s->forgotten.places.count * sizeof(struct forgotten_topic)};
}

static struct size size_of_head(const struct worker *w, const struct shard *s) {
    struct size head = size_of_forgotten(s);
    head.records += s->writers.count + s->named.count;
    head.bytes += (s->writers.count + s->named.count) * sizeof(struct producer_attributes);
    for (uint32_t slot = 0; slot < kept_slots(s); slot++) {
        uint32_t topic = kept_topic(w, s, slot);
        if (!topic) continue;
        head.records++;
        head.bytes += shard_topic_bytes(topic_at(&w->topics, topic));
    }
    return head;
}

/* Readers of the log see from these seqs which messages of its topics a segment has. */
static void write_head(struct worker *w, struct shard *s) {
    shard_log_forgotten(w, s);
    for (uint32_t slot = 0; slot < kept_slots(s); slot++) {
        uint32_t topic = kept_topic(w, s, slot);
        if (topic) shard_log_topic(w, s, topic);
    }
    shard_log_producers(w, s, &s->writers, 0);
    shard_log_producers(w, s, &s->named, PRODUCER_NAMED);
}

static enum log_result begin_segment(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes,
                                     uint64_t keep) {
    struct size head = size_of_head(w, s);
    enum log_result result = log_reserve(s->log, head.records + records, head.bytes + bytes, keep, w->wall_ns);
    if (result != LOG_OK) return result;
    s->segment = log_active_segment(s->log);
    s->headless = false;
    write_head(w, s);
    return LOG_OK;
}

/* --- room --------------------------------------------------------------------------------------------------------- */

static enum log_result reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, uint64_t keep) {
    enum log_result result = log_reserve(s->log, records, bytes, keep, w->wall_ns);
    if (result != LOG_OK) return result;
    if (log_active_segment(s->log) != s->segment) return begin_segment(w, s, records, bytes, keep);
    /* Without room for a second head, the reservation still holds and the head can wait. */
    if (s->headless) (void)begin_segment(w, s, records, bytes, keep);
    return result;
}

static uint64_t kept_bytes(const struct shard *s, bool publish) {
    uint64_t keep = KEEP_FOR_HEAD + size_in_log(size_of_forgotten(s)) +
                    (s->names_bytes < KEEP_FOR_NAMES ? s->names_bytes : KEEP_FOR_NAMES);
    if (!publish) return keep;
    uint64_t ends = KEEP_LEAST + s->jobs * LOG_RECORD_OVERHEAD;
    return keep + (ends < KEEP_MOST ? ends : KEEP_MOST);
}

enum log_result shard_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish) {
    return reserve(w, s, records, bytes, kept_bytes(s, publish));
}

static bool is_named(const struct shard *s, const struct topic *t) {
    return t->number && t->named_in == s->segment && !t->end_unwritten;
}

/* Names a topic; its channels in the order in which they were made. */
static void write_name(struct worker *w, struct shard *s, uint32_t topic) {
    uint32_t *logged = w->logged;
    uint32_t count = 0;
    shard_log_topic(w, s, topic);
    for (uint32_t n = topic_at(&w->topics, topic)->subscriptions; n; n = subscription_at(&w->subscriptions, n)->next)
        if (is_logged(s, subscription_at(&w->subscriptions, n), n)) logged[count++] = n;
    while (count > 0) {
        worker_step(w);
        shard_log_subscription(w, s, subscription_at(&w->subscriptions, logged[--count]));
    }
    shard_note_named(w, s, topic);
}

enum log_result shard_reserve_named(struct worker *w, struct shard *s, uint32_t topic, uint32_t records,
                                    uint64_t bytes) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (!t->number && !shard_number_topic(w, s, topic)) return LOG_NO_SPACE;
    for (;;) {
        bool named = is_named(s, t);
        struct size name = named ? (struct size){0} : size_of_name(w, s, t);
        enum log_result result = shard_reserve(w, s, records + (uint32_t)name.records, bytes + name.bytes, true);
        if (result != LOG_OK) return result;
        if (!named) write_name(w, s, topic);
        if (is_named(s, t)) return LOG_OK; /* otherwise it continues in another segment */
    }
}

/* --- a large message ---------------------------------------------------------------------------------------------- */

/* Bytes in front of a large message in its segment, including a record of its producer and a filler. */
static uint64_t size_before(const struct worker *w, const struct shard *s, const struct topic *t) {
    struct size beside = {2, sizeof(struct producer_attributes)};
    return size_in_log(size_of_head(w, s)) + size_in_log(size_of_name(w, s, t)) + size_in_log(beside);
}

enum log_result shard_begin_large(struct worker *w, struct shard *s, uint32_t topic, uint8_t attribute_bytes,
                                  uint64_t body_bytes, uint64_t behind_bytes) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (!t->number && !shard_number_topic(w, s, topic)) return LOG_NO_SPACE;
    uint64_t before = size_before(w, s, t) + NAMES_MEANWHILE;
    return log_large_begin(s->log, before, attribute_bytes, body_bytes, kept_bytes(s, true) + behind_bytes);
}

enum log_result shard_begin_group(struct worker *w, struct shard *s, uint32_t topic, uint64_t bytes) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (!t->number && !shard_number_topic(w, s, topic)) return LOG_NO_SPACE;
    return log_group_begin(s->log, size_before(w, s, t) + NAMES_MEANWHILE, bytes, kept_bytes(s, true));
}

enum log_result shard_end_large(struct worker *w, struct shard *s, uint32_t topic, uint64_t beside_bytes) {
    const struct topic *t = topic_at(&w->topics, topic);
    uint64_t room = log_large_room(s->log);
    if (room < size_before(w, s, t)) return LOG_NO_SPACE;
    enum log_result result = log_large_switch(s->log, w->wall_ns);
    if (result != LOG_OK) return result;
    /* The last records before the body, whose place is fixed: from here on the message cannot be given up. */
    uint32_t records = (uint32_t)(room / SHARD_FILLER_BYTES) + 4;
    if (shard_reserve_named(w, s, topic, records, room) != LOG_OK) process_die("out of memory");
    shard_log_filler(w, s, log_large_room(s->log) - beside_bytes);
    return LOG_OK;
}

void shard_reserve_behind_large(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes) {
    if (reserve(w, s, records, bytes, 0) != LOG_OK) process_die("the log cannot be written");
}

/* --- before a segment goes ---------------------------------------------------------------------------------------- */

static bool is_something(const struct shard *s, const struct topic *t) {
    return t->durable || shard_keeps(s, t) || topic_jobs(t) || t->stream.live || t->end_unwritten;
}

/* Forgets topics at the front of the list of which nothing is left. False: the log has no room to say so. */
static bool forget_some(struct worker *w, struct shard *s, uint32_t until) {
    struct floor floor;
    floor.count = 0;
    if (reserve(w, s, SHARD_FLOOR_RECORDS, SHARD_FLOOR_BYTES, 0) != LOG_OK) return false;
    while (floor.count < SHARD_FORGOTTEN_AT_ONCE && s->known_first) {
        uint32_t topic = s->known_first;
        const struct topic *t = topic_at(&w->topics, topic);
        if (t->named_in > until || is_something(s, t)) break;
        worker_step(w);
        shard_forget_topic(w, topic, &floor);
        shard_settle_topic(w, topic);
    }
    shard_log_floor(w, s, &floor);
    return true;
}

static bool name_again(struct worker *w, struct shard *s, uint32_t topic) {
    struct size name = size_of_name(w, s, topic_at(&w->topics, topic));
    if (reserve(w, s, (uint32_t)name.records, name.bytes, 0) != LOG_OK) return false;
    worker_step(w);
    write_name(w, s, topic);
    return true;
}

enum names_moved shard_move_names(struct worker *w, struct shard *s, uint32_t until) {
    uint64_t most = w->steps + 1 + w->piece / NAMED_PART;
    while (s->known_first) {
        uint32_t topic = s->known_first;
        const struct topic *t = topic_at(&w->topics, topic);
        if (t->named_in > until) break;
        if (w->steps >= most) return NAMES_MORE;
        if (!(is_something(s, t) ? name_again(w, s, topic) : forget_some(w, s, until))) return NAMES_NO_ROOM;
    }
    return NAMES_MOVED;
}

enum names_moved shard_heal_names(struct worker *w, struct shard *s) {
    enum names_moved moved = s->heals ? shard_move_names(w, s, 0) : NAMES_MOVED;
    if (moved == NAMES_MOVED) s->heals = false;
    return moved;
}

/* Where in a shard's log its topics are named, and what each segment begins with.
 *
 * Naming a topic means to write its TOPIC and a SUBSCRIPTION for each of its durable channels, as they are at that
 * time. A segment with messages of a topic names it before the first of them; other segments do not. So a log can be
 * read from any segment on, and a topic without messages is named only where it was written last, until that segment is
 * to go (drop.c).
 */
#include "shards/naming.h"

#include <stdlib.h>

#include "log/group.h"
#include "log/large.h"
#include "shards/forgotten.h"
#include "shards/known.h"
#include "shards/records.h"

enum {
    /* What a publish leaves free so that deletes can still be written when the disk is full: a record for each job, up
     * to a bound; beyond that, segments that the deletes have emptied give room. */
    KEEP_LEAST = 64 << 10,
    KEEP_MOST = 1 << 20,
    /* What only names may take, beside a segment's head: their own size, up to a bound, so that segments can go. */
    KEEP_FOR_HEAD = 4 << 10,
    KEEP_FOR_NAMES = 16 << 20,
    /* By how much names may grow while a large message is written. */
    NAMES_MEANWHILE = 256 << 10,
};

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

static struct log_size size_of_forgotten(const struct shard *s) {
    return (struct log_size){1 + s->forgotten.places.count / SHARD_FORGOTTEN_RECORD,
                             s->forgotten.places.count * sizeof(struct forgotten_topic)};
}

static struct log_size size_of_head(const struct worker *w, const struct shard *s) {
    struct log_size head = size_of_forgotten(s);
    head.records += s->batch_producers.count + s->named_producers.count;
    head.bytes += (s->batch_producers.count + s->named_producers.count) * sizeof(struct producer_attributes);
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
    shard_log_producers(w, s, &s->batch_producers, 0);
    shard_log_producers(w, s, &s->named_producers, PRODUCER_NAMED);
}

static enum log_result begin_segment(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes,
                                     uint64_t keep) {
    struct log_size head = size_of_head(w, s);
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
    uint64_t keep = KEEP_FOR_HEAD + log_size_bytes(size_of_forgotten(s)) +
                    (s->names_bytes < KEEP_FOR_NAMES ? s->names_bytes : KEEP_FOR_NAMES);
    if (!publish) return keep;
    uint64_t ends = KEEP_LEAST + s->jobs * LOG_RECORD_OVERHEAD;
    return keep + (ends < KEEP_MOST ? ends : KEEP_MOST);
}

enum log_result shard_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish) {
    return reserve(w, s, records, bytes, kept_bytes(s, publish));
}

enum log_result shard_reserve_for_names(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes) {
    return reserve(w, s, records, bytes, 0);
}

static bool is_named(const struct shard *s, const struct topic *t) {
    return t->number && t->named_in == s->segment && !t->end_unwritten;
}

/* Names a topic; its channels in the order in which they were made. */
void shard_write_name(struct worker *w, struct shard *s, uint32_t topic) {
    uint32_t *logged = w->logged;
    uint32_t count = 0;
    shard_log_topic(w, s, topic);
    for (uint32_t n = topic_at(&w->topics, topic)->subscriptions; n; n = worker_subscription(w, n)->next)
        if (shard_has_logged(s, worker_subscription(w, n), n)) logged[count++] = n;
    while (count > 0) {
        worker_step(w);
        shard_log_subscription(w, s, worker_subscription(w, logged[--count]));
    }
    shard_note_named(w, s, topic);
}

enum log_result shard_reserve_named(struct worker *w, struct shard *s, uint32_t topic, uint32_t records,
                                    uint64_t bytes) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (!t->number && !shard_number_topic(w, s, topic)) return LOG_NO_SPACE;
    for (;;) {
        bool named = is_named(s, t);
        struct log_size name = named ? (struct log_size){0} : shard_name_size(w, s, t);
        enum log_result result = shard_reserve(w, s, records + (uint32_t)name.records, bytes + name.bytes, true);
        if (result != LOG_OK) return result;
        if (!named) shard_write_name(w, s, topic);
        if (is_named(s, t)) return LOG_OK; /* otherwise it continues in another segment */
    }
}

/* --- a large message ---------------------------------------------------------------------------------------------- */

/* Bytes in front of a large message in its segment, including a record of its producer and a filler. */
static uint64_t size_before(const struct worker *w, const struct shard *s, const struct topic *t) {
    struct log_size beside = {2, sizeof(struct producer_attributes)};
    return log_size_bytes(size_of_head(w, s)) + log_size_bytes(shard_name_size(w, s, t)) + log_size_bytes(beside);
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

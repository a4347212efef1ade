/* The topics that a shard's log knows, by their numbers in it; the segment that each was named in last, and how many
 * bytes it takes to name it again. Their list is in the order in which they were last named: those that only the oldest
 * segment names come first. */
#include "shards/known.h"

#include <assert.h>

#include "shards/forgotten.h"
#include "shards/shard.h"

/* --- the list ----------------------------------------------------------------------------------------------------- */

static void unlink_known(struct worker *w, struct shard *s, struct topic *t) {
    *(t->known_previous ? &topic_at(&w->topics, t->known_previous)->known_next : &s->known_first) = t->known_next;
    *(t->known_next ? &topic_at(&w->topics, t->known_next)->known_previous : &s->known_last) = t->known_previous;
    t->known_next = t->known_previous = 0;
}

static void link_last(struct worker *w, struct shard *s, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    t->known_previous = s->known_last;
    *(s->known_last ? &topic_at(&w->topics, s->known_last)->known_next : &s->known_first) = topic;
    s->known_last = topic;
}

static void list_last(struct worker *w, struct shard *s, uint32_t topic) {
    if (s->known_last == topic) return;
    unlink_known(w, s, topic_at(&w->topics, topic));
    link_last(w, s, topic);
}

/* --- how much the names take -------------------------------------------------------------------------------------- */

bool shard_has_logged(const struct shard *s, const struct subscription *of, uint32_t subscription) {
    return of->number && shard_subscription(s, of->number) == subscription;
}

struct log_size shard_name_size(const struct worker *w, const struct shard *s, const struct topic *t) {
    struct log_size size = {1, shard_topic_bytes(t)};
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        const struct subscription *of = worker_subscription(w, n);
        if (!shard_has_logged(s, of, n)) continue;
        size.records++;
        size.bytes += of->name_bytes + sizeof of->held_from;
    }
    return size;
}

static uint64_t *names_in(struct shard *s, const struct topic *t) {
    return t->named_in ? &shard_use_of(s, (uint64_t)t->named_in << 32)->names : &s->names_recovered;
}

static void count_name(struct worker *w, struct shard *s, struct topic *t, uint32_t segment) {
    t->named_in = segment;
    t->named_bytes = (uint32_t)log_size_bytes(shard_name_size(w, s, t));
    *names_in(s, t) += t->named_bytes;
    s->names_bytes += t->named_bytes;
}

static void uncount_name(struct shard *s, struct topic *t) {
    *names_in(s, t) -= t->named_bytes;
    s->names_bytes -= t->named_bytes;
    t->named_bytes = t->named_in = 0;
}

void shard_note_named(struct worker *w, struct shard *s, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    uncount_name(s, t);
    list_last(w, s, topic);
    count_name(w, s, t, s->segment);
}

void shard_note_channel(struct worker *w, struct shard *s, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t segment = t->named_in;
    if (!t->named_bytes) return;
    uncount_name(s, t);
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

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static void leave_known(struct worker *w, struct shard *s, struct topic *t) {
    uncount_name(s, t);
    unlink_known(w, s, t);
    map_remove(&s->numbers, t->number);
    t->number = 0;
}

bool shard_know_topic(struct worker *w, struct shard *s, uint32_t topic, uint32_t number) {
    struct topic *t = topic_at(&w->topics, topic);
    assert(number && !shard_topic(s, number));
    if (!map_insert(&s->numbers, number, topic)) return false;
    /* A topic that was forgotten and came back has several numbers in the log, and is listed under the last one only.
     * */
    if (t->number) leave_known(w, s, t);
    t->number = number;
    forgotten_remove(&s->forgotten, forgotten_key(t->name, t->name_bytes), t->next_seq);
    link_last(w, s, topic);
    if (number > s->topics_known) s->topics_known = number;
    return true;
}

bool shard_number_topic(struct worker *w, struct shard *s, uint32_t topic) {
    if (topic_at(&w->topics, topic)->number) return true;
    uint32_t number = s->topics_known;
    do number = number < UINT32_MAX ? number + 1 : 1;
    while (shard_topic(s, number));
    if (number < s->topics_known) s->topics_known = number;
    return shard_know_topic(w, s, topic, number);
}

void shard_unknow_topic(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    if (t->next_seq > s->floor) s->floor = t->next_seq;
    forgotten_note(&s->forgotten, forgotten_key(t->name, t->name_bytes), t->next_seq);
    if (t->number) leave_known(w, s, t);
}

void shard_forget_topic(struct worker *w, uint32_t topic, struct floor *floor) {
    const struct topic *t = topic_at(&w->topics, topic);
    floor->numbers[floor->count] = t->number;
    floor->topics[floor->count++] = (struct forgotten_topic){forgotten_key(t->name, t->name_bytes), t->next_seq};
    shard_unknow_topic(w, topic);
}

/* Which of the topics that a shard's log knows may be forgotten.
 *
 * A topic that is neither seen nor open at an acceptor is asleep. The last SLEEPING_MOST topics of a shard to fall
 * asleep keep their seqs and numbers. The others are forgotten, a batch at a time: the shard's floor rises to their
 * next seqs, and a FLOOR record has the floor and the numbers they had. So the log knows no more names than are in
 * memory. One that comes back counts on from its own next seq, if that is still remembered (forgotten.h).
 */
#include "shards/sleeping.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/forgotten.h"
#include "shards/known.h"
#include "shards/naming.h"
#include "shards/records.h"

enum { SLEEPING_MOST = 256 };

/* --- making one --------------------------------------------------------------------------------------------------- */

uint32_t shard_make_topic(struct worker *w, struct shard *s, const char *name, size_t name_bytes) {
    uint64_t next_seq = forgotten_next_seq(&s->forgotten, forgotten_key(name, name_bytes));
    return topics_add(&w->topics, name, name_bytes, s->number, next_seq ? next_seq : s->floor);
}

/* --- sleep -------------------------------------------------------------------------------------------------------- */

/* How many topics may sleep; none when there is room for few more topics. */
static uint32_t sleeping_most(const struct worker *w) {
    uint64_t most_bytes = topics_most_name_bytes(&w->topics);
    bool is_full = w->topics.names.count > w->topics.limit - w->topics.limit / 8 ||
                   w->topics.names_bytes > most_bytes - most_bytes / 8;
    return is_full ? 0 : SLEEPING_MOST;
}

static bool are_many(const struct worker *w, const struct shard *s) {
    uint32_t most = sleeping_most(w);
    return s->asleep >= most + (most ? SHARD_FORGOTTEN_AT_ONCE : 1);
}

static void fall_asleep(struct worker *w, struct shard *s, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    t->asleep = true;
    t->later = 0;
    t->earlier = s->asleep_last;
    *(s->asleep_last ? &topic_at(&w->topics, s->asleep_last)->later : &s->asleep_first) = topic;
    s->asleep_last = topic;
    s->asleep++;
    if (s->drowsy || !are_many(w, s)) return;
    s->drowsy = true;
    s->next_drowsy = w->drowsy;
    w->drowsy = s;
}

static void wake(struct worker *w, struct shard *s, struct topic *t) {
    *(t->earlier ? &topic_at(&w->topics, t->earlier)->later : &s->asleep_first) = t->later;
    *(t->later ? &topic_at(&w->topics, t->later)->earlier : &s->asleep_last) = t->earlier;
    t->asleep = false;
    t->earlier = t->later = 0;
    s->asleep--;
}

void shard_settle_topic(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    bool sleeps = !topic_seen(t) && !t->open && !t->tombs;
    if (w->replaying || (sleeps == t->asleep && (!sleeps || t->number))) return;
    struct shard *s = shard_of_topic(w, t);
    if (t->asleep) wake(w, s, t);
    if (!sleeps) return;
    if (t->number)
        fall_asleep(w, s, topic);
    else
        topics_remove(&w->topics, topic);
}

/* Forgets a batch of the topics that have slept longest. False: none could be forgotten now. */
static bool forget_some(struct worker *w, struct shard *s) {
    struct floor floor;
    floor.count = 0;
    if (shard_reserve(w, s, SHARD_FLOOR_RECORDS, SHARD_FLOOR_BYTES, false) != LOG_OK) return false;
    for (uint32_t looked_at = 0; looked_at < 2 * SHARD_FORGOTTEN_AT_ONCE; looked_at++) {
        if (floor.count == SHARD_FORGOTTEN_AT_ONCE) break;
        uint32_t topic = s->asleep_first;
        if (!topic || s->asleep <= sleeping_most(w)) break;
        struct topic *t = topic_at(&w->topics, topic);
        if (shard_keeps(s, t)) {
            wake(w, s, t);
            fall_asleep(w, s, topic);
            continue;
        }
        wake(w, s, t);
        shard_forget_topic(w, topic, &floor);
        topics_remove(&w->topics, topic);
    }
    shard_log_floor(w, s, &floor);
    return floor.count > 0;
}

bool shards_forget(struct worker *w) {
    struct shard *s = w->drowsy;
    w->drowsy = NULL;
    while (s) {
        struct shard *next = s->next_drowsy;
        bool more = forget_some(w, s) && are_many(w, s);
        s->drowsy = more;
        if (more) {
            s->next_drowsy = w->drowsy;
            w->drowsy = s;
        }
        s = next;
    }
    return w->drowsy != NULL;
}

void shard_sleep_after_replay(struct worker *w, struct shard *s) {
    for (uint32_t topic = s->known_first, next; topic; topic = next) {
        next = topic_at(&w->topics, topic)->known_next;
        shard_settle_topic(w, topic);
    }
}

/* --- names that somebody remembers -------------------------------------------------------------------------------- */

void shard_keep_topics(struct worker *w, struct shard *s, const char *names, size_t bytes) {
    assert(names || !bytes);
    s->keep_all = !names;
    if (!names) return; /* the old names stay until new ones are known, as segments begin with them */
    map_free(&s->keep);
    for (size_t at = 0; at < bytes;) {
        const char *end = memchr(names + at, '\n', bytes - at);
        size_t name_bytes = end ? (size_t)(end - (names + at)) : bytes - at;
        uint64_t key = siphash(w->topics.key, names + at, name_bytes);
        if (!map_find(&s->keep, key) && !map_insert(&s->keep, key, 1)) process_die("out of memory");
        at += name_bytes + 1;
    }
}

/* Before a segment is dropped, topics that no later one names are named again in the active segment, piece by piece; or
 * forgotten, if nothing of them is left. */
#include "shards/drop.h"

#include <string.h>

#include "shards/calls.h"
#include "shards/known.h"
#include "shards/naming.h"
#include "shards/records.h"
#include "shards/sleeping.h"

/* How many naming records are written between two turns, as a fraction of what a turn may write. */
enum { NAMED_PART = 8 };

static bool is_something(const struct shard *s, const struct topic *t) {
    return t->durable || shard_keeps(s, t) || topic_jobs(t) || t->stream.live || t->end_unwritten;
}

/* Forgets topics at the front of the list of which nothing is left. False: the log has no room to say so. */
static bool forget_some(struct worker *w, struct shard *s, uint32_t until) {
    struct floor floor;
    floor.count = 0;
    if (shard_reserve_for_names(w, s, SHARD_FLOOR_RECORDS, SHARD_FLOOR_BYTES) != LOG_OK) return false;
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
    struct log_size name = shard_name_size(w, s, topic_at(&w->topics, topic));
    if (shard_reserve_for_names(w, s, (uint32_t)name.records, name.bytes) != LOG_OK) return false;
    worker_step(w);
    shard_write_name(w, s, topic);
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

bool shard_drop_first(struct worker *w, struct shard *s) {
    uint32_t dropped = log_first_segment(s->log);
    enum names_moved moved;
    do moved = shard_move_names(w, s, dropped);
    while (moved == NAMES_MORE);
    if (moved != NAMES_MOVED || log_flush(s->log) != LOG_OK) return false;
    log_drop_first(s->log);
    if (s->use_count && s->first_use <= dropped) {
        uint32_t gone = dropped - s->first_use + 1;
        if (gone > s->use_count) gone = s->use_count;
        memmove(s->use, s->use + gone, sizeof *s->use * (s->use_count - gone));
        s->use_count -= gone;
        s->first_use = dropped + 1;
    }
    return true;
}

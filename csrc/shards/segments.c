/* What Python asks of a worker's shards: their segments, which it makes and deletes, and what is in them. */
#include <assert.h>
#include <string.h>

#include "log/sync.h"
#include "log/unproven.h"
#include "shards/catalog.h"
#include "shards/compact.h"
#include "shards/drop.h"
#include "shards/give_up.h"
#include "shards/known.h"
#include "shards/naming.h"
#include "shards/needed.h"
#include "shards/replay.h"
#include "shards/replay_subscriptions.h"
#include "shards/retain.h"
#include "shards/shard.h"
#include "shards/skip.h"
#include "shards/sleeping.h"
#include "shards/unheld.h"

bool worker_own(struct worker *w, uint32_t shard) {
    assert(shard < w->shards && !w->own[shard]);
    w->own[shard] = shard_new(shard, w->shards);
    if (w->own[shard] && w->sync != SYNC_ALWAYS) log_prepare_pages(w->own[shard]->log);
    return w->own[shard];
}

static void count_segments(struct worker *w) {
    uint64_t oldest = UINT64_MAX, current = 0;
    for (uint32_t n = 0; n < w->shards; n++) {
        if (!w->own[n]) continue;
        uint32_t first = log_first_segment(w->own[n]->log), active = log_active_segment(w->own[n]->log);
        if (first && first < oldest) oldest = first;
        if (active > current) current = active;
    }
    w->count->oldest_segment = oldest == UINT64_MAX ? 0 : oldest;
    w->count->current_segment = current;
}

bool worker_add_segment(struct worker *w, uint32_t shard, int fd, uint32_t segment, uint64_t bytes, bool is_new,
                        uint64_t wall_ns) {
    struct shard *s = w->own[shard];
    if (!s || !log_add_segment(s->log, fd, segment, bytes, is_new, UINT64_MAX, wall_ns)) return false;
    s->refused = s->asked = false;
    if (w->wanting == s) w->wanting = NULL;
    count_segments(w);
    return true;
}

bool worker_keep_copies(struct worker *w, uint32_t shard, int fd, uint32_t segment) {
    return w->own[shard] && log_keep_copies(w->own[shard]->log, fd, segment);
}

int worker_use_heads(struct worker *w, uint32_t shard, int fd, uint32_t segment) {
    return log_use_heads(w->own[shard]->log, fd, segment);
}

void worker_ended(struct worker *w, uint32_t shard, uint32_t segment, uint64_t end) {
    w->own[shard]->ended = (log_position)segment << 32 | (uint32_t)end;
}

void worker_read_from(struct worker *w, uint32_t shard, uint32_t segment) {
    w->own[shard]->read_from = segment;
}

void worker_lost_end(struct worker *w, uint32_t shard) {
    w->own[shard]->lost_end = true;
}

bool worker_note_ends(struct worker *w) {
    return skip_note_ends(w);
}

bool worker_replay(struct worker *w, uint32_t shard, struct replay *out, uint64_t now_ns, uint64_t wall_ns) {
    worker_set_time(w, now_ns, wall_ns);
    w->replaying = true;
    return shard_replay(w, w->own[shard], out);
}

void worker_recovered(struct worker *w) {
    skip_ids(w);
    w->replaying = false;
    replay_place_jobs(w);
    replay_place_deferred(w);
    replay_forget_ephemeral(w);
    for (uint32_t n = 0; n < w->shards; n++)
        if (w->own[n]) shard_sleep_after_replay(w, w->own[n]);
    count_segments(w);
    catalog_begins(w);
}

uint32_t worker_nameless(const struct worker *w, uint32_t shard, uint64_t *messages) {
    uint32_t count = 0;
    *messages = 0;
    for (uint32_t topic = w->own[shard]->known_first; topic; topic = topic_at(&w->topics, topic)->known_next) {
        const struct topic *t = topic_at(&w->topics, topic);
        uint64_t there = topic_jobs(t) > t->messages ? topic_jobs(t) : t->messages;
        if (!t->nameless || !there) continue;
        count++;
        *messages += there;
    }
    return count;
}

int64_t worker_wanting_shard(const struct worker *w, uint64_t *bytes, uint32_t *segment) {
    for (uint32_t n = 0; n < w->shards; n++) {
        const struct shard *s = w->own[n];
        if (!s || s->refused || s->asked) continue;
        *bytes = log_wants_segment(s->log);
        *segment = log_active_segment(s->log) + 1;
        if (*bytes) return n;
    }
    return -1;
}

void worker_ask_segment(struct worker *w, uint32_t shard) {
    w->own[shard]->asked = true;
}

void worker_refuse_segment(struct worker *w, uint32_t shard) {
    w->own[shard]->asked = false;
    w->own[shard]->refused = true;
    if (w->wanting == w->own[shard]) w->wanting = NULL;
}

void worker_retry_segments(struct worker *w) {
    for (uint32_t n = 0; n < w->shards; n++)
        if (w->own[n]) w->own[n]->refused = false;
}

uint32_t worker_dead_segments(struct worker *w, uint32_t shard) {
    return shard_dead_segments(w->own[shard], shard_pinned_segment(w, w->own[shard]));
}
uint32_t worker_needed_from(struct worker *w, uint32_t shard, uint32_t from) {
    return shard_needed_from(w, w->own[shard], from);
}
bool worker_retains(const struct worker *w, uint32_t shard) {
    return w->own[shard]->retaining != 0;
}
uint32_t worker_first_segment(const struct worker *w, uint32_t shard) {
    return log_first_segment(w->own[shard]->log);
}
uint32_t worker_active_segment(const struct worker *w, uint32_t shard) {
    return w->own[shard]->segment;
}
uint64_t worker_log_began(const struct worker *w, uint32_t shard) {
    return log_began(w->own[shard]->log);
}

uint64_t worker_segment_bytes(const struct worker *w, uint32_t shard, uint32_t segment) {
    return log_segment_end(w->own[shard]->log, segment);
}

uint64_t worker_appended(const struct worker *w, uint32_t shard) {
    return log_appended(w->own[shard]->log);
}
uint64_t worker_synced(const struct worker *w, uint32_t shard) {
    return log_synced(w->own[shard]->log);
}

bool worker_drop_first(struct worker *w, uint32_t shard) {
    bool dropped = shard_drop_first(w, w->own[shard]);
    if (dropped) shard_forget_retained(w, w->own[shard]);
    count_segments(w);
    return dropped;
}

uint32_t worker_move_names(struct worker *w, uint32_t shard, uint32_t until) {
    return until ? shard_move_names(w, w->own[shard], until) : shard_heal_names(w, w->own[shard]);
}
uint64_t worker_segment_names(const struct worker *w, uint32_t shard, uint32_t segment) {
    return shard_segment_names(w->own[shard], segment);
}

uint64_t worker_next_seq(const struct worker *w, const char *name, size_t bytes) {
    uint32_t topic = topics_find(&w->topics, name, bytes);
    return topic ? topic_at(&w->topics, topic)->next_seq : 0;
}

void worker_keep_topics(struct worker *w, uint32_t shard, const char *names, size_t bytes) {
    shard_keep_topics(w, w->own[shard], names, bytes);
}

void worker_limit_topics(struct worker *w, uint32_t limit) {
    w->topics.limit = limit;
}

uint32_t worker_topics(const struct worker *w) {
    return w->topics.names.count;
}

void worker_roll(struct worker *w, uint32_t shard) {
    struct shard *s = w->own[shard];
    /* Writes what the new one begins with at once: until then the previous one could not be dropped. One for which that
     * had no room is not followed by another. */
    bool has_rolled = log_active_segment(s->log) != s->segment || log_roll(s->log, w->wall_ns);
    if (has_rolled) (void)shard_reserve(w, s, 0, 0, false);
}

void worker_leave_uncut(struct worker *w) {
    for (uint32_t n = 0; n < w->shards; n++)
        if (w->own[n]) log_leave_uncut(w->own[n]->log);
}

void worker_reuse_segments(struct worker *w) {
    for (uint32_t n = 0; n < w->shards; n++)
        if (w->own[n]) log_use_spares(w->own[n]->log, &w->spares);
}

int worker_spare_segment(struct worker *w) {
    return spares_next(&w->spares);
}

bool worker_trim_spares(struct worker *w) {
    const struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) (void)channel_trim(p->channel, w->now_ns);
    bool more = spares_trim(&w->spares, w->now_ns);
    /* One piece of all logs at a time, so that the turn is short. */
    for (uint32_t n = 0; n < w->shards && !more; n++) more = w->own[n] && spares_trim_log(w->own[n]->log, w->now_ns);
    return more;
}

int worker_disk_errno(const struct worker *w, int *fd) {
    for (uint32_t i = 0; i < w->dirty_count; i++) {
        const struct log *log = w->dirty[i]->log;
        *fd = log_fd(log);
        if (log_errno(log)) return log_errno(log);
    }
    *fd = w->unsynced_fd;
    return w->sync_errno;
}

uint64_t worker_published(const struct worker *w) {
    return w->count->published;
}

uint64_t worker_live_jobs(struct worker *w, uint32_t shard, uint32_t segment, uint64_t *total) {
    struct shard *s = w->own[shard];
    *total = 0;
    if (!s->use_count || segment < s->first_use || segment - s->first_use >= s->use_count) return 0;
    *total = s->use[segment - s->first_use].total;
    return segment >= shard_pinned_segment(w, s) ? *total : s->use[segment - s->first_use].jobs;
}

bool worker_compact(struct worker *w, uint32_t shard, uint64_t budget) {
    struct shard *s = w->own[shard];
    return shard_compact(w, s, log_first_segment(s->log), budget) && (!s->passed_over || shard_give_up_rest(w, s));
}

/* What cannot be read is not given up here, as nothing has to be dropped: its medium may come back. */
bool worker_compact_needed(struct worker *w, uint32_t shard, uint64_t budget) {
    struct shard *s = w->own[shard];
    uint32_t segment = log_first_segment(s->log) + worker_dead_segments(w, shard);
    return segment >= s->segment || shard_compact(w, s, segment, budget);
}

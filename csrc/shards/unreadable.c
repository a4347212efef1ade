#include "shards/unreadable.h"

#include <stdlib.h>
#include <string.h>

#include "shards/calls.h"
#include "shards/shard.h"
#include "shards/stream.h"

/* One topic takes at most half of the places, so that other topics are reported too. */
static bool is_to_be_told(const struct worker *w, const struct topic *t) {
    if (w->unreadable_listed < WORKER_UNREADABLE_MOST / 2) return true;
    if (w->unreadable_listed == WORKER_UNREADABLE_MOST) return false;
    for (uint32_t i = 0; i < w->unreadable_listed; i++)
        if (!w->unreadable[i].topic[t->name_bytes] && memcmp(w->unreadable[i].topic, t->name, t->name_bytes) == 0)
            return false;
    return true;
}

void unreadable_note(struct worker *w, uint32_t topic, log_position position) {
    const struct topic *t = topic_at(&w->topics, topic);
    shard_doubt(shard_of_topic(w, t), (uint32_t)(position >> 32));
    w->count->unreadable++;
    w->unreadable_in_turn++;
    w->unreadable_count++;
    if (!is_to_be_told(w, t)) return;
    struct unreadable *l = &w->unreadable[w->unreadable_listed++];
    *l = (struct unreadable){.place = {t->shard, (uint32_t)(position >> 32), (uint32_t)position, (uint32_t)position}};
    memcpy(l->topic, t->name, t->name_bytes); /* a name has at most TOPIC_NAME_BYTES bytes, and a zero follows */
}

uint32_t worker_unreadable(struct worker *w, struct damage *place, const char **topic) {
    uint32_t left = w->unreadable_count - w->unreadable_told;
    if (w->unreadable_told == w->unreadable_listed) {
        w->unreadable_count = w->unreadable_listed = w->unreadable_told = 0;
        return 0;
    }
    const struct unreadable *l = &w->unreadable[w->unreadable_told++];
    *place = l->place;
    *topic = l->topic;
    return left;
}

const struct record *message_head(const struct worker *w, const struct topic *t, uint64_t seq) {
    return log_read_head(shard_of_topic(w, t)->log, stream_place(&t->stream, seq));
}

/* Another one is looked at only when nobody has asked for this one in the turn before: two that took turns would both
 * begin anew for ever. */
static bool begin_looking(struct worker *w, const struct record *r) {
    struct looked_at *l = &w->looked_at;
    if (l->record == r && l->id == r->id && l->bytes == r->bytes) {
        if (l->left || w->now_ns < l->kept_until_ns) return true;
    } else if (l->left && l->turn + 1 >= w->turns) {
        return false;
    }
    *l = (struct looked_at){.record = r, .id = r->id, .bytes = r->bytes, .left = record_body_bytes(r)};
    return true;
}

__attribute__((cold, noinline)) enum readable large_readable(struct worker *w, const struct shard *s,
                                                             const struct record *r) {
    struct looked_at *l = &w->looked_at;
    if (!begin_looking(w, r)) return READ_MORE;
    if (!l->left) return READ_WHOLE;
    if (l->turn == w->turns) return READ_MORE;
    l->turn = w->turns;
    const size_t piece = l->left < LOOK_PIECE_BYTES ? l->left : LOOK_PIECE_BYTES;
    if (!log_readable_part(s->log, r, record_body_bytes(r) - l->left, piece)) {
        *l = (struct looked_at){0};
        return READ_FAILS;
    }
    l->left -= piece;
    if (l->left) return READ_MORE;
    l->kept_until_ns = w->now_ns + READ_KEPT_NS;
    return READ_WHOLE;
}

const struct record *job_head(const struct worker *w, const struct job *j) {
    return log_read_head(shard_of_job(w, j)->log, j->position);
}

uint64_t job_seq(struct worker *w, const struct job *j) {
    const struct record *r = job_head(w, j);
    bool walked = false;
    if (r) return r->seq;
    uint64_t seq = stream_find(&topic_at(&w->topics, j->topic)->stream, j->position, &walked);
    if (walked) w->unreadable_in_turn = WORKER_UNREADABLE_IN_TURN;
    return seq;
}

static void make_room(struct worker *w) {
    uint32_t capacity = w->unserved_capacity ? 2 * w->unserved_capacity : WORKER_UNREADABLE_IN_TURN;
    w->unserved = realloc(w->unserved, sizeof *w->unserved * capacity);
    if (!w->unserved) process_die("out of memory");
    w->unserved_capacity = capacity;
}

__attribute__((cold)) void unreadable_serve_later(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    if (t->unserved) return;
    t->unserved = true;
    if (w->unserved_count == w->unserved_capacity) make_room(w);
    w->unserved[w->unserved_count++] = topic;
}

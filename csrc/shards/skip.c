#include "shards/skip.h"

#include <string.h>

#include "log/log_scan.h"
#include "shards/forgotten.h"
#include "shards/naming.h"
#include "shards/records.h"

static void skip_seqs(struct shard *s, uint64_t seqs) {
    s->lost_seqs += seqs;
    s->floor += seqs;
    s->lost_ids = true;
    forgotten_clear(&s->forgotten, true);
}

static uint64_t most_records(uint64_t bytes) {
    return bytes / LOG_RECORD_OVERHEAD + 1;
}

void skip_segments(struct shard *s, uint32_t segments) {
    if (!segments) return;
    skip_seqs(s, segments * most_records(SEGMENT_BYTES));
    s->heals = true;
}

void skip_lost(struct shard *s, uint64_t bytes) {
    skip_seqs(s, most_records(bytes));
}

void skip_read(struct shard *s, const struct record *r) {
    uint64_t seqs;
    if (r->attribute_bytes < sizeof seqs) return;
    memcpy(&seqs, record_attributes(r), sizeof seqs);
    /* The floor is that of the record. */
    uint64_t floor = s->floor;
    skip_seqs(s, seqs < SKIP_SEQS ? seqs : SKIP_SEQS);
    s->floor = floor;
}

void skip_write(const struct worker *w, struct shard *s, uint64_t *end, uint64_t bytes) {
    uint64_t seqs = most_records(bytes);
    struct record head = {.bytes = sizeof head + sizeof seqs,
                          .kind = RECORD_FLOOR,
                          .attribute_bytes = sizeof seqs,
                          .flags = FLOOR_LOST,
                          .seq = s->floor,
                          .time_ns = w->wall_ns,
                          .id = s->top_id};
    if (log_put_end(s->log, *end, &head, &seqs)) *end += record_stride(&head);
}

void skip_end(struct shard *s) {
    if (s->lost_end) skip_seqs(s, SKIP_SEQS);
}

/* The FLOOR_LOST comes before the head that this start writes, as topics in that are where they go on already. */
bool skip_note_ends(struct worker *w) {
    bool all = true;
    for (uint32_t n = 0; n < w->shards; n++) {
        struct shard *s = w->own[n];
        if (!s || !s->lost_end) continue;
        bool noted = log_reserve(s->log, 1, sizeof s->floor, 0, w->wall_ns) == LOG_OK;
        if (noted) shard_log_lost(w, s, SKIP_SEQS);
        noted = noted && shard_reserve_for_names(w, s, 0, 0) == LOG_OK && !s->headless;
        s->lost_end = false;
        all &= noted;
    }
    return all;
}

void skip_all(struct worker *w, struct shard *s) {
    for (uint32_t topic = s->lost_seqs ? s->known_first : 0; topic; topic = topic_at(&w->topics, topic)->known_next) {
        struct topic *t = topic_at(&w->topics, topic);
        t->next_seq += s->lost_seqs - t->lost_before;
        skip_nothing(s, t);
        /* Its name, which is lost, may be that of a topic that is made from now on. */
        if (t->nameless && s->floor < t->next_seq) s->floor = t->next_seq;
    }
}

static void raise_to(struct board *board, uint64_t next) {
    uint64_t seen = atomic_load(&board->next_id);
    while (seen < next && !atomic_compare_exchange_weak(&board->next_id, &seen, next)) continue;
}

/* The workers of a broker come here at any time, and some of them may have lost ids that are above all that this one
 * knows, and all that they know themselves. */
void skip_ids(struct worker *w) {
    uint64_t top = 0, lost;
    bool any_lost = false;
    for (uint32_t n = 0; n < w->shards; n++) {
        if (!w->own[n]) continue;
        any_lost |= w->own[n]->lost_ids;
        if (w->own[n]->top_id > top) top = w->own[n]->top_id;
    }
    uint64_t next = top / w->shards + 1;
    do {
        lost = atomic_load(&w->board->lost_ids);
        raise_to(w->board, next + lost);
    } while (atomic_load(&w->board->lost_ids) != lost);
    if (!any_lost) return;
    atomic_fetch_add(&w->board->lost_ids, SKIP_IDS);
    next = atomic_fetch_add(&w->board->next_id, SKIP_IDS) + SKIP_IDS;
    for (uint32_t n = 0; n < w->shards; n++) {
        struct shard *s = w->own[n];
        if (s && s->lost_ids && s->top_id < next * w->shards) s->top_id = next * w->shards;
    }
}

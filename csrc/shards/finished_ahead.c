#include "shards/finished_ahead.h"

static struct finished_message *at(const struct worker *w, uint32_t n) {
    return arena_at(&w->subscriptions.finished_ahead.arena, n);
}

static uint64_t key_of(const struct worker *w, uint64_t round, uint64_t seq) {
    const uint64_t words[2] = {round, seq};
    return siphash(w->topics.key, words, sizeof words);
}

static uint32_t find(const struct worker *w, const struct subscription *s, uint64_t seq) {
    uint32_t n = s->ahead_first ? map_find(&w->subscriptions.finished_ahead.by_seq, key_of(w, s->ahead_round, seq)) : 0;
    return n && at(w, n)->round == s->ahead_round && at(w, n)->seq == seq ? n : 0;
}

/* Frees one that is in no list any more. */
static void give(struct worker *w, uint32_t n) {
    map_remove(&w->subscriptions.finished_ahead.by_seq, key_of(w, at(w, n)->round, at(w, n)->seq));
    arena_give(&w->subscriptions.finished_ahead.arena, n);
}

void finished_ahead_add(struct worker *w, uint32_t subscription, uint64_t seq) {
    struct finished_ahead *all = &w->subscriptions.finished_ahead;
    struct subscription *s = worker_subscription(w, subscription);
    if (!s->ahead_first) s->ahead_round = ++all->rounds;
    uint64_t key = key_of(w, s->ahead_round, seq);
    uint32_t n = map_find(&all->by_seq, key) ? 0 : arena_take(&all->arena);
    if (!n) return;
    if (!map_insert(&all->by_seq, key, n)) process_die("out of memory");
    *at(w, n) = (struct finished_message){.next = s->ahead_first, .round = s->ahead_round, .seq = seq};
    if (s->ahead_first) at(w, s->ahead_first)->previous = n;
    s->ahead_first = n;
}

bool finished_ahead_has(const struct worker *w, uint32_t subscription, uint64_t seq) {
    return find(w, worker_subscription(w, subscription), seq) != 0;
}

bool finished_ahead_take(struct worker *w, uint32_t subscription, uint64_t seq) {
    struct subscription *s = worker_subscription(w, subscription);
    uint32_t n = find(w, s, seq);
    if (!n) return false;
    const struct finished_message *f = at(w, n);
    *(f->previous ? &at(w, f->previous)->next : &s->ahead_first) = f->next;
    if (f->next) at(w, f->next)->previous = f->previous;
    give(w, n);
    return true;
}

void finished_ahead_forget(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (!s->ahead_first) return;
    at(w, s->ahead_first)->later = w->subscriptions.finished_ahead.forgotten;
    w->subscriptions.finished_ahead.forgotten = s->ahead_first;
    s->ahead_first = 0;
}

bool finished_ahead_clear(struct worker *w) {
    uint32_t *forgotten = &w->subscriptions.finished_ahead.forgotten;
    for (uint32_t left = w->piece / 4; *forgotten && left; left--) {
        uint32_t n = *forgotten, next = at(w, n)->next;
        worker_step(w);
        if (next) at(w, next)->later = at(w, n)->later;
        *forgotten = next ? next : at(w, n)->later;
        give(w, n);
    }
    return *forgotten != 0;
}

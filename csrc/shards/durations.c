#include "shards/durations.h"

#include "ringbuf/board.h"

static void count(struct publishes *some, struct worker_board *board, uint64_t now_ns) {
    if (!some->count) return;
    time_histogram_add(&board->durations[DURATION_PUBLISH], now_ns - some->since_ns, some->count);
    some->count = 0;
}

static void join(struct publishes *all, struct publishes *some) {
    if (!some->count) return;
    if (!all->count || some->since_ns < all->since_ns) all->since_ns = some->since_ns;
    all->count += some->count;
    some->count = 0;
}

void durations_turn(struct durations *d, struct worker_board *board, uint64_t now_ns) {
    if (d->was_busy) time_histogram_add(&board->durations[DURATION_TURN], now_ns - d->began_ns, 1);
    count(&d->out, board, now_ns);
    d->began_ns = now_ns;
    d->published = board->published;
}

void durations_taken(struct durations *d, const struct worker_board *board, uint64_t now_ns, bool busy) {
    struct publishes some = {now_ns, board->published - d->published};
    d->was_busy = busy;
    join(&d->waiting, &some);
}

void durations_let_out(struct durations *d) {
    join(&d->out, &d->waiting);
}

void durations_wait(struct durations *d) {
    join(&d->syncing, &d->waiting);
}

void durations_synced(struct durations *d, struct worker_board *board, uint64_t now_ns) {
    count(&d->syncing, board, now_ns);
}

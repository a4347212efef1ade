/* Finished messages and the cursor of a subscription go to the log, by the end of the turn. */
#include "shards/finish.h"

#include <stdlib.h>

#include "shards/due.h"
#include "shards/naming.h"
#include "shards/records.h"
#include "shards/room.h"

bool subscription_write(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    struct shard *shard = w->own[subscription_topic(w, s)->shard];
    if (s->cursor == s->logged_cursor && !s->ack_count) return true;
    enum log_result result = shard_reserve(w, shard, 2, shard_finish_bytes(s), false);
    if (result != LOG_OK) {
        shard->full = !room_await(w, shard, result);
        w->no_space |= shard->full;
        return false;
    }
    shard->full = false;
    /* On recovery a finished message must have been passed already, so the cursor is logged first. */
    if (s->cursor != s->logged_cursor) shard_log_cursor(w, shard, s);
    if (s->ack_count) shard_log_finish(w, shard, s);
    return true;
}

void subscriptions_write(struct worker *w) {
    uint32_t n = w->subscriptions.touched_first;
    w->subscriptions.touched_first = 0;
    while (n) {
        uint32_t next = worker_subscription(w, n)->next_touched;
        worker_subscription(w, n)->touched = false;
        if (!subscription_write(w, n)) subscription_touched(w, n);
        n = next;
    }
}

/* As long as so much is allocated, what a turn finishes is written at its end, in one record for each subscription:
 * publishes leave room for it. */
enum { FINISH_SPARE_BYTES = 16 << 10 };

bool subscription_finished(struct worker *w, uint32_t subscription, uint64_t seq) {
    struct subscription *s = worker_subscription(w, subscription);
    s->finished++;
    if (!s->number) return true;
    if (!s->acks && !(s->acks = malloc(sizeof *s->acks * ACK_BATCH))) process_die("out of memory");
    uint64_t distance = seq - s->ack_base + (uint64_t)INT32_MAX; /* below 2^32 as long as it fits */
    if (s->ack_count == ACK_BATCH || (s->ack_count && distance > UINT32_MAX - 1))
        if (!subscription_write(w, subscription)) {
            s->finished--;
            return false;
        }
    if (!s->ack_count) s->ack_base = seq;
    s->acks[s->ack_count++] = (int32_t)(seq - s->ack_base);
    /* Otherwise it would be unknown whether there will be room at the end of the turn. */
    const struct shard *shard = w->own[subscription_topic(w, s)->shard];
    const bool is_tight = log_spare(shard->log) < FINISH_SPARE_BYTES || shard->refused || shard->full;
    if (is_tight && !subscription_write(w, subscription)) {
        s->ack_count--;
        s->finished--;
        return false;
    }
    subscription_touched(w, subscription);
    return true;
}

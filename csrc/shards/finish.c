/* Finished messages and the cursor of a subscription go to the log, by the end of the turn. */
#include "shards/finish.h"

#include <stdlib.h>

#include "shards/due.h"
#include "shards/naming.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/subscription.h"

/* Reserves room in the log for a cursor and a FINISH. */
static bool reserve(struct worker *w, const struct subscription *s, uint64_t bytes) {
    struct shard *shard = w->own[subscription_topic(w, s)->shard];
    enum log_result result = shard_reserve(w, shard, 2, bytes, false);
    shard->full = result != LOG_OK && !room_await(w, shard, result);
    w->no_space |= shard->full;
    return result == LOG_OK;
}

bool subscription_write(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    struct shard *shard = w->own[subscription_topic(w, s)->shard];
    if (s->cursor == s->logged_cursor && !s->ack_count) return true;
    if (!reserve(w, s, shard_finish_bytes(s))) return false;
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

/* Otherwise it would be unknown whether there will be room at the end of the turn. */
static bool writes_at_once(const struct worker *w, const struct subscription *s) {
    const struct shard *shard = w->own[subscription_topic(w, s)->shard];
    return log_spare(shard->log) < FINISH_SPARE_BYTES || shard->refused || shard->full;
}

/* Whether one more finished message can be noted, and has to be written at once, for which there is room. */
enum room { NO_ROOM, AT_THE_END, AT_ONCE };

static enum room room_for(struct worker *w, uint32_t subscription, uint64_t seq) {
    struct subscription *s = worker_subscription(w, subscription);
    if (!s->number) return AT_THE_END;
    if (!s->acks && !(s->acks = malloc(sizeof *s->acks * ACK_BATCH))) process_die("out of memory");
    uint64_t distance = seq - s->ack_base + (uint64_t)INT32_MAX; /* below 2^32 as long as it fits */
    if (s->ack_count == ACK_BATCH || (s->ack_count && distance > UINT32_MAX - 1))
        if (!subscription_write(w, subscription)) return NO_ROOM;
    if (!writes_at_once(w, s)) return AT_THE_END;
    return reserve(w, s, shard_finish_bytes(s) + sizeof *s->acks) ? AT_ONCE : NO_ROOM;
}

static void note_finished(struct worker *w, uint32_t subscription, uint64_t seq, enum room room) {
    struct subscription *s = worker_subscription(w, subscription);
    s->finished++;
    if (!s->number) return;
    if (!s->ack_count) s->ack_base = seq;
    s->acks[s->ack_count++] = (int32_t)(seq - s->ack_base);
    if (room == AT_ONCE) (void)subscription_write(w, subscription);
    subscription_touched(w, subscription);
}

bool subscription_finished(struct worker *w, uint32_t subscription, uint64_t seq) {
    const enum room room = room_for(w, subscription, seq);
    if (room != NO_ROOM) note_finished(w, subscription, seq, room);
    return room != NO_ROOM;
}

bool subscription_pass_over(struct worker *w, uint32_t subscription, uint64_t seq) {
    const enum room room = room_for(w, subscription, seq);
    if (room == NO_ROOM) return false;
    subscription_pass(w, subscription);
    note_finished(w, subscription, seq, room);
    subscription_release(w, subscription, seq);
    return true;
}

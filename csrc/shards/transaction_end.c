/* Transactions end: what was staged enters the topic, or is dropped, and acknowledgements take effect, or do not. */
#include "shards/transaction_end.h"

#include <string.h>

#include "shards/answers.h"
#include "shards/delays.h"
#include "shards/due.h"
#include "shards/enter.h"
#include "shards/handover_state.h"
#include "shards/large.h"
#include "shards/naming.h"
#include "shards/queue.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/shard.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/transaction_acks.h"
#include "shards/transactions.h"
#include "shards/unreadable.h"

/* If a large message of the topic is being committed, what has been written of it is given up. */
static void stop_writing(struct worker *w, uint32_t topic) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    if (s->large_staged_topic == topic) large_forget(w, s, s->large_id);
}

/* --- those of a topic that is gone -------------------------------------------------------------------------------- */

void transactions_forget(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t first = t->transactions;
    t->transactions = t->staging_first = t->staging_last = 0;
    t->blocked = false;
    if (!first) return;
    stop_writing(w, topic);
    worker_transaction(w, first)->later = w->transactions.forgotten;
    w->transactions.forgotten = first;
    while (w->replaying && transactions_clear(w)) {
    }
}

bool transactions_clear(struct worker *w) {
    struct transactions *all = &w->transactions;
    for (uint32_t left = w->piece / 4; all->forgotten && left; left--) {
        uint32_t n = all->forgotten;
        struct transaction *of = worker_transaction(w, n);
        worker_step(w);
        if (of->first) {
            acknowledgement_forget(w, of->first);
        } else if (of->done < of->count) {
            shard_count_out(of->shard, of->staged[of->done++].position);
            all->items--;
        } else {
            all->forgotten = of->next ? of->next : of->later;
            if (of->next) worker_transaction(w, of->next)->later = of->later;
            transaction_free(w, n);
        }
    }
    return all->forgotten != 0;
}

/* --- what is staged comes into the topic -------------------------------------------------------------------------- */

/* Subscriptions behind that seq do not get the message. No subscription has messages that the topic keeps. */
static void let_pass(struct worker *w, uint32_t topic, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (stream_kept(&t->stream, seq)) return;
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        struct subscription *s = worker_subscription(w, n);
        if (s->reader || seq >= subscription_held_from(s)) continue;
        message_release(w, topic, seq);
        s->taken++;
    }
}

/* Returns the record of a staged message, if the part of it that is to be written next can be read. */
static const struct record *read_staged(const struct shard *s, const struct staged_message *item) {
    const struct record *r = log_read_head(s->log, item->position);
    uint64_t bytes = r ? record_body_bytes(r) : 0;
    if (bytes < LARGE_BYTES) return r && log_readable(s->log, r) ? r : NULL;
    uint64_t from = large_written(s, r->id), left = bytes - from;
    if (from >= bytes) return r;
    return log_readable_part(s->log, r, from, left < LARGE_PIECE_BYTES ? left : LARGE_PIECE_BYTES) ? r : NULL;
}

/* Makes room for a staged message in the log; a large one is then written already. LATER: there is no room. */
static enum outcome reserve_staged(struct worker *w, uint32_t topic, const struct record *r,
                                   const struct publish_attributes *attributes) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    struct publish_attributes packed;
    const struct large_message large = {.id = r->id,
                                        .content = record_body(r),
                                        .content_bytes = (uint32_t)record_body_bytes(r),
                                        .attribute_bytes = publish_attributes_pack(attributes, &packed),
                                        .is_staged = true};
    uint8_t status;
    if (large.content_bytes >= LARGE_BYTES) {
        enum outcome written = large_write(w, topic, &large, &status);
        return written == DONE && status != STATUS_OK ? LATER : written;
    }
    enum log_result result =
        shard_reserve_named(w, s, topic, 1, sizeof(struct staged_attributes) + large.content_bytes);
    if (result == LOG_OK) return DONE;
    (void)room_await(w, s, result);
    return LATER;
}

/* Publishes the next staged message. LATER: there is no room. MORE: it is large, and some of it has been written. */
static enum outcome publish_staged(struct worker *w, uint32_t topic, const struct staged_message *item) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    const struct record *r = read_staged(s, item);
    struct staged_attributes a;
    if (stream_place(&t->stream, item->seq)) return DONE; /* it is there, though its PUBLISH record was lost */
    if (!r) {
        stop_writing(w, topic);
        unreadable_note(w, topic, item->position);
        return DONE;
    }
    memcpy(&a, record_attributes(r), sizeof a);
    if (a.publish.delay_ns) {
        uint64_t due_ns = delay_ends(r->time_ns, a.publish.delay_ns);
        a.publish.delay_ns = delay_until(w, due_ns, a.publish.ttr_ns);
    }
    uint32_t parts = message_packed(r);
    if (goes_to_queue(t) && worker_jobs(w) + parts + 1 >= WORKER_MAX_JOBS) {
        stop_writing(w, topic);
        return LATER;
    }
    enum outcome reserved = reserve_staged(w, topic, r, &a.publish);
    if (reserved != DONE) return reserved;
    r = log_read(s->log, item->position);
    bool kept = topic_keeps(t, item->seq, true);
    uint16_t flags = (uint16_t)(PUBLISH_COMMITTED | (kept ? 0 : PUBLISH_UNAWAITED) | (r->flags & MESSAGE_HEADERS));
    struct arrival one = {.id = r->id, .content = record_body(r), .content_bytes = (uint32_t)record_body_bytes(r)};
    log_position position = shard_log_publish(w, s, topic, item->seq, &one, a.publish, flags);
    stream_enter(w, topic, item->seq, one.id, position, ENTER_UNAWAITED | (a.publish.delay_ns ? ENTER_DUE : 0));
    let_pass(w, topic, item->seq);
    queue_enter(w, topic, one.id, parts, a.publish.pri, a.publish.delay_ns, position);
    return DONE;
}

/* Publishes or drops staged messages, as many as the turn allows. LATER: there is no room. */
static enum outcome go_on(struct worker *w, uint32_t transaction) {
    const struct transaction *of = worker_transaction(w, transaction);
    bool commit = of->state == TRANSACTION_COMMITTING;
    for (uint32_t left = w->piece / 4; !transaction_is_empty(of); left--) {
        if (!left) return MORE;
        worker_step(w);
        if (of->first) {
            acknowledgement_end(w, of->first, commit);
            continue;
        }
        enum outcome published = commit ? publish_staged(w, of->topic, &of->staged[of->done]) : DONE;
        if (published != DONE) return published;
        transaction_pass(w, transaction);
    }
    return DONE;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

void transaction_stage(struct worker *w, uint32_t topic, const struct message *m, uint64_t txn, uint64_t delay_ns,
                       const struct arrival *one) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    uint32_t transaction = transaction_find(w, topic, txn);
    struct staged_attributes a = {.txn = txn, .publish = {.pri = m->pri, .delay_ns = delay_ns, .ttr_ns = m->ttr_ns}};
    uint16_t flags = m->flags & MSG_HEADERS ? MESSAGE_HEADERS : 0;
    uint64_t seq = t->next_seq++;
    log_position position = shard_log_staged(w, s, topic, seq, one, &a, flags);
    transaction_staged(w, transaction, seq, position);
    t->messages++;
    w->count->published++;
    arrival_count(t, one);
}

enum outcome transaction_end(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    uint32_t transaction = topic ? transaction_find(w, topic, m->id) : 0;
    uint8_t status = STATUS_OK;
    if (topic && handover_goes_on(topic_at(&w->topics, topic))) {
        stop_writing(w, topic); /* the handover may need the segment that this waits in */
        return MORE;
    }
    if (transaction && worker_transaction(w, transaction)->state == TRANSACTION_OPEN) {
        struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
        if (room_reserve(w, s, 1, 0, false, &status) == LATER) return LATER;
        if (status == STATUS_OK) {
            shard_log_txn_end(w, s, topic, m->id, m->commit != 0);
            worker_transaction(w, transaction)->state = m->commit ? TRANSACTION_COMMITTING : TRANSACTION_ABORTING;
        }
    }
    if (transaction && status == STATUS_OK) {
        enum outcome ended = go_on(w, transaction);
        if (ended == MORE || (ended == LATER && w->wanting)) return ended;
        if (ended == DONE) transaction_remove(w, transaction);
        if (ended == LATER) status = STATUS_NO_SPACE;
        topic_due(w, topic);
        queue_serve(w, topic);
    }
    request_done(w, client, m, status);
    return DONE;
}

/* --- recovery ----------------------------------------------------------------------------------------------------- */

void replay_staged(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position) {
    struct staged_attributes a;
    if (r->attribute_bytes < sizeof a) return;
    memcpy(&a, record_attributes(r), sizeof a);
    shard_count_in(s, position);
    transaction_staged(w, replay_take(w, topic, a.txn), r->seq, position);
}

/* Applies the decision of a TXN_END. A commit makes the acknowledgements count, and staged messages follow as PUBLISH
 * records; an abort undoes both. Some of these may be missing from the log: the decision is sent again. */
static void replay_decision(struct worker *w, uint32_t transaction, bool commit) {
    struct transaction *of = worker_transaction(w, transaction);
    of->state = commit ? TRANSACTION_COMMITTING : TRANSACTION_ABORTING;
    while (of->first) acknowledgement_end(w, of->first, commit);
    while (!commit && of->done < of->count) transaction_pass(w, transaction);
    transaction_unlink(w, transaction);
    if (transaction_is_empty(of)) {
        transaction_free(w, transaction);
        return;
    }
    transaction_link_behind(w, transaction, 0); /* the ending ones come before the open ones, and are few */
}

void replay_end(struct worker *w, uint32_t topic, const struct record *r) {
    uint32_t transaction = transaction_find(w, topic, r->id);
    if (transaction) replay_decision(w, transaction, (r->flags & TXN_COMMIT) != 0);
}

/* Where a message stands among those that are still staged; their count: nowhere. */
static size_t find_staged(const struct transaction *of, uint64_t seq) {
    size_t low = of->done, high = of->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (of->staged[middle].seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < of->count && of->staged[low].seq == seq ? low : of->count;
}

/* Takes out a message that has been published. Where PUBLISH records were lost others are still staged before it. */
static bool take_staged(struct worker *w, uint32_t transaction, uint64_t seq) {
    struct transaction *of = worker_transaction(w, transaction);
    size_t at = find_staged(of, seq);
    if (at == of->count) return false;
    struct staged_message taken = of->staged[at];
    memmove(&of->staged[of->done + 1], &of->staged[of->done], (at - of->done) * sizeof *of->staged);
    of->staged[of->done] = taken;
    transaction_pass(w, transaction);
    if (transaction_is_empty(of)) transaction_remove(w, transaction);
    return true;
}

/* One of the topic's transactions that has this message staged though it is published: the TXN_END was lost. */
static uint32_t find_undecided(const struct worker *w, const struct topic *t, uint64_t seq) {
    for (uint32_t n = t->staging_first; n && transaction_first_seq(worker_transaction(w, n)) <= seq;
         n = worker_transaction(w, n)->later)
        if (find_staged(worker_transaction(w, n), seq) < worker_transaction(w, n)->count) return n;
    return 0;
}

void transactions_published(struct worker *w, uint32_t topic, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, topic);
    bool taken = false;
    for (uint32_t n = t->transactions, next; n && !taken; n = next) {
        next = worker_transaction(w, n)->next;
        if (worker_transaction(w, n)->state != TRANSACTION_COMMITTING) break;
        taken = take_staged(w, n, seq);
    }
    uint32_t undecided = taken ? 0 : find_undecided(w, t, seq);
    if (undecided) {
        replay_decision(w, undecided, true);
        take_staged(w, undecided, seq);
    }
    let_pass(w, topic, seq);
}

#include "shards/transactions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/lost.h"
#include "shards/queue.h"
#include "shards/requests.h"

static struct transaction *at(const struct worker *w, uint32_t transaction) {
    return transaction_at(&w->transactions, transaction);
}

bool transactions_open(struct transactions *all) {
    *all = (struct transactions){0};
    return arena_open(&all->arena, sizeof(struct transaction), WORKER_MAX_TRANSACTIONS) &&
           arena_open(&all->acknowledgements, sizeof(struct acknowledgement), WORKER_MAX_IN_TRANSACTIONS + 1);
}

void transactions_close(struct transactions *all) {
    for (uint32_t n = 1; all->arena.base && n < all->arena.end; n++) free(transaction_at(all, n)->staged);
    for (uint32_t n = 1; all->acknowledgements.base && n < all->acknowledgements.end; n++)
        free(acknowledgement_at(all, n)->left);
    map_free(&all->by_number);
    map_free(&all->by_message);
    arena_close(&all->acknowledgements);
    arena_close(&all->arena);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* Clients say the number. */
static uint64_t key_of(const struct worker *w, uint64_t era, uint64_t number) {
    const uint64_t words[2] = {era, number};
    return siphash(w->topics.key, words, sizeof words);
}

uint32_t transaction_find(const struct worker *w, uint32_t topic, uint64_t number) {
    const struct topic *t = topic_at(&w->topics, topic);
    uint32_t n = t->transactions ? map_find(&w->transactions.by_number, key_of(w, t->era, number)) : 0;
    return n && at(w, n)->era == t->era && at(w, n)->number == number ? n : 0;
}

/* Puts a transaction into its topic's list behind another one; 0: first. */
static void link_behind(struct worker *w, uint32_t transaction, uint32_t previous) {
    struct transaction *of = at(w, transaction);
    uint32_t *place = previous ? &at(w, previous)->next : &topic_at(&w->topics, of->topic)->transactions;
    of->previous = previous;
    of->next = *place;
    if (of->next) at(w, of->next)->previous = transaction;
    *place = transaction;
}

static uint32_t make(struct worker *w, uint32_t topic, uint64_t number) {
    struct transactions *all = &w->transactions;
    struct topic *t = topic_at(&w->topics, topic);
    uint64_t era = t->transactions ? t->era : ++all->eras, key = key_of(w, era, number);
    uint32_t n = map_find(&all->by_number, key) ? 0 : arena_take(&all->arena);
    if (n && !map_insert(&all->by_number, key, n)) arena_give(&all->arena, n), n = 0;
    if (!n) return 0;
    *at(w, n) = (struct transaction){.topic = topic, .number = number, .era = era, .shard = shard_of_topic(w, t)};
    uint32_t ending = 0; /* behind the ending ones, which replay_end put in front */
    if (w->replaying)
        for (uint32_t e = t->transactions; e && at(w, e)->state; e = at(w, e)->next) ending = e;
    link_behind(w, n, ending);
    t->era = era;
    return n;
}

uint32_t transaction_take(struct worker *w, uint32_t topic, uint64_t number) {
    if (w->transactions.items >= WORKER_MAX_IN_TRANSACTIONS) return 0;
    uint32_t n = transaction_find(w, topic, number);
    if (!n) n = make(w, topic, number);
    if (!n || at(w, n)->state) return 0;
    struct transaction *of = at(w, n);
    if (of->count < of->capacity) return n;
    size_t capacity = of->capacity ? 2 * of->capacity : 16;
    struct staged_message *staged = realloc(of->staged, capacity * sizeof *staged);
    if (!staged) process_die("out of memory");
    of->staged = staged;
    of->capacity = capacity;
    return n;
}

static bool is_empty(const struct transaction *of) {
    return !of->first && of->done == of->count;
}

static void free_one(struct worker *w, uint32_t transaction) {
    struct transaction *of = at(w, transaction);
    assert(is_empty(of));
    map_remove(&w->transactions.by_number, key_of(w, of->era, of->number));
    free(of->staged);
    *of = (struct transaction){0};
    arena_give(&w->transactions.arena, transaction);
}

static void unlink_one(struct worker *w, uint32_t transaction) {
    const struct transaction *of = at(w, transaction);
    *(of->previous ? &at(w, of->previous)->next : &topic_at(&w->topics, of->topic)->transactions) = of->next;
    if (of->next) at(w, of->next)->previous = of->previous;
}

static void remove_one(struct worker *w, uint32_t transaction) {
    unlink_one(w, transaction);
    free_one(w, transaction);
}

/* --- the order of those that publish ------------------------------------------------------------------------------ */

static uint64_t first_seq(const struct transaction *of) {
    return of->staged[of->done].seq;
}

/* Blocks the topic at the first seq that is staged. */
static void block(const struct worker *w, struct topic *t) {
    t->blocked = t->staging_first != 0;
    if (t->blocked) t->blocked_seq = first_seq(at(w, t->staging_first));
}

/* Puts a transaction behind `earlier` in the order of first seqs; 0: first. */
static void put_behind(struct worker *w, uint32_t transaction, uint32_t earlier) {
    struct transaction *of = at(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    of->earlier = earlier;
    of->later = earlier ? at(w, earlier)->later : t->staging_first;
    *(earlier ? &at(w, earlier)->later : &t->staging_first) = transaction;
    *(of->later ? &at(w, of->later)->earlier : &t->staging_last) = transaction;
}

static void take_out(struct worker *w, uint32_t transaction) {
    struct transaction *of = at(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    *(of->earlier ? &at(w, of->earlier)->later : &t->staging_first) = of->later;
    *(of->later ? &at(w, of->later)->earlier : &t->staging_last) = of->earlier;
    of->earlier = of->later = 0;
}

/* Moves a transaction to its place in the order of first seqs. These only rise, so it passes each other one only
 * once. */
static void keep_order(struct worker *w, uint32_t transaction) {
    const struct transaction *of = at(w, transaction);
    uint32_t before = 0;
    for (uint32_t n = of->later; n && first_seq(at(w, n)) < first_seq(of); n = at(w, n)->later) before = n;
    if (!before) return;
    take_out(w, transaction);
    put_behind(w, transaction, before);
}

static void add_staged(struct worker *w, uint32_t transaction, uint64_t seq, log_position position) {
    struct transaction *of = at(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    of->staged[of->count++] = (struct staged_message){.seq = seq, .position = position};
    w->transactions.items++;
    if (of->count - of->done > 1) return;
    put_behind(w, transaction, t->staging_last);
    block(w, t);
}

/* The transaction's next staged message is done. */
static void pass(struct worker *w, uint32_t transaction) {
    struct transaction *of = at(w, transaction);
    shard_count_out(of->shard, of->staged[of->done++].position);
    w->transactions.items--;
    if (of->done < of->count)
        keep_order(w, transaction);
    else
        take_out(w, transaction);
    block(w, topic_at(&w->topics, of->topic));
}

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
    at(w, first)->later = w->transactions.forgotten;
    w->transactions.forgotten = first;
    while (w->replaying && transactions_clear(w)) {
    }
}

bool transaction_is_there(const struct worker *w, const struct transaction *of) {
    const struct topic *t = topic_at(&w->topics, of->topic);
    return of->topic && t->transactions && t->era == of->era;
}

bool transactions_clear(struct worker *w) {
    struct transactions *all = &w->transactions;
    for (uint32_t left = w->piece / 4; all->forgotten && left; left--) {
        uint32_t n = all->forgotten;
        struct transaction *of = at(w, n);
        worker_step(w);
        if (of->first) {
            acknowledgement_forget(w, of->first);
        } else if (of->done < of->count) {
            shard_count_out(of->shard, of->staged[of->done++].position);
            all->items--;
        } else {
            all->forgotten = of->next ? of->next : of->later;
            if (of->next) at(w, of->next)->later = of->later;
            free_one(w, n);
        }
    }
    return all->forgotten != 0;
}

/* --- what is staged comes into the topic -------------------------------------------------------------------------- */

/* Subscriptions behind that seq do not get the message. No subscription has messages that the topic keeps. */
static void let_pass(struct worker *w, uint32_t topic, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (stream_kept(&t->stream, seq)) return;
    for (uint32_t n = t->subscriptions; n; n = subscription_at(&w->subscriptions, n)->next) {
        struct subscription *s = subscription_at(&w->subscriptions, n);
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
    if (!r) {
        stop_writing(w, topic);
        lost_note(w, topic, item->position);
        return DONE;
    }
    memcpy(&a, record_attributes(r), sizeof a);
    uint32_t body_bytes = (uint32_t)record_body_bytes(r), parts = message_packed(r);
    if (goes_to_queue(t) && worker_jobs(w) + parts + 1 >= WORKER_MAX_JOBS) {
        stop_writing(w, topic);
        return LATER;
    }
    enum outcome reserved = reserve_staged(w, topic, r, &a.publish);
    if (reserved != DONE) return reserved;
    r = log_read(s->log, item->position);
    bool kept = topic_keeps(t, item->seq, true);
    uint16_t flags = (uint16_t)((kept ? 0 : PUBLISH_UNAWAITED) | (r->flags & MESSAGE_HEADERS));
    uint64_t id = r->id;
    log_position position = shard_log_publish(w, s, topic, item->seq, id, a.publish, record_body(r), body_bytes, flags);
    stream_enter(w, topic, item->seq, id, position, ENTER_UNAWAITED);
    let_pass(w, topic, item->seq);
    queue_enter(w, topic, id, parts, a.publish.pri, 0, position);
    return DONE;
}

/* Publishes or drops staged messages, as many as the turn allows. LATER: there is no room. */
static enum outcome go_on(struct worker *w, uint32_t transaction) {
    const struct transaction *of = at(w, transaction);
    bool commit = of->state == TRANSACTION_COMMITTING;
    for (uint32_t left = w->piece / 4; !is_empty(of); left--) {
        if (!left) return MORE;
        worker_step(w);
        if (of->first) {
            acknowledgement_end(w, of->first, commit);
            continue;
        }
        enum outcome published = commit ? publish_staged(w, of->topic, &of->staged[of->done]) : DONE;
        if (published != DONE) return published;
        pass(w, transaction);
    }
    return DONE;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

void transaction_stage(struct worker *w, uint32_t topic, const struct message *m, uint64_t id, const void *content,
                       uint32_t content_bytes) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    uint32_t transaction = transaction_find(w, topic, m->txn);
    struct staged_attributes a = {.txn = m->txn, .publish = {.pri = m->pri, .ttr_ns = m->ttr_ns}};
    uint16_t flags = m->flags & MSG_HEADERS ? MESSAGE_HEADERS : 0;
    uint64_t seq = t->next_seq++;
    log_position position = shard_log_staged(w, s, topic, seq, id, &a, content, content_bytes, flags);
    add_staged(w, transaction, seq, position);
    t->messages++;
    w->count->published++;
    t->message_bytes += content_bytes;
}

enum outcome transaction_end(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    uint32_t transaction = topic ? transaction_find(w, topic, m->id) : 0;
    uint8_t status = STATUS_OK;
    if (topic && handover_goes_on(topic_at(&w->topics, topic))) {
        stop_writing(w, topic); /* the handover may need the segment that this waits in */
        return MORE;
    }
    if (transaction && at(w, transaction)->state == TRANSACTION_OPEN) {
        struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
        if (room_reserve(w, s, 1, 0, false, &status) == LATER) return LATER;
        if (status == STATUS_OK) {
            shard_log_txn_end(w, s, topic, m->id, m->commit != 0);
            at(w, transaction)->state = m->commit ? TRANSACTION_COMMITTING : TRANSACTION_ABORTING;
        }
    }
    if (transaction && status == STATUS_OK) {
        enum outcome ended = go_on(w, transaction);
        if (ended == MORE || (ended == LATER && w->wanting)) return ended;
        if (ended == DONE) remove_one(w, transaction);
        if (ended == LATER) status = STATUS_NO_SPACE;
        topic_due(w, topic);
        queue_serve(w, topic);
    }
    request_done(w, client, m, status);
    return DONE;
}

/* --- recovery ----------------------------------------------------------------------------------------------------- */

uint32_t replay_take(struct worker *w, uint32_t topic, uint64_t number) {
    uint32_t transaction = transaction_take(w, topic, number);
    if (!transaction) process_die("more in transactions than a worker can hold");
    return transaction;
}

void replay_staged(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position) {
    struct staged_attributes a;
    if (r->attribute_bytes < sizeof a) return;
    memcpy(&a, record_attributes(r), sizeof a);
    shard_count_in(s, position);
    add_staged(w, replay_take(w, topic, a.txn), r->seq, position);
}

/* Applies a TXN_END. A commit makes the acknowledgements count, and staged messages follow as PUBLISH records; an abort
 * undoes both. Some of these may be missing from the log: the decision is sent again. */
void replay_end(struct worker *w, uint32_t topic, const struct record *r) {
    uint32_t transaction = transaction_find(w, topic, r->id);
    if (!transaction) return;
    struct transaction *of = at(w, transaction);
    bool commit = (r->flags & TXN_COMMIT) != 0;
    of->state = commit ? TRANSACTION_COMMITTING : TRANSACTION_ABORTING;
    while (of->first) acknowledgement_end(w, of->first, commit);
    while (!commit && of->done < of->count) pass(w, transaction);
    unlink_one(w, transaction);
    if (is_empty(of)) {
        free_one(w, transaction);
        return;
    }
    link_behind(w, transaction, 0); /* the ending ones come before the open ones, and are few */
}

void transactions_published(struct worker *w, uint32_t topic, uint64_t seq) {
    for (uint32_t n = topic_at(&w->topics, topic)->transactions; n; n = at(w, n)->next) {
        const struct transaction *of = at(w, n);
        if (of->state != TRANSACTION_COMMITTING) break;
        if (of->done == of->count || first_seq(of) != seq) continue;
        pass(w, n);
        if (is_empty(of)) remove_one(w, n);
        break;
    }
    let_pass(w, topic, seq);
}

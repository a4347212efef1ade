#include "shards/transactions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/shard.h"

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

/* Of a transaction's number, or a seq: clients say both. */
static uint64_t key_of(const struct worker *w, uint64_t era, uint64_t number) {
    const uint64_t words[2] = {era, number};
    return siphash(w->topics.key, words, sizeof words);
}

uint32_t transaction_find(const struct worker *w, uint32_t topic, uint64_t number) {
    const struct topic *t = topic_at(&w->topics, topic);
    uint32_t n = t->transactions ? map_find(&w->transactions.by_number, key_of(w, t->era, number)) : 0;
    return n && worker_transaction(w, n)->era == t->era && worker_transaction(w, n)->number == number ? n : 0;
}

uint64_t acknowledgement_key(const struct worker *w, uint64_t era, uint64_t seq) {
    return key_of(w, era, seq);
}

uint32_t acknowledgement_first(const struct worker *w, const struct topic *t, uint64_t seq) {
    uint32_t n = t->transactions ? map_find(&w->transactions.by_message, key_of(w, t->era, seq)) : 0;
    const struct acknowledgement *a = acknowledgement_at(&w->transactions, n);
    return n && a->seq == seq && worker_transaction(w, a->transaction)->era == t->era ? n : 0;
}

bool transactions_hold(const struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = topic_at(&w->topics, s->topic);
    const struct acknowledgement *a;
    for (uint32_t n = acknowledgement_first(w, t, seq); n; n = a->same_next) {
        a = acknowledgement_at(&w->transactions, n);
        if (a->subscription == s->number && !a->left && !a->upto && !a->over) return true;
    }
    return false;
}

/* Puts a transaction into its topic's list behind another one; 0: first. */
void transaction_link_behind(struct worker *w, uint32_t transaction, uint32_t previous) {
    struct transaction *of = worker_transaction(w, transaction);
    uint32_t *place =
        previous ? &worker_transaction(w, previous)->next : &topic_at(&w->topics, of->topic)->transactions;
    of->previous = previous;
    of->next = *place;
    if (of->next) worker_transaction(w, of->next)->previous = transaction;
    *place = transaction;
}

static uint32_t make(struct worker *w, uint32_t topic, uint64_t number) {
    struct transactions *all = &w->transactions;
    struct topic *t = topic_at(&w->topics, topic);
    uint64_t era = t->transactions ? t->era : ++all->eras, key = key_of(w, era, number);
    uint32_t n = map_find(&all->by_number, key) ? 0 : arena_take(&all->arena);
    if (n && !map_insert(&all->by_number, key, n)) arena_give(&all->arena, n), n = 0;
    if (!n) return 0;
    *worker_transaction(w, n) =
        (struct transaction){.topic = topic, .number = number, .era = era, .shard = shard_of_topic(w, t)};
    uint32_t ending = 0; /* behind the ending ones, which replay_end put in front */
    if (w->replaying)
        for (uint32_t e = t->transactions; e && worker_transaction(w, e)->state; e = worker_transaction(w, e)->next)
            ending = e;
    transaction_link_behind(w, n, ending);
    t->era = era;
    return n;
}

uint32_t transaction_take(struct worker *w, uint32_t topic, uint64_t number) {
    if (w->transactions.items >= WORKER_MAX_IN_TRANSACTIONS) return 0;
    uint32_t n = transaction_find(w, topic, number);
    if (!n) n = make(w, topic, number);
    if (!n || worker_transaction(w, n)->state) return 0;
    struct transaction *of = worker_transaction(w, n);
    if (of->count < of->capacity) return n;
    size_t capacity = of->capacity ? 2 * of->capacity : 16;
    struct staged_message *staged = realloc(of->staged, capacity * sizeof *staged);
    if (!staged) process_die("out of memory");
    of->staged = staged;
    of->capacity = capacity;
    return n;
}

void transaction_free(struct worker *w, uint32_t transaction) {
    struct transaction *of = worker_transaction(w, transaction);
    assert(transaction_is_empty(of));
    map_remove(&w->transactions.by_number, key_of(w, of->era, of->number));
    free(of->staged);
    *of = (struct transaction){0};
    arena_give(&w->transactions.arena, transaction);
}

void transaction_unlink(struct worker *w, uint32_t transaction) {
    const struct transaction *of = worker_transaction(w, transaction);
    *(of->previous ? &worker_transaction(w, of->previous)->next : &topic_at(&w->topics, of->topic)->transactions) =
        of->next;
    if (of->next) worker_transaction(w, of->next)->previous = of->previous;
}

void transaction_remove(struct worker *w, uint32_t transaction) {
    transaction_unlink(w, transaction);
    transaction_free(w, transaction);
}

/* --- the order of those that publish ------------------------------------------------------------------------------ */

/* Blocks the topic at the first seq that is staged. */
static void block(const struct worker *w, struct topic *t) {
    t->blocked = t->staging_first != 0;
    if (t->blocked) t->blocked_seq = transaction_first_seq(worker_transaction(w, t->staging_first));
}

/* Puts a transaction behind `earlier` in the order of first seqs; 0: first. */
static void put_behind(struct worker *w, uint32_t transaction, uint32_t earlier) {
    struct transaction *of = worker_transaction(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    of->earlier = earlier;
    of->later = earlier ? worker_transaction(w, earlier)->later : t->staging_first;
    *(earlier ? &worker_transaction(w, earlier)->later : &t->staging_first) = transaction;
    *(of->later ? &worker_transaction(w, of->later)->earlier : &t->staging_last) = transaction;
}

static void take_out(struct worker *w, uint32_t transaction) {
    struct transaction *of = worker_transaction(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    *(of->earlier ? &worker_transaction(w, of->earlier)->later : &t->staging_first) = of->later;
    *(of->later ? &worker_transaction(w, of->later)->earlier : &t->staging_last) = of->earlier;
    of->earlier = of->later = 0;
}

/* Moves a transaction to its place in the order of first seqs. These only rise, so it passes each other one only
 * once. */
static void keep_order(struct worker *w, uint32_t transaction) {
    const struct transaction *of = worker_transaction(w, transaction);
    uint32_t before = 0;
    for (uint32_t n = of->later; n && transaction_first_seq(worker_transaction(w, n)) < transaction_first_seq(of);
         n = worker_transaction(w, n)->later)
        before = n;
    if (!before) return;
    take_out(w, transaction);
    put_behind(w, transaction, before);
}

void transaction_staged(struct worker *w, uint32_t transaction, uint64_t seq, log_position position) {
    struct transaction *of = worker_transaction(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    of->staged[of->count++] = (struct staged_message){.seq = seq, .position = position};
    w->transactions.items++;
    if (of->count - of->done > 1) return;
    put_behind(w, transaction, t->staging_last);
    block(w, t);
}

/* The transaction's next staged message is done. */
void transaction_pass(struct worker *w, uint32_t transaction) {
    struct transaction *of = worker_transaction(w, transaction);
    shard_count_out(of->shard, of->staged[of->done++].position);
    w->transactions.items--;
    if (of->done < of->count)
        keep_order(w, transaction);
    else
        take_out(w, transaction);
    block(w, topic_at(&w->topics, of->topic));
}

bool transaction_is_there(const struct worker *w, const struct transaction *of) {
    const struct topic *t = topic_at(&w->topics, of->topic);
    return of->topic && t->transactions && t->era == of->era;
}

uint32_t replay_take(struct worker *w, uint32_t topic, uint64_t number) {
    uint32_t transaction = transaction_take(w, topic, number);
    if (!transaction) process_die("more in transactions than a worker can hold");
    return transaction;
}

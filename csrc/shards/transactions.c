#include "shards/transactions.h"

#include <stdlib.h>
#include <string.h>

#include "shards/queue.h"
#include "shards/requests.h"

static struct transaction *at(const struct worker *w, uint32_t transaction) {
    return transaction_at(&w->transactions, transaction);
}

bool transactions_open(struct transactions *all) {
    *all = (struct transactions){0};
    return arena_open(&all->arena, sizeof(struct transaction), WORKER_MAX_TRANSACTIONS);
}

void transactions_close(struct transactions *all) {
    for (uint32_t n = 1; all->arena.base && n < all->arena.end; n++) free(transaction_at(all, n)->items);
    map_free(&all->by_key);
    arena_close(&all->arena);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* Clients say the number. */
static uint64_t key_of(const struct worker *w, uint32_t topic, uint64_t number) {
    const uint64_t words[2] = {topic, number};
    return siphash(w->topics.key, words, sizeof words);
}

/* 0: there is none. */
static uint32_t find(const struct worker *w, uint32_t topic, uint64_t number) {
    uint32_t n = map_find(&w->transactions.by_key, key_of(w, topic, number));
    return n && at(w, n)->topic == topic && at(w, n)->number == number ? n : 0;
}

/* The first seq that is staged and not over. */
static void block(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    t->blocked = false;
    for (uint32_t n = t->transactions; n; n = at(w, n)->next) {
        const struct transaction *of = at(w, n);
        size_t i = of->done;
        while (i < of->count && of->items[i].subscription) i++;
        if (i == of->count || (t->blocked && of->items[i].seq >= t->blocked_seq)) continue;
        t->blocked = true;
        t->blocked_seq = of->items[i].seq;
    }
}

uint32_t transaction_take(struct worker *w, uint32_t topic, uint64_t number) {
    struct transactions *all = &w->transactions;
    struct topic *t = topic_at(&w->topics, topic);
    uint64_t key = key_of(w, topic, number);
    uint32_t n = map_find(&all->by_key, key);
    if (n && (at(w, n)->topic != topic || at(w, n)->number != number || at(w, n)->state)) return 0;
    if (all->items >= WORKER_MAX_IN_TRANSACTIONS) return 0;
    if (!n) {
        n = arena_take(&all->arena);
        if (n && !map_insert(&all->by_key, key, n)) arena_give(&all->arena, n), n = 0;
        if (!n) return 0;
        *at(w, n) = (struct transaction){.topic = topic, .number = number, .next = t->transactions};
        if (t->transactions) at(w, t->transactions)->previous = n;
        t->transactions = n;
    }
    struct transaction *of = at(w, n);
    if (of->count < of->capacity) return n;
    size_t capacity = of->capacity ? 2 * of->capacity : 16;
    struct transaction_item *items = realloc(of->items, capacity * sizeof *items);
    if (!items) worker_die("out of memory");
    of->items = items;
    of->capacity = capacity;
    return n;
}

void transaction_add(struct worker *w, uint32_t transaction, uint64_t seq, log_position position,
                     uint32_t subscription) {
    struct transaction *of = at(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    of->items[of->count++] = (struct transaction_item){.seq = seq, .position = position, .subscription = subscription};
    w->transactions.items++;
    if (subscription || (t->blocked && t->blocked_seq <= seq)) return;
    t->blocked = true;
    t->blocked_seq = seq;
}

static void remove_one(struct worker *w, uint32_t transaction) {
    struct transaction *of = at(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    *(of->previous ? &at(w, of->previous)->next : &t->transactions) = of->next;
    if (of->next) at(w, of->next)->previous = of->previous;
    map_remove(&w->transactions.by_key, key_of(w, of->topic, of->number));
    free(of->items);
    *of = (struct transaction){0};
    arena_give(&w->transactions.arena, transaction);
}

static void forget_left(struct transaction *of, struct transaction_item *item) {
    if (!item->left) return;
    free(item->left);
    item->left = NULL;
    of->partial--;
}

/* The next item is over. */
static void pass(struct worker *w, uint32_t transaction) {
    struct transaction *of = at(w, transaction);
    struct topic *t = topic_at(&w->topics, of->topic);
    struct transaction_item *item = &of->items[of->done++];
    forget_left(of, item);
    if (item->position) shard_count_out(shard_of_topic(w, t), item->position);
    w->transactions.items--;
    if (!item->subscription && t->blocked && t->blocked_seq == item->seq) block(w, of->topic);
}

void transactions_forget(struct worker *w, uint32_t topic) {
    struct topic *t = topic_at(&w->topics, topic);
    while (t->transactions) {
        uint32_t n = t->transactions;
        while (at(w, n)->done < at(w, n)->count) pass(w, n);
        remove_one(w, n);
    }
    t->blocked = false;
}

/* --- what an item comes to ---------------------------------------------------------------------------------------- */

/* The delivery that it is about; 0: it is gone. */
static uint32_t delivery_of(const struct worker *w, const struct topic *t, const struct transaction_item *item) {
    const struct shard *s = shard_of_topic(w, t);
    uint32_t subscription = item->subscription <= s->subscriptions_known ? s->subscriptions[item->subscription] : 0;
    const struct record *r = subscription ? log_read(s->log, stream_place(&t->stream, item->seq)) : NULL;
    return r ? delivery_find(w, subscription, r->id) : 0;
}

/* All of it that there is: it waits for the end of a transaction, or of several. */
static bool is_pending(const struct worker *w, uint32_t delivery) {
    const struct delivery *d = delivery_at(&w->subscriptions, delivery);
    return d->state == DELIVERY_DEFERRED && d->deadline_ns == DELIVERY_PENDING_NS;
}

/* Of the parts of a message those that transactions have acknowledged. True: there are some. */
static bool pending_parts(const struct worker *w, uint32_t delivery, uint64_t *bits) {
    const struct delivery *d = delivery_at(&w->subscriptions, delivery);
    const struct subscription *s = subscription_at(&w->subscriptions, d->subscription);
    bool any = false;
    memset(bits, 0, PARTS_MAX_WORDS * sizeof *bits);
    for (uint32_t n = topic_at(&w->topics, s->topic)->transactions; n; n = at(w, n)->next) {
        const struct transaction *of = at(w, n);
        for (size_t i = of->done; of->partial && i < of->count; i++) {
            const struct transaction_item *item = &of->items[i];
            if (!item->left || item->subscription != s->number || item->seq != d->seq) continue;
            for (uint32_t j = 0; j < PARTS_MAX_WORDS; j++)
                bits[j] |= j < item->left->words ? ~item->left->bits[j] : UINT64_MAX;
            any = true;
        }
    }
    return any;
}

/* How many parts a message has, as bits; at least one. */
static struct parts_left all_parts(const struct worker *w, uint32_t delivery) {
    const struct delivery *d = delivery_at(&w->subscriptions, delivery);
    const struct topic *t = topic_at(&w->topics, subscription_at(&w->subscriptions, d->subscription)->topic);
    const struct record *r = log_read(shard_of_topic(w, t)->log, stream_place(&t->stream, d->seq));
    const struct parts_left *now = delivery_parts(w, delivery);
    struct headers h = {0};
    struct parts_left all = {0};
    if (now) return *now;
    if (r && message_headers_bytes(r)) memcpy(&h, record_body(r), sizeof h);
    uint32_t parts = h.parts ? h.parts : 1;
    if (parts > PARTS_MAX_WORDS * 64) parts = PARTS_MAX_WORDS * 64;
    all.words = (parts + 63) / 64;
    for (uint32_t i = 0; i < parts; i++) all.bits[i / 64] |= (uint64_t)1 << i % 64;
    return all;
}

/* What of a message is neither finished nor pending. False: nothing. */
static bool free_parts(const struct worker *w, uint32_t delivery, struct parts_left *out) {
    uint64_t pending[PARTS_MAX_WORDS];
    *out = all_parts(w, delivery);
    if (pending_parts(w, delivery, pending))
        for (uint32_t i = 0; i < out->words; i++) out->bits[i] &= ~pending[i];
    while (out->words && !out->bits[out->words - 1]) out->words--;
    return out->words > 0;
}

bool transactions_hide(const struct worker *w, uint32_t delivery, struct parts_left *out) {
    uint64_t pending[PARTS_MAX_WORDS];
    return pending_parts(w, delivery, pending) && free_parts(w, delivery, out);
}

/* Nothing of it is finished, or pending, already. */
static bool may_acknowledge(const struct worker *w, uint32_t delivery, const struct parts_left *left) {
    uint64_t pending[PARTS_MAX_WORDS], any = 0;
    if (is_pending(w, delivery)) return false;
    bool some = pending_parts(w, delivery, pending);
    const struct parts_left all = all_parts(w, delivery);
    if (!left) return !some;
    for (uint32_t i = 0; i < all.words; i++) {
        uint64_t wanted = all.bits[i] & (i < left->words ? ~left->bits[i] : UINT64_MAX);
        if (wanted & pending[i]) return false;
        any |= wanted;
    }
    return any != 0;
}

/* It was added as the last of its transaction. `left` NULL: all of it. */
static void note_pending(struct worker *w, uint32_t transaction, uint32_t delivery, const struct parts_left *left) {
    struct transaction *of = at(w, transaction);
    struct transaction_item *item = &of->items[of->count - 1];
    struct parts_left rest;
    if (left) {
        item->left = malloc(sizeof *item->left);
        if (!item->left) worker_die("out of memory");
        *item->left = *left;
        of->partial++;
        if (free_parts(w, delivery, &rest)) return;
    }
    if (delivery_at(&w->subscriptions, delivery)->state) delivery_take(w, delivery);
    delivery_defer(w, delivery, DELIVERY_PENDING_NS);
}

static void end_acknowledgement(struct worker *w, const struct topic *t, const struct transaction_item *item,
                                bool commit) {
    uint32_t delivery = delivery_of(w, t, item);
    struct parts_left left;
    if (!delivery || (!item->left && !is_pending(w, delivery))) return;
    if (commit && item->left) {
        const struct parts_left all = all_parts(w, delivery);
        if (!delivery_parts(w, delivery)) (void)delivery_parts_set(w, delivery, &all);
        if (delivery_parts_after(w, delivery, item->left->bits, item->left->words, &left)) {
            (void)delivery_parts_set(w, delivery, &left);
            return;
        }
    }
    if (commit) {
        delivery_drop(w, delivery);
        return;
    }
    if (delivery_at(&w->subscriptions, delivery)->state) delivery_take(w, delivery);
    delivery_again(w, delivery);
}

/* Nobody who stands behind it gets it. */
static void let_pass(struct worker *w, uint32_t topic, uint64_t seq) {
    for (uint32_t n = topic_at(&w->topics, topic)->subscriptions; n; n = subscription_at(&w->subscriptions, n)->next) {
        struct subscription *s = subscription_at(&w->subscriptions, n);
        if (s->reader || seq >= subscription_held_from(s)) continue;
        message_release(w, topic, seq);
        s->taken++;
    }
}

void transactions_published(struct worker *w, uint32_t topic, uint64_t seq) {
    for (uint32_t n = topic_at(&w->topics, topic)->transactions; n; n = at(w, n)->next) {
        const struct transaction *of = at(w, n);
        if (of->state != TRANSACTION_COMMITTING || of->done == of->count || of->items[of->done].seq != seq) continue;
        pass(w, n);
        if (of->done == of->count) remove_one(w, n);
        break;
    }
    let_pass(w, topic, seq);
}

/* False: there is no room in the log. */
static bool publish_staged(struct worker *w, uint32_t topic, const struct transaction_item *item) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    const struct record *r = log_read(s->log, item->position);
    struct staged_attributes a;
    memcpy(&a, record_attributes(r), sizeof a);
    uint32_t body_bytes = (uint32_t)record_body_bytes(r), parts = message_packed(r);
    if (goes_to_queue(t) && w->jobs.live + parts + 1 >= WORKER_MAX_JOBS) return false;
    enum log_result result = shard_reserve_named(w, s, topic, 1, sizeof a + body_bytes);
    if (result == LOG_NO_SPACE && log_wants_segment(s->log) && !s->refused) w->wanting = s;
    if (result != LOG_OK) return false;
    r = log_read(s->log, item->position);
    uint16_t flags = (uint16_t)(PUBLISH_UNAWAITED | (r->flags & MESSAGE_HEADERS));
    uint64_t id = r->id;
    log_position position = shard_log_publish(w, s, topic, item->seq, id, a.publish, record_body(r), body_bytes, flags);
    stream_enter(w, topic, item->seq, id, position, ENTER_UNAWAITED);
    let_pass(w, topic, item->seq);
    queue_enter(w, topic, id, parts, a.publish.pri, 0, position);
    return true;
}

/* As many as there is time for. False: there is no room, or no time. */
static bool go_on(struct worker *w, uint32_t transaction, bool *room) {
    struct transaction *of = at(w, transaction);
    bool commit = of->state == TRANSACTION_COMMITTING;
    for (uint32_t left = w->piece / 4; of->done < of->count; left--) {
        if (!left) return false;
        const struct transaction_item *item = &of->items[of->done];
        struct topic *t = topic_at(&w->topics, of->topic);
        worker_step(w);
        if (item->subscription && item->position)
            end_acknowledgement(w, t, item, commit);
        else if (!item->subscription && commit && !(*room = publish_staged(w, of->topic, item)))
            return false;
        pass(w, transaction);
    }
    return true;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

void transaction_stage(struct worker *w, uint32_t topic, const struct message *m, uint64_t id, const void *content,
                       uint32_t content_bytes) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    uint32_t transaction = find(w, topic, m->txn);
    struct staged_attributes a = {.txn = m->txn, .publish = {.pri = m->pri, .ttr_ns = m->ttr_ns}};
    uint16_t flags = m->flags & MSG_HEADERS ? MESSAGE_HEADERS : 0;
    uint64_t seq = t->next_seq++;
    log_position position = shard_log_staged(w, s, topic, seq, id, &a, content, content_bytes, flags);
    transaction_add(w, transaction, seq, position, 0);
    t->messages++;
    w->count->published++;
    t->message_bytes += content_bytes;
}

/* Room for a PENDING, behind what the subscription has passed: LATER, or why not. */
static enum outcome reserve_pending(struct worker *w, uint32_t subscription, uint8_t *status) {
    const struct subscription *s = subscription_at(&w->subscriptions, subscription);
    if (!subscription_write(w, subscription)) {
        *status = STATUS_NO_SPACE;
        return w->wanting ? LATER : DONE;
    }
    return requests_reserve_named(w, s->topic, 1, PENDING_BYTES, status);
}

/* Of a message that the channel has passed, all or some parts (`left`: what would be left). LATER, or a status. */
static enum outcome acknowledge(struct worker *w, uint32_t delivery, uint64_t number, const struct parts_left *left,
                                uint8_t *status) {
    const struct delivery *d = delivery_at(&w->subscriptions, delivery);
    uint32_t subscription = d->subscription;
    const struct subscription *s = subscription_at(&w->subscriptions, subscription);
    *status = may_acknowledge(w, delivery, left) ? STATUS_OK : STATUS_FULL;
    if (*status == STATUS_OK && reserve_pending(w, subscription, status) == LATER) return LATER;
    uint32_t transaction = *status == STATUS_OK ? transaction_take(w, s->topic, number) : 0;
    if (*status == STATUS_OK && !transaction) *status = STATUS_NO_SPACE;
    if (*status != STATUS_OK) return DONE;
    struct shard *shard = shard_of_topic(w, topic_at(&w->topics, s->topic));
    log_position position = shard_log_pending(w, shard, s, d->seq, number, left);
    transaction_add(w, transaction, d->seq, position, s->number);
    note_pending(w, transaction, delivery, left);
    return DONE;
}

/* The first delivery of a list that is not pending and lies up to a seq. */
static uint32_t first_upto(const struct worker *w, uint32_t first, uint64_t seq) {
    for (uint32_t n = first; n; n = delivery_at(&w->subscriptions, n)->following)
        if (delivery_at(&w->subscriptions, n)->seq <= seq && !is_pending(w, n)) return n;
    return 0;
}

static enum outcome acknowledge_upto(struct worker *w, uint32_t consumer, const struct message *m, uint8_t *status) {
    const struct consumer *c = consumer_at(&w->subscriptions, consumer);
    const struct subscription *s = subscription_at(&w->subscriptions, c->subscription);
    for (uint32_t left = w->piece / 4; *status == STATUS_OK; left--) {
        uint32_t delivery = first_upto(w, c->inflight_first, m->seq);
        if (!delivery) delivery = first_upto(w, s->again_first, m->seq);
        if (!delivery) break;
        if (!left) return MORE;
        if (acknowledge(w, delivery, m->id, NULL, status) == LATER) return LATER;
    }
    return DONE;
}

static enum outcome acknowledge_one(struct worker *w, uint32_t consumer, const struct message *m, uint8_t *status) {
    const struct subscription *s =
        subscription_at(&w->subscriptions, consumer_at(&w->subscriptions, consumer)->subscription);
    const struct topic *t = topic_at(&w->topics, s->topic);
    const struct record *r = log_read(shard_of_topic(w, t)->log, stream_place(&t->stream, m->seq));
    uint32_t delivery = r ? delivery_find(w, consumer_at(&w->subscriptions, consumer)->subscription, r->id) : 0;
    struct parts_left left = {.words = m->body_bytes / (uint32_t)sizeof *left.bits};
    if (left.words > PARTS_MAX_WORDS || m->body_bytes % sizeof *left.bits) *status = STATUS_INVALID;
    if (*status == STATUS_OK && !delivery) *status = STATUS_FULL;
    if (*status != STATUS_OK) return DONE;
    memcpy(left.bits, m + 1, m->body_bytes);
    return acknowledge(w, delivery, m->id, m->body_bytes ? &left : NULL, status);
}

enum outcome transaction_acknowledge(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    uint32_t consumer = topic ? consumer_find(w, client, m->consumer_number) : 0;
    const struct consumer *c = consumer_at(&w->subscriptions, consumer);
    const struct subscription *s = subscription_at(&w->subscriptions, c->subscription);
    uint8_t status = consumer && s->topic == topic && s->number ? STATUS_OK : STATUS_NOT_FOUND;
    enum outcome outcome = DONE;
    if (status == STATUS_OK)
        outcome =
            m->flags & MSG_UPTO ? acknowledge_upto(w, consumer, m, &status) : acknowledge_one(w, consumer, m, &status);
    if (outcome == DONE) request_done(w, client, m, status);
    return outcome;
}

enum outcome transaction_end(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    uint32_t transaction = topic ? find(w, topic, m->id) : 0;
    uint8_t status = STATUS_OK;
    bool room = true;
    if (transaction && at(w, transaction)->state == TRANSACTION_OPEN) {
        struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
        if (requests_reserve(w, s, 1, 0, false, &status) == LATER) return LATER;
        if (status == STATUS_OK) {
            shard_log_txn_end(w, s, topic, m->id, m->commit != 0);
            at(w, transaction)->state = m->commit ? TRANSACTION_COMMITTING : TRANSACTION_ABORTING;
        }
    }
    if (transaction && status == STATUS_OK) {
        bool all = go_on(w, transaction, &room);
        if (!all && room) return MORE;
        if (!all && w->wanting) return LATER;
        if (all) remove_one(w, transaction);
        if (!all) status = STATUS_NO_SPACE;
        block(w, topic);
        topic_due(w, topic);
        queue_serve(w, topic);
    }
    request_done(w, client, m, status);
    return DONE;
}

void transactions_list(struct worker *w, uint32_t client, const struct message *m) {
    struct transactions *all = &w->transactions;
    size_t bytes = 0, most = all->arena.live * (sizeof(struct transaction_figures) + TOPIC_NAME_MAX);
    uint8_t *out = malloc(most + 1);
    if (!out) worker_die("out of memory");
    for (uint32_t n = 1; n < all->arena.end; n++) {
        const struct transaction *of = at(w, n);
        if (!of->topic) continue;
        const struct topic *t = topic_at(&w->topics, of->topic);
        struct transaction_figures f = {
            .number = of->number, .items = of->count, .state = of->state, .name_bytes = t->name_bytes};
        memcpy(out + bytes, &f, sizeof f);
        memcpy(out + bytes + sizeof f, t->name, t->name_bytes);
        bytes += sizeof f + t->name_bytes;
    }
    struct message a = request_answer_of(w, client, m, STATUS_OK);
    request_send(w, client, &a, out, bytes);
    free(out);
}

/* --- a message that moves ----------------------------------------------------------------------------------------- */

static bool moves_with(const struct transaction_item *item, uint64_t seq) {
    return item->subscription && item->position && item->seq == seq;
}

void transactions_settle(struct worker *w, uint32_t topic, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, topic);
    for (uint32_t n = t->transactions; n; n = at(w, n)->next) {
        struct transaction *of = at(w, n);
        for (size_t i = of->done; of->state && i < of->count; i++) {
            struct transaction_item *item = &of->items[i];
            if (!moves_with(item, seq)) continue;
            end_acknowledgement(w, t, item, of->state == TRANSACTION_COMMITTING);
            forget_left(of, item);
            shard_count_out(shard_of_topic(w, t), item->position);
            item->position = 0;
        }
    }
}

uint32_t transactions_pending(const struct worker *w, const struct topic *t, uint64_t seq) {
    uint32_t count = 0;
    for (uint32_t n = t->transactions; n; n = at(w, n)->next)
        for (size_t i = at(w, n)->done; i < at(w, n)->count; i++) count += moves_with(&at(w, n)->items[i], seq);
    return count;
}

void transactions_moved(struct worker *w, struct shard *s, const struct topic *t, uint64_t seq) {
    for (uint32_t n = t->transactions; n; n = at(w, n)->next)
        for (size_t i = at(w, n)->done; i < at(w, n)->count; i++) {
            struct transaction_item *item = &at(w, n)->items[i];
            uint32_t subscription = moves_with(item, seq) ? s->subscriptions[item->subscription] : 0;
            if (!subscription) continue;
            shard_count_out(s, item->position);
            item->position = shard_log_pending(w, s, subscription_at(&w->subscriptions, subscription), seq,
                                               at(w, n)->number, item->left);
        }
}

/* --- recovery ----------------------------------------------------------------------------------------------------- */

static uint32_t replay_take(struct worker *w, uint32_t topic, uint64_t number) {
    uint32_t transaction = transaction_take(w, topic, number);
    if (!transaction) worker_die("more in transactions than a worker can hold");
    return transaction;
}

void replay_staged(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position) {
    struct staged_attributes a;
    if (r->attribute_bytes < sizeof a) return;
    memcpy(&a, record_attributes(r), sizeof a);
    shard_count_in(s, position);
    transaction_add(w, replay_take(w, topic, a.txn), r->seq, position, 0);
}

static struct transaction_item *item_of(const struct transaction *of, uint32_t subscription, uint64_t seq,
                                        const struct parts_left *left) {
    for (size_t i = of->done; i < of->count; i++) {
        struct transaction_item *item = &of->items[i];
        if (item->subscription != subscription || item->seq != seq) continue;
        size_t words = item->left ? item->left->words : 0;
        if (words == left->words && (!words || memcmp(item->left->bits, left->bits, words * sizeof *left->bits) == 0))
            return item;
    }
    return NULL;
}

void replay_pending(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position) {
    uint64_t txn;
    struct parts_left left = {.words = (uint32_t)(record_body_bytes(r) / sizeof *left.bits)};
    const struct topic *t = topic_at(&w->topics, topic);
    if (r->attribute_bytes < sizeof txn || r->id > s->subscriptions_known || !s->subscriptions[r->id]) return;
    if (left.words > PARTS_MAX_WORDS) return;
    memcpy(&txn, record_attributes(r), sizeof txn);
    memcpy(left.bits, record_body(r), left.words * sizeof *left.bits);
    const struct record *of = log_read(s->log, stream_place(&t->stream, r->seq));
    uint32_t delivery = of ? delivery_find(w, s->subscriptions[r->id], of->id) : 0;
    if (!delivery) return;
    uint32_t transaction = replay_take(w, topic, txn);
    struct transaction_item *there = item_of(at(w, transaction), (uint32_t)r->id, r->seq, &left);
    shard_count_in(s, position);
    if (there) { /* it has moved */
        shard_count_out(s, there->position);
        there->position = position;
        return;
    }
    transaction_add(w, transaction, r->seq, position, (uint32_t)r->id);
    note_pending(w, transaction, delivery, r->flags & PENDING_PARTS ? &left : NULL);
}

/* What was acknowledged counts, or comes again; what was published follows as PUBLISH records, or is over. Some may be missing:
 * whoever has decided says so again. */
void replay_end(struct worker *w, uint32_t topic, const struct record *r) {
    uint32_t transaction = find(w, topic, r->id);
    if (!transaction) return;
    struct transaction *of = at(w, transaction);
    bool commit = (r->flags & TXN_COMMIT) != 0;
    size_t kept = of->done;
    of->state = commit ? TRANSACTION_COMMITTING : TRANSACTION_ABORTING;
    for (size_t i = of->done; i < of->count; i++) {
        if (of->items[i].subscription) end_acknowledgement(w, topic_at(&w->topics, topic), &of->items[i], commit);
        forget_left(of, &of->items[i]);
        const struct transaction_item item = of->items[i];
        if (commit && !item.subscription) {
            of->items[kept++] = item;
            continue;
        }
        shard_count_out(shard_of_topic(w, topic_at(&w->topics, topic)), item.position);
        w->transactions.items--;
    }
    of->count = kept;
    if (of->done == of->count) remove_one(w, transaction);
    block(w, topic);
}

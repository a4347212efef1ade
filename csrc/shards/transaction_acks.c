/* Acknowledgements in transactions: of a whole message, or of some of its parts. */
#include "shards/transaction_acks.h"

#include <stdlib.h>
#include <string.h>

#include "shards/answers.h"
#include "shards/consumer.h"
#include "shards/delivery.h"
#include "shards/finish.h"
#include "shards/finished_ahead.h"
#include "shards/parts.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/shard.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/transactions.h"
#include "shards/unreadable.h"

static struct acknowledgement *at(const struct worker *w, uint32_t n) {
    return acknowledgement_at(&w->transactions, n);
}

static struct transaction *transaction_of(const struct worker *w, const struct acknowledgement *a) {
    return worker_transaction(w, a->transaction);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void name_first(struct worker *w, const struct acknowledgement *a, uint32_t first) {
    struct map *map = &w->transactions.by_message;
    uint64_t key = acknowledgement_key(w, transaction_of(w, a)->era, a->seq);
    if (map_find(map, key)) map_remove(map, key);
    if (first && !map_insert(map, key, first)) process_die("out of memory");
}

/* Voids earlier acknowledgements of the whole message: they were of another delivery than the one acknowledged now. A
 * cumulative one is of all deliveries, and stays. */
static void supersede(struct worker *w, uint32_t acknowledgement) {
    const struct acknowledgement *a = at(w, acknowledgement);
    const struct topic *t = topic_at(&w->topics, transaction_of(w, a)->topic);
    for (uint32_t n = acknowledgement_first(w, t, a->seq); n; n = at(w, n)->same_next)
        if (n != acknowledgement && at(w, n)->subscription == a->subscription && !at(w, n)->left && !at(w, n)->upto)
            at(w, n)->over = true;
}

/* How many acknowledgements there are that have as little or as much to leave as this one. */
static uint64_t *in_parts(struct transactions *all, const struct parts_left *left) {
    return left->words > PARTS_FEW_WORDS ? &all->in_many_parts : &all->in_parts;
}

/* Adds an acknowledgement; transaction_take has made sure that there is room. */
static struct acknowledgement *add(struct worker *w, uint32_t transaction, uint64_t seq, log_position position,
                                   uint32_t subscription, const struct parts_left *left, bool upto) {
    struct transactions *all = &w->transactions;
    struct transaction *of = transaction_at(all, transaction);
    uint32_t n = arena_take(&all->acknowledgements);
    uint32_t first = acknowledgement_first(w, topic_at(&w->topics, of->topic), seq);
    struct acknowledgement *a = at(w, n);
    *a = (struct acknowledgement){.transaction = transaction, .previous = of->last, .subscription = subscription};
    a->seq = seq;
    a->position = position;
    a->upto = upto;
    *(of->last ? &at(w, of->last)->next : &of->first) = n;
    of->last = n;
    of->acknowledged++;
    all->items++;
    if (first) {
        a->same_previous = first;
        a->same_next = at(w, first)->same_next;
        if (a->same_next) at(w, a->same_next)->same_previous = n;
        at(w, first)->same_next = n;
    } else {
        name_first(w, a, n);
    }
    if (first) supersede(w, n);
    if (!left) return a;
    a->left = malloc(offsetof(struct parts_left, bits) + left->words * sizeof *left->bits);
    if (!a->left) process_die("out of memory");
    parts_copy(a->left, left);
    ++*in_parts(all, a->left);
    return a;
}

void acknowledgement_forget(struct worker *w, uint32_t acknowledgement) {
    struct transactions *all = &w->transactions;
    struct acknowledgement *a = at(w, acknowledgement);
    struct transaction *of = transaction_of(w, a);
    *(a->previous ? &at(w, a->previous)->next : &of->first) = a->next;
    *(a->next ? &at(w, a->next)->previous : &of->last) = a->previous;
    if (a->same_next) at(w, a->same_next)->same_previous = a->same_previous;
    if (a->same_previous)
        at(w, a->same_previous)->same_next = a->same_next;
    else
        name_first(w, a, a->same_next);
    shard_count_out(of->shard, a->position);
    if (a->left) --*in_parts(all, a->left);
    free(a->left);
    of->acknowledged--;
    all->items--;
    *a = (struct acknowledgement){0};
    arena_give(&all->acknowledgements, acknowledgement);
}

/* The acknowledgement of some of a message's parts, of the same kind, that a transaction has already; 0: none. One more
 * is added to it: a client may acknowledge each part by itself, and what is pending is asked for at each. */
static uint32_t find_parts(const struct worker *w, uint32_t transaction, uint32_t subscription, uint64_t seq,
                           bool upto) {
    const struct topic *t = topic_at(&w->topics, worker_transaction(w, transaction)->topic);
    for (uint32_t n = transaction ? acknowledgement_first(w, t, seq) : 0; n; n = at(w, n)->same_next) {
        const struct acknowledgement *a = at(w, n);
        if (a->subscription == subscription && a->transaction == transaction && a->left && a->upto == upto) return n;
    }
    return 0;
}

/* Acknowledges more parts. How many words there are stays: so much room is reserved. */
static void add_parts(struct parts_left *to, const struct parts_left *left) {
    for (uint32_t i = 0; i < to->words; i++) to->bits[i] &= i < left->words ? left->bits[i] : 0;
}

/* --- what is pending of a delivery -------------------------------------------------------------------------------- */

/* Whether all that is left of a delivery is acknowledged in transactions, so that it waits for their end. */
static bool is_pending(const struct worker *w, uint32_t delivery) {
    const struct delivery *d = worker_delivery(w, delivery);
    return d->state == DELIVERY_DEFERRED && d->deadline_ns == DELIVERY_PENDING_NS;
}

static bool are_all_held(const struct worker *w, uint32_t delivery) {
    const struct delivery *d = worker_delivery(w, delivery);
    return is_pending(w, delivery) || transactions_hold(w, d->subscription, d->seq);
}

/* Adds the parts that an acknowledgement would finish, as far as `words`. */
static void add_finished(const struct parts_left *left, uint64_t *bits, uint32_t words) {
    for (uint32_t i = 0; i < words; i++) bits[i] |= i < left->words ? ~left->bits[i] : UINT64_MAX;
}

/* The parts of a message that transactions have acknowledged, one by one or (`upto`) also cumulatively, as far as
 * `words`. True: there are some. */
static bool pending_parts(const struct worker *w, uint32_t delivery, bool upto, uint64_t *bits, uint32_t words) {
    const struct delivery *d = worker_delivery(w, delivery);
    const struct subscription *s = worker_subscription(w, d->subscription);
    bool any = false;
    if (words) memset(bits, 0, words * sizeof *bits);
    if (!w->transactions.in_parts && !w->transactions.in_many_parts) return false;
    for (uint32_t n = acknowledgement_first(w, subscription_topic(w, s), d->seq); n; n = at(w, n)->same_next) {
        const struct acknowledgement *a = at(w, n);
        const struct parts_left *left = a->subscription == s->number && (upto || !a->upto) ? a->left : NULL;
        if (left) add_finished(left, bits, words);
        any |= left != NULL;
    }
    return any;
}

static bool are_some_pending(const struct worker *w, uint32_t delivery) {
    return pending_parts(w, delivery, true, NULL, 0);
}

/* The parts of a message that are neither finished nor pending. False: none. */
static bool free_parts(const struct worker *w, uint32_t delivery, struct parts_left *out) {
    uint64_t pending[PARTS_MAX_WORDS];
    delivery_all_parts(w, delivery, out);
    if (pending_parts(w, delivery, true, pending, out->words))
        for (uint32_t i = 0; i < out->words; i++) out->bits[i] &= ~pending[i];
    parts_trim(out);
    return out->words > 0;
}

bool transactions_hide(const struct worker *w, uint32_t delivery, struct parts_left *out) {
    return are_some_pending(w, delivery) && free_parts(w, delivery, out);
}

/* Whether the parts to be acknowledged are neither finished nor pending, and the delivery is not split for another
 * consumer. What is only acknowledged cumulatively may be acknowledged by itself as well. */
static bool may_acknowledge(const struct worker *w, uint32_t delivery, const struct parts_left *left) {
    const struct delivery *d = worker_delivery(w, delivery);
    uint64_t pending[PARTS_MAX_WORDS], any = 0;
    struct parts_left all;
    if (transactions_hold(w, d->subscription, d->seq) || d->part || d->state == DELIVERY_SPLIT) return false;
    if (!left) return !pending_parts(w, delivery, false, NULL, 0);
    delivery_all_parts(w, delivery, &all);
    (void)pending_parts(w, delivery, false, pending, all.words);
    for (uint32_t i = 0; i < all.words; i++) {
        uint64_t wanted = all.bits[i] & (i < left->words ? ~left->bits[i] : UINT64_MAX);
        if (wanted & pending[i]) return false;
        any |= wanted;
    }
    return any != 0;
}

static void set_aside(struct worker *w, uint32_t delivery) {
    if (worker_delivery(w, delivery)->state) delivery_take(w, delivery);
    delivery_defer(w, delivery, DELIVERY_PENDING_NS);
}

bool transactions_keep(struct worker *w, uint32_t delivery, bool splits) {
    struct parts_left rest;
    bool keeps = are_some_pending(w, delivery) && (splits || !free_parts(w, delivery, &rest));
    keeps |= are_all_held(w, delivery);
    if (keeps) set_aside(w, delivery);
    return keeps;
}

/* An acknowledgement of the delivery was added. */
static void note(struct worker *w, uint32_t delivery, const struct parts_left *left) {
    struct parts_left rest;
    if (!left || !free_parts(w, delivery, &rest)) set_aside(w, delivery);
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* The delivery that an acknowledgement is about; 0: it is gone. */
static uint32_t delivery_of(const struct worker *w, const struct acknowledgement *a) {
    const struct transaction *of = transaction_of(w, a);
    const struct topic *t = topic_at(&w->topics, of->topic);
    uint32_t subscription = shard_subscription(of->shard, a->subscription);
    const struct record *r = subscription ? message_head(w, t, a->seq) : NULL;
    return r ? delivery_find(w, subscription, r->id) : 0;
}

/* Ends an acknowledgement of a whole message. `delivery` 0: it is not behind the channel's cursor, or is finished. */
static void settle_whole(struct worker *w, const struct acknowledgement *a, uint32_t delivery, bool commit) {
    if (delivery && !commit && is_pending(w, delivery)) {
        delivery_take(w, delivery);
        delivery_again(w, delivery);
    }
    if (!commit) return;
    if (delivery) delivery_drop(w, delivery);
    /* The channel was moved back, and comes to it once more. */
    uint32_t subscription = shard_subscription(transaction_of(w, a)->shard, a->subscription);
    if (subscription && a->seq >= worker_subscription(w, subscription)->cursor)
        finished_ahead_add(w, subscription, a->seq);
}

/* Ends an acknowledgement. Returns the delivery if some of its parts are still unfinished; 0: it is finished, deleted,
 * or to be delivered again. `kept`: the parts that a commit leaves; NULL: none. */
static uint32_t settle(struct worker *w, const struct acknowledgement *a, const struct parts_left *kept, bool commit) {
    uint32_t delivery = delivery_of(w, a);
    struct parts_left left;
    if (!a->over && !kept) settle_whole(w, a, delivery, commit);
    if (a->over || !delivery || !kept) return 0;
    /* The channel was moved back, and the message is being delivered again. */
    bool is_split = worker_delivery(w, delivery)->state == DELIVERY_SPLIT;
    if (is_split && !commit) return 0;
    if (commit) {
        delivery_all_parts(w, delivery, &left);
        if (left.words > kept->words) left.words = kept->words;
        for (uint32_t i = 0; i < left.words; i++) left.bits[i] &= kept->bits[i];
        parts_trim(&left);
        if (left.words && is_split) split_leave(w, delivery, &left);
        /* Has room: the acknowledgement had reserved it. */
        if (left.words && !is_split) (void)delivery_parts_set(w, delivery, &left);
        if (left.words) delivery_weigh_again(w, delivery);
        if (left.words) return delivery;
    }
    if (commit) {
        delivery_drop(w, delivery);
        return 0;
    }
    if (worker_delivery(w, delivery)->state) delivery_take(w, delivery);
    delivery_again(w, delivery);
    return 0;
}

void acknowledgement_end(struct worker *w, uint32_t acknowledgement, bool commit) {
    struct acknowledgement *a = at(w, acknowledgement);
    struct parts_left *kept = a->left, rest;
    if (kept) --*in_parts(&w->transactions, kept);
    a->left = NULL;
    uint32_t delivery = settle(w, a, kept, commit);
    free(kept);
    acknowledgement_forget(w, acknowledgement);
    if (!delivery || !is_pending(w, delivery) || !free_parts(w, delivery, &rest)) return;
    delivery_take(w, delivery);
    delivery_again(w, delivery);
}

/* Its record is this one now, which says all that the one before did. */
static void stands_at(struct worker *w, uint32_t acknowledgement, log_position position) {
    struct acknowledgement *a = at(w, acknowledgement);
    shard_count_out(transaction_of(w, a)->shard, a->position);
    a->position = position;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* The attributes and body of a PENDING. `left` NULL: it is about the whole message. */
static uint64_t pending_bytes(const struct parts_left *left) {
    return sizeof(uint64_t) + (left ? left->words * sizeof *left->bits : 0);
}

/* Reserves room for a PENDING, after logging the subscription's cursor. LATER, or the status to answer with. */
static enum outcome reserve_pending(struct worker *w, uint32_t subscription, uint64_t bytes, uint8_t *status) {
    const struct subscription *s = worker_subscription(w, subscription);
    if (!subscription_write(w, subscription)) {
        *status = STATUS_NO_SPACE;
        return w->wanting ? LATER : DONE;
    }
    return room_reserve_named(w, s->topic, 1, bytes, status);
}

/* Acknowledges a message behind the channel's cursor: all of it, or some parts (`left`: those that would be left).
 * LATER, or a status. */
static enum outcome acknowledge(struct worker *w, uint32_t delivery, uint64_t number, const struct parts_left *left,
                                bool upto, uint8_t *status) {
    const struct delivery *d = worker_delivery(w, delivery);
    uint32_t subscription = d->subscription;
    const struct subscription *s = worker_subscription(w, subscription);
    *status = may_acknowledge(w, delivery, left) ? STATUS_OK : STATUS_FULL;
    uint32_t there = left ? find_parts(w, transaction_find(w, s->topic, number), s->number, d->seq, upto) : 0;
    const struct parts_left *room = there ? at(w, there)->left : left;
    if (*status == STATUS_OK && left && !there && !parts_fit(w, left->words)) *status = STATUS_NO_SPACE;
    if (*status == STATUS_OK && reserve_pending(w, subscription, pending_bytes(room), status) == LATER) return LATER;
    uint32_t transaction = *status == STATUS_OK ? transaction_take(w, s->topic, number) : 0;
    if (*status == STATUS_OK && !transaction) *status = STATUS_NO_SPACE;
    if (*status != STATUS_OK) return DONE;
    if (there) add_parts(at(w, there)->left, left);
    struct shard *shard = subscription_shard(w, s);
    log_position position = shard_log_pending(w, shard, s, d->seq, number, there ? at(w, there)->left : left, upto);
    if (there)
        stands_at(w, there, position);
    else
        add(w, transaction, d->seq, position, s->number, left, upto);
    note(w, delivery, left);
    return DONE;
}

/* Leaves out parts that are already pending. False: no others would be acknowledged. */
static bool spare_pending(const struct worker *w, uint32_t delivery, struct parts_left *left) {
    uint64_t pending[PARTS_MAX_WORDS], any = 0;
    struct parts_left all;
    delivery_all_parts(w, delivery, &all);
    (void)pending_parts(w, delivery, true, pending, all.words);
    for (uint32_t i = 0; i < all.words; i++) {
        left->bits[i] = (i < left->words ? left->bits[i] : 0) | pending[i];
        any |= all.bits[i] & ~left->bits[i];
    }
    if (left->words < all.words) left->words = all.words;
    return any != 0;
}

/* Acknowledges the rest of messages that transactions have acknowledged in part. */
static enum outcome acknowledge_rest(struct worker *w, uint32_t delivery, uint64_t number, struct parts_left *left,
                                     uint8_t *status) {
    if (are_all_held(w, delivery)) return DONE;
    bool some = are_some_pending(w, delivery);
    if (some && !spare_pending(w, delivery, left)) {
        set_aside(w, delivery);
        return DONE;
    }
    return acknowledge(w, delivery, number, some || left->words ? left : NULL, true, status);
}

/* Acknowledges the deliveries of a list that lie before a seq, `most` of them in one pass. Each one leaves the list. */
static enum outcome acknowledge_list(struct worker *w, uint32_t first, uint64_t seq, uint64_t number, uint32_t *most,
                                     uint8_t *status) {
    for (uint32_t n = first, next; n && *status == STATUS_OK; n = next) {
        struct parts_left left;
        left.words = 0;
        next = worker_delivery(w, n)->following;
        if (worker_delivery(w, n)->seq >= seq) continue;
        if (!*most) return MORE;
        --*most;
        if (acknowledge_rest(w, n, number, &left, status) == LATER) return LATER;
    }
    return DONE;
}

/* The first part of a message that a cumulative acknowledgement leaves; UPTO_ALL: it leaves none. */
static uint16_t first_left(const struct message *m) {
    for (uint32_t i = 0; i < m->body_bytes / sizeof(uint64_t); i++) {
        uint64_t bits;
        memcpy(&bits, (const uint8_t *)(m + 1) + i * sizeof bits, sizeof bits);
        if (bits) return (uint16_t)(i * 64 + (uint32_t)__builtin_ctzll(bits));
    }
    return UPTO_ALL;
}

static bool goes_further(const struct subscription *s, const struct message *m) {
    if (s->upto_seq == NO_PLACE || s->upto_seq != m->seq) return s->upto_seq == NO_PLACE || m->seq > s->upto_seq;
    return first_left(m) > s->upto_part;
}

/* Only one transaction at a time may have cumulative acknowledgements, each of which goes further than the last. */
static bool may_acknowledge_before(const struct worker *w, const struct subscription *s, const struct message *m) {
    if (s->upto == m->id + 1) return goes_further(s, m);
    uint32_t other = s->upto ? transaction_find(w, s->topic, s->upto - 1) : 0;
    return !other || worker_transaction(w, other)->state != TRANSACTION_OPEN;
}

/* The lowest seq of the first `most` deliveries in a list, if it is below `lowest`. */
static uint64_t lowest_in(struct worker *w, uint32_t first, uint64_t lowest, uint64_t *most) {
    for (uint32_t n = first; n && *most; n = worker_delivery(w, n)->following, --*most) {
        worker_walk(w, 1);
        if (worker_delivery(w, n)->seq < lowest) lowest = worker_delivery(w, n)->seq;
    }
    return lowest;
}

/* Whether the subscription has finished all up to that seq, and *unfinished is behind it. It counts as unfinished where
 * there is too much to look at. */
static bool is_finished_upto(struct worker *w, const struct subscription *s, uint64_t seq, uint64_t *unfinished) {
    uint64_t most = w->piece;
    if (s->cursor <= seq) return false;
    *unfinished = lowest_in(w, s->redelivery_first, s->cursor, &most);
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next)
        *unfinished = lowest_in(w, worker_consumer(w, c)->inflight_first, *unfinished, &most);
    *unfinished = lowest_in(w, s->deferred_first, *unfinished, &most);
    return most && *unfinished > seq;
}

/* Notes what the next cumulative acknowledgement has to go beyond. That waits until this one is done, which may be
 * begun again until then. If it failed and was the transaction's first, another transaction may have one. */
static void note_before(struct subscription *s, const struct message *m, uint8_t status) {
    if (s->upto != m->id + 1) return;
    if (status != STATUS_OK) {
        if (s->upto_seq == NO_PLACE) s->upto = 0;
    } else if (goes_further(s, m)) {
        s->upto_seq = m->seq;
        s->upto_part = first_left(m);
    }
}

static enum outcome acknowledge_before(struct worker *w, uint32_t consumer, const struct message *m, uint8_t *status) {
    const struct consumer *c = worker_consumer(w, consumer);
    struct subscription *s = worker_subscription(w, c->subscription);
    uint64_t end = m->body_bytes ? m->seq : m->seq + 1, unfinished;
    bool begun = s->upto == m->id + 1; /* it may be what it has acknowledged itself that is not there any more */
    if (!begun && is_finished_upto(w, s, m->seq, &unfinished)) *status = STATUS_NONE;
    if (*status == STATUS_OK && !may_acknowledge_before(w, s, m)) *status = STATUS_FULL;
    if (*status == STATUS_OK && s->upto != m->id + 1) {
        s->upto = m->id + 1;
        s->upto_seq = NO_PLACE;
    }
    uint32_t most = w->piece / 4;
    enum outcome outcome = acknowledge_list(w, c->inflight_first, end, m->id, &most, status);
    return outcome == DONE ? acknowledge_list(w, s->redelivery_first, end, m->id, &most, status) : outcome;
}

static enum outcome acknowledge_one(struct worker *w, uint32_t consumer, const struct message *m, uint8_t *status) {
    const struct subscription *s = worker_subscription(w, worker_consumer(w, consumer)->subscription);
    const struct topic *t = subscription_topic(w, s);
    const struct record *r = message_head(w, t, m->seq);
    uint32_t delivery = r ? delivery_find(w, worker_consumer(w, consumer)->subscription, r->id) : 0;
    struct parts_left left;
    left.words = m->body_bytes / (uint32_t)sizeof *left.bits;
    if (!delivery) *status = STATUS_NONE;
    if (*status != STATUS_OK) return DONE;
    memcpy(left.bits, m + 1, m->body_bytes);
    if (m->flags & MSG_UPTO) return acknowledge_rest(w, delivery, m->id, &left, status);
    return acknowledge(w, delivery, m->id, m->body_bytes ? &left : NULL, false, status);
}

enum outcome transaction_acknowledge(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    uint32_t consumer = topic ? consumer_find(w, client, m->consumer_number) : 0;
    const struct consumer *c = worker_consumer(w, consumer);
    const struct subscription *s = worker_subscription(w, c->subscription);
    uint8_t status = consumer && s->topic == topic && s->number ? STATUS_OK : STATUS_NOT_FOUND;
    enum outcome outcome = DONE;
    if (m->body_bytes > sizeof((struct parts_left *)0)->bits || m->body_bytes % sizeof(uint64_t))
        status = STATUS_INVALID;
    if (status == STATUS_OK && m->flags & MSG_UPTO) outcome = acknowledge_before(w, consumer, m, &status);
    if (outcome == DONE && status == STATUS_OK && (m->body_bytes || !(m->flags & MSG_UPTO)))
        outcome = acknowledge_one(w, consumer, m, &status);
    if (outcome != DONE) return outcome;
    if (m->flags & MSG_UPTO) note_before(worker_subscription(w, c->subscription), m, status);
    struct message a = request_answer_of(w, client, m, status);
    uint64_t unfinished;
    if (status == STATUS_FULL) a.seq = s->upto_seq;
    if (status == STATUS_NONE && m->flags & MSG_UPTO && is_finished_upto(w, s, m->seq, &unfinished))
        a.seq = unfinished - 1;
    request_send(w, client, &a, NULL, 0);
    return DONE;
}

/* Reports the acknowledgements of any transaction, except cumulative ones. */
static void tell_pending(const struct worker *w, const struct subscription *s, uint64_t seq,
                         struct pending_figures *out) {
    const struct topic *t = subscription_topic(w, s);
    uint32_t first = seq == NO_PLACE ? 0 : acknowledgement_first(w, t, seq);
    const struct record *r = first ? message_head(w, t, seq) : NULL;
    struct headers h = {0};
    if (r && message_headers_bytes(r)) memcpy(&h, record_body(r), sizeof h);
    for (uint32_t n = first; n; n = at(w, n)->same_next) {
        const struct acknowledgement *a = at(w, n);
        if (a->subscription != s->number || a->over || a->upto) continue;
        if (!a->left) out->whole = 1;
        if (!a->left) continue;
        out->parts = h.parts ? h.parts : 1;
        add_finished(a->left, out->bits, PARTS_MAX_WORDS);
    }
}

void transaction_pending(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    uint32_t subscription = topic ? subscription_find(w, topic, (const char *)(m + 1), m->body_bytes) : 0;
    struct message a = request_answer_of(w, client, m,
                                         subscription ? STATUS_OK
                                         : topic      ? STATUS_NONE
                                                      : STATUS_NOT_FOUND);
    struct pending_figures figures = {0};
    a.seq = NO_PLACE;
    if (subscription) {
        const struct subscription *s = worker_subscription(w, subscription);
        uint32_t transaction = s->upto && s->upto == m->id + 1 ? transaction_find(w, topic, m->id) : 0;
        if (transaction && worker_transaction(w, transaction)->state == TRANSACTION_OPEN) a.seq = s->upto_seq;
        tell_pending(w, s, m->seq, &figures);
    }
    request_send(w, client, &a, &figures, subscription ? sizeof figures : 0);
}

/* --- a message that moves ----------------------------------------------------------------------------------------- */

void transactions_settle(struct worker *w, uint32_t topic, uint64_t seq) {
    for (uint32_t n = acknowledgement_first(w, topic_at(&w->topics, topic), seq), next; n; n = next) {
        enum transaction_state state = transaction_of(w, at(w, n))->state;
        next = at(w, n)->same_next;
        if (state) acknowledgement_end(w, n, state == TRANSACTION_COMMITTING);
    }
}

uint32_t transactions_pending(const struct worker *w, const struct topic *t, uint64_t seq, uint64_t *bytes) {
    uint32_t count = 0;
    for (uint32_t n = acknowledgement_first(w, t, seq); n; n = at(w, n)->same_next) {
        count++;
        *bytes += pending_bytes(at(w, n)->left);
    }
    return count;
}

void transactions_moved(struct worker *w, struct shard *s, const struct topic *t, uint64_t seq) {
    for (uint32_t n = acknowledgement_first(w, t, seq), next; n; n = next) {
        struct acknowledgement *a = at(w, n);
        uint32_t subscription = shard_subscription(s, a->subscription);
        next = a->same_next;
        /* If it were logged now, behind later records, recovery would count it again. */
        if (a->over) {
            acknowledgement_forget(w, n);
            continue;
        }
        if (!subscription) continue;
        stands_at(w, n,
                  shard_log_pending(w, s, worker_subscription(w, subscription), seq, transaction_of(w, a)->number,
                                    a->left, a->upto));
    }
}

/* --- recovery ----------------------------------------------------------------------------------------------------- */

static bool leaves_no_more(const struct parts_left *left, const struct parts_left *than) {
    for (uint32_t i = 0; i < left->words; i++)
        if (left->bits[i] & ~(i < than->words ? than->bits[i] : 0)) return false;
    return true;
}

/* The acknowledgement whose record has moved, or that was added to; 0: it is another one. (An earlier release wrote one
 * for each part, and did not add them up.) `left` NULL: it is about the whole message. */
static uint32_t find(const struct worker *w, uint32_t transaction, uint32_t subscription, uint64_t seq,
                     const struct parts_left *left, bool upto) {
    const struct topic *t = topic_at(&w->topics, worker_transaction(w, transaction)->topic);
    for (uint32_t n = acknowledgement_first(w, t, seq); n; n = at(w, n)->same_next) {
        const struct acknowledgement *a = at(w, n);
        if (a->subscription != subscription || a->transaction != transaction || !a->left != !left) continue;
        if (a->upto == upto && (!left || leaves_no_more(left, a->left))) return n;
    }
    return 0;
}

void replay_pending(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position) {
    uint64_t txn;
    struct parts_left left;
    left.words = (uint32_t)(record_body_bytes(r) / sizeof *left.bits);
    const struct topic *t = topic_at(&w->topics, topic);
    uint32_t subscription = shard_subscription(s, r->id);
    if (r->attribute_bytes < sizeof txn || !subscription) return;
    if (left.words > PARTS_MAX_WORDS) return;
    memcpy(&txn, record_attributes(r), sizeof txn);
    memcpy(left.bits, record_body(r), left.words * sizeof *left.bits);
    const struct record *of = log_read(s->log, stream_place(&t->stream, r->seq));
    uint32_t delivery = of ? delivery_find(w, subscription, of->id) : 0;
    /* A channel that was moved back may not have come to it yet. */
    if (!of || (!delivery && r->flags & PENDING_PARTS)) return;
    uint32_t transaction = replay_take(w, topic, txn);
    const struct parts_left *some = r->flags & PENDING_PARTS ? &left : NULL;
    bool upto = (r->flags & PENDING_UPTO) != 0;
    if (upto) {
        struct subscription *channel = worker_subscription(w, subscription);
        if (channel->upto != txn + 1 || channel->upto_seq < r->seq) {
            channel->upto_seq = r->seq;
            channel->upto_part = some ? 0 : UPTO_ALL; /* the record also leaves parts that were acknowledged before */
        }
        channel->upto = txn + 1;
    }
    uint32_t there = find(w, transaction, (uint32_t)r->id, r->seq, some, upto);
    shard_count_in(s, position);
    if (there) { /* it has moved, has more parts, or is being delivered again since its channel was moved back */
        struct acknowledgement *a = at(w, there);
        stands_at(w, there, position);
        if (some) add_parts(a->left, some);
        a->over = false;
        supersede(w, there);
    } else {
        add(w, transaction, r->seq, position, (uint32_t)r->id, some, upto);
    }
    if (delivery) note(w, delivery, some);
}

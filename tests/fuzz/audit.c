#define _GNU_SOURCE
#include "audit.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shards/consumer.h"
#include "shards/delivery.h"
#include "shards/finished_ahead.h"
#include "shards/handover_state.h"
#include "shards/known.h"
#include "shards/parts.h"
#include "shards/split.h"
#include "shards/subscription.h"
#include "shards/tomb.h"
#include "shards/transactions.h"
#include "shards/unheld.h"

static const struct subscription *at(const struct worker *w, uint32_t subscription) {
    return subscription_at(&w->subscriptions, subscription);
}

/* Numbers of all topics, one after the other; 0: there is no further. */
static uint32_t next_topic(const struct worker *w, uint32_t *place) {
    const struct map *names = &w->topics.names;
    while (names->slots && *place <= names->mask) {
        uint32_t topic = names->slots[(*place)++].number;
        if (topic) return topic;
    }
    return 0;
}

/* --- the parts ---------------------------------------------------------------------------------------------------- */

/* It is of one that is split, and not finished. */
static void audit_part(const struct worker *w, const struct delivery *d) {
    uint64_t id = delivery_id(&w->subscriptions, d) - (uint64_t)d->part * w->shards;
    uint32_t split = delivery_find(w, d->subscription, id), place = d->part - 1u;
    const struct parts_left *left = split ? delivery_parts(w, split) : NULL;
    assert(left && delivery_at(&w->subscriptions, split)->state == DELIVERY_SPLIT);
    assert(place / 64 < left->words && left->bits[place / 64] >> place % 64 & 1);
}

/* Those that are split, each with as many parts as it has bits. */
static uint32_t audit_splits(const struct worker *w) {
    const struct subscriptions *all = &w->subscriptions;
    uint32_t splits = 0, bits = 0, parts = 0;
    for (uint32_t n = 1; n < all->deliveries.end; n++) {
        const struct delivery *d = delivery_at(all, n);
        parts += d->state && d->part;
        if (d->state != DELIVERY_SPLIT) continue;
        const struct parts_left *left = delivery_parts(w, n);
        splits++;
        for (uint32_t i = 0; i < left->words; i++) bits += (uint32_t)__builtin_popcountll(left->bits[i]);
    }
    assert(bits == parts);
    return splits;
}

static uint32_t count_deliveries(const struct worker *w, uint32_t first, uint32_t of, uint8_t state) {
    uint32_t count = 0, previous = 0;
    for (uint32_t n = first; n; n = delivery_at(&w->subscriptions, n)->following) {
        const struct delivery *d = delivery_at(&w->subscriptions, n);
        assert(d->state == state && d->subscription == of && d->previous == previous);
        if (d->part) audit_part(w, d);
        previous = n;
        count++;
    }
    return count;
}

/* Messages of batches that a consumer has in flight. */
static uint64_t count_parts(const struct worker *w, const struct consumer *c) {
    uint64_t parts = 0;
    for (uint32_t n = c->inflight_first; n; n = delivery_at(&w->subscriptions, n)->following)
        parts += delivery_at(&w->subscriptions, n)->parts;
    return parts;
}

static void audit_consumer(const struct worker *w, uint32_t consumer, uint32_t of) {
    const struct consumer *c = consumer_at(&w->subscriptions, consumer);
    assert(c->subscription == of && consumer_find(w, c->client, c->number) == consumer);
    assert(c->inflight == count_deliveries(w, c->inflight_first, of, DELIVERY_IN_FLIGHT));
    assert(c->inflight_parts == count_parts(w, c));
    uint64_t before = 0;
    for (uint32_t n = c->inflight_first; n; n = delivery_at(&w->subscriptions, n)->following) {
        const struct delivery *d = delivery_at(&w->subscriptions, n);
        assert(d->consumer == consumer);
        if (d->place != HEAP_NOWHERE) continue; /* clipped at its longest time: the heap of deadlines has it */
        assert(d->deadline_ns >= before);
        assert(c->flight_place != HEAP_NOWHERE && "its first deadline will be missed");
        assert(w->subscriptions.flights.entries[c->flight_place].high <= d->deadline_ns);
        before = d->deadline_ns;
    }
    /* Its window may have been short when that was looked at. */
    bool may = c->credit > c->inflight && c->permits > 0 && !c->yields && policy_lets(at(w, c->subscription), consumer);
    bool takes_turns = c->next_turn != 0;
    assert((may || !takes_turns) && c->window_bytes < (takes_turns ? WINDOW_BYTES : UINT32_MAX));
    assert((takes_turns || !may || c->window_bytes >= SHORT_WINDOW_BYTES) && "who may take messages takes turns");
}

/* What consumers that have left have in flight still, and are giving back. */
static uint32_t audit_left(const struct worker *w, uint32_t subscription) {
    uint32_t inflight = 0, giving_back = 0;
    for (uint32_t n = w->leaving_consumers; n; n = consumer_at(&w->subscriptions, n)->next) {
        const struct consumer *c = consumer_at(&w->subscriptions, n);
        if (c->subscription != subscription) continue;
        assert(c->inflight == count_deliveries(w, c->inflight_first, subscription, DELIVERY_IN_FLIGHT) && c->inflight);
        inflight += c->inflight;
        giving_back++;
    }
    for (uint32_t n = w->yielding_consumers; n; n = consumer_at(&w->subscriptions, n)->next_yielding)
        giving_back += consumer_at(&w->subscriptions, n)->subscription == subscription;
    assert(giving_back == at(w, subscription)->giving_back);
    return inflight;
}

/* Redeliveries are in the order of their seqs, but for those that are still to be put into it. */
static void audit_order(const struct worker *w, const struct subscription *s) {
    uint64_t before = 0;
    for (uint32_t n = s->redelivery_first; n != s->redelivery_unsorted;) {
        const struct delivery *d = delivery_at(&w->subscriptions, n);
        assert(d->sorted && d->seq >= before);
        before = d->seq;
        n = d->following;
    }
    assert(!s->redelivery_unsorted || !s->consumers || !subscription_is_ordered(s));
}

static uint32_t audit_subscription(const struct worker *w, uint32_t subscription, uint32_t topic) {
    const struct subscription *s = at(w, subscription);
    uint32_t consumers = 0, inflight = audit_left(w, subscription);
    assert(s->topic == topic);
    assert(s->redeliveries == count_deliveries(w, s->redelivery_first, subscription, DELIVERY_REDELIVERED));
    assert(s->deferred == count_deliveries(w, s->deferred_first, subscription, DELIVERY_DEFERRED));
    audit_order(w, s);
    for (uint32_t c = s->consumer_first; c; c = consumer_at(&w->subscriptions, c)->next, consumers++) {
        audit_consumer(w, c, subscription);
        inflight += consumer_at(&w->subscriptions, c)->inflight;
    }
    assert(s->consumers == consumers && s->inflight == inflight);
    return s->redeliveries + s->deferred + s->inflight;
}

/* Its first channel takes over its jobs, and is not in the log before it has them all (handover.c). */
static bool is_adopted(const struct topic *t) {
    return handover_adopts(t) && handover_goes_on(t);
}

/* Whether a subscription holds a message that lies ahead of its cursor. */
static bool holds_ahead(const struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct subscription *s = at(w, subscription);
    const struct topic *t = topic_at(&w->topics, s->topic);
    uint64_t until = s->gone ? s->held_from : topic_given_until(t);
    if (seq < (s->gone ? s->cursor : subscription_held_from(s)) || seq >= until || stream_delayed(&t->stream, seq))
        return false;
    /* Jobs come in no order of seqs: those that have not yet are the job queue's alone, though the cursor is before
     * them. */
    return !is_adopted(t) || *stream_page_references(stream_page(&t->stream, seq), seq) != 1;
}

static bool audit_holder(const struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id) {
    const struct topic *t = topic_at(&w->topics, at(w, subscription)->topic);
    uint32_t delivery = delivery_find(w, subscription, id);
    const struct delivery *d = delivery_at(&w->subscriptions, delivery);
    if (delivery)
        assert(d->seq == seq && d->state && (stream_delayed(&t->stream, seq) || seq < at(w, subscription)->cursor));
    return delivery || holds_ahead(w, subscription, seq);
}

/* Channels of a topic that cannot be found any more, and release what they had (leave.c): one after the other, or 0. Of
 * topic 0: those of which only deliveries are left. */
static uint32_t next_gone(const struct worker *w, uint32_t topic, uint32_t after) {
    for (uint32_t n = after + 1; n < w->subscriptions.arena.end; n++)
        if (at(w, n)->gone && at(w, n)->topic == topic) return n;
    return 0;
}

/* The references to a message of the job queue, its topic, and subscriptions with a delivery or a cursor before it are
 * checked. Returns how many more it has. */
static uint32_t audit_message(const struct worker *w, uint32_t topic, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct stream_page *page = stream_page(&t->stream, seq);
    uint32_t counted = *stream_page_references(page, seq) & STREAM_MAX_REFERENCES, references = 0;
    bool kept = stream_kept(&t->stream, seq);
    const struct record *r = log_read(w->own[t->shard]->log, stream_position(&t->stream, seq));
    assert(!kept || (t->keeps && seq >= t->stopped_seq));
    references += kept;
    assert(r->seq == seq && r->topic == t->number && "its place in the log is its own");
    uint32_t job = index_find(&w->ids, &w->jobs, r->id);
    if (job) {
        assert(job_at(w, job)->topic == topic && job_at(w, job)->position == stream_position(&t->stream, seq));
        references++;
    }
    for (uint32_t n = t->subscriptions; n; n = at(w, n)->next) references += audit_holder(w, n, seq, r->id);
    for (uint32_t n = handover_leaves(t) ? next_gone(w, topic, 0) : 0; n; n = next_gone(w, topic, n))
        references += audit_holder(w, n, seq, r->id);
    assert(counted >= references && "a message is let go while somebody needs it");
    return counted - references;
}

static void audit_stream(const struct worker *w, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    uint64_t live = 0, waiting = 0, waiting_delayed = 0, kept = 0, kept_delayed = 0;
    for (uint64_t seq = stream_next(&t->stream, 0); seq < t->stream.end; seq = stream_next(&t->stream, seq + 1)) {
        uint32_t more = audit_message(w, topic, seq);
        assert(more <= (t->subscription_count ? 0u : 1u) && "a message is held by nobody who knows of it");
        *(stream_delayed(&t->stream, seq) ? &waiting_delayed : &waiting) += more;
        *(stream_delayed(&t->stream, seq) ? &kept_delayed : &kept) += stream_kept(&t->stream, seq);
        live++;
    }
    assert(live == t->stream.live && t->stream.end <= t->next_seq);
    assert(waiting == t->waiting_messages && waiting_delayed == t->waiting_delayed);
    assert(kept == t->kept_messages && kept_delayed == t->kept_delayed);
    for (uint32_t n = t->subscriptions; n; n = at(w, n)->next) {
        /* What lies behind an open transaction is its depth too. */
        uint64_t ahead = 0, end = topic_given_until(t);
        for (uint64_t seq = stream_next(&t->stream, subscription_held_from(at(w, n))); seq < end;
             seq = stream_next(&t->stream, seq + 1))
            ahead += holds_ahead(w, n, seq);
        uint64_t deliverable = ahead + at(w, n)->redeliveries;
        if (at(w, n)->cursor < at(w, n)->held_from) deliverable += position_depth(w, at(w, n));
        if (t->ahead - at(w, n)->taken != ahead || subscription_depth(w, at(w, n)) != deliverable)
            fprintf(stderr, "%.*s %.*s: %llu are ahead (%llu), depth %llu (%llu)\n", (int)t->name_bytes, t->name,
                    (int)at(w, n)->name_bytes, at(w, n)->name, (unsigned long long)ahead,
                    (unsigned long long)(t->ahead - at(w, n)->taken), (unsigned long long)deliverable,
                    (unsigned long long)subscription_depth(w, at(w, n)));
        assert(t->ahead - at(w, n)->taken == ahead && subscription_depth(w, at(w, n)) == deliverable &&
               "a channel's depth is what lies ahead of its cursor");
    }
}

static uint32_t audit_topic(const struct worker *w, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    uint32_t subscriptions = 0, ephemeral = 0, deliveries = 0;
    assert(w->own[t->shard]);
    for (uint32_t n = t->subscriptions; n; n = at(w, n)->next) {
        deliveries += audit_subscription(w, n, topic);
        subscriptions++;
        ephemeral += !at(w, n)->number;
    }
    for (uint32_t n = next_gone(w, topic, 0); n; n = next_gone(w, topic, n)) {
        assert(handover_leaves(t));
        deliveries += audit_subscription(w, n, topic);
    }
    assert(subscriptions == t->subscription_count && ephemeral == t->ephemeral_count);
    assert(t->durable || (!subscriptions && !t->stream.live));
    audit_stream(w, topic);
    return deliveries;
}

/* --- segments ----------------------------------------------------------------------------------------------------- */

/* How many in each of a shard's segments are alive; the sum. */
static uint64_t live_at(const struct shard *s, uint64_t *live, log_position position) {
    assert(position >> 32 >= s->first_use && (position >> 32) - s->first_use < s->use_count);
    live[(position >> 32) - s->first_use]++;
    return 1;
}

/* Of a transaction the records that are to be read again at its end: in the order of their seqs, the acknowledgements
 * each in the list of its message. */
static uint64_t live_in_transaction(const struct worker *w, const struct transaction *of, uint64_t *live) {
    uint64_t all = 0;
    for (size_t i = of->done; i < of->count; i++) {
        all += live_at(of->shard, live, of->staged[i].position);
        assert(i == of->done || of->staged[i].seq > of->staged[i - 1].seq);
        assert(log_read(of->shard->log, of->staged[i].position)->kind == RECORD_STAGED);
    }
    for (uint32_t n = of->first; n; n = acknowledgement_at(&w->transactions, n)->next) {
        const struct acknowledgement *a = acknowledgement_at(&w->transactions, n);
        all += live_at(of->shard, live, a->position);
        assert(transaction_at(&w->transactions, a->transaction) == of && (n == of->last || a->next));
        assert(log_read(of->shard->log, a->position)->kind == RECORD_PENDING);
    }
    return all;
}

static uint64_t live_in_transactions(const struct worker *w, const struct shard *s, uint64_t *live) {
    uint64_t all = 0;
    for (uint32_t n = 1; n < w->transactions.arena.end; n++) {
        const struct transaction *of = transaction_at(&w->transactions, n);
        if (of->topic && of->shard == s) all += live_in_transaction(w, of, live);
    }
    return all;
}

/* Of a group those that are in the log and are yet to be taken in. */
static uint64_t live_in_group(const struct shard *s, uint64_t *live) {
    uint64_t all = 0;
    log_position position = s->group.next;
    for (bool more = s->group.counts; more;) {
        const struct record *r = log_read(s->log, position);
        assert(r->kind == RECORD_PUBLISH && r->seq == s->group.seq + s->group.done + all);
        more = (r->flags & PUBLISH_MORE) != 0;
        all += live_at(s, live, position);
        position += (r->bytes + 7u) & ~7u;
    }
    return all;
}

/* What keeps segments alive: groups, jobs, messages of streams that are no jobs, and what transactions wait for. */
static void audit_segments(const struct worker *w, const struct shard *s) {
    uint64_t *live = calloc(s->use_count + 1, sizeof *live), all = 0;
    if (!live) abort();
    all += live_in_transactions(w, s, live) + live_in_group(s, live);
    for (uint32_t job = 1; job < w->jobs.end; job++) {
        const struct job *j = job_at(w, job);
        if (!j->state || j->part || topic_at(&w->topics, j->topic)->shard != s->number) continue;
        all += live_at(s, live, j->position);
    }
    uint32_t topic, place = 0;
    while ((topic = next_topic(w, &place)) != 0) {
        const struct topic *t = topic_at(&w->topics, topic);
        if (t->shard != s->number) continue;
        for (uint64_t seq = stream_next(&t->stream, 0); seq < t->stream.end; seq = stream_next(&t->stream, seq + 1)) {
            log_position position = stream_position(&t->stream, seq);
            if (index_find(&w->ids, &w->jobs, log_read(s->log, position)->id)) continue;
            all += live_at(s, live, position);
        }
    }
    assert(all == s->jobs);
    for (uint32_t i = 0; i < s->use_count; i++)
        assert(live[i] == s->use[i].jobs && "a segment is kept as long as it holds what is alive, and no longer");
    free(live);
}

/* Those that segments name are listed in the order of these, and counted there. */
static void audit_names(const struct worker *w, const struct shard *s) {
    uint64_t bytes = 0, recovered = 0, in_segments = 0;
    uint32_t before = 0, count = 0;
    for (uint32_t topic = s->known_first; topic; topic = topic_at(&w->topics, topic)->known_next) {
        const struct topic *t = topic_at(&w->topics, topic);
        assert(shard_topic(s, t->number) == topic);
        /* One that was never written stands where it got its number. */
        assert(t->named_in >= before || (!t->named_in && !t->durable));
        assert(!t->named_in || t->named_in >= log_first_segment(s->log));
        if (t->named_in) before = t->named_in;
        bytes += t->named_bytes;
        recovered += t->named_in ? 0 : t->named_bytes;
        count++;
    }
    for (uint32_t i = 0; i < s->use_count; i++) in_segments += s->use[i].names;
    assert(bytes == s->names_bytes && recovered == s->names_recovered && bytes == recovered + in_segments);
    assert(count == s->numbers.count);
}

void audit_worker(struct worker *w) {
    while (tombs_clear(w)) continue; /* what was deleted counts as alive until it is freed */
    uint32_t topic, place = 0, deliveries = 0, seen = 0;
    while ((topic = next_topic(w, &place)) != 0) {
        deliveries += audit_topic(w, topic);
        seen += topic_seen(topic_at(&w->topics, topic));
    }
    for (uint32_t n = next_gone(w, 0, 0); n; n = next_gone(w, 0, n)) deliveries += audit_subscription(w, n, 0);
    assert(deliveries + audit_splits(w) == w->subscriptions.deliveries.live);
    assert(seen == w->count->topics);
    for (uint32_t n = 0; n < w->shards; n++)
        if (w->own[n]) audit_segments(w, w->own[n]), audit_names(w, w->own[n]);
}

void audit_at_rest(const struct worker *w) {
    uint32_t topic, place = 0;
    while ((topic = next_topic(w, &place)) != 0) {
        for (uint32_t n = topic_at(&w->topics, topic)->subscriptions; n; n = at(w, n)->next) {
            const struct subscription *s = at(w, n);
            for (uint32_t c = s->consumer_first; c; c = consumer_at(&w->subscriptions, c)->next)
                assert(consumer_at(&w->subscriptions, c)->window_bytes < WINDOW_BYTES &&
                       "what has left is reported, so that more may come");
            assert((s->paused || !s->turn || !subscription_depth(w, s)) && "there is a message and a consumer for it");
        }
    }
}

/* --- what must survive -------------------------------------------------------------------------------------------- */

enum what { A_TOPIC, A_CHANNEL, A_MESSAGE_OF_CHANNEL, A_MESSAGE_OF_TOPIC, A_KEPT_MESSAGE };

/* The state of a message that was passed and held back, and counts as delivered once when the log is read back; and of
 * one that was adopted from the job queue, which lay ahead of the cursor until the record of that was gone. */
#define HELD_BACK UINT32_MAX

struct holding {
    enum what what;
    uint64_t place; /* of a name */
    uint64_t id;
    uint32_t state;
    char name[24];
};

/* FNV-1a. */
static uint64_t place_of(uint64_t from, const char *name, size_t bytes) {
    uint64_t hash = from ^ 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (uint8_t)name[i]) * 0x100000001b3ULL;
    return hash;
}

static void add(struct holdings *all, struct holding one, const char *name, size_t name_bytes) {
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 64;
        all->items = realloc(all->items, all->capacity * sizeof *all->items);
        if (!all->items) abort();
    }
    memcpy(one.name, name, name_bytes < sizeof one.name - 1 ? name_bytes : sizeof one.name - 1);
    all->items[all->count++] = one;
}

static int in_order(const void *a, const void *b) {
    const struct holding *x = a, *y = b;
    if (x->what != y->what) return x->what < y->what ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* As of one that was split and is not begun, of which the log says nothing. */
static bool all_are_left(const struct worker *w, const struct topic *t, uint64_t seq, const struct parts_left *left) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < left->words; i++) count += (uint32_t)__builtin_popcountll(left->bits[i]);
    return count == message_packed(log_read(w->own[t->shard]->log, stream_position(&t->stream, seq)));
}

/* The next message that a channel may have: it refers to those behind its place, and only passes the others. */
static uint64_t next_of(const struct worker *w, const struct subscription *s, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, s->topic);
    uint64_t referred = stream_next(&t->stream, seq), from = seq > s->cursor ? seq : s->cursor;
    if (!t->stream.retains || from >= s->held_from) return referred;
    uint64_t passed = stream_next_place(&t->stream, from, retained_oldest(w->own[t->shard]));
    return passed < s->held_from && passed < referred ? passed : referred;
}

static void add_channel(const struct worker *w, struct holdings *all, const struct subscription *s, uint64_t of,
                        uint32_t subscription) {
    const struct topic *t = topic_at(&w->topics, s->topic);
    uint64_t place = place_of(of, s->name, s->name_bytes);
    add(all, (struct holding){A_CHANNEL, place, 0, s->paused, ""}, s->name, s->name_bytes);
    for (uint64_t seq = next_of(w, s, 0); seq < t->stream.end; seq = next_of(w, s, seq + 1)) {
        uint64_t id = log_read(w->own[t->shard]->log, stream_place(&t->stream, seq))->id;
        uint32_t delivery = delivery_find(w, subscription, id), state = 0;
        const struct delivery *d = delivery_at(&w->subscriptions, delivery);
        const struct parts_left *left = delivery ? delivery_parts(w, delivery) : NULL;
        if (left && all_are_left(w, t, seq, left)) left = NULL;
        uint32_t attempts = d->attempts > 0 ? d->attempts : 1;
        if (delivery && d->state == DELIVERY_REDELIVERED && !d->attempts && !left)
            state = HELD_BACK;
        else if (delivery)
            state = (left ? (uint32_t)left->bits[0] * 64u + left->words : 0) + attempts * 2048u +
                    (d->state == DELIVERY_DEFERRED && d->deadline_ns > w->now_ns);
        else if (seq < s->cursor || seq >= topic_given_until(t) ||
                 (seq >= s->held_from && stream_delayed(&t->stream, seq)))
            continue;
        else
            state = finished_ahead_has(w, subscription, seq);
        add(all, (struct holding){A_MESSAGE_OF_CHANNEL, place, id, state, ""}, s->name, s->name_bytes);
    }
}

/* Nothing of it is there after a restart. */
static bool is_passing(const struct topic *t) {
    return t->ephemeral || (t->durable && topic_non_persistent(t));
}

static void add_topic(const struct worker *w, struct holdings *all, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    if (is_passing(t) || !(t->durable || topic_jobs(t))) return;
    uint64_t place = place_of(0, t->name, t->name_bytes);
    uint32_t state = t->durable ? 1u + (t->tube ? 2 : 0) + (t->stopped ? 4 : 0) : 0;
    add(all, (struct holding){A_TOPIC, place, 0, state, ""}, t->name, t->name_bytes);
    for (uint32_t n = t->subscriptions; n; n = at(w, n)->next)
        if (at(w, n)->number && !is_adopted(t)) add_channel(w, all, at(w, n), place, n);
    for (uint64_t seq = stream_next(&t->stream, 0); seq < t->stream.end; seq = stream_next(&t->stream, seq + 1)) {
        uint64_t id = log_read(w->own[t->shard]->log, stream_position(&t->stream, seq))->id;
        bool kept = stream_kept(&t->stream, seq), waits = !t->subscription_count && !index_find(&w->ids, &w->jobs, id);
        enum what what = kept ? A_KEPT_MESSAGE : A_MESSAGE_OF_TOPIC;
        if (kept || waits) add(all, (struct holding){what, place, id, 0, ""}, t->name, t->name_bytes);
    }
}

/* What is published in a transaction that is open. */
static void add_staged(const struct worker *w, struct holdings *all, const struct transaction *of) {
    const struct topic *t = topic_at(&w->topics, of->topic);
    if (!transaction_is_there(w, of) || of->state || is_passing(t)) return;
    for (size_t i = of->done; i < of->count; i++) {
        struct holding one = {.what = A_MESSAGE_OF_TOPIC, .place = place_of(0, t->name, t->name_bytes)};
        one.id = log_read(of->shard->log, of->staged[i].position)->id;
        one.state = 2 + (uint32_t)of->number;
        add(all, one, t->name, t->name_bytes);
    }
}

/* The log says of what is being let go that it has gone. */
static bool lets_go(const struct worker *w) {
    const struct client *c;
    for (uint32_t n = w->clients.lines[LINE_UNFINISHED].first; n; n = c->in_line[LINE_UNFINISHED].next) {
        c = client_at(&w->clients, n);
        const struct parked_request *request = c->done ? parked_first(&c->parked) : NULL;
        uint8_t kind = request ? parked_message(request)->kind : 0;
        if (kind == MSG_CHANGE || kind == MSG_SEEK) return true;
    }
    for (uint32_t n = 1; n < w->transactions.arena.end; n++) {
        const struct transaction *of = transaction_at(&w->transactions, n);
        if (of->topic && of->state) return true;
    }
    return w->subscriptions.over_first != 0;
}

enum likeness likeness_now(const struct worker *w) {
    if (lets_go(w)) return NO_NAME_LESS;
    bool goes_on = w->handovers || w->releases || w->keepings;
    for (uint32_t n = 0; n < w->shards; n++) goes_on |= w->own[n] && w->own[n]->group.id;
    return goes_on ? NO_LESS : ALIKE;
}

struct holdings holdings_of(const struct worker *w) {
    struct holdings all = {0};
    uint32_t topic, place = 0;
    while ((topic = next_topic(w, &place)) != 0) add_topic(w, &all, topic);
    for (uint32_t job = 1; job < w->jobs.end; job++) {
        const struct job *j = job_at(w, job);
        const struct topic *t = topic_at(&w->topics, j->topic);
        if (!j->state || is_passing(t)) continue;
        /* Which state it was reserved from is not written. */
        struct holding one = {A_MESSAGE_OF_TOPIC, place_of(0, t->name, t->name_bytes), j->id, 1, ""};
        add(&all, one, t->name, t->name_bytes);
    }
    for (uint32_t n = 1; n < w->transactions.arena.end; n++) add_staged(w, &all, transaction_at(&w->transactions, n));
    if (all.count) qsort(all.items, all.count, sizeof *all.items, in_order);
    return all;
}

void holdings_free(struct holdings *all) {
    free(all->items);
    *all = (struct holdings){0};
}

void holdings_without(struct holdings *all, uint64_t id) {
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct holding *one = &all->items[i];
        bool of_message = one->what >= A_MESSAGE_OF_CHANNEL && one->id == id;
        bool maybe_empty = one->what == A_TOPIC && one->state == 0; /* it was there because of its jobs */
        if (!of_message && !maybe_empty) all->items[kept++] = *one;
    }
    all->count = kept;
}

_Noreturn static void differ(const char *how, const struct holding *one, const struct holding *other) {
    static const char *const words[] = {"topic", "channel", "message of channel", "message of topic", "kept message"};
    fprintf(stderr, "after a restart %s: %s %s, id %llu, state %u", how, words[one->what], one->name,
            (unsigned long long)one->id, one->state);
    if (other) fprintf(stderr, " (and then %u)", other->state);
    fprintf(stderr, "\n");
    abort();
}

void holdings_survive(const struct holdings *before, const struct holdings *after, enum likeness likeness) {
    bool exactly = likeness == ALIKE;
    size_t i = 0, j = 0;
    while (i < before->count || j < after->count) {
        const struct holding *was = i < before->count ? &before->items[i] : NULL;
        const struct holding *is = j < after->count ? &after->items[j] : NULL;
        int order = !was ? 1 : !is ? -1 : in_order(was, is);
        bool may_go = likeness == NO_NAME_LESS && was && was->what >= A_MESSAGE_OF_CHANNEL;
        if (order < 0 && !may_go) differ("something is lost", was, NULL);
        if (order > 0 && exactly) differ("something is there that was gone", is, NULL);
        bool same = order || was->state == is->state || was->state == HELD_BACK || is->state == HELD_BACK;
        if (!same && exactly) differ("something is in another state", was, is);
        i += order <= 0;
        j += order >= 0;
    }
}

/* A topic's compacted view: the last message of each key, up to a horizon.
 *
 * The view is a subscription with a reserved name (COMPACTION_NAME). Messages that it has passed and not finished are
 * the view, and its cursor is the horizon. So it is logged, moved and recovered like any other subscription, and holds
 * the messages of the view. A client that knows the keys of messages finds out which are superseded: this file sends it
 * messages (SCAN), advances the subscription and finishes what the client says (COMPACT), and hides messages that are
 * not in the view from its consumers.
 *
 * The view is right at each moment: no message in it is finished before the one that supersedes it has been published.
 */
#include "shards/compacted.h"

#include <stdlib.h>
#include <string.h>

#include "shards/answers.h"
#include "shards/delivery.h"
#include "shards/finish.h"
#include "shards/known.h"
#include "shards/naming.h"
#include "shards/parts.h"
#include "shards/records.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/topic_life.h"
#include "shards/unreadable.h"

/* Limits of one answer to a SCAN: bytes (a larger message comes alone), and messages looked at, each of which may not
 * be in the page cache. */
enum { SCAN_BYTES = 128 << 10, SCAN_MOST = 512 };

/* --- who reads it ------------------------------------------------------------------------------------------------- */

/* The view's delivery of a message below the horizon; 0 if it is not in the view. */
static uint32_t kept(const struct worker *w, const struct topic *t, uint64_t seq) {
    const struct record *r = message_head(w, t, seq);
    return r ? delivery_find(w, t->compacted, r->id) : 0;
}

bool compacted_hides(const struct worker *w, uint32_t topic, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, topic);
    return t->compacted && seq < worker_subscription(w, t->compacted)->cursor && !kept(w, t, seq);
}

bool compacted_leaves(struct worker *w, uint32_t topic, uint32_t delivery) {
    const struct topic *t = topic_at(&w->topics, topic);
    uint64_t seq = worker_delivery(w, delivery)->seq;
    struct parts_left left;
    if (!t->compacted || seq >= worker_subscription(w, t->compacted)->cursor) return true;
    uint32_t of_view = kept(w, t, seq);
    const struct parts_left *parts = of_view ? delivery_parts(w, of_view) : NULL;
    if (!parts) return of_view != 0;
    if (!delivery_parts_after(w, delivery, parts->bits, parts->words, &left)) return false;
    /* Without room for that the whole message is delivered: too much is better than too little. */
    (void)delivery_parts_set(w, delivery, &left);
    return true;
}

/* Searches for the last message of the view, if it is not known: after a restart, or when it was removed. Searches from
 * the horizon back, usually over a few messages; if there are many, in pieces (MORE). */
static enum outcome find_last(struct worker *w, uint32_t client, const struct topic *t) {
    struct subscription *s = worker_subscription(w, t->compacted);
    struct client *c = client_at(&w->clients, client);
    uint64_t seq = c->upto ? c->upto - 1 : s->cursor, oldest = retained_oldest(shard_of_topic(w, t));
    for (uint32_t left = w->piece; left; left--) {
        seq = stream_previous_place(&t->stream, seq, oldest);
        worker_step(w);
        if (seq != NO_PLACE && !kept(w, t, seq)) continue;
        s->view_last = seq;
        s->view_known = true;
        return DONE;
    }
    c->upto = seq + 1;
    return MORE;
}

enum outcome compacted_position(struct worker *w, uint32_t client, const struct topic *t, struct position *out) {
    out->compacted_last = NO_PLACE;
    if (!t->compacted) return DONE;
    struct subscription *s = worker_subscription(w, t->compacted);
    if (!s->view_known && find_last(w, client, t) == MORE) return MORE;
    out->compacted_until = s->cursor;
    out->compacted_last = s->view_last;
    out->compacted_messages = s->redeliveries + s->deferred + s->inflight;
    uint32_t delivery = s->view_last == NO_PLACE ? 0 : kept(w, t, s->view_last);
    const struct record *r = delivery ? message_head(w, t, s->view_last) : NULL;
    const struct parts_left *left = delivery ? delivery_parts(w, delivery) : NULL;
    struct headers h = {0};
    if (r && message_headers_bytes(r)) memcpy(&h, record_body(r), sizeof h);
    out->compacted_tag = h.tag;
    out->compacted_parts = h.parts;
    /* The last word always has a bit. */
    if (left)
        out->compacted_parts = (uint16_t)(left->words * 64 - (uint32_t)__builtin_clzll(left->bits[left->words - 1]));
    return DONE;
}

/* --- reading it out ----------------------------------------------------------------------------------------------- */

struct pages {
    uint8_t *bytes;
    size_t count, capacity;
};

static void put(struct pages *p, const void *bytes, size_t count) {
    if (count > p->capacity - p->count) {
        p->capacity = 2 * p->capacity + count + 4096;
        p->bytes = realloc(p->bytes, p->capacity);
        if (!p->bytes) process_die("out of memory");
    }
    if (count) memcpy(p->bytes + p->count, bytes, count);
    p->count += count;
}

static void put_message(struct pages *p, const struct record *r) {
    size_t headers_bytes = message_headers_bytes(r), body_bytes = record_body_bytes(r) - headers_bytes;
    struct headers h = {0};
    if (headers_bytes) memcpy(&h, record_body(r), sizeof h);
    struct scanned s = {.seq = r->seq,
                        .headers_bytes = (uint32_t)headers_bytes,
                        .body_bytes = (uint32_t)body_bytes,
                        .given_bytes = h.parts ? (uint32_t)body_bytes : 0};
    put(p, &s, sizeof s);
    put(p, record_body(r), headers_bytes + s.given_bytes);
}

/* A large message that is not looked at yet ends what one SCAN tells. If it is the first, the SCAN waits for it. */
enum outcome compacted_scan(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    const struct topic *t = topic_at(&w->topics, topic);
    bool exists = topic && t->durable;
    struct message a = request_answer_of(w, client, m, exists ? STATUS_OK : STATUS_NOT_FOUND);
    struct pages pages = {0};
    bool waits = false;
    uint64_t oldest = exists ? retained_oldest(shard_of_topic(w, t)) : 0, seq = m->seq;
    uint64_t end = exists ? subscription_horizon(t) : 0;
    for (uint32_t left = SCAN_MOST; exists && left && pages.count < SCAN_BYTES; left--) {
        seq = stream_next_place(&t->stream, seq, oldest);
        if (seq >= end) break;
        worker_step(w);
        const struct record *r = compacted_hides(w, topic, seq) ? NULL : message_head(w, t, seq);
        enum readable readable = r ? message_readable(w, t, r) : READ_FAILS;
        waits = readable == READ_MORE;
        if (waits) break;
        if (readable == READ_WHOLE) put_message(&pages, r);
        seq++;
    }
    if (waits && !pages.count) return MORE;
    a.seq = seq < end ? seq : end > m->seq ? end : m->seq;
    a.incarnation = exists ? t->incarnation : 0;
    request_send(w, client, &a, pages.bytes, pages.count);
    free(pages.bytes);
    return DONE;
}

/* --- compacting --------------------------------------------------------------------------------------------------- */

/* The verdicts of a COMPACT, read one after the other. */
struct verdicts {
    const uint8_t *next, *end;
    struct superseded first; /* the first of those left */
    bool any, broken;
};

static void look(struct verdicts *v) {
    v->any = (size_t)(v->end - v->next) >= sizeof v->first;
    v->broken |= !v->any && v->next != v->end;
    if (!v->any) return;
    memcpy(&v->first, v->next, sizeof v->first);
    size_t bytes = sizeof v->first + v->first.words * sizeof(uint64_t);
    v->broken |= v->first.words > PARTS_MAX_WORDS || (size_t)(v->end - v->next) < bytes;
    if (v->broken) v->any = false;
}

static void go_on(struct verdicts *v) {
    uint64_t seq = v->first.seq;
    v->next += sizeof v->first + v->first.words * sizeof(uint64_t);
    look(v);
    v->broken |= v->any && v->first.seq <= seq;
    if (v->broken) v->any = false;
}

static bool are_whole(const struct message *m) {
    const uint8_t *body = (const uint8_t *)(m + 1);
    struct verdicts v = {.next = body, .end = body + m->body_bytes};
    for (look(&v); v.any;) go_on(&v);
    return !v.broken;
}

/* Leaves some parts of a delivery in the view, or none. False: there is no room for that now. */
static bool supersede(struct worker *w, uint32_t delivery, const struct verdicts *v) {
    const struct delivery *d = worker_delivery(w, delivery);
    uint32_t subscription = d->subscription;
    struct subscription *s = worker_subscription(w, subscription);
    struct parts_left left;
    const uint8_t *bits = v->next + sizeof v->first;
    if (v->first.words && delivery_parts_after(w, delivery, bits, v->first.words, &left)) {
        struct shard *shard = subscription_shard(w, s);
        const struct parts_span span = parts_changed(w, delivery, &left);
        if (!subscription_write(w, subscription)) return false;
        if (shard_reserve(w, shard, 1, sizeof span.first + span.count * sizeof *left.bits, false) != LOG_OK)
            return false;
        if (!delivery_parts_set(w, delivery, &left)) return false;
        shard_log_finish_parts(w, shard, s, d->seq, &left, span);
        return true;
    }
    uint64_t seq = d->seq;
    if (!subscription_finished(w, subscription, seq)) return false;
    if (seq == s->view_last) s->view_known = false;
    delivery_drop(w, delivery);
    return true;
}

/* Moves the view past the message at its front, which stays in the view or not. */
static bool pass(struct worker *w, uint32_t subscription, uint64_t seq, const struct verdicts *v) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    bool named = v->any && v->first.seq == seq;
    const struct record *r = message_head(w, t, seq);
    if (!r || (named && !v->first.words)) {
        return subscription_pass_over(w, subscription, seq);
    }
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) return false;
    subscription_pass(w, subscription);
    delivery_again(w, delivery);
    s->view_last = seq;
    s->view_known = true;
    return !named || supersede(w, delivery, v);
}

/* Carries out a COMPACT. True when all is done. *room false: the log had no room for the next step; what is done stays,
 * and the request can be repeated. */
static bool go_through(struct worker *w, uint32_t subscription, const struct message *m, bool *room) {
    const uint8_t *body = (const uint8_t *)(m + 1);
    struct verdicts v = {.next = body, .end = body + m->body_bytes};
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint32_t left = w->piece;
    uint64_t seq;
    for (look(&v); v.any && v.first.seq < s->cursor; go_on(&v)) {
        uint32_t delivery = kept(w, t, v.first.seq);
        if (!delivery) continue;
        if (!left--) return false;
        if (!(*room = supersede(w, delivery, &v))) return false;
    }
    while (subscription_front(w, subscription, &seq) && seq < m->seq) {
        while (v.any && v.first.seq < seq) go_on(&v);
        if (!left--) return false;
        if (!(*room = pass(w, subscription, seq, &v))) return false;
    }
    return true;
}

enum outcome compacted_make(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    const struct channel_wish channel = {.name = COMPACTION_NAME,
                                         .name_bytes = sizeof COMPACTION_NAME - 1,
                                         .start = &(struct subscribe_start){.start = START_EARLIEST}};
    uint8_t status = !topic || !topic_at(&w->topics, topic)->durable ? STATUS_NOT_FOUND
                     : are_whole(m)                                  ? STATUS_OK
                                                                     : STATUS_INVALID;
    uint32_t subscription = 0;
    if (status == STATUS_OK) {
        enum outcome outcome = topic_subscription(w, topic, &channel, &subscription, &status);
        if (outcome != DONE) return outcome;
    }
    if (status == STATUS_OK) {
        bool room = true, all = go_through(w, subscription, m, &room);
        if (!all && room) return MORE;
        if (!all && w->wanting) return LATER;
        if (!all) status = STATUS_NO_SPACE;
    }
    struct message a = request_answer_of(w, client, m, status);
    if (subscription) a.seq = worker_subscription(w, subscription)->cursor;
    request_send(w, client, &a, NULL, 0);
    return DONE;
}

/* Messages that a worker pushes to consumers, and the FLOW, ACK and REDELIVER with which they reply. */
#include "acceptor/protocols/pulsar/pulsar_consumer.h"

#include <stdlib.h>

#include "acceptor/protocols/pulsar/pulsar_asks.h"
#include "acceptor/protocols/pulsar/pulsar_foreign.h"
#include "acceptor/protocols/pulsar/pulsar_producer.h"
#include "acceptor/protocols/pulsar/pulsar_rates.h"
#include "acceptor/protocols/pulsar/pulsar_say.h"
#include "acceptor/protocols/pulsar/pulsar_table.h"

static struct pulsar_consumer *consumer_of(const struct connection *c, uint64_t id) {
    struct pulsar_consumer *consumer = pulsar_table_find(&pulsar_of(c)->consumers, id);
    return consumer != NULL && consumer->open ? consumer : NULL;
}

/* --- FLOW, ACK, REDELIVER ----------------------------------------------------------------------------------------- */

/* More messages than will ever be sent; the rest of the range keeps sums from overflowing. */
#define MOST_PERMITS (INT64_MAX / 4)

bool pulsar_flow(struct acceptor *a, struct connection *c, const struct pulsar_flow *flow) {
    struct pulsar_consumer *consumer = consumer_of(c, flow->consumer);
    if (consumer == NULL) return true;
    /* To a real broker these are a negative number. */
    if (flow->permits > INT32_MAX) return pulsar_hang_up(a, c);
    if (!pulsar_may_send(a, c, consumer->worker)) return false;
    if (consumer->permits < MOST_PERMITS) consumer->permits += flow->permits;
    consumer->flowed_ms = pulsar_wall_ms(a);
    if (consumer->rates != NULL)
        pulsar_lend(a, c, consumer);
    else
        pulsar_tell_permits(a, c, consumer, flow->permits);
    return true;
}

static void ack_one(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                    const struct pulsar_id *id) {
    struct message finish = {.kind = MSG_FINISH, .flags = MSG_BY_SEQ, .seq = id->entry};
    /* Another ledger has no messages here, and a bitmap longer than a message may have parts finishes nothing. */
    if (id->ledger != consumer->ledger || id->words > PULSAR_ACK_WORDS) return;
    uint64_t any = 0;
    for (uint32_t i = 0; i < id->words; i++) any |= id->set[i];
    if (any != 0) {
        finish.flags |= MSG_PARTS;
        finish.body_bytes = (uint32_t)(id->words * sizeof *id->set);
    }
    pulsar_tell_finished(a, c, consumer, finish, id->set);
}

/* Acknowledges all messages up to this one; if that is a batch with a bitmap, those before it and the parts that are
 * not in the bitmap. Clients that acknowledge no parts name the entry before a batch: -1 before the first. */
static void ack_upto(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                     const struct pulsar_id *id) {
    if (id->ledger != consumer->ledger || id->entry > INT64_MAX) return;
    uint64_t any = 0;
    for (uint32_t i = 0; i < id->words && i < PULSAR_ACK_WORDS; i++) any |= id->set[i];
    if (any != 0) ack_one(a, c, consumer, id);
    if (any != 0 && id->entry == 0) return;
    pulsar_tell_finished(
        a, c, consumer,
        (struct message){.kind = MSG_FINISH, .flags = MSG_UPTO, .seq = any != 0 ? id->entry - 1 : id->entry}, NULL);
}

void pulsar_acked(struct acceptor *a, struct connection *c, const struct pulsar_pending *pending) {
    struct pulsar_consumer *consumer = pulsar_table_at(&pulsar_of(c)->consumers, pending->owner);
    uint8_t body[PULSAR_COMMAND_BYTES];
    uint8_t *end = pulsar_put_number(body, 1, pending->highest);
    if (consumer != NULL && consumer->refused) end = pulsar_put_number(end, 4, PULSAR_PERSISTENCE_ERROR);
    end = pulsar_put_number(end, 6, pending->sequence);
    if (consumer != NULL) consumer->refused = false;
    pulsar_say_body(a, c, PULSAR_ACK_RESPONSE, body, (size_t)(end - body));
}

/* Has ACK_RESPONSE sent when the worker has handled all that it was sent before. */
static void answer_when_done(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                             uint64_t request) {
    uint32_t place;
    struct pulsar_pending *pending = pulsar_pend(a, c, MSG_BARRIER, consumer->worker, &place);
    if (pending == NULL) return;
    pending->owner = consumer->number;
    pending->sequence = request;
    pending->highest = consumer->id;
    struct message barrier = {.kind = MSG_BARRIER, .conn = c->number, .slot = place};
    peer_send(a, consumer->worker, &barrier, NULL);
}

bool pulsar_ack(struct acceptor *a, struct connection *c, struct pulsar_ids *ids) {
    struct pulsar_consumer *consumer = consumer_of(c, ids->consumer);
    struct pulsar_id id;
    if (consumer == NULL) return true;
    if (!pulsar_may_send(a, c, consumer->worker)) return false;
    consumer->acked_ms = pulsar_wall_ms(a);
    while (pulsar_next_id(ids, &id)) {
        consumer->consumed[0].acked++;
        if (!ids->cumulative)
            ack_one(a, c, consumer, &id);
        else if (!consumer->shared)
            ack_upto(a, c, consumer, &id);
    }
    if (ids->has_request) answer_when_done(a, c, consumer, ids->request);
    return true;
}

bool pulsar_acks_ahead(struct connection *c, struct pulsar_ids ids) {
    const struct pulsar_consumer *consumer = ids.cumulative ? consumer_of(c, ids.consumer) : NULL;
    struct pulsar_id id;
    if (consumer == NULL || consumer->shared) return false;
    while (pulsar_next_id(&ids, &id))
        if (id.ledger == consumer->ledger && id.entry >= consumer->next && id.entry <= INT64_MAX) return true;
    return false;
}

static int by_seq(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

/* Messages come again in the order in which they were published, whatever the order of the ids: the client in Go has
 * none. So many at once. */
#define IDS_IN_ORDER 2048

static void redeliver_some(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                           uint64_t *seqs, size_t count) {
    qsort(seqs, count, sizeof *seqs, by_seq);
    for (size_t i = 0; i < count; i++)
        pulsar_tell_worker(a, c, consumer, (struct message){.kind = MSG_REQUEUE, .flags = MSG_BY_SEQ, .seq = seqs[i]},
                           NULL);
}

bool pulsar_redeliver(struct acceptor *a, struct connection *c, struct pulsar_ids *ids) {
    struct pulsar_consumer *consumer = consumer_of(c, ids->consumer);
    struct pulsar_id id;
    if (consumer == NULL) return true;
    if (!pulsar_may_send(a, c, consumer->worker)) return false;
    /* Of shared subscriptions messages are not of an epoch. */
    if (ids->has_epoch && !consumer->shared) {
        consumer->epoch = ids->epoch;
        consumer->has_epoch = true;
    }
    if (ids->count == 0 || !consumer->shared) {
        pulsar_tell_worker(a, c, consumer, (struct message){.kind = MSG_REQUEUE, .flags = MSG_ALL}, NULL);
        return true;
    }
    uint64_t seqs[IDS_IN_ORDER];
    size_t count = 0;
    while (pulsar_next_id(ids, &id)) {
        if (id.ledger != consumer->ledger) continue;
        if (count == IDS_IN_ORDER) {
            redeliver_some(a, c, consumer, seqs, count);
            count = 0;
        }
        seqs[count++] = id.entry;
    }
    redeliver_some(a, c, consumer, seqs, count);
    return true;
}

/* --- MESSAGE ------------------------------------------------------------------------------------------------------ */

/* A DELIVER, taken apart. */
struct delivery {
    const struct message *message;
    const uint8_t *words; /* bitmap of the parts that are not finished, 64 bits each */
    uint32_t word_count;
    bool is_pulsar;
    uint32_t key_hash, parts;
    struct pulsar_bytes entry;  /* of another protocol: its body, ... */
    struct pulsar_bytes others; /* ... its headers, ... */
    uint32_t tag;               /* ... and their enum headers_tag */
};

static void split(const struct message *message, struct delivery *out) {
    const uint8_t *at = (const uint8_t *)(message + 1), *end = at + message->body_bytes;
    struct parts_head head;
    struct headers headers;
    *out = (struct delivery){.message = message};
    if ((message->flags & MSG_PARTS) != 0) {
        memcpy(&head, at, sizeof head);
        out->words = at + sizeof head;
        out->word_count = head.words < PULSAR_ACK_WORDS ? head.words : PULSAR_ACK_WORDS;
        at = out->words + head.words * sizeof(uint64_t);
    }
    if ((message->flags & MSG_HEADERS) != 0) {
        memcpy(&headers, at, sizeof headers);
        at += sizeof headers;
        out->is_pulsar = headers.tag == HEADERS_PULSAR;
        out->key_hash = headers.key_hash;
        if (out->is_pulsar) out->parts = headers.parts;
        out->tag = headers.tag;
        if (!out->is_pulsar) {
            out->others = (struct pulsar_bytes){at, at + headers.bytes};
            at += headers.bytes;
        }
    }
    out->entry = (struct pulsar_bytes){at, end};
}

/* What the numbers of a bitmap take, with the tag of each. */
#define WORDS_BYTES(count) ((count) * (size_t)(PULSAR_VARINT_BYTES + 1))

/* Writes the command of a MESSAGE, which stands between the head of its frame and the entry. */
static uint8_t *put_message(uint8_t *out, const struct pulsar_consumer *consumer, const struct delivery *d) {
    uint8_t id[PULSAR_COMMAND_BYTES], body[PULSAR_COMMAND_BYTES + WORDS_BYTES(PULSAR_ACK_WORDS)];
    const struct message *m = d->message;
    uint8_t *id_end = pulsar_put_number(pulsar_put_number(id, 1, consumer->ledger), 2, m->seq);
    id_end = pulsar_put_number(id_end, 3, (uint64_t)(int64_t)consumer->partition);
    uint8_t *end = pulsar_put_number(body, 1, consumer->id);
    end = pulsar_put_varint(pulsar_put_varint(end, PULSAR_TAG(2, PULSAR_BYTES)), (uint64_t)(id_end - id));
    memcpy(end, id, (size_t)(id_end - id));
    end += id_end - id;
    if (m->attempts > 1 && consumer->shared) end = pulsar_put_number(end, 3, m->attempts - 1);
    for (uint32_t i = 0; i < d->word_count; i++) {
        uint64_t word;
        memcpy(&word, d->words + i * sizeof word, sizeof word);
        end = pulsar_put_number(end, 4, word);
    }
    if (consumer->has_epoch) end = pulsar_put_number(end, 5, consumer->epoch);
    size_t bytes = (size_t)(end - body);
    out = pulsar_put_command(out, PULSAR_MESSAGE, bytes);
    memcpy(out, body, bytes);
    return out + bytes;
}

enum { MESSAGE_BYTES = PULSAR_FRAME_HEAD + 2 * PULSAR_COMMAND_BYTES };

/* How many permits the delivery takes: one for each part that is not finished. */
static uint64_t parts_left(const struct delivery *d) {
    uint64_t left = 0, word;
    for (uint32_t i = 0; i < d->word_count; i++) {
        memcpy(&word, d->words + i * sizeof word, sizeof word);
        left += (uint64_t)__builtin_popcountll(word);
    }
    return d->word_count > 0 ? left : d->parts > 0 ? d->parts : 1;
}

static void report_sent(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer, uint64_t bytes) {
    consumer->delivered_bytes -= bytes;
    pulsar_tell_worker(a, c, consumer, (struct message){.kind = MSG_SENT, .sent_bytes = bytes}, NULL);
}

/* Marks the present end of the output: when that has been sent, the bytes delivered so far are reported SENT. If it has
 * been, nothing may be sent any more that would tell. */
static void mark(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer) {
    if (consumer->marked || consumer->delivered_bytes < SENT_REPORT_BYTES) return;
    if (connection_unsent(c) == 0) {
        report_sent(a, c, consumer, consumer->delivered_bytes);
        return;
    }
    consumer->marked = true;
    consumer->mark_bytes = consumer->delivered_bytes;
    consumer->mark_at = c->left_bytes + connection_unsent(c);
    pulsar_of(c)->marks++;
}

/* Whether the message's key is one of those that the consumer wants. One without a key may have any slot. */
static bool is_wanted(const struct pulsar_consumer *consumer, const struct delivery *d) {
    const uint32_t hash = d->key_hash != 0 ? d->key_hash : (uint32_t)d->message->seq * 0x9e3779b1u >> 16;
    const uint32_t slot = hash % KEY_SLOTS;
    for (uint32_t i = 0; i < consumer->range_count; i++)
        if (slot >= consumer->ranges[i].first && slot <= consumer->ranges[i].last) return true;
    return consumer->range_count == 0;
}

static void deliver(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                    const struct message *message) {
    struct delivery d;
    split(message, &d);
    size_t bytes = pulsar_length(d.entry);
    consumer->delivered_bytes += sizeof *message + message->body_bytes;
    if (message->seq >= consumer->next) consumer->next = message->seq + 1;
    if (!is_wanted(consumer, &d)) {
        /* It stays in flight until it is acknowledged with others behind it, or the consumer ends. */
        pulsar_tell_worker(
            a, c, consumer,
            (struct message){.kind = MSG_CREDIT, .flags = MSG_PERMITS, .credit = (uint32_t)parts_left(&d)}, NULL);
        mark(a, c, consumer);
        return;
    }
    if (d.is_pulsar && d.key_hash == 0) {
        /* Its metadata is unreadable: finish it instead, and give back the permit that it took. */
        pulsar_tell_worker(a, c, consumer,
                           (struct message){.kind = MSG_FINISH, .flags = MSG_BY_SEQ, .seq = message->seq}, NULL);
        pulsar_tell_worker(a, c, consumer, (struct message){.kind = MSG_CREDIT, .flags = MSG_PERMITS, .credit = 1},
                           NULL);
        mark(a, c, consumer);
        return;
    }
    const struct pulsar_foreign foreign = {message->seq, message->time_ns, d.tag, d.others, d.entry};
    const size_t here = bytes < BORROWED_BYTES ? bytes : 0;
    size_t most = MESSAGE_BYTES + WORDS_BYTES(d.word_count) + here + (d.is_pulsar ? 0 : pulsar_foreign_bytes(&foreign));
    bool full = buffer_bytes(&c->out.last) > 0 && buffer_bytes(&c->out.last) + most > PUSH_BYTES;
    if (full && !c->choked && c->filter == NULL) {
        socket_flush(a, c);
        if (c->closed) return;
    }
    uint8_t *room = socket_room(a, c, most);
    if (room == NULL) return;
    uint8_t *command = room + PULSAR_FRAME_HEAD, *behind = put_message(command, consumer, &d);
    uint8_t *end = d.is_pulsar ? behind : pulsar_put_foreign(behind, &foreign);
    if (here > 0) memcpy(end, d.entry.at, here);
    end += here;
    pulsar_put_be32(room, (uint32_t)((size_t)(end - room) - 4 + bytes - here));
    pulsar_put_be32(room + 4, (uint32_t)(behind - command));
    socket_written(a, c, end);
    if (here < bytes && !socket_say(a, c, d.entry.at, bytes)) return;
    uint64_t parts = parts_left(&d);
    consumer->permits -= (int64_t)parts;
    consumer->counts[0].messages += parts;
    consumer->counts[0].bytes += bytes;
    consumer->consumed[0].entries++;
    if (message->attempts > 1) consumer->consumed[0].redelivered += parts;
    consumer->consumed_ms = pulsar_wall_ms(a);
    if (consumer->rates != NULL) pulsar_take_delivered(a, c, consumer, parts, bytes);
    mark(a, c, consumer);
}

static void say_active(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer, bool active) {
    uint8_t body[PULSAR_COMMAND_BYTES];
    uint8_t *end = pulsar_put_number(pulsar_put_number(body, 1, consumer->id), 2, active);
    pulsar_say_body(a, c, PULSAR_ACTIVE_CONSUMER_CHANGE, body, (size_t)(end - body));
}

/* A client that does not know of the consumer yet would ignore the message, so it is told later. */
static void hear_active(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer, bool active) {
    consumer->active = active ? PULSAR_IS_ACTIVE : PULSAR_STANDS_BY;
    if (consumer->told) say_active(a, c, consumer, active);
}

void pulsar_pushed(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message) {
    if (message->kind == MSG_ATTACHED) {
        pulsar_producer_attached(a, c, worker, message);
        return;
    }
    struct pulsar_consumer *consumer = pulsar_table_at(&pulsar_of(c)->consumers, message->consumer);
    if (consumer == NULL || consumer->worker != worker || c->muted || c->closing) return;
    switch (message->kind) {
    case MSG_DELIVER: deliver(a, c, consumer, message); break;
    case MSG_ACTIVE: hear_active(a, c, consumer, message->active != 0); break;
    case MSG_DISMISSED: pulsar_consumer_lose(a, c, consumer); break;
    case MSG_REFUSED: consumer->refused |= message->refused == MSG_FINISH; break;
    default: break;
    }
}

void pulsar_sent(struct acceptor *a, struct connection *c) {
    struct pulsar *p = pulsar_of(c);
    for (uint32_t i = 0, left = p->marks; left > 0; i++) {
        struct pulsar_consumer *consumer = p->consumers.items[i];
        if (consumer == NULL || !consumer->marked) continue;
        left--;
        if (c->left_bytes < consumer->mark_at) continue;
        consumer->marked = false;
        p->marks--;
        report_sent(a, c, consumer, consumer->mark_bytes);
        mark(a, c, consumer);
    }
}

/* --- the life of a consumer --------------------------------------------------------------------------------------- */

void pulsar_consumer_free(struct pulsar *p, struct pulsar_consumer *consumer) {
    if (consumer->marked) p->marks--;
    pulsar_table_remove(&p->consumers, consumer->id, consumer->number);
    free(consumer->rates);
    free(consumer);
}

void pulsar_consumer_end(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer) {
    topic_unbind(a, consumer->topic);
    pulsar_consumer_free(pulsar_of(c), consumer);
}

void pulsar_consumer_lose(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer) {
    pulsar_say_closed(a, c, PULSAR_CLOSE_CONSUMER, consumer->id);
    pulsar_tell_python(a, c, PULSAR_CONSUMER_GONE, consumer->id, consumer->number);
    pulsar_consumer_end(a, c, consumer);
}

static int64_t add_consumer(struct acceptor *a, struct connection *c, const struct codec_call *call) {
    struct pulsar *p = pulsar_of(c);
    struct consumer_wish wish;
    if (call->bytes_count <= sizeof wish || pulsar_table_find(&p->consumers, call->value) != NULL) return CALL_REFUSED;
    memcpy(&wish, call->bytes, sizeof wish);
    const size_t ranges_bytes = wish.ranges * sizeof(struct key_range), before = sizeof wish + ranges_bytes;
    if (wish.ranges > KEY_MAX_RANGES || call->bytes_count <= before) return CALL_REFUSED;
    uint32_t topic = topic_bind(a, call->bytes + before, call->bytes_count - before);
    if (topic == 0) return CALL_CLOSED;
    struct pulsar_consumer *consumer = calloc(1, sizeof *consumer + ranges_bytes);
    uint32_t number = consumer != NULL ? pulsar_table_add(&p->consumers, call->value, consumer) : 0;
    if (number == 0) {
        free(consumer);
        topic_unbind(a, topic);
        return CALL_CLOSED;
    }
    *consumer = (struct pulsar_consumer){.id = call->value,
                                         .number = number,
                                         .topic = topic,
                                         .shared = wish.shared != 0,
                                         .partition = wish.partition,
                                         .epoch = wish.epoch,
                                         .has_epoch = wish.has_epoch != 0,
                                         .most_unacked = wish.most_unacked,
                                         .range_count = wish.ranges,
                                         .worker = binding_at(&a->bindings, topic)->worker};
    memcpy(consumer->ranges, call->bytes + sizeof wish, ranges_bytes);
    pulsar_count_from(consumer->counts, a->now_ns);
    return number;
}

/* Limits how many entries a Shared or Key_Shared consumer may leave unacknowledged before it gets no more. */
static void limit_unacked(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer) {
    if (!consumer->shared || consumer->most_unacked == 0) return;
    /* Without permits before it, a number would count as the consumer's credit. */
    pulsar_tell_worker(a, c, consumer, (struct message){.kind = MSG_CREDIT, .flags = MSG_PERMITS}, NULL);
    pulsar_tell_worker(a, c, consumer, (struct message){.kind = MSG_CREDIT, .credit = consumer->most_unacked}, NULL);
}

/* Python's calls about a consumer. The value is its id. They return CALL_CLOSED (0) when it is gone.
 * "add-consumer": bytes: a struct consumer_wish, its ranges and the topic; returns the consumer's number, 0: there can
 * be no more.
 * "open-consumer": its worker has subscribed it; bytes: its ledger, 64 bits.
 * "tell-consumer": its client knows of it now, and is told whether it is the active one.
 * "drop-consumer": removes it. "lose-consumer": has its worker dismiss it; when its client is told, its messages are
 * already free for other consumers.
 * "limit-consumer": bytes: its rates, PULSAR_RATES_OF_CONSUMER struct pulsar_rate.
 * "count-consumer": its messages, bytes, permits (which may be negative), entries, redelivered, acknowledgements; when
 * it last gave permits, was sent a message and acknowledged one (ms); enum pulsar_active; some earlier moment, as ns
 * before now, and its figures then: messages, bytes, entries, redelivered, acknowledgements. See pulsar_put_counts. */
int64_t pulsar_call_consumer(struct acceptor *a, struct connection *c, const char *what,
                             const struct codec_call *call) {
    if (strcmp(what, "add-consumer") == 0) return add_consumer(a, c, call);
    struct pulsar_consumer *consumer = pulsar_table_find(&pulsar_of(c)->consumers, call->value);
    if (strcmp(what, "open-consumer") == 0 && call->bytes_count == sizeof consumer->ledger) {
        if (consumer == NULL || consumer->lost) return CALL_CLOSED;
        memcpy(&consumer->ledger, call->bytes, sizeof consumer->ledger);
        consumer->open = true;
        limit_unacked(a, c, consumer);
    } else if (strcmp(what, "limit-consumer") == 0) {
        struct pulsar_rate rates[PULSAR_RATES_OF_CONSUMER];
        if (consumer == NULL || consumer->lost) return CALL_CLOSED;
        if (call->bytes_count != sizeof rates) return CALL_REFUSED;
        memcpy(rates, call->bytes, sizeof rates);
        if (!pulsar_limit_consumer(a, c, consumer, rates)) return CALL_CLOSED;
    } else if (strcmp(what, "tell-consumer") == 0) {
        if (consumer == NULL || consumer->lost) return CALL_CLOSED;
        if (consumer->active != PULSAR_ACTIVE_UNSAID) say_active(a, c, consumer, consumer->active == PULSAR_IS_ACTIVE);
        consumer->told = true;
    } else if (strcmp(what, "drop-consumer") == 0) {
        if (consumer == NULL) return CALL_CLOSED;
        pulsar_consumer_end(a, c, consumer);
    } else if (strcmp(what, "lose-consumer") == 0) {
        if (consumer == NULL) return CALL_CLOSED;
        struct message message = {
            .kind = MSG_UNSUBSCRIBE, .flags = MSG_DISMISS, .conn = c->number, .consumer_number = consumer->number};
        peer_send(a, consumer->worker, &message, NULL);
    } else if (strcmp(what, "count-consumer") == 0) {
        const struct pulsar_consumer none = {0}, *from = consumer != NULL ? consumer : &none;
        const struct pulsar_counts *now = from->counts, *then = now + 2;
        const struct pulsar_consumed *more = from->consumed, *before = more + 2;
        const uint64_t counts[] = {
            now->messages,     now->bytes,      (uint64_t)from->permits, more->entries,
            more->redelivered, more->acked,     from->flowed_ms,         from->consumed_ms,
            from->acked_ms,    from->active,    a->now_ns - then->at_ns, then->messages,
            then->bytes,       before->entries, before->redelivered,     before->acked,
        };
        return pulsar_put_counts(call, counts, sizeof counts / sizeof *counts);
    } else {
        return CALL_REFUSED;
    }
    wake_self(a);
    return CALL_DONE;
}

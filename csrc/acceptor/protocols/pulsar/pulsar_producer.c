/* SENDs and their receipts. */
#include "acceptor/protocols/pulsar/pulsar_producer.h"

#include <stdlib.h>

#include "acceptor/bridge.h"
#include "acceptor/protocols/pulsar/pulsar_asks.h"
#include "acceptor/protocols/pulsar/pulsar_rates.h"
#include "acceptor/protocols/pulsar/pulsar_say.h"
#include "acceptor/protocols/pulsar/pulsar_table.h"
#include "base/crc32c.h"
#include "base/decimal.h"
#include "base/time_units.h"

enum { PRIORITY = 1024, TEXT_BYTES = 80 };
/* Time to run of a message that becomes a job. */
#define TTR_NS ((uint64_t)60 * 1000000000u)

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void say_receipt(struct acceptor *a, struct connection *c, uint64_t producer,
                        const struct pulsar_pending *pending, uint64_t ledger, uint64_t entry) {
    uint8_t id[PULSAR_COMMAND_BYTES], body[PULSAR_COMMAND_BYTES];
    uint8_t *id_end = pulsar_put_number(pulsar_put_number(id, 1, ledger), 2, entry);
    uint8_t *end = pulsar_put_number(pulsar_put_number(body, 1, producer), 2, pending->sequence);
    end = pulsar_put_varint(end, PULSAR_TAG(3, PULSAR_BYTES));
    end = pulsar_put_varint(end, (uint64_t)(id_end - id));
    memcpy(end, id, (size_t)(id_end - id));
    end = pulsar_put_number(end + (id_end - id), 4, pending->highest);
    pulsar_say_body(a, c, PULSAR_SEND_RECEIPT, body, (size_t)(end - body));
}

static void say_error(struct acceptor *a, struct connection *c, uint64_t producer, uint64_t sequence,
                      enum pulsar_error error, const char *text) {
    uint8_t body[PULSAR_COMMAND_BYTES + TEXT_BYTES];
    size_t bytes = strlen(text);
    assert(bytes <= TEXT_BYTES);
    uint8_t *end = pulsar_put_number(pulsar_put_number(body, 1, producer), 2, sequence);
    end = pulsar_put_number(end, 3, error);
    end = pulsar_put_varint(pulsar_put_varint(end, PULSAR_TAG(4, PULSAR_BYTES)), bytes);
    memcpy(end, text, bytes);
    pulsar_say_body(a, c, PULSAR_SEND_ERROR, body, (size_t)(end + bytes - body));
}

/* --- SEND --------------------------------------------------------------------------------------------------------- */

/* How many bytes clients of other protocols get out of the entry at most; 0: they get its payload as it is. A batch
 * must be valid to be taken apart; whether a compressed one is shows only when it is decompressed. */
static uint32_t packed_bytes_of(const struct pulsar_entry *entry, const struct pulsar_metadata *metadata,
                                uint32_t most_bytes) {
    bool is_batch = metadata->messages > 0, is_compressed = metadata->compression != 0;
    size_t bytes = is_compressed ? metadata->uncompressed_bytes : pulsar_length(entry->payload);
    if (metadata->is_encrypted || metadata->is_chunk || metadata->is_marker || bytes > most_bytes) return 0;
    if (!is_batch && !is_compressed) return 0;
    if (metadata->messages > PACKED_MAX_PARTS) return 0;
    if (is_batch && !is_compressed && !pulsar_is_batch(entry->payload, metadata->messages)) return 0;
    return bytes > 0 || is_batch ? (uint32_t)bytes : 1;
}

/* What metadata say that no worker has to know. */
struct facts {
    uint64_t deliver_at_ms;
    bool is_middle_chunk; /* all chunks have one sequence id, so only the last is deduplicated */
    bool is_batch_without_txn;
};

/* The headers: the bytes that only Pulsar's consumers see, and what a worker must know of the entry. */
static struct headers headers_of(const struct pulsar_entry *entry, uint32_t most_bytes, struct facts *facts) {
    struct pulsar_metadata metadata;
    *facts = (struct facts){0};
    size_t bytes = (size_t)(entry->payload.at - entry->all.at);
    struct headers headers = {.bytes = bytes < HEADERS_MAX_BYTES ? (uint32_t)bytes : HEADERS_MAX_BYTES,
                              .tag = HEADERS_PULSAR};
    /* No consumer may see an entry whose metadata is unreadable, or a marker, of those that brokers write for each
     * other: its key_hash stays 0. */
    if (!entry->is_whole || !pulsar_scan_metadata(entry->metadata, &metadata) || metadata.is_marker) return headers;
    headers.parts = metadata.messages < UINT16_MAX ? (uint16_t)metadata.messages : UINT16_MAX;
    headers.key_hash = pulsar_key_hash(&metadata);
    if (metadata.is_chunk) headers.key_hash |= KEY_HASH_CHUNK;
    if (bytes <= HEADERS_MAX_BYTES) headers.packed_bytes = packed_bytes_of(entry, &metadata, most_bytes);
    facts->deliver_at_ms = metadata.deliver_at;
    facts->is_middle_chunk = metadata.is_chunk && metadata.chunk + 1 < metadata.chunks;
    facts->is_batch_without_txn = metadata.messages > 0 && !metadata.has_txn;
    return headers;
}

/* How many ns until a time that a client gave by the wall clock. */
static uint64_t delay_until(const struct acceptor *a, uint64_t deliver_at_ms) {
    const uint64_t longest_ms = ((uint64_t)1 << LONGEST_TIME_NS_BITS) / MS_NS;
    uint64_t now_ms = a->wall_ns / MS_NS;
    if (deliver_at_ms <= now_ms || a->wall_ns == 0 || deliver_at_ms > INT64_MAX) return 0;
    return (deliver_at_ms - now_ms < longest_ms ? deliver_at_ms - now_ms : longest_ms) * MS_NS;
}

/* In the words of a real broker. */
static void say_too_late(struct acceptor *a, struct connection *c, const struct pulsar_producer *producer,
                         uint64_t sequence) {
    char text[TEXT_BYTES + 1] = "Exceeds max allowed delivery delay of ";
    uint8_t *end = decimal_put((uint8_t *)text + strlen(text), producer->max_delay_ms);
    memcpy(end, " milliseconds", sizeof " milliseconds");
    say_error(a, c, producer->id, sequence, PULSAR_NOT_ALLOWED, text);
}

/* What precedes the headers of a MSG_OF_PRODUCER; the part only with MSG_IDEMPOTENT, a transaction with MSG_TXN. */
struct origin {
    uint64_t arrival;
    struct producer_part part;
    uint64_t txn;
};

static uint32_t origin_bytes(uint16_t flags) {
    const struct origin *o;
    return (uint32_t)(sizeof o->arrival + (flags & MSG_IDEMPOTENT ? sizeof o->part : 0) +
                      (flags & MSG_TXN ? sizeof o->txn : 0));
}

static uint8_t *put_origin(uint8_t *to, uint16_t flags, const struct origin *origin) {
    memcpy(to, &origin->arrival, sizeof origin->arrival);
    to += sizeof origin->arrival;
    if (flags & MSG_IDEMPOTENT) memcpy(to, &origin->part, sizeof origin->part), to += sizeof origin->part;
    if (flags & MSG_TXN) memcpy(to, &origin->txn, sizeof origin->txn), to += sizeof origin->txn;
    return to;
}

/* Sends the entry, copying it once, straight into the ring, unless it is so large that it is sent in pieces. */
static bool ask_to_publish(struct acceptor *a, uint32_t worker, const struct message *request,
                           const struct origin *origin, const struct headers *headers, struct pulsar_bytes entry) {
    struct channel *channel = a->links[worker].channel;
    size_t bytes = pulsar_length(entry);
    struct message *room = channel_reserve(channel, request->body_bytes);
    uint8_t *large = room == NULL ? bytes_take(&a->blocks, request->body_bytes) : NULL;
    if (room == NULL && large == NULL) return false;
    uint8_t *body = room != NULL ? (uint8_t *)(room + 1) : large;
    uint8_t *content = put_origin(body, request->flags, origin);
    memcpy(content, headers, sizeof *headers);
    memcpy(content + sizeof *headers, entry.at, bytes);
    if (room != NULL) {
        *room = *request;
        channel_sent(channel);
    } else {
        channel_send(channel, request, large, request->body_bytes);
        bytes_give(&a->blocks, large, request->body_bytes);
    }
    a->published_to |= bit_of(worker);
    return true;
}

/* How many sequence ids a batch covers besides its first. */
static uint32_t beyond(const struct pulsar_send *send) {
    uint64_t more = send->highest > send->sequence ? send->highest - send->sequence : 0;
    return more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
}

static void publish(struct acceptor *a, struct connection *c, struct pulsar_producer *producer,
                    const struct pulsar_send *send, const struct pulsar_entry *entry) {
    struct facts facts;
    struct headers headers = headers_of(entry, pulsar_options(a, c)->max_message_bytes, &facts);
    const uint64_t delay_ns = producer->delays ? delay_until(a, facts.deliver_at_ms) : 0;
    if (producer->max_delay_ms > 0 && delay_ns / MS_NS > producer->max_delay_ms) {
        say_too_late(a, c, producer, send->sequence);
        return;
    }
    const bool is_far = delay_ns > DUE_MOST_NS;
    uint32_t ids = headers.packed_bytes > 0 && headers.parts > 1 ? headers.parts + 1u : 1;
    uint32_t place;
    struct pulsar_pending *pending = pulsar_pend(a, c, MSG_PUBLISH, producer->worker, &place);
    if (pending == NULL) return;
    pending->owner = producer->number;
    pending->sequence = send->sequence;
    /* The receipt of a message that is alone says -1; of one in a transaction what its producer said, or 0. */
    bool is_said = send->has_txn || (send->has_highest && send->sequence <= send->highest);
    pending->highest = is_said ? send->highest : UINT64_MAX;
    producer->pending++;
    uint32_t messages = headers.parts > 0 ? headers.parts : 1;
    producer->counts[0].messages += messages;
    producer->counts[0].bytes += pulsar_length(entry->all);
    if (producer->rates != NULL) pulsar_take_published(a, producer, messages, pulsar_length(entry->all));
    struct message request = {.kind = MSG_PUBLISH,
                              .flags = MSG_DURABLE | MSG_RETAIN | MSG_HEADERS | MSG_OF_PRODUCER |
                                       (delay_ns > 0 ? MSG_DUE : 0),
                              .conn = c->number,
                              .slot = place,
                              .topic = producer->topic,
                              .id = ids_take(a, binding_at(&a->bindings, producer->topic), ids),
                              .pri = PRIORITY,
                              /* By its time, not by how long it takes there: chunks of one message have one time. */
                              .delay_ns = delay_ns > 0 ? a->wall_ns / MS_NS * MS_NS + delay_ns : 0,
                              .ttr_ns = TTR_NS + is_far};
    struct origin origin = {.arrival = producer->arrival};
    if (producer->deduplicates && !facts.is_middle_chunk) {
        request.flags |= MSG_IDEMPOTENT;
        origin.part = (struct producer_part){.key = producer->key, .batch = send->sequence, .more = beyond(send)};
    }
    if (send->has_txn) {
        request.flags |= MSG_TXN;
        origin.txn = send->txn_least | (facts.is_batch_without_txn ? PULSAR_TXN_OF_COMMAND : 0);
    }
    request.body_bytes = origin_bytes(request.flags) + (uint32_t)(sizeof headers + pulsar_length(entry->all));
    c->touched_workers |= bit_of(producer->worker);
    if (!send->has_txn && binding_at(&a->bindings, producer->topic)->bridged)
        pending->copy = bridge_copy(a, &request, &headers, sizeof headers, entry->all.at, pulsar_length(entry->all));
    if (!ask_to_publish(a, producer->worker, &request, &origin, &headers, entry->all)) engine_oom(a, c);
}

void pulsar_producer_leaves(struct connection *c, struct pulsar_bytes close) {
    uint64_t id;
    struct pulsar_producer *producer =
        pulsar_scan_close(close, &id) ? pulsar_table_find(&pulsar_of(c)->producers, id) : NULL;
    if (producer != NULL) producer->leaves = true;
}

/* As a real broker reads it: two bytes, and where they say that a checksum follows, that. */
static bool is_cut_off(struct pulsar_bytes entry) {
    size_t length = pulsar_length(entry);
    return length < 2 || (length < 6 && entry.at[0] == 0x0e && entry.at[1] == 0x01);
}

bool pulsar_send(struct acceptor *a, struct connection *c, const struct pulsar_send *send, struct pulsar_bytes bytes) {
    struct pulsar_producer *producer = pulsar_table_find(&pulsar_of(c)->producers, send->producer);
    struct pulsar_entry entry;
    if (producer == NULL || (!producer->open && !producer->closed)) return pulsar_hang_up(a, c);
    /* We have closed the producer: when its client knows, it sends the message again. */
    if (producer->closed) return true;
    /* The real broker has ended the producer then, unless receipts are still to come. */
    if (producer->leaves && producer->pending == 0) return pulsar_hang_up(a, c);
    if (is_cut_off(bytes)) return pulsar_hang_up(a, c);
    /* Its worker died while Python was about to open it. */
    if (a->links[producer->worker].channel == NULL) {
        pulsar_producer_lose(a, c, producer);
        return true;
    }
    if (!pulsar_may_send(a, c, producer->worker)) return false;
    if (producer->rates != NULL && !pulsar_may_publish(a, c, producer)) return false;
    if (a->bridges && !bridge_may_publish(a, c)) return false;
    pulsar_split_entry(bytes, &entry);
    uint32_t crc = entry.has_checksum ? crc32c_extend(0, entry.checked.at, pulsar_length(entry.checked)) : 0;
    if (crc != entry.checksum)
        say_error(a, c, producer->id, send->sequence, PULSAR_CHECKSUM_ERROR, "Checksum failed on the broker");
    else if (send->has_txn && (send->txn_most != 0 || send->txn_least >= PULSAR_TXN_OF_COMMAND))
        say_error(a, c, producer->id, send->sequence, PULSAR_NOT_ALLOWED, "There is one transaction coordinator, 0");
    else if (producer->max_message_bytes > 0 && !send->is_chunk && pulsar_length(bytes) > producer->max_message_bytes)
        say_error(a, c, producer->id, send->sequence, PULSAR_NOT_ALLOWED, "Exceed maximum message size");
    else if (producer->closing || producer->leaves)
        say_error(a, c, producer->id, send->sequence, PULSAR_PERSISTENCE_ERROR, "Producer is closed");
    else if (draining(a))
        say_error(a, c, producer->id, send->sequence, PULSAR_SERVICE_NOT_READY, "The broker is being drained");
    else
        publish(a, c, producer, send, &entry);
    return true;
}

static void say_closed_when_settled(struct acceptor *a, struct connection *c, struct pulsar_producer *producer) {
    if (producer->pending > 0 || !producer->closing) return;
    pulsar_tell_python(a, c, PULSAR_PRODUCER_GONE, producer->id, producer->number);
    pulsar_producer_end(a, c, producer);
}

void pulsar_published(struct acceptor *a, struct connection *c, const struct pulsar_pending *pending,
                      const struct message *reply) {
    struct pulsar_producer *producer = pulsar_table_at(&pulsar_of(c)->producers, pending->owner);
    if (producer == NULL) return;
    producer->pending--;
    if (!c->muted && !producer->closed) {
        switch (reply->status) {
        case STATUS_OK: say_receipt(a, c, producer->id, pending, reply->incarnation, reply->seq); break;
        case STATUS_TERMINATED:
            say_error(a, c, producer->id, pending->sequence, PULSAR_TOPIC_TERMINATED, "Topic was already terminated");
            break;
        case STATUS_FENCED: pulsar_hang_up(a, c); break;
        default:
            say_error(a, c, producer->id, pending->sequence, PULSAR_PERSISTENCE_ERROR, "The message was not stored");
        }
    }
    if (!c->closed) say_closed_when_settled(a, c, producer);
}

/* --- the life of a producer --------------------------------------------------------------------------------------- */

void pulsar_producer_free(struct pulsar *p, struct pulsar_producer *producer) {
    pulsar_table_remove(&p->producers, producer->id, producer->number);
    free(producer->rates);
    free(producer);
}

void pulsar_producer_end(struct acceptor *a, struct connection *c, struct pulsar_producer *producer) {
    topic_unbind(a, producer->topic);
    pulsar_producer_free(pulsar_of(c), producer);
}

void pulsar_producer_attached(struct acceptor *a, struct connection *c, uint32_t worker,
                              const struct message *message) {
    struct pulsar_producer *producer = pulsar_table_at(&pulsar_of(c)->producers, message->consumer);
    if (producer == NULL || producer->worker != worker || c->muted || c->closing) return;
    if (message->active != 0) {
        pulsar_tell_python(a, c, PULSAR_PRODUCER_ATTACHED, producer->id, message->id);
        return;
    }
    /* It ends without a word to its client, whose next SEND closes the connection. */
    producer->closing = true;
    say_closed_when_settled(a, c, producer);
}

void pulsar_producer_lose(struct acceptor *a, struct connection *c, struct pulsar_producer *producer) {
    /* Its client still has a request to be answered, after which it asks again: so it is not told that it is closed. */
    if (producer->waits && !producer->open && !producer->closing) {
        pulsar_tell_python(a, c, PULSAR_PRODUCER_WAITS_NO_MORE, producer->id, producer->number);
        pulsar_producer_end(a, c, producer);
        return;
    }
    producer->pending = 0;
    if (!producer->closed && !producer->closing) {
        producer->closed = true;
        pulsar_say_closed(a, c, PULSAR_CLOSE_PRODUCER, producer->id);
        pulsar_tell_python(a, c, PULSAR_PRODUCER_GONE, producer->id, producer->number);
    }
    say_closed_when_settled(a, c, producer);
}

/* The id may be that of a producer that we have closed, which the new one replaces. */
static int64_t add_producer(struct acceptor *a, struct connection *c, const struct codec_call *call) {
    struct pulsar *p = pulsar_of(c);
    struct pulsar_producer *before = pulsar_table_find(&p->producers, call->value);
    if (before != NULL && !before->closed) return CALL_REFUSED;
    if (before != NULL) pulsar_producer_end(a, c, before);
    uint32_t topic = topic_bind(a, call->bytes, call->bytes_count);
    if (topic == 0) return CALL_CLOSED;
    struct pulsar_producer *producer = calloc(1, sizeof *producer);
    uint32_t number = producer != NULL ? pulsar_table_add(&p->producers, call->value, producer) : 0;
    if (number == 0) {
        free(producer);
        topic_unbind(a, topic);
        return CALL_CLOSED;
    }
    *producer = (struct pulsar_producer){
        .id = call->value, .number = number, .topic = topic, .worker = binding_at(&a->bindings, topic)->worker};
    pulsar_count_from(producer->counts, a->now_ns);
    return number;
}

static int64_t limit_producer(struct acceptor *a, struct connection *c, struct pulsar_producer *producer,
                              const uint8_t *said) {
    struct producer_terms terms;
    memcpy(&terms, said, sizeof terms);
    producer->deduplicates = terms.deduplicates != 0;
    producer->delays = terms.delays != 0;
    producer->max_delay_ms = terms.max_delay_ms;
    producer->max_message_bytes = terms.max_message_bytes < UINT32_MAX ? (uint32_t)terms.max_message_bytes : UINT32_MAX;
    const struct pulsar_rate rates[PULSAR_RATES_OF_PRODUCER] = {terms.rate, terms.group, terms.broker};
    return pulsar_limit_producer(a, c, producer, rates) ? CALL_DONE : CALL_CLOSED;
}

static int64_t open_producer(struct acceptor *a, struct connection *c, struct pulsar_producer *producer,
                             const uint8_t *said) {
    struct producer_place place;
    memcpy(&place, said, sizeof place);
    producer->key = place.key;
    producer->arrival = place.arrival;
    int64_t done = limit_producer(a, c, producer, said + sizeof place);
    if (done == CALL_DONE) producer->open = true;
    return done;
}

/* Both of them. */
static int64_t set_producer(struct acceptor *a, struct connection *c, struct pulsar_producer *producer, bool opens,
                            const struct codec_call *call) {
    size_t place_bytes = opens ? sizeof(struct producer_place) : 0;
    if (call->bytes_count != place_bytes + sizeof(struct producer_terms)) return CALL_REFUSED;
    if (producer == NULL || producer->lost) return CALL_CLOSED;
    return (opens ? open_producer : limit_producer)(a, c, producer, call->bytes);
}

/* Python's calls about a producer. The value is its id. They return CALL_CLOSED (0) when it is gone.
 * "add-producer": bytes: its topic; returns the producer's number, 0: there can be no more. It may not send yet.
 * "wait-producer": its client has been told that it waits for others to leave.
 * "open-producer": it may send; bytes: a struct producer_place and a struct producer_terms.
 * "limit-producer": bytes: a struct producer_terms, which replaces the last.
 * "drop-producer": removes it, and tells nobody.
 * "close-producer": its client closes it: PULSAR_PRODUCER_GONE is said when its last receipt has been sent.
 * "lose-producer": closes it, and tells its client.
 * "count-producer": its messages and bytes; an earlier moment, as ns before now, and both then (pulsar_put_counts). */
int64_t pulsar_call_producer(struct acceptor *a, struct connection *c, const char *what,
                             const struct codec_call *call) {
    if (strcmp(what, "add-producer") == 0) return add_producer(a, c, call);
    struct pulsar_producer *producer = pulsar_table_find(&pulsar_of(c)->producers, call->value);
    if (strcmp(what, "open-producer") == 0) return set_producer(a, c, producer, true, call);
    if (strcmp(what, "limit-producer") == 0) return set_producer(a, c, producer, false, call);
    if (strcmp(what, "wait-producer") == 0) {
        if (producer == NULL || producer->lost) return CALL_CLOSED;
        producer->waits = true;
    } else if (strcmp(what, "drop-producer") == 0) {
        if (producer == NULL) return CALL_CLOSED;
        pulsar_producer_end(a, c, producer);
    } else if (strcmp(what, "close-producer") == 0) {
        if (producer == NULL) return CALL_CLOSED;
        bool was_closed = producer->closed;
        if (was_closed) pulsar_producer_end(a, c, producer);
        if (was_closed) return CALL_CLOSED;
        producer->closing = true;
        say_closed_when_settled(a, c, producer);
    } else if (strcmp(what, "lose-producer") == 0) {
        if (producer == NULL) return CALL_CLOSED;
        pulsar_producer_lose(a, c, producer);
    } else if (strcmp(what, "count-producer") == 0) {
        const struct pulsar_producer none = {0};
        const struct pulsar_counts *now = (producer != NULL ? producer : &none)->counts, *then = now + 2;
        const uint64_t counts[] = {now->messages, now->bytes, a->now_ns - then->at_ns, then->messages, then->bytes};
        return pulsar_put_counts(call, counts, sizeof counts / sizeof *counts);
    } else {
        return CALL_REFUSED;
    }
    wake_self(a);
    return CALL_DONE;
}

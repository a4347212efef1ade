/* A ring: a single-producer single-consumer queue of records in shared memory. See channel.h for messages on it.
 *
 * A ring is a memfd that is formatted once (ring_format) and mapped by two processes: its producer and its consumer. It
 * owns nothing else: no descriptor is kept, `wake_fd` is borrowed. It must never block, allocate after it has been
 * opened, or read outside its mapping, whatever the other side has written.
 *
 * The memfd, in bytes (every word that one side writes has 128 bytes for itself: two lines, because the prefetcher
 * fetches lines in pairs):
 *
 *      0 | magic 8 | version 4 | header_bytes 4 | data_bytes 8 | epoch 8 | check 8 |   written by ring_format only
 *    128 | tail 8              |   written by the producer: all records before it can be read
 *    256 | head 8              |   written by the consumer: all bytes before it may be overwritten
 *    384 | consumer_asleep 4   |   the consumer sets it before it sleeps; a producer that clears it wakes the consumer
 *    512 | producer_waiting 4  |   the producer sets it before it sleeps for lack of room; likewise
 *    640 | noted 8 | two notes |   written by the producer, for a consumer that outlives it: see ring_note
 *   4096 | data, data_bytes: a power of two
 *
 * The data is mapped twice in a row, so that a record that runs over the end is contiguous all the same:
 *
 *        | header | data | the same data |
 *
 * head and tail count bytes from 0 and never wrap; the offset in the data is the count modulo data_bytes. A record:
 *
 *        | bytes 4 | flags 4 | payload, `bytes` of it, zero to seven bytes of padding |      8-byte aligned
 *
 * Order. The producer writes records beyond the published tail and then stores the tail (release); the consumer loads
 * the tail (acquire) and reads them. The consumer stores the head (release) when it is done with bytes; the producer
 * loads it (acquire) before it overwrites them. Neither side loads the other's index while its copy is good enough.
 *
 * Sleep. A side that is about to sleep sets its flag, executes a full fence and looks at the other's index once more. A
 * side that moves its index stores it, executes a full fence and looks at the other's flag. At least one of the two
 * sees the other's store (Dekker). The flag is cleared by an exchange, so one sleep costs at most one wake-up.
 *
 * Trust. Each side checks what it loads. An index that goes backwards or beyond what is possible, or a record longer
 * than what was published, breaks the ring for that side, which then finds nothing more in it. The payload itself is
 * read in place; the user of the ring must check it.
 */
#ifndef MQ_RING_H
#define MQ_RING_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC          0x9d52494e470d0a1aULL
#define RING_VERSION        2u
#define RING_HEADER_BYTES   4096u
#define RING_MIN_DATA_BYTES ((uint64_t)4096)
#define RING_MAX_DATA_BYTES ((uint64_t)1 << 30)

/* Written once by ring_format. */
struct ring_identity {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t data_bytes;
    uint64_t epoch; /* the incarnation of the pair of processes that uses the ring; not used by the ring itself */
    uint64_t check; /* FNV-1a of the 32 bytes before */
};

/* What the process at one end of two rings, one each way, has done. */
struct ring_note {
    uint64_t committed; /* of the ring that it writes: records up to here are whole, though not all are published */
    uint64_t done;      /* of the ring that it reads: what the records before this asked for is done, or refused */
    uint32_t begun;     /* how much of the record there is done, in the user's units */
};

struct ring_shared {
    struct ring_identity identity;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint32_t consumer_asleep;
    _Alignas(128) _Atomic uint32_t producer_waiting;
    _Alignas(128) _Atomic uint64_t noted; /* how often; the last note is notes[noted % 2] */
    struct ring_note notes[2];
};

struct ring_record {
    uint32_t bytes; /* of the payload that follows, without padding */
    uint32_t flags; /* for the user of the ring */
};

_Static_assert(sizeof(struct ring_identity) == 40, "shared between processes");
_Static_assert(offsetof(struct ring_identity, check) == 32, "shared between processes");
_Static_assert(offsetof(struct ring_shared, tail) == 128, "shared between processes");
_Static_assert(offsetof(struct ring_shared, head) == 256, "shared between processes");
_Static_assert(offsetof(struct ring_shared, consumer_asleep) == 384, "shared between processes");
_Static_assert(offsetof(struct ring_shared, producer_waiting) == 512, "shared between processes");
_Static_assert(offsetof(struct ring_shared, noted) == 640, "shared between processes");
_Static_assert(sizeof(struct ring_note) == 24, "shared between processes");
_Static_assert(sizeof(struct ring_shared) <= RING_HEADER_BYTES, "the header is one page");
_Static_assert(sizeof(struct ring_record) == 8, "payloads are 8-byte aligned");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "a lock would be private to a process");

/* The producer's half, private to its process. head <= published <= tail. */
struct ring_producer {
    struct ring_shared *shared;
    uint8_t *data;
    uint64_t data_bytes;
    uint64_t tail;      /* the end of the committed records */
    uint64_t published; /* the end of what the consumer may see: the value of shared->tail */
    uint64_t head;      /* shared->head when last loaded */
    uint64_t reserved;  /* payload bytes of the reservation that ring_commit completes */
    uint64_t fetched;   /* cache lines before it have been fetched for writing */
    uint64_t noted;     /* the value of shared->noted */
    uint64_t wakes;     /* wake-ups sent */
    int wake_fd;
    bool broken;
};

/* The consumer's half, private to its process. released <= head <= tail. */
struct ring_consumer {
    struct ring_shared *shared;
    const uint8_t *data;
    uint64_t data_bytes;
    uint64_t head;     /* the end of the consumed records */
    uint64_t released; /* the end of what the producer may overwrite: the value of shared->head */
    uint64_t tail;     /* shared->tail when last loaded */
    uint64_t peeked;   /* bytes of the record last peeked, header and padding included; 0: none to consume */
    uint64_t wakes;    /* wake-ups sent */
    int wake_fd;
    bool broken;
};

/* Gives a memfd its size and makes it an empty ring. `data_bytes` is a power of two within the limits above. The size
 * is sealed if the memfd allows sealing; memory is allocated as it is written to. The memfd must not be mapped by
 * anybody. Returns 0, or -1 and errno. */
int ring_format(int fd, uint64_t data_bytes, uint64_t epoch);

/* Map a formatted ring as its only producer, or its only consumer, which continues where the previous one stopped.
 * `wake_fd` is the eventfd that the other side sleeps on (-1: it never sleeps) and must stay open as long as the ring.
 * Return 0, or -1 and errno: EINVAL if this is not a ring of this version or its size is not what its header says. */
int ring_producer_open(struct ring_producer *producer, int fd, int wake_fd);
int ring_consumer_open(struct ring_consumer *consumer, int fd, int wake_fd);
void ring_producer_close(struct ring_producer *producer);
void ring_consumer_close(struct ring_consumer *consumer);

static inline uint64_t ring_epoch(const struct ring_shared *shared) {
    return shared->identity.epoch;
}

/* The bytes that a record takes in the ring. */
static inline uint64_t ring_record_bytes(uint64_t payload_bytes) {
    return sizeof(struct ring_record) + ((payload_bytes + 7) & ~(uint64_t)7);
}

/* The largest payload of one record, which with its header takes a quarter of the ring. */
static inline uint64_t ring_max_payload(uint64_t data_bytes) {
    return data_bytes / 4 - sizeof(struct ring_record);
}

/* --- Producer ----------------------------------------------------------------------------------------------------- */

/* Loads the consumer's index. True if there is room for a record of `record_bytes` now. */
bool ring_producer_look(struct ring_producer *producer, uint64_t record_bytes);

/* Breaks the ring for this side. */
void ring_producer_break(struct ring_producer *producer);

/* Returns room for the payload of one record, or NULL if there is none now. ring_commit completes the record; a second
 * ring_reserve before that replaces the first. */
static inline void *ring_reserve(struct ring_producer *producer, uint64_t payload_bytes) {
    assert(payload_bytes <= ring_max_payload(producer->data_bytes));
    uint64_t bytes = ring_record_bytes(payload_bytes);
    if (producer->tail - producer->head + bytes > producer->data_bytes && !ring_producer_look(producer, bytes))
        return NULL;
    producer->reserved = payload_bytes;
    return producer->data + (producer->tail & (producer->data_bytes - 1)) + sizeof(struct ring_record);
}

enum { RING_LINE_BYTES = 64, RING_FETCH_BYTES = 1024 };

/* Fetches the next lines for writing before they are needed. They are in the cache of the consumer's core, which read
 * them last, and a processor stalls when many stores wait for such lines. Lines that are still to be read are not
 * fetched. */
void ring_fetch(struct ring_producer *producer);

/* Completes the record reserved last. The consumer does not see it yet. */
static inline void ring_commit(struct ring_producer *producer, uint32_t flags) {
    const uint64_t at = producer->tail, tail = at + ring_record_bytes(producer->reserved);
    struct ring_record *record = (struct ring_record *)(void *)(producer->data + (at & (producer->data_bytes - 1)));
    record->bytes = (uint32_t)producer->reserved;
    record->flags = flags;
    assert(tail - producer->head <= producer->data_bytes);
    producer->tail = tail;
    if (producer->fetched < tail + RING_FETCH_BYTES) ring_fetch(producer);
}

/* Makes the record at `place` of the stream, which was committed last and is not published, `bytes` longer, and returns
 * where these bytes begin; they are committed. Its payload and `bytes` are multiples of 8 bytes. NULL: no room now, or
 * too large. */
static inline void *ring_extend(struct ring_producer *producer, uint64_t place, uint64_t bytes) {
    uint8_t *at = producer->data + (place & (producer->data_bytes - 1));
    struct ring_record *record = (struct ring_record *)(void *)at;
    const uint64_t payload_bytes = record->bytes;
    assert(place >= producer->published && place + sizeof *record + payload_bytes == producer->tail && bytes % 8 == 0);
    if (payload_bytes + bytes > ring_max_payload(producer->data_bytes)) return NULL;
    if (producer->tail - producer->head + bytes > producer->data_bytes && !ring_producer_look(producer, bytes))
        return NULL;
    record->bytes += (uint32_t)bytes;
    producer->tail += bytes;
    if (producer->fetched < producer->tail + RING_FETCH_BYTES) ring_fetch(producer);
    return at + sizeof *record + payload_bytes;
}

/* Makes everything committed before `tail` (a value that producer->tail had) visible, and wakes the consumer if it
 * sleeps. False if there was nothing new. */
bool ring_publish_to(struct ring_producer *producer, uint64_t tail);
/* The same without waking the consumer. */
bool ring_show_to(struct ring_producer *producer, uint64_t tail);
/* Wakes the consumer if it sleeps and has not given back all that it may see. */
void ring_wake(struct ring_producer *producer);
static inline bool ring_publish(struct ring_producer *producer) {
    return ring_publish_to(producer, producer->tail);
}

/* For a consumer that outlives this process: what has been committed is whole, and answers what came in the other ring
 * before `done`, and so much of the record there. All of that is noted at once: who dies has said both or neither. */
static inline void ring_note(struct ring_producer *producer, uint64_t done, uint32_t begun) {
    struct ring_shared *shared = producer->shared;
    const uint64_t noted = ++producer->noted;
    /* Nobody reads the other note: the last one counts until this one does. */
    shared->notes[noted % 2] = (struct ring_note){.committed = producer->tail, .done = done, .begun = begun};
    /* release: whoever sees this sees the note, and the records before it; pairs with the acquire in ring_noted. */
    atomic_store_explicit(&shared->noted, noted, memory_order_release);
}

/* When the consumer is gone: returns one after the other the records from `done` on that it has not given back. *at is
 * where to continue, 0 at first. NULL after the last, or when the consumer's index, or a record, is invalid. */
const void *ring_unreleased(struct ring_producer *producer, uint64_t done, uint64_t *at, uint32_t *payload_bytes,
                            uint32_t *flags);

/* Sets the flag that the producer sleeps until there is more room than it has seen. False, with no flag: there is. */
bool ring_producer_may_sleep(struct ring_producer *producer);
void ring_producer_awake(struct ring_producer *producer);

/* --- Consumer ----------------------------------------------------------------------------------------------------- */

/* Loads the producer's index. True if there is something to read. */
bool ring_consumer_look(struct ring_consumer *consumer);

/* Breaks the ring for this side. */
void ring_consumer_break(struct ring_consumer *consumer);

/* Returns the payload of the next record, its length and flags, or NULL if there is none now (or the ring is broken).
 * It stays readable until the ring_release after its ring_consume. */
static inline const void *ring_peek(struct ring_consumer *consumer, uint32_t *payload_bytes, uint32_t *flags) {
    if (consumer->head == consumer->tail && !ring_consumer_look(consumer)) return NULL;
    const struct ring_record *record =
        (const struct ring_record *)(const void *)(consumer->data + (consumer->head & (consumer->data_bytes - 1)));
    /* No atomic: the load of the tail has ordered this. Volatile so that the length that is checked and used comes from
     * one load, even if the other side has gone wrong and still writes here. */
    uint32_t bytes = *(const volatile uint32_t *)&record->bytes;
    uint64_t whole = ring_record_bytes(bytes);
    if (whole > consumer->tail - consumer->head) {
        ring_consumer_break(consumer);
        return NULL;
    }
    consumer->peeked = whole;
    *payload_bytes = bytes;
    *flags = record->flags;
    return record + 1;
}

/* Consumes the record peeked last. */
static inline void ring_consume(struct ring_consumer *consumer) {
    assert(consumer->peeked != 0 && consumer->peeked <= consumer->tail - consumer->head);
    consumer->head += consumer->peeked;
    consumer->peeked = 0;
}

/* Gives the room of all consumed records back, and wakes the producer if it waits for room. False if there was none. */
bool ring_release(struct ring_consumer *consumer);
/* The same for those before a place. */
bool ring_release_to(struct ring_consumer *consumer, uint64_t place);
/* Where the last consumed record begins, or where all ends if its room has been given back. */
uint64_t ring_last(const struct ring_consumer *consumer);

/* When the producer is gone: its last note; all zeros if there is none. */
struct ring_note ring_noted(const struct ring_consumer *consumer);
/* When the producer is gone: makes visible what it had committed, as far as it has noted that. Its last record may have
 * been growing since (ring_extend), and is left out then. False if there is nothing. */
bool ring_take_unpublished(struct ring_consumer *consumer);

/* Sets the flag that the consumer sleeps until something is published. False, with no flag: there is something. */
bool ring_consumer_may_sleep(struct ring_consumer *consumer);
void ring_consumer_awake(struct ring_consumer *consumer);

#endif

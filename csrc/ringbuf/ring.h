/* A ring: a single-producer single-consumer queue of records in shared memory. See channel.h for messages on it.
 *
 * A ring is a memfd that somebody formats once (ring_format) and two processes map: one as its producer, one as its
 * consumer. It owns nothing else: no descriptor is kept, `wake_fd` is borrowed. It must never block, allocate after
 * it has been opened, or read outside its mapping, whatever the other side has written.
 *
 * The memfd, in bytes (every word that one side writes has 128 bytes for itself: two lines, because the prefetcher
 * fetches lines in pairs):
 *
 *      0 | magic 8 | version 4 | header_bytes 4 | data_bytes 8 | epoch 8 | check 8 |   ring_format, then never again
 *    128 | tail 8              |   producer: all records before it are there to read
 *    256 | head 8              |   consumer: all bytes before it may be overwritten
 *    384 | consumer_asleep 4   |   consumer sets it before it sleeps; who clears it wakes, or is, the consumer
 *    512 | producer_waiting 4  |   producer sets it before it sleeps for want of room; likewise
 *   4096 | data, data_bytes: a power of two
 *
 * In memory the data follows itself, so that a record that runs over the end is contiguous all the same:
 *
 *        | header | data | the same data |
 *
 * head and tail count bytes from 0 and never wrap; the offset in the data is the count modulo data_bytes. A record:
 *
 *        | bytes 4 | flags 4 | payload, `bytes` of it, zero to seven bytes of padding |      8-byte aligned
 *
 * Order. The producer writes records beyond the published tail and then stores the tail (release); the consumer loads
 * the tail (acquire) and reads them. The consumer stores the head (release) when it is done with bytes; the producer
 * loads it (acquire) before it overwrites them. Neither loads the other's index while its copy of it is good enough.
 *
 * Sleep. Who is about to sleep sets its flag, passes a full fence and looks at the other's index once more; who moves
 * an index stores it, passes a full fence and looks at the flag. One of the two must see the other (Dekker). The flag
 * is taken by an exchange, so one sleep costs at most one wake-up.
 *
 * Trust. Each side checks what it loads: an index that goes backwards or beyond what is possible, or a record that is
 * longer than what was published, breaks the ring for that side: it finds nothing more in it. The payload itself is
 * read where it lies and is for the user of the ring to check.
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
#define RING_VERSION        1u
#define RING_HEADER_BYTES   4096u
#define RING_MIN_DATA_BYTES ((uint64_t)4096)
#define RING_MAX_DATA_BYTES ((uint64_t)1 << 30)

/* Written once by ring_format. */
struct ring_identity {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t data_bytes;
    uint64_t epoch; /* which incarnation of a pair of processes the ring belongs to; means nothing to the ring */
    uint64_t check; /* FNV-1a of the 32 bytes before */
};

struct ring_shared {
    struct ring_identity identity;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint32_t consumer_asleep;
    _Alignas(128) _Atomic uint32_t producer_waiting;
};

struct ring_record {
    uint32_t bytes; /* of the payload that follows, without padding */
    uint32_t flags; /* the user's */
};

_Static_assert(sizeof(struct ring_identity) == 40, "shared between processes");
_Static_assert(offsetof(struct ring_identity, check) == 32, "shared between processes");
_Static_assert(offsetof(struct ring_shared, tail) == 128, "shared between processes");
_Static_assert(offsetof(struct ring_shared, head) == 256, "shared between processes");
_Static_assert(offsetof(struct ring_shared, consumer_asleep) == 384, "shared between processes");
_Static_assert(offsetof(struct ring_shared, producer_waiting) == 512, "shared between processes");
_Static_assert(sizeof(struct ring_shared) <= RING_HEADER_BYTES, "the header is one page");
_Static_assert(sizeof(struct ring_record) == 8, "payloads are 8-byte aligned");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "a lock would be private to a process");

/* The producer's half; all of it is private to the producer's process. published <= tail, head <= published. */
struct ring_producer {
    struct ring_shared *shared;
    uint8_t *data;
    uint64_t data_bytes;
    uint64_t tail;      /* the end of what was committed */
    uint64_t published; /* the end of what the consumer may see: what shared->tail holds */
    uint64_t head;      /* shared->head when last loaded */
    uint64_t reserved;  /* payload bytes of the reservation that ring_commit completes */
    uint64_t fetched;   /* the lines before it have been fetched for writing */
    uint64_t wakes;     /* wake-ups sent */
    int wake_fd;
    bool broken;
};

/* The consumer's half. released <= head <= tail. */
struct ring_consumer {
    struct ring_shared *shared;
    const uint8_t *data;
    uint64_t data_bytes;
    uint64_t head;     /* the end of what was consumed */
    uint64_t released; /* the end of what the producer may overwrite: what shared->head holds */
    uint64_t tail;     /* shared->tail when last loaded */
    uint64_t peeked;   /* bytes of the record last peeked, header and padding included; 0: none to consume */
    uint64_t wakes;    /* wake-ups sent */
    int wake_fd;
    bool broken;
};

/* Gives a memfd its size and makes it an empty ring. `data_bytes` is a power of two within the limits above. Its size is
 * sealed if the memfd allows sealing; memory comes when it is written to. 0, or -1 and errno. Nobody may have it
 * mapped. */
int ring_format(int fd, uint64_t data_bytes, uint64_t epoch);

/* Map a formatted ring as its one producer, or its one consumer, going on where the last one stopped. `wake_fd` is the
 * eventfd that the other side sleeps on (-1: it never sleeps) and must stay open as long as the ring. 0, or -1 and
 * errno: EINVAL when it is not a ring of this version or its size is not what its header says. */
int ring_producer_open(struct ring_producer *producer, int fd, int wake_fd);
int ring_consumer_open(struct ring_consumer *consumer, int fd, int wake_fd);
void ring_producer_close(struct ring_producer *producer);
void ring_consumer_close(struct ring_consumer *consumer);

static inline uint64_t ring_epoch(const struct ring_shared *shared) {
    return shared->identity.epoch;
}

/* What a record occupies. */
static inline uint64_t ring_record_bytes(uint64_t payload_bytes) {
    return sizeof(struct ring_record) + ((payload_bytes + 7) & ~(uint64_t)7);
}

/* The largest payload of one record: with its header it takes a quarter of the ring. */
static inline uint64_t ring_max_payload(uint64_t data_bytes) {
    return data_bytes / 4 - sizeof(struct ring_record);
}

/* --- Producer ----------------------------------------------------------------------------------------------------- */

/* Loads the consumer's index. True if there is room for a record of `record_bytes` now. */
bool ring_producer_look(struct ring_producer *producer, uint64_t record_bytes);

/* Breaks the ring for this side. */
void ring_producer_break(struct ring_producer *producer);

/* Room for the payload of one record, or NULL if there is none now. Completed by ring_commit; a second ring_reserve
 * before that replaces the first. */
static inline void *ring_reserve(struct ring_producer *producer, uint64_t payload_bytes) {
    assert(payload_bytes <= ring_max_payload(producer->data_bytes));
    uint64_t bytes = ring_record_bytes(payload_bytes);
    if (producer->tail - producer->head + bytes > producer->data_bytes && !ring_producer_look(producer, bytes))
        return NULL;
    producer->reserved = payload_bytes;
    return producer->data + (producer->tail & (producer->data_bytes - 1)) + sizeof(struct ring_record);
}

enum { RING_LINE_BYTES = 64, RING_FETCH_BYTES = 1024 };

/* The lines that come next are in the cache of the consumer's core, which read them last, and a processor that has many
 * stores waiting for such lines waits too. So they are fetched before they are needed; none that is still to be read. */
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

/* Room for `bytes` more at the end of the record that was committed last and nobody has seen, at `place` of the stream. Both its
 * payload and these are a multiple of 8 bytes. NULL if there is none now, or it would be too large. They are committed. */
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
 * sleeps. False if that was nothing new. */
bool ring_publish_to(struct ring_producer *producer, uint64_t tail);
static inline bool ring_publish(struct ring_producer *producer) {
    return ring_publish_to(producer, producer->tail);
}

/* What the consumer has not given back: its records one after the other, for when it is gone. *at is where to go on, 0 at
 * first. NULL behind the last, or when its index makes no sense. */
const void *ring_unreleased(struct ring_producer *producer, uint64_t *at, uint32_t *payload_bytes, uint32_t *flags);

/* Says that the producer sleeps until there is more room than it has seen; false, and nothing said, if there is. */
bool ring_producer_may_sleep(struct ring_producer *producer);
void ring_producer_awake(struct ring_producer *producer);

/* --- Consumer ----------------------------------------------------------------------------------------------------- */

/* Loads the producer's index. True if there is something to read. */
bool ring_consumer_look(struct ring_consumer *consumer);

/* Breaks the ring for this side. */
void ring_consumer_break(struct ring_consumer *consumer);

/* The payload of the next record, its length and flags, or NULL if there is none now (or the ring is broken). It stays
 * readable until the ring_release after its ring_consume. */
static inline const void *ring_peek(struct ring_consumer *consumer, uint32_t *payload_bytes, uint32_t *flags) {
    if (consumer->head == consumer->tail && !ring_consumer_look(consumer)) return NULL;
    const struct ring_record *record =
        (const struct ring_record *)(const void *)(consumer->data + (consumer->head & (consumer->data_bytes - 1)));
    /* Relaxed atomics would say no more: the load of the tail has ordered this; volatile so that what is checked and
     * what is used are one load, in case the other side has gone mad and still writes here. */
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

/* Goes past the record peeked last. */
static inline void ring_consume(struct ring_consumer *consumer) {
    assert(consumer->peeked != 0 && consumer->peeked <= consumer->tail - consumer->head);
    consumer->head += consumer->peeked;
    consumer->peeked = 0;
}

/* Gives the room of everything consumed back, and wakes the producer if it waits for room. False if that was nothing
 * new. */
bool ring_release(struct ring_consumer *consumer);

/* Says that the consumer sleeps until something new is published; false, and nothing said, if something is there. */
bool ring_consumer_may_sleep(struct ring_consumer *consumer);
void ring_consumer_awake(struct ring_consumer *consumer);

#endif

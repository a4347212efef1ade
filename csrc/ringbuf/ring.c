#define _GNU_SOURCE
#include "ringbuf/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t identity_check(const struct ring_identity *identity) {
    const uint8_t *bytes = (const uint8_t *)identity;
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < offsetof(struct ring_identity, check); i++) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
    return hash;
}

static bool data_bytes_valid(uint64_t data_bytes) {
    return data_bytes >= RING_MIN_DATA_BYTES && data_bytes <= RING_MAX_DATA_BYTES &&
           (data_bytes & (data_bytes - 1)) == 0;
}

int ring_format(int fd, uint64_t data_bytes, uint64_t epoch) {
    if (!data_bytes_valid(data_bytes)) {
        errno = EINVAL;
        return -1;
    }
    if (ftruncate(fd, (off_t)(RING_HEADER_BYTES + data_bytes)) != 0) return -1;
    struct ring_identity identity = {
        .magic = RING_MAGIC,
        .version = RING_VERSION,
        .header_bytes = RING_HEADER_BYTES,
        .data_bytes = data_bytes,
        .epoch = epoch,
    };
    identity.check = identity_check(&identity);
    uint8_t page[RING_HEADER_BYTES] = {0};
    memcpy(page, &identity, sizeof identity);
    ssize_t written = pwrite(fd, page, sizeof page, 0);
    if (written != (ssize_t)sizeof page) {
        if (written >= 0) errno = EIO;
        return -1;
    }
    /* Otherwise a peer that truncates the file kills every process that maps it. This fails for a memfd made without
     * MFD_ALLOW_SEALING; the ring works all the same. */
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    return 0;
}

/* Reads the identity of the ring in `fd`, and checks it against itself and the size of the file. */
static int read_identity(int fd, struct ring_identity *identity) {
    struct stat status;
    if (fstat(fd, &status) != 0) return -1;
    ssize_t got = pread(fd, identity, sizeof *identity, 0);
    if (got < 0) return -1;
    if (got != (ssize_t)sizeof *identity || identity->magic != RING_MAGIC || identity->version != RING_VERSION ||
        identity->header_bytes != RING_HEADER_BYTES || !data_bytes_valid(identity->data_bytes) ||
        identity->check != identity_check(identity) ||
        (uint64_t)status.st_size != RING_HEADER_BYTES + identity->data_bytes) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

static size_t mapping_bytes(uint64_t data_bytes) {
    return (size_t)(RING_HEADER_BYTES + 2 * data_bytes);
}

/* Maps header and data, and the data once more right behind. NULL and errno. */
static struct ring_shared *ring_map(int fd, uint64_t *data_bytes) {
    struct ring_identity identity;
    if (read_identity(fd, &identity) != 0) return NULL;
    size_t once = (size_t)(RING_HEADER_BYTES + identity.data_bytes);
    size_t twice = mapping_bytes(identity.data_bytes);
    /* Reserves the addresses first, so that nothing else can be mapped between the two. */
    uint8_t *base = mmap(NULL, twice, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return NULL;
    int flags = MAP_SHARED | MAP_FIXED;
    if (mmap(base, once, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED ||
        mmap(base + once, (size_t)identity.data_bytes, PROT_READ | PROT_WRITE, flags, fd, RING_HEADER_BYTES) ==
            MAP_FAILED) {
        int error = errno;
        munmap(base, twice);
        errno = error;
        return NULL;
    }
    *data_bytes = identity.data_bytes;
    return (struct ring_shared *)(void *)base;
}

/* Maps the ring and loads both indexes, where a newly opened half begins. Only the other side may be at work already. A
 * consumer moves its index towards this side's, a producer moves it no further away than data_bytes, so both are valid
 * whenever they are loaded. NULL and errno. */
static struct ring_shared *ring_open(int fd, uint64_t *data_bytes, uint64_t *head, uint64_t *tail) {
    struct ring_shared *shared = ring_map(fd, data_bytes);
    if (shared == NULL) return NULL;
    /* acquire: as for every later load, as a consumer then reads records and a producer overwrites them. */
    *head = atomic_load_explicit(&shared->head, memory_order_acquire);
    *tail = atomic_load_explicit(&shared->tail, memory_order_acquire);
    if (((*head | *tail) & 7) == 0 && *tail - *head <= *data_bytes) return shared;
    munmap(shared, mapping_bytes(*data_bytes));
    errno = EINVAL;
    return NULL;
}

int ring_producer_open(struct ring_producer *producer, int fd, int wake_fd) {
    uint64_t data_bytes, head, tail;
    struct ring_shared *shared = ring_open(fd, &data_bytes, &head, &tail);
    if (shared == NULL) return -1;
    *producer = (struct ring_producer){
        .shared = shared,
        .data = (uint8_t *)shared + RING_HEADER_BYTES,
        .data_bytes = data_bytes,
        .tail = tail,
        .published = tail,
        .head = head,
        .wake_fd = wake_fd,
    };
    ring_producer_awake(producer);
    return 0;
}

int ring_consumer_open(struct ring_consumer *consumer, int fd, int wake_fd) {
    uint64_t data_bytes, head, tail;
    struct ring_shared *shared = ring_open(fd, &data_bytes, &head, &tail);
    if (shared == NULL) return -1;
    *consumer = (struct ring_consumer){
        .shared = shared,
        .data = (const uint8_t *)shared + RING_HEADER_BYTES,
        .data_bytes = data_bytes,
        .head = head,
        .released = head,
        .tail = tail,
        .wake_fd = wake_fd,
    };
    ring_consumer_awake(consumer);
    return 0;
}

void ring_producer_close(struct ring_producer *producer) {
    if (producer->shared != NULL) munmap(producer->shared, mapping_bytes(producer->data_bytes));
    producer->shared = NULL;
    producer->data = NULL;
}

void ring_consumer_close(struct ring_consumer *consumer) {
    if (consumer->shared != NULL) munmap(consumer->shared, mapping_bytes(consumer->data_bytes));
    consumer->shared = NULL;
    consumer->data = NULL;
}

/* Wakes the other side if its flag says that it sleeps. To be called after an index was stored. */
static bool wake_if_asleep(_Atomic uint32_t *asleep, int wake_fd) {
    /* seq_cst: the store of the index must not be passed by the load of the flag, or both sides could miss each
     * other; pairs with the fence in say_asleep. */
    atomic_thread_fence(memory_order_seq_cst);
    /* relaxed: ordered by the fence. A load before the exchange keeps the line shared while nobody sleeps, as usual. */
    if (atomic_load_explicit(asleep, memory_order_relaxed) == 0) return false;
    /* relaxed: the flag guards no data. Exchange: only one wake-up is sent for a sleep. The flag may be from a later
     * sleep than the one seen above; then that sleep is interrupted in vain, but no wake-up is lost. */
    if (atomic_exchange_explicit(asleep, 0, memory_order_relaxed) == 0) return false;
    uint64_t one = 1;
    /* A valid eventfd fails only with EAGAIN: its counter is full, so the other side is woken anyway. */
    ssize_t written = write(wake_fd, &one, sizeof one);
    (void)written;
    return true;
}

static void say_asleep(_Atomic uint32_t *asleep) {
    /* relaxed: the fence orders it. */
    atomic_store_explicit(asleep, 1, memory_order_relaxed);
    /* seq_cst: the load of the other side's index, which follows, must not come before the flag is visible; pairs with
     * the fence in wake_if_asleep. */
    atomic_thread_fence(memory_order_seq_cst);
}

static void say_awake(_Atomic uint32_t *asleep) {
    /* relaxed, both: if seen late, it costs only a needless wake-up. The flag is loaded first so that the line stays
     * shared when the other side has cleared it. */
    if (atomic_load_explicit(asleep, memory_order_relaxed) != 0) atomic_store_explicit(asleep, 0, memory_order_relaxed);
}

/* --- Producer ----------------------------------------------------------------------------------------------------- */

void ring_producer_break(struct ring_producer *producer) {
    producer->broken = true;
    /* So that it has no room. */
    producer->head = producer->tail - producer->data_bytes;
}

/* Fetches half as much again as required, so that not each record fetches. */
void ring_fetch(struct ring_producer *producer) {
    const uint64_t limit = producer->head + producer->data_bytes;
    uint64_t until = producer->tail + RING_FETCH_BYTES + RING_FETCH_BYTES / 2, at = producer->fetched;
    if (until > limit) until = limit;
    if (at < producer->tail) at = producer->tail & ~(uint64_t)(RING_LINE_BYTES - 1);
    /* The data is mapped twice, so the lines are contiguous. */
    for (const uint8_t *line = producer->data + (at & (producer->data_bytes - 1)); at < until;
         at += RING_LINE_BYTES, line += RING_LINE_BYTES) {
#ifdef __x86_64__
        /* Not the builtin, which fetches for reading unless all target processors know prefetchw; others ignore it. */
        __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
        __builtin_prefetch(line, 1);
#endif
    }
    producer->fetched = at;
}

bool ring_producer_look(struct ring_producer *producer, uint64_t record_bytes) {
    if (producer->broken) return false;
    /* acquire: what the consumer read before it gave the bytes back must have been read before they are overwritten;
     * pairs with the release in ring_release. */
    uint64_t head = atomic_load_explicit(&producer->shared->head, memory_order_acquire);
    if (head - producer->head > producer->published - producer->head || (head & 7) != 0) {
        ring_producer_break(producer);
        return false;
    }
    producer->head = head;
    return producer->tail - head + record_bytes <= producer->data_bytes;
}

bool ring_show_to(struct ring_producer *producer, uint64_t tail) {
    assert(tail - producer->published <= producer->tail - producer->published);
    if (tail == producer->published) return false;
    producer->published = tail;
    /* release: whoever sees this tail sees the records before it; pairs with the acquire in ring_consumer_look. */
    atomic_store_explicit(&producer->shared->tail, tail, memory_order_release);
    return true;
}

void ring_wake(struct ring_producer *producer) {
    /* relaxed: if seen late, it costs only a needless wake-up. */
    if (atomic_load_explicit(&producer->shared->head, memory_order_relaxed) == producer->published) return;
    if (wake_if_asleep(&producer->shared->consumer_asleep, producer->wake_fd)) producer->wakes++;
}

bool ring_publish_to(struct ring_producer *producer, uint64_t tail) {
    if (!ring_show_to(producer, tail)) return false;
    if (wake_if_asleep(&producer->shared->consumer_asleep, producer->wake_fd)) producer->wakes++;
    return true;
}

bool ring_producer_may_sleep(struct ring_producer *producer) {
    if (producer->broken) return true;
    say_asleep(&producer->shared->producer_waiting);
    /* relaxed: only compared; ring_producer_look loads it anew before anything is overwritten. */
    if (atomic_load_explicit(&producer->shared->head, memory_order_relaxed) == producer->head) return true;
    ring_producer_awake(producer);
    return false;
}

void ring_producer_awake(struct ring_producer *producer) {
    say_awake(&producer->shared->producer_waiting);
}

const void *ring_unreleased(struct ring_producer *producer, uint64_t done, uint64_t *at, uint32_t *payload_bytes,
                            uint32_t *flags) {
    if (*at == 0) {
        (void)ring_producer_look(producer, 0);
        *at = done > producer->head ? done : producer->head;
        if ((*at & 7) != 0) ring_producer_break(producer);
    }
    if (producer->broken || *at >= producer->tail) return NULL;
    const struct ring_record *record =
        (const struct ring_record *)(const void *)(producer->data + (*at & (producer->data_bytes - 1)));
    if (ring_record_bytes(record->bytes) > producer->tail - *at) {
        ring_producer_break(producer);
        return NULL;
    }
    *payload_bytes = record->bytes;
    *flags = record->flags;
    *at += ring_record_bytes(record->bytes);
    return record + 1;
}

/* --- Consumer ----------------------------------------------------------------------------------------------------- */

void ring_consumer_break(struct ring_consumer *consumer) {
    consumer->broken = true;
    /* Records published before are not trusted any more either. */
    consumer->tail = consumer->head;
    consumer->peeked = 0;
}

bool ring_consumer_look(struct ring_consumer *consumer) {
    if (consumer->broken) return false;
    /* acquire: the records before this tail are read after it was loaded; pairs with the release in ring_publish_to. */
    uint64_t tail = atomic_load_explicit(&consumer->shared->tail, memory_order_acquire);
    uint64_t known = consumer->tail - consumer->released;
    uint64_t published = tail - consumer->released;
    if (published < known || published > consumer->data_bytes || (tail & 7) != 0) {
        ring_consumer_break(consumer);
        return false;
    }
    consumer->tail = tail;
    return tail != consumer->head;
}

struct ring_note ring_noted(const struct ring_consumer *consumer) {
    /* acquire: pairs with the release in ring_note. */
    return consumer->shared->notes[atomic_load_explicit(&consumer->shared->noted, memory_order_acquire) % 2];
}

bool ring_take_unpublished(struct ring_consumer *consumer) {
    (void)ring_consumer_look(consumer);
    if (consumer->broken) return false;
    const uint64_t committed = ring_noted(consumer).committed;
    if (committed <= consumer->tail || committed - consumer->released > consumer->data_bytes || (committed & 7) != 0)
        return false;
    uint64_t at = consumer->tail;
    while (at < committed) {
        const struct ring_record *record =
            (const struct ring_record *)(const void *)(consumer->data + (at & (consumer->data_bytes - 1)));
        const uint64_t whole = ring_record_bytes(record->bytes);
        if (whole > committed - at) break;
        at += whole;
    }
    /* relaxed: nobody else writes or reads it any more. */
    atomic_store_explicit(&consumer->shared->tail, at, memory_order_relaxed);
    return ring_consumer_look(consumer);
}

bool ring_release_to(struct ring_consumer *consumer, uint64_t place) {
    assert(place >= consumer->released && place <= consumer->head);
    if (place == consumer->released) return false;
    consumer->released = place;
    /* release: all reads of these bytes are done before the producer can take them; pairs with the acquire in
     * ring_producer_look. */
    atomic_store_explicit(&consumer->shared->head, place, memory_order_release);
    if (wake_if_asleep(&consumer->shared->producer_waiting, consumer->wake_fd)) consumer->wakes++;
    return true;
}

bool ring_release(struct ring_consumer *consumer) {
    return ring_release_to(consumer, consumer->head);
}

uint64_t ring_last(const struct ring_consumer *consumer) {
    uint64_t last = consumer->released;
    for (uint64_t next = last; next < consumer->head;) {
        const uint8_t *at = consumer->data + (next & (consumer->data_bytes - 1));
        last = next;
        next += ring_record_bytes(((const struct ring_record *)(const void *)at)->bytes);
    }
    return last;
}

bool ring_consumer_may_sleep(struct ring_consumer *consumer) {
    if (consumer->broken) return true;
    if (consumer->head != consumer->tail) return false;
    say_asleep(&consumer->shared->consumer_asleep);
    if (!ring_consumer_look(consumer)) return true;
    ring_consumer_awake(consumer);
    return false;
}

void ring_consumer_awake(struct ring_consumer *consumer) {
    say_awake(&consumer->shared->consumer_asleep);
}

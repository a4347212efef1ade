#define _GNU_SOURCE
#include "ringbuf/channel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ringbuf/channel_state.h"

/* An overflow chunk's usual size, so that many small messages share one. */
#define CHUNK_BYTES ((size_t)64 << 10)

/* How many empty chunks are kept at most, and for how long without need. */
enum { MOST_SPARES = 64 };
#define SPARES_KEPT_NS ((uint64_t)1000000000)

/* How much of the lane is moved at a time, and the most that may wait in it before the channel counts as backlogged. */
#define LANE_BYTES ((size_t)1 << 20)

/* What each lent body adds to the lane's bytes, as the number of mappings of a process is limited. */
#define LENT_BYTES ((size_t)4 << 10)

/* A message's two parts, which are cut into fragments as if they were contiguous. */
struct parts {
    const struct message *header;
    const uint8_t *body;
};

/* How much of a header is sent: without a body, not the zeros at its end. */
static size_t said_bytes(const struct message *header, size_t body_bytes) {
    if (body_bytes > 0 || header->ttr_ns != 0) return sizeof *header;
    if (header->delay_ns != 0) return offsetof(struct message, ttr_ns);
    return header->pri != 0 ? offsetof(struct message, delay_ns) : offsetof(struct message, pri);
}
_Static_assert(offsetof(struct message, pri) == SHORTEST_MESSAGE && offsetof(struct message, body_bytes) == 28 &&
                   offsetof(struct message, delay_ns) == 32 && offsetof(struct message, ttr_ns) == 40,
               "a head ends at a multiple of 8 bytes");

static void copy_part(uint8_t *to, const struct parts *parts, size_t offset, size_t bytes) {
    if (offset < sizeof(struct message)) {
        size_t of_header = sizeof(struct message) - offset;
        if (of_header > bytes) of_header = bytes;
        memcpy(to, (const uint8_t *)parts->header + offset, of_header);
        to += of_header;
        offset += of_header;
        bytes -= of_header;
    }
    if (bytes > 0) memcpy(to, parts->body + (offset - sizeof(struct message)), bytes);
}

static void free_chunk(struct chunk *chunk) {
    if (chunk->lending != NULL) {
        const struct lent *lent = &chunk->lending->lent;
        lent->give_back(lent->owner, lent->at, lent->bytes);
        free(chunk->lending);
    }
    free(chunk);
}

static void keep_spare(struct channel *channel, struct chunk *chunk) {
    chunk->next = channel->spares;
    channel->spares = chunk;
    channel->spare_count++;
}

static struct chunk *take_spare(struct channel *channel) {
    struct chunk *chunk = channel->spares;
    if (chunk == NULL) return NULL;
    channel->spares = chunk->next;
    channel->spare_count--;
    if (channel->spares_least > channel->spare_count) channel->spares_least = channel->spare_count;
    return chunk;
}

size_t channel_trim(struct channel *channel, uint64_t now_ns) {
    if (now_ns - channel->spares_since_ns < SPARES_KEPT_NS) return 0;
    size_t freed = 0;
    for (uint32_t unused = channel->spares_least; unused > 0; unused--) {
        free(take_spare(channel));
        freed += CHUNK_BYTES;
    }
    channel->spares_least = channel->spare_count;
    channel->spares_since_ns = now_ns;
    return freed;
}

/* Chunks of the usual size are kept, so that a ring that is often full does not ask for memory each time. */
static void drop_first(struct channel *channel, struct queue *queue) {
    struct chunk *chunk = queue->first;
    queue->first = chunk->next;
    if (queue->first == NULL) queue->last = NULL;
    if (channel->spare_count < MOST_SPARES && chunk->lending == NULL && chunk->capacity == CHUNK_BYTES)
        keep_spare(channel, chunk);
    else
        free_chunk(chunk);
}

static void free_queues(struct channel *channel) {
    while (channel->overflow.first != NULL) drop_first(channel, &channel->overflow);
    while (channel->lane.first != NULL) drop_first(channel, &channel->lane);
    while (channel->spares != NULL) free(take_spare(channel));
    channel->counters.overflow_bytes = channel->lane_bytes = 0;
}

/* Neither the overflow nor the assembly is freed here: a caller may still read a message in the latter. */
void channel_break(struct channel *channel) {
    channel->broken = true;
    /* These then have nothing to receive and no room, so that callers need not check for a broken channel. */
    ring_producer_break(&channel->out);
    ring_consumer_break(&channel->in);
}

struct channel *channel_open(int out_fd, int in_fd, int peer_wake_fd, size_t max_message_bytes) {
    struct channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL) return NULL;
    channel->wake_fd = -1;
    channel->max_message_bytes = max_message_bytes;
    int error = 0;
    if (peer_wake_fd >= 0 && (channel->wake_fd = fcntl(peer_wake_fd, F_DUPFD_CLOEXEC, 0)) < 0) error = errno;
    if (error == 0 && ring_producer_open(&channel->out, out_fd, channel->wake_fd) != 0) error = errno;
    if (error == 0 && ring_consumer_open(&channel->in, in_fd, channel->wake_fd) != 0) error = errno;
    if (error != 0) {
        channel_close(channel);
        errno = error;
        return NULL;
    }
    channel->publishable = channel->out.tail;
    return channel;
}

void channel_close(struct channel *channel) {
    if (channel == NULL) return;
    ring_producer_close(&channel->out);
    ring_consumer_close(&channel->in);
    if (channel->wake_fd >= 0) close(channel->wake_fd);
    free_queues(channel);
    channel_free_assembly(channel);
    free(channel->behind.messages);
    free(channel);
}

void channel_hold(struct channel *channel) {
    channel->holds = true;
}

bool channel_broken(const struct channel *channel) {
    return channel->broken || channel->out.broken || channel->in.broken;
}

uint64_t channel_epoch(const struct channel *channel) {
    return ring_epoch(channel->out.shared);
}

struct channel_counters channel_counters(const struct channel *channel) {
    struct channel_counters counters = channel->counters;
    const struct ring_producer *out = &channel->out;
    const struct ring_consumer *in = &channel->in;
    counters.wakes = out->wakes + in->wakes;
    /* Relaxed: only a number to report; the bytes it counts are not read here. */
    counters.in_bytes = atomic_load_explicit(&in->shared->tail, memory_order_relaxed) - in->released;
    counters.out_bytes = out->tail - atomic_load_explicit(&out->shared->head, memory_order_relaxed);
    counters.in_room = in->data_bytes;
    counters.out_room = out->data_bytes;
    return counters;
}

/* --- Sending ------------------------------------------------------------------------------------------------------ */

static void chain(struct queue *queue, struct chunk *chunk) {
    if (queue->last != NULL)
        queue->last->next = chunk;
    else
        queue->first = chunk;
    queue->last = chunk;
}

/* Returns an empty chunk with room for `bytes`; NULL: no memory. */
static struct chunk *new_chunk(struct channel *channel, size_t bytes) {
    const bool usual = bytes <= CHUNK_BYTES;
    const size_t capacity = usual ? CHUNK_BYTES : bytes;
    struct chunk *chunk = usual ? take_spare(channel) : NULL;
    if (chunk == NULL) chunk = malloc(sizeof *chunk + capacity);
    if (chunk != NULL) *chunk = (struct chunk){.capacity = capacity};
    return chunk;
}

/* Returns room for one record at the end of a queue; NULL: no memory. */
static struct ring_record *queue_reserve(struct channel *channel, struct queue *queue, size_t bytes) {
    struct chunk *chunk = queue->last;
    if (chunk == NULL || chunk->capacity - chunk->end < bytes) {
        chunk = new_chunk(channel, bytes);
        if (chunk == NULL) return NULL;
        chain(queue, chunk);
    }
    struct ring_record *record = (struct ring_record *)(void *)((uint8_t *)chunk->bytes + chunk->end);
    chunk->end += bytes;
    return record;
}

static struct ring_record *overflow_reserve(struct channel *channel, size_t bytes) {
    struct ring_record *record = queue_reserve(channel, &channel->overflow, bytes);
    if (record == NULL) return NULL;
    channel->counters.overflow_bytes += bytes;
    if (channel->counters.overflow_bytes > channel->counters.overflow_peak_bytes)
        channel->counters.overflow_peak_bytes = channel->counters.overflow_bytes;
    return record;
}

/* `behind`: into the lane, behind lent bodies. */
static void send_fragment(struct channel *channel, const struct parts *parts, size_t offset, size_t bytes,
                          uint32_t flags, bool behind) {
    /* Into the ring only if the overflow queue is empty, or this would overtake it. */
    if (channel->overflow.first == NULL && !behind) {
        void *payload = ring_reserve(&channel->out, bytes);
        if (payload != NULL) {
            copy_part(payload, parts, offset, bytes);
            ring_commit(&channel->out, flags);
            return;
        }
    }
    size_t whole = (size_t)ring_record_bytes(bytes);
    struct ring_record *record =
        behind ? queue_reserve(channel, &channel->lane, whole) : overflow_reserve(channel, whole);
    if (record == NULL) {
        channel_break(channel);
        return;
    }
    if (behind) channel->lane_bytes += whole;
    *record = (struct ring_record){.bytes = (uint32_t)bytes, .flags = flags};
    copy_part((uint8_t *)(record + 1), parts, offset, bytes);
}

/* Whether a message must go into the lane. If in fragments always, as these would be taken for those of a lent body. */
static bool goes_behind(struct channel *channel, const struct message *header, bool in_fragments) {
    if (channel->lane.first == NULL || (!in_fragments && !behind_has(&channel->behind, header))) return false;
    behind_put(&channel->behind, header);
    return true;
}

/* Sends a message that the ring has no room for now, or that is too large for one record. */
__attribute__((noinline)) static void send_in_pieces(struct channel *channel, const struct message *header,
                                                     const void *body, size_t total) {
    if (channel_broken(channel)) return;
    struct parts parts = {.header = header, .body = body};
    size_t most = (size_t)ring_max_payload(channel->out.data_bytes);
    bool behind = goes_behind(channel, header, total > most);
    if (total <= most) {
        send_fragment(channel, &parts, 0, total, FRAGMENT_WHOLE, behind);
        return;
    }
    for (size_t offset = 0; offset < total;) {
        size_t bytes = total - offset < most ? total - offset : most;
        uint32_t flags = (offset == 0 ? FRAGMENT_FIRST : 0) | (offset + bytes == total ? FRAGMENT_LAST : 0);
        send_fragment(channel, &parts, offset, bytes, flags, behind);
        offset += bytes;
    }
}

/* Returns room for one record in the ring, or NULL. */
static void *record_room(struct channel *channel, size_t bytes) {
    if (channel->overflow.first != NULL || channel->lane.first != NULL) return NULL;
    if (bytes > ring_max_payload(channel->out.data_bytes)) return NULL;
    return ring_reserve(&channel->out, bytes);
}

void channel_send(struct channel *channel, const struct message *header, const void *body, size_t body_bytes) {
    assert(header->body_bytes == body_bytes);
    const size_t head_bytes = said_bytes(header, body_bytes), total = head_bytes + body_bytes;
    uint8_t *place = record_room(channel, total);
    if (place == NULL) {
        send_in_pieces(channel, header, body, total);
        return;
    }
    channel_copy_head(place, header, head_bytes);
    if (body_bytes > 0) memcpy(place + sizeof *header, body, body_bytes);
    ring_commit(&channel->out, FRAGMENT_WHOLE);
}

struct message *channel_reserve(struct channel *channel, size_t body_bytes) {
    if (body_bytes > SIZE_MAX - sizeof(struct message)) return NULL;
    return record_room(channel, sizeof(struct message) + body_bytes);
}

void channel_sent(struct channel *channel) {
    ring_commit(&channel->out, FRAGMENT_WHOLE);
}

void channel_send_prefixed(struct channel *channel, const struct message *header, const void *prefix,
                           size_t prefix_bytes, const void *body, size_t body_bytes) {
    const size_t total = prefix_bytes + body_bytes;
    assert(header->body_bytes == total);
    struct message *place = channel_reserve(channel, total);
    uint8_t *assembled = place != NULL ? (uint8_t *)(place + 1) : malloc(total);
    if (assembled == NULL) {
        channel_break(channel);
        return;
    }
    memcpy(assembled, prefix, prefix_bytes);
    memcpy(assembled + prefix_bytes, body, body_bytes);
    if (place != NULL) {
        *place = *header;
        channel_sent(channel);
        return;
    }
    channel_send(channel, header, assembled, total);
    free(assembled);
}

bool channel_grows(const struct channel *channel, const struct growing *growing) {
    const bool is_last = channel->out.tail == growing->tail && growing->place < growing->tail;
    const bool unseen = growing->place >= channel->publishable;
    return is_last && unseen && channel->overflow.first == NULL && channel->lane.first == NULL;
}

void *channel_grow(struct channel *channel, struct growing *growing, size_t bytes) {
    void *room = ring_extend(&channel->out, growing->place, bytes);
    if (room == NULL) return NULL;
    growing->message->body_bytes += (uint32_t)bytes;
    growing->tail = channel->out.tail;
    return room;
}

/* The largest payload of a fragment of a lent body. */
static size_t lane_payload(const struct channel *channel) {
    size_t most = (size_t)ring_max_payload(channel->out.data_bytes), piece = LANE_BYTES - sizeof(struct ring_record);
    return most < piece ? most : piece;
}

/* How many bytes of the ring a message in fragments takes. */
static size_t fragments_bytes(size_t total, size_t most) {
    size_t whole = total / most, rest = total % most;
    return whole * (size_t)ring_record_bytes(most) + (rest > 0 ? (size_t)ring_record_bytes(rest) : 0);
}

bool channel_lend(struct channel *channel, const struct message *header, const void *body, size_t body_bytes,
                  const struct lent *lent) {
    assert(header->body_bytes == body_bytes);
    size_t most = lane_payload(channel), total = sizeof *header + body_bytes;
    if (channel_broken(channel) || total <= most || !behind_prepare(&channel->behind)) return false;
    struct chunk *chunk = malloc(sizeof *chunk);
    struct lending *lending = malloc(sizeof *lending);
    if (chunk == NULL || lending == NULL) {
        free(chunk);
        free(lending);
        return false;
    }
    *lending = (struct lending){.lent = *lent, .header = *header, .body = body};
    size_t bytes = fragments_bytes(total, most);
    *chunk = (struct chunk){.lending = lending, .capacity = bytes, .end = bytes};
    chain(&channel->lane, chunk);
    channel->lane_bytes += LENT_BYTES;
    behind_put(&channel->behind, header);
    return true;
}

/* Returns those pages to the kernel whose last byte has now been moved. */
static void forget_pages(const struct lending *l, size_t before) {
    const uintptr_t page = 4096;
    size_t head = sizeof l->header, from = before > head ? before - head : 0;
    if (l->moved <= head) return;
    uintptr_t begin = (uintptr_t)(l->body + from) & ~(page - 1);
    uintptr_t end = (uintptr_t)(l->body + (l->moved - head)) & ~(page - 1);
    if (begin < (uintptr_t)l->lent.at) begin += page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Moves the next fragment of a lent body into the ring. Returns the bytes it takes there; 0: no room. */
static size_t move_fragment(struct channel *channel, struct lending *l, size_t bytes) {
    size_t before = l->moved, total = sizeof l->header + l->header.body_bytes;
    void *payload = ring_reserve(&channel->out, bytes);
    if (payload == NULL) return 0;
    const struct parts parts = {.header = &l->header, .body = l->body};
    copy_part(payload, &parts, before, bytes);
    l->moved += bytes;
    ring_commit(&channel->out, (before == 0 ? FRAGMENT_FIRST : 0) | (l->moved == total ? FRAGMENT_LAST : 0));
    forget_pages(l, before);
    return (size_t)ring_record_bytes(bytes);
}

static const struct ring_record *record_of(const struct chunk *chunk) {
    return (const struct ring_record *)(const void *)((const uint8_t *)chunk->bytes + chunk->begin);
}

static void lane_has_moved(struct channel *channel, const struct chunk *chunk) {
    const struct lending *l = chunk->lending;
    if (l != NULL) {
        behind_moved(&channel->behind, &l->header, true, l->moved == sizeof l->header + l->header.body_bytes);
        return;
    }
    uint32_t flags = record_of(chunk)->flags;
    behind_moved(&channel->behind, (const void *)(record_of(chunk) + 1), flags & FRAGMENT_FIRST, flags & FRAGMENT_LAST);
}

/* The payload of the next record that is to be moved. */
static size_t next_bytes(const struct channel *channel, const struct chunk *chunk) {
    if (chunk->lending == NULL) return record_of(chunk)->bytes;
    size_t most = lane_payload(channel);
    size_t left = sizeof(struct message) + chunk->lending->header.body_bytes - chunk->lending->moved;
    return left < most ? left : most;
}

/* Moves the next record into the ring. Returns the bytes it takes there; 0: no room. */
static size_t move_next(struct channel *channel, struct chunk *chunk) {
    if (chunk->lending != NULL) return move_fragment(channel, chunk->lending, next_bytes(channel, chunk));
    const struct ring_record *record = record_of(chunk);
    void *payload = ring_reserve(&channel->out, record->bytes);
    if (payload == NULL) return 0;
    memcpy(payload, record + 1, record->bytes);
    ring_commit(&channel->out, record->flags);
    return (size_t)ring_record_bytes(record->bytes);
}

static void drain_overflow(struct channel *channel) {
    struct queue *overflow = &channel->overflow;
    for (size_t moved = 0; overflow->first != NULL && moved < FRAGMENTS_PER_TURN_BYTES;) {
        size_t bytes = move_next(channel, overflow->first);
        if (bytes == 0) return;
        moved += bytes;
        overflow->first->begin += bytes;
        channel->counters.overflow_bytes -= bytes;
        if (overflow->first->begin == overflow->first->end) drop_first(channel, overflow);
    }
    assert(overflow->first != NULL || channel->counters.overflow_bytes == 0);
}

/* Whether the lane's next record may move: the lane uses half of the ring only, so that other messages find room. */
static bool lane_may_move(struct channel *channel) {
    struct ring_producer *out = &channel->out;
    if (channel->lane.first == NULL || channel->overflow.first != NULL || channel_broken(channel)) return false;
    uint64_t bytes = ring_record_bytes(next_bytes(channel, channel->lane.first));
    if (out->tail - out->head + bytes > out->data_bytes / 2) (void)ring_producer_look(out, bytes);
    return out->tail - out->head + bytes <= out->data_bytes / 2;
}

static void drain_lane(struct channel *channel) {
    struct queue *lane = &channel->lane;
    for (size_t moved = 0; moved < LANE_BYTES && lane_may_move(channel);) {
        size_t bytes = move_next(channel, lane->first);
        if (bytes == 0) return;
        moved += bytes;
        lane_has_moved(channel, lane->first);
        if (lane->first->lending == NULL) channel->lane_bytes -= bytes;
        lane->first->begin += bytes;
        if (lane->first->begin < lane->first->end) continue;
        if (lane->first->lending != NULL) channel->lane_bytes -= LENT_BYTES;
        drop_first(channel, lane);
    }
}

/* Publishes what lies in the ring, up to `publishable`. */
static bool publish_allowed(struct channel *channel) {
    drain_overflow(channel);
    if (channel_broken(channel)) return false;
    uint64_t tail = channel->out.tail;
    return ring_publish_to(&channel->out, channel->publishable < tail ? channel->publishable : tail);
}

static bool is_backlogged(const struct channel *channel) {
    return (channel->overflow.first != NULL || channel->lane_bytes > LANE_BYTES) && !channel_broken(channel);
}

bool channel_backlogged(struct channel *channel) {
    if (!is_backlogged(channel)) return false;
    publish_allowed(channel);
    return is_backlogged(channel);
}

uint64_t channel_overflow(const struct channel *channel) {
    return channel->counters.overflow_bytes;
}

uint64_t channel_tail(const struct channel *channel) {
    return channel->out.tail + channel->counters.overflow_bytes;
}

bool channel_unseen(const struct channel *channel, uint64_t place) {
    return place >= channel->publishable;
}

static bool publish_to(struct channel *channel, uint64_t tail) {
    assert(tail <= channel_tail(channel));
    if (channel_broken(channel)) return false;
    if (tail > channel->publishable) channel->publishable = tail;
    return publish_allowed(channel);
}

bool channel_lends(const struct channel *channel) {
    return channel->lane.first != NULL;
}

void channel_move(struct channel *channel) {
    if (channel->lane.first != NULL) drain_lane(channel);
}

/* Moves before it publishes, so that nothing moved stays invisible: the next call may come much later. */
bool channel_publish(struct channel *channel) {
    channel_move(channel);
    return publish_to(channel, channel_tail(channel));
}

bool channel_show(struct channel *channel) {
    const bool waits = channel->overflow.first != NULL || channel->lane.first != NULL;
    if (waits || channel_broken(channel)) {
        channel_publish(channel);
        return false;
    }
    channel->publishable = channel->out.tail;
    (void)ring_show_to(&channel->out, channel->out.tail);
    return true;
}

void channel_wake(struct channel *channel) {
    if (!channel_broken(channel)) ring_wake(&channel->out);
}

bool channel_publish_to(struct channel *channel, uint64_t tail) {
    bool published = publish_to(channel, tail);
    /* What this moves becomes visible with the next call. */
    channel_move(channel);
    return published;
}

bool channel_take_unpublished(struct channel *channel) {
    return !channel_broken(channel) && ring_take_unpublished(&channel->in);
}

/* The next record of a queue, for channel_unreleased. */
static const struct ring_record *next_in(const struct queue *queue, struct channel_place *place) {
    const struct chunk *chunk = place->chunk;
    if (chunk == NULL) {
        chunk = queue->first;
        if (chunk != NULL) place->in_chunk = chunk->begin;
    }
    while (chunk != NULL && (chunk->lending != NULL || place->in_chunk == chunk->end)) {
        chunk = chunk->next;
        place->in_chunk = 0;
    }
    if (chunk == NULL) return NULL;
    place->chunk = chunk;
    const struct ring_record *record =
        (const struct ring_record *)(const void *)((const uint8_t *)chunk->bytes + place->in_chunk);
    place->in_chunk += (size_t)ring_record_bytes(record->bytes);
    return record;
}

/* The next record that is not in the ring: first those of the overflow queue, then those in the lane. */
static const struct ring_record *next_waiting(const struct channel *channel, struct channel_place *place) {
    const struct ring_record *record = place->is_lent ? NULL : next_in(&channel->overflow, place);
    if (record != NULL) return record;
    if (!place->is_lent) *place = (struct channel_place){.in_ring = place->in_ring, .is_lent = true};
    return next_in(&channel->lane, place);
}

static const struct message *unheard(struct channel *channel, const void *payload, size_t bytes) {
    return bytes < sizeof(struct message) ? channel_restored(&channel->unheard, payload, bytes) : payload;
}

const struct message *channel_unreleased(struct channel *channel, struct channel_place *place) {
    uint32_t bytes, flags;
    const void *payload;
    const struct ring_note noted = ring_noted(&channel->in);
    while ((payload = ring_unreleased(&channel->out, noted.done, &place->in_ring, &bytes, &flags)) != NULL) {
        if (flags != FRAGMENT_WHOLE) continue;
        place->begun = place->in_ring - ring_record_bytes(bytes) == noted.done ? noted.begun : 0;
        return unheard(channel, payload, bytes);
    }
    place->begun = 0;
    const struct ring_record *record;
    while (!channel->out.broken && (record = next_waiting(channel, place)) != NULL)
        if (record->flags == FRAGMENT_WHOLE) return unheard(channel, record + 1, record->bytes);
    return NULL;
}

/* --- Sleeping ----------------------------------------------------------------------------------------------------- */

bool channel_may_sleep_deaf(struct channel *channel) {
    if (channel_broken(channel)) return true;
    bool waits = channel->overflow.first != NULL || channel->lane.first != NULL;
    return !lane_may_move(channel) && (!waits || ring_producer_may_sleep(&channel->out));
}

bool channel_may_sleep(struct channel *channel) {
    if (channel_broken(channel)) return true;
    if (!channel_may_sleep_deaf(channel)) return false;
    if (ring_consumer_may_sleep(&channel->in)) return true;
    channel_awake(channel);
    return false;
}

void channel_awake(struct channel *channel) {
    ring_consumer_awake(&channel->in);
    ring_producer_awake(&channel->out);
}

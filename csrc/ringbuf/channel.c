#define _GNU_SOURCE
#include "ringbuf/channel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ringbuf/behind.h"
#include "ringbuf/ring.h"

/* A record's flags: where in its message it lies. A message that fits into one record is both. */
#define FRAGMENT_FIRST 1u
#define FRAGMENT_LAST  2u
#define FRAGMENT_WHOLE (FRAGMENT_FIRST | FRAGMENT_LAST)

/* Of a message without a body what it has at its end travels only if it is not zero. */
enum { SHORTEST_MESSAGE = 24 };

/* An overflow chunk's usual size, so that many small messages share one, and the largest assembly buffer that is kept
 * for the next message in fragments. */
#define CHUNK_BYTES         ((size_t)64 << 10)
#define ASSEMBLY_KEEP_BYTES ((size_t)64 << 10)

/* How much of messages in fragments is put together by one channel_receive(), and how much of the overflow is moved into the
 * ring at once: while one side does that the other makes room for more, so that there would be no end to it. */
#define TURN_BYTES ((size_t)4 << 20)

/* What is lent is moved so much at once; and so much of what comes behind it is kept before the channel counts as backlogged. */
#define LANE_BYTES ((size_t)1 << 20)

/* What one that is lent counts as of that: a process has so many mappings and no more. */
#define LENT_BYTES ((size_t)4 << 10)

/* A piece of the overflow queue. It holds whole records exactly as they will lie in the ring, so that a place in the
 * stream of sent bytes is the ring's own count, wherever the bytes are now. */
struct chunk {
    struct chunk *next;
    struct lending
        *lending; /* it has no bytes of its own, but those of a message that are yet to be copied; NULL: it has */
    size_t capacity;
    size_t begin; /* moved into the ring before it */
    size_t end;
    uint64_t bytes[]; /* 8-byte aligned as in the ring */
};

/* One message whose body is elsewhere. */
struct lending {
    struct lent lent;
    struct message header;
    const uint8_t *body;
    size_t moved; /* of both */
};

struct queue {
    struct chunk *first, *last; /* NULL: it is empty */
};

struct channel {
    struct ring_producer out;
    struct ring_consumer in;
    int wake_fd;
    bool broken;
    bool holds; /* see channel_hold */

    uint64_t publishable; /* what was sent before this place may be seen; always the end of a message */
    struct queue overflow;
    struct queue lane; /* what was lent, and what must not overtake it; */
    struct behind behind;
    size_t lane_bytes; /* of it, those of memory of its own; and LENT_BYTES for each that was lent */
    struct channel_counters counters;

    size_t max_message_bytes;
    struct message whole;   /* the one received last, if it was sent without its end; ... */
    struct message unheard; /* ... and of those that channel_unreleased tells */
    uint8_t *assembly;
    size_t assembly_capacity;
    size_t assembly_wanted; /* bytes of the message being put together; 0: none is */
    size_t assembly_bytes;
};

/* A message's two parts, to be cut into fragments regardless of where one ends and the other begins. */
struct parts {
    const struct message *header;
    const uint8_t *body;
};

/* How much of a head there is to say: of one without a body not the zeros at its end. */
static size_t said_bytes(const struct message *header, size_t body_bytes) {
    if (body_bytes > 0 || header->ttr_ns != 0) return sizeof *header;
    if (header->delay_ns != 0) return offsetof(struct message, ttr_ns);
    return header->pri != 0 ? offsetof(struct message, delay_ns) : offsetof(struct message, pri);
}
_Static_assert(offsetof(struct message, pri) == SHORTEST_MESSAGE && offsetof(struct message, body_bytes) == 28 &&
                   offsetof(struct message, delay_ns) == 32 && offsetof(struct message, ttr_ns) == 40,
               "a head ends at a multiple of 8 bytes");

/* SHORTEST_MESSAGE bytes, and as many words of eight as there are behind. */
static inline void copy_head(void *to, const void *from, size_t bytes) {
    uint8_t *at = to;
    const uint8_t *source = from;
    memcpy(at, source, SHORTEST_MESSAGE);
    if (bytes > SHORTEST_MESSAGE) memcpy(at + SHORTEST_MESSAGE, source + SHORTEST_MESSAGE, 8);
    if (bytes > SHORTEST_MESSAGE + 8) memcpy(at + SHORTEST_MESSAGE + 8, source + SHORTEST_MESSAGE + 8, 8);
    if (bytes > SHORTEST_MESSAGE + 16) memcpy(at + SHORTEST_MESSAGE + 16, source + SHORTEST_MESSAGE + 16, 8);
}

/* A message that was sent without its end. NULL: it is not to be believed. */
static const struct message *restored(struct message *to, const void *payload, size_t payload_bytes) {
    if (payload_bytes < SHORTEST_MESSAGE || payload_bytes % 8 != 0) return NULL;
    *to = (struct message){0};
    copy_head(to, payload, payload_bytes);
    return to->body_bytes == 0 ? to : NULL;
}

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

static void drop_first(struct queue *queue) {
    struct chunk *chunk = queue->first;
    queue->first = chunk->next;
    if (queue->first == NULL) queue->last = NULL;
    free_chunk(chunk);
}

static void free_queues(struct channel *channel) {
    while (channel->overflow.first != NULL) drop_first(&channel->overflow);
    while (channel->lane.first != NULL) drop_first(&channel->lane);
    channel->counters.overflow_bytes = channel->lane_bytes = 0;
}

static void free_assembly(struct channel *channel) {
    free(channel->assembly);
    channel->assembly = NULL;
    channel->assembly_capacity = 0;
    channel->assembly_wanted = 0;
}

/* Called when no message of it is in use any more. */
static void free_large_assembly(struct channel *channel) {
    if (channel->assembly_capacity > ASSEMBLY_KEEP_BYTES && channel->assembly_wanted == 0) free_assembly(channel);
}

/* Neither the overflow nor the assembly is freed here: a caller may still read a message in the latter. */
void channel_break(struct channel *channel) {
    channel->broken = true;
    /* There is nothing more to receive, nor room for what is sent: nobody has to ask for more than that. */
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
    free_assembly(channel);
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
    /* Relaxed: a number to be looked at, and nothing that it stands for is read here. */
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

/* Room for one record at the end of a queue; NULL if there is no memory. */
static struct ring_record *queue_reserve(struct queue *queue, size_t bytes) {
    struct chunk *chunk = queue->last;
    if (chunk == NULL || chunk->capacity - chunk->end < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk = malloc(sizeof *chunk + capacity);
        if (chunk == NULL) return NULL;
        *chunk = (struct chunk){.capacity = capacity};
        chain(queue, chunk);
    }
    struct ring_record *record = (struct ring_record *)(void *)((uint8_t *)chunk->bytes + chunk->end);
    chunk->end += bytes;
    return record;
}

static struct ring_record *overflow_reserve(struct channel *channel, size_t bytes) {
    struct ring_record *record = queue_reserve(&channel->overflow, bytes);
    if (record == NULL) return NULL;
    channel->counters.overflow_bytes += bytes;
    if (channel->counters.overflow_bytes > channel->counters.overflow_peak_bytes)
        channel->counters.overflow_peak_bytes = channel->counters.overflow_bytes;
    return record;
}

/* `behind`: behind what was lent. */
static void send_fragment(struct channel *channel, const struct parts *parts, size_t offset, size_t bytes,
                          uint32_t flags, bool behind) {
    /* Only behind an empty overflow queue, or the ring would overtake it. */
    if (channel->overflow.first == NULL && !behind) {
        void *payload = ring_reserve(&channel->out, bytes);
        if (payload != NULL) {
            copy_part(payload, parts, offset, bytes);
            ring_commit(&channel->out, flags);
            return;
        }
    }
    size_t whole = (size_t)ring_record_bytes(bytes);
    struct ring_record *record = behind ? queue_reserve(&channel->lane, whole) : overflow_reserve(channel, whole);
    if (record == NULL) {
        channel_break(channel);
        return;
    }
    if (behind) channel->lane_bytes += whole;
    *record = (struct ring_record){.bytes = (uint32_t)bytes, .flags = flags};
    copy_part((uint8_t *)(record + 1), parts, offset, bytes);
}

/* Fragments of another message would be taken for those of what was lent. */
static bool goes_behind(struct channel *channel, const struct message *header, bool in_fragments) {
    if (channel->lane.first == NULL || (!in_fragments && !behind_has(&channel->behind, header))) return false;
    behind_put(&channel->behind, header);
    return true;
}

/* What the ring has no room for now, or in one piece. */
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

/* Room for one record in the ring, or NULL. */
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
    copy_head(place, header, head_bytes);
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

bool channel_grows(const struct channel *channel, const struct growing *growing) {
    const bool is_last = channel->out.tail == growing->tail && growing->place < growing->tail;
    const bool unseen = growing->place >= channel->publishable;
    return is_last && unseen && channel->overflow.first == NULL && channel->lane.first == NULL &&
           !channel_broken(channel);
}

void *channel_grow(struct channel *channel, struct growing *growing, size_t bytes) {
    void *room = ring_extend(&channel->out, growing->place, bytes);
    if (room == NULL) return NULL;
    growing->message->body_bytes += (uint32_t)bytes;
    growing->tail = channel->out.tail;
    return room;
}

/* The payload of a fragment of what was lent. */
static size_t lane_payload(const struct channel *channel) {
    size_t most = (size_t)ring_max_payload(channel->out.data_bytes), piece = LANE_BYTES - sizeof(struct ring_record);
    return most < piece ? most : piece;
}

/* What a message in fragments takes of the ring. */
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

/* The pages of which the last byte has been moved now. */
static void forget_pages(const struct lending *l, size_t before) {
    const uintptr_t page = 4096;
    size_t head = sizeof l->header, from = before > head ? before - head : 0;
    if (l->moved <= head) return;
    uintptr_t begin = (uintptr_t)(l->body + from) & ~(page - 1);
    uintptr_t end = (uintptr_t)(l->body + (l->moved - head)) & ~(page - 1);
    if (begin < (uintptr_t)l->lent.at) begin += page;
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* The next fragment, if there is room; what it takes of the ring. */
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

/* The payload of what comes next. */
static size_t next_bytes(const struct channel *channel, const struct chunk *chunk) {
    if (chunk->lending == NULL) return record_of(chunk)->bytes;
    size_t most = lane_payload(channel);
    size_t left = sizeof(struct message) + chunk->lending->header.body_bytes - chunk->lending->moved;
    return left < most ? left : most;
}

/* If there is room; what it takes of the ring. */
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
    for (size_t moved = 0; overflow->first != NULL && moved < TURN_BYTES;) {
        size_t bytes = move_next(channel, overflow->first);
        if (bytes == 0) return;
        moved += bytes;
        overflow->first->begin += bytes;
        channel->counters.overflow_bytes -= bytes;
        if (overflow->first->begin == overflow->first->end) drop_first(overflow);
    }
    assert(overflow->first != NULL || channel->counters.overflow_bytes == 0);
}

/* What is lent takes half of the ring, so that others find room. */
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
        drop_first(lane);
    }
}

/* Publishes what may be seen and lies in the ring. */
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

/* Nothing that has moved is left to be let out: the next time may be long after the last piece. */
bool channel_publish(struct channel *channel) {
    channel_move(channel);
    return publish_to(channel, channel_tail(channel));
}

bool channel_publish_to(struct channel *channel, uint64_t tail) {
    bool published = publish_to(channel, tail);
    /* It is seen with what is let out next. */
    channel_move(channel);
    return published;
}

/* --- Receiving ---------------------------------------------------------------------------------------------------- */

/* Begins a message in fragments with its first one. False if it is not to be believed or there is no memory. */
static bool assembly_begin(struct channel *channel, const uint8_t *payload, size_t payload_bytes) {
    struct message header;
    if (channel->assembly_wanted != 0 || payload_bytes < sizeof header) return false;
    memcpy(&header, payload, sizeof header);
    if (header.body_bytes > channel->max_message_bytes) return false;
    size_t wanted = sizeof header + header.body_bytes;
    if (payload_bytes >= wanted) return false;
    if (channel->assembly_capacity < wanted) {
        free_assembly(channel);
        channel->assembly = malloc(wanted);
        if (channel->assembly == NULL) return false;
        channel->assembly_capacity = wanted;
    }
    channel->assembly_wanted = wanted;
    channel->assembly_bytes = 0;
    return true;
}

static bool assembly_add(struct channel *channel, const uint8_t *payload, size_t payload_bytes, uint32_t flags) {
    if ((flags & FRAGMENT_FIRST) != 0 && !assembly_begin(channel, payload, payload_bytes)) return false;
    if (channel->assembly_wanted == 0 || payload_bytes == 0) return false;
    size_t missing = channel->assembly_wanted - channel->assembly_bytes;
    bool last = (flags & FRAGMENT_LAST) != 0;
    if (last ? payload_bytes != missing : payload_bytes >= missing) return false;
    memcpy(channel->assembly + channel->assembly_bytes, payload, payload_bytes);
    channel->assembly_bytes += payload_bytes;
    return true;
}

/* A message that lies in the ring in one record, if it is to be believed. What is checked is also what the caller will
 * read: a peer that writes to what it has published is not defended against. */
static const struct message *whole_message(struct channel *channel, const void *payload, size_t payload_bytes) {
    const struct message *message = payload;
    if (payload_bytes < sizeof *message) return restored(&channel->whole, payload, payload_bytes);
    if (message->body_bytes != payload_bytes - sizeof *message) return NULL;
    return message->body_bytes <= channel->max_message_bytes ? message : NULL;
}

/* Its bytes stay where they are until ring_release. */
static inline const struct message *take_whole(struct channel *channel, const void *payload, size_t bytes) {
    ring_consume(&channel->in);
    const struct message *message = whole_message(channel, payload, bytes);
    if (message == NULL) channel_break(channel);
    return message;
}

__attribute__((noinline)) static const struct message *receive_in_pieces(struct channel *channel) {
    uint32_t bytes, flags;
    const void *payload;
    size_t assembled = 0;
    while ((payload = ring_peek(&channel->in, &bytes, &flags)) != NULL) {
        if (flags == FRAGMENT_WHOLE) return take_whole(channel, payload, bytes);
        if (channel->holds && channel->in.head != channel->in.released) return NULL;
        if (assembled >= TURN_BYTES) return NULL;
        ring_consume(&channel->in);
        if (flags > FRAGMENT_WHOLE || !assembly_add(channel, payload, bytes, flags)) {
            channel_break(channel);
            return NULL;
        }
        /* At once, not at the end of the turn: the rest of a large message may be waiting for just this room. */
        ring_release(&channel->in);
        assembled += bytes;
        if ((flags & FRAGMENT_LAST) != 0) {
            channel->assembly_wanted = 0;
            return (const struct message *)(const void *)channel->assembly;
        }
    }
    if (channel->in.broken) channel_break(channel);
    return NULL;
}

const struct message *channel_receive(struct channel *channel) {
    uint32_t bytes, flags;
    const void *payload = ring_peek(&channel->in, &bytes, &flags);
    bool is_whole = payload != NULL && flags == FRAGMENT_WHOLE;
    return is_whole ? take_whole(channel, payload, bytes) : receive_in_pieces(channel);
}

bool channel_take(struct channel *channel, const struct message *message) {
    if (channel->assembly == NULL || (const void *)message != channel->assembly) return false;
    assert(channel->assembly_wanted == 0);
    channel->assembly = NULL;
    channel->assembly_capacity = 0;
    return true;
}

bool channel_drained(const struct channel *channel) {
    return channel->in.head == channel->in.tail;
}

bool channel_look(struct channel *channel) {
    return !channel_broken(channel) && ring_consumer_look(&channel->in);
}

void channel_release(struct channel *channel) {
    if (channel_broken(channel)) return;
    free_large_assembly(channel);
    ring_release(&channel->in);
}

/* A record in a queue. */
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

/* In the overflow, which is behind what lies in the ring, and then behind what was lent. */
static const struct ring_record *next_waiting(const struct channel *channel, struct channel_place *place) {
    const struct ring_record *record = place->is_lent ? NULL : next_in(&channel->overflow, place);
    if (record != NULL) return record;
    if (!place->is_lent) *place = (struct channel_place){.in_ring = place->in_ring, .is_lent = true};
    return next_in(&channel->lane, place);
}

static const struct message *unheard(struct channel *channel, const void *payload, size_t bytes) {
    return bytes < sizeof(struct message) ? restored(&channel->unheard, payload, bytes) : payload;
}

const struct message *channel_unreleased(struct channel *channel, struct channel_place *place) {
    uint32_t bytes, flags;
    const void *payload;
    while ((payload = ring_unreleased(&channel->out, &place->in_ring, &bytes, &flags)) != NULL)
        if (flags == FRAGMENT_WHOLE) return unheard(channel, payload, bytes);
    const struct ring_record *record;
    while (!channel->out.broken && (record = next_waiting(channel, place)) != NULL)
        if (record->flags == FRAGMENT_WHOLE) return unheard(channel, record + 1, record->bytes);
    return NULL;
}

/* --- Sleeping ----------------------------------------------------------------------------------------------------- */

bool channel_may_sleep(struct channel *channel) {
    if (channel_broken(channel)) return true;
    bool waits = channel->overflow.first != NULL || channel->lane.first != NULL;
    if (lane_may_move(channel) || (waits && !ring_producer_may_sleep(&channel->out))) return false;
    if (ring_consumer_may_sleep(&channel->in)) return true;
    channel_awake(channel);
    return false;
}

bool channel_may_sleep_until_room(struct channel *channel) {
    if (!is_backlogged(channel)) return channel_may_sleep(channel);
    return !lane_may_move(channel) && ring_producer_may_sleep(&channel->out);
}

void channel_awake(struct channel *channel) {
    ring_consumer_awake(&channel->in);
    ring_producer_awake(&channel->out);
}

/* What channel.c and channel_receive.c share: the state of a channel. */
#ifndef MQ_CHANNEL_STATE_H
#define MQ_CHANNEL_STATE_H

#include <string.h>

#include "ringbuf/behind.h"
#include "ringbuf/channel.h"
#include "ringbuf/ring.h"

/* A record's flags: where in its message it lies. A message that fits into one record is both. */
#define FRAGMENT_FIRST 1u
#define FRAGMENT_LAST  2u
#define FRAGMENT_WHOLE (FRAGMENT_FIRST | FRAGMENT_LAST)

/* Of a message without a body what it has at its end travels only if it is not zero. */
enum { SHORTEST_MESSAGE = 24 };

/* How much of messages in fragments is put together by one channel_receive(), and how much of the overflow is moved into the
 * ring at once: while one side does that the other makes room for more, so that there would be no end to it. */
#define FRAGMENTS_PER_TURN_BYTES ((size_t)4 << 20)

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

/* SHORTEST_MESSAGE bytes, and as many words of eight as there are behind. */
static inline void channel_copy_head(void *to, const void *from, size_t bytes) {
    uint8_t *at = to;
    const uint8_t *source = from;
    memcpy(at, source, SHORTEST_MESSAGE);
    if (bytes > SHORTEST_MESSAGE) memcpy(at + SHORTEST_MESSAGE, source + SHORTEST_MESSAGE, 8);
    if (bytes > SHORTEST_MESSAGE + 8) memcpy(at + SHORTEST_MESSAGE + 8, source + SHORTEST_MESSAGE + 8, 8);
    if (bytes > SHORTEST_MESSAGE + 16) memcpy(at + SHORTEST_MESSAGE + 16, source + SHORTEST_MESSAGE + 16, 8);
}

/* A message that was sent without its end. NULL: it is not to be believed. */
static inline const struct message *channel_restored(struct message *to, const void *payload, size_t payload_bytes) {
    if (payload_bytes < SHORTEST_MESSAGE || payload_bytes % 8 != 0) return NULL;
    *to = (struct message){0};
    channel_copy_head(to, payload, payload_bytes);
    return to->body_bytes == 0 ? to : NULL;
}

/* --- channel_receive.c --- */

/* Called when no message of it is in use any more. */
void channel_free_assembly(struct channel *channel);

#endif

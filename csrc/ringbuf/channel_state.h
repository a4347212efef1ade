/* What channel.c and channel_receive.c share: the state of a channel. */
#ifndef MQ_CHANNEL_STATE_H
#define MQ_CHANNEL_STATE_H

#include <stdlib.h>
#include <string.h>

#include "ringbuf/behind.h"
#include "ringbuf/channel.h"
#include "ringbuf/ring.h"

/* A record's flags: which fragment of its message it is. A message that fits into one record has both. */
#define FRAGMENT_FIRST 1u
#define FRAGMENT_LAST  2u
#define FRAGMENT_WHOLE (FRAGMENT_FIRST | FRAGMENT_LAST)

/* Bytes of the header that are always sent; without a body, zeros after them are not. */
enum { SHORTEST_MESSAGE = 24 };

/* How much of messages in fragments one channel_receive() assembles, and how much of the overflow is moved into the
 * ring at a time. Without a limit that might not end, as the other side makes room for more (or sends more)
 * meanwhile. */
#define FRAGMENTS_PER_TURN_BYTES ((size_t)4 << 20)

/* A piece of a queue. It has whole records exactly as they will lie in the ring, so that a place in the stream of sent
 * bytes is the ring's own count, wherever the bytes are now. */
struct chunk {
    struct chunk *next;
    struct lending *lending; /* a lent message, whose bytes are not copied yet; NULL: the chunk has records */
    size_t capacity;
    size_t begin; /* records before it have moved into the ring */
    size_t end;
    uint64_t bytes[]; /* 8-byte aligned as in the ring */
};

/* A message whose body was lent. */
struct lending {
    struct lent lent;
    struct message header;
    const uint8_t *body;
    size_t moved; /* bytes of header and body moved so far */
};

struct queue {
    struct chunk *first, *last; /* NULL: empty */
};

struct channel {
    struct ring_producer out;
    struct ring_consumer in;
    int wake_fd;
    bool broken;
    bool holds;    /* see channel_hold */
    bool stays;    /* the message received last, as was noted last; ... */
    uint64_t done; /* ... where it begins, or else where all that was received ends */

    uint64_t publishable; /* the other side may see what was sent before this place; the end of a message */
    struct queue overflow;
    struct queue lane; /* lent bodies, and messages that must not overtake them */
    struct behind behind;
    struct chunk *spares; /* empty ones of the usual size, for either queue */
    uint32_t spare_count;
    uint32_t spares_least; /* the fewest that there were since ... */
    uint64_t spares_since_ns;
    size_t lane_bytes; /* memory of the lane's records, and LENT_BYTES for each lent body */
    struct channel_counters counters;

    size_t max_message_bytes;
    struct message whole;   /* the header received last, if it was sent without its zeros; ... */
    struct message unheard; /* ... the same for channel_unreleased */
    uint8_t *assembly;
    size_t assembly_capacity;
    size_t assembly_wanted; /* bytes of the message being assembled; 0: none is */
    size_t assembly_bytes;
};

/* Copies SHORTEST_MESSAGE bytes, and as many words of eight bytes as there are after them. */
static inline void channel_copy_head(void *to, const void *from, size_t bytes) {
    uint8_t *at = to;
    const uint8_t *source = from;
    memcpy(at, source, SHORTEST_MESSAGE);
    if (bytes > SHORTEST_MESSAGE) memcpy(at + SHORTEST_MESSAGE, source + SHORTEST_MESSAGE, 8);
    if (bytes > SHORTEST_MESSAGE + 8) memcpy(at + SHORTEST_MESSAGE + 8, source + SHORTEST_MESSAGE + 8, 8);
    if (bytes > SHORTEST_MESSAGE + 16) memcpy(at + SHORTEST_MESSAGE + 16, source + SHORTEST_MESSAGE + 16, 8);
}

/* Restores a message that was sent without the zeros at its end. NULL: it is invalid. */
static inline const struct message *channel_restored(struct message *to, const void *payload, size_t payload_bytes) {
    if (payload_bytes < SHORTEST_MESSAGE || payload_bytes % 8 != 0) return NULL;
    *to = (struct message){0};
    channel_copy_head(to, payload, payload_bytes);
    return to->body_bytes == 0 ? to : NULL;
}

/* Frees the assembly buffer, when no message in it is used any more. */
static inline void channel_free_assembly(struct channel *channel) {
    free(channel->assembly);
    channel->assembly = NULL;
    channel->assembly_capacity = 0;
    channel->assembly_wanted = 0;
}

#endif

#include <assert.h>
#include <stdlib.h>

#include "ringbuf/channel_state.h"

/* The receiving side of a channel: returns messages in one record in place, and assembles messages in fragments. */

/* The largest assembly buffer that is kept for the next message in fragments. */
#define ASSEMBLY_KEEP_BYTES ((size_t)64 << 10)

static void free_large_assembly(struct channel *channel) {
    if (channel->assembly_capacity > ASSEMBLY_KEEP_BYTES && channel->assembly_wanted == 0)
        channel_free_assembly(channel);
}

/* --- Receiving ---------------------------------------------------------------------------------------------------- */

/* Begins to assemble a message with its first fragment. False if it is invalid or there is no memory. */
static bool assembly_begin(struct channel *channel, const uint8_t *payload, size_t payload_bytes) {
    struct message header;
    if (channel->assembly_wanted != 0 || payload_bytes < sizeof header) return false;
    memcpy(&header, payload, sizeof header);
    if (header.body_bytes > channel->max_message_bytes) return false;
    size_t wanted = sizeof header + header.body_bytes;
    if (payload_bytes >= wanted) return false;
    if (channel->assembly_capacity < wanted) {
        channel_free_assembly(channel);
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

/* Returns a message that lies in the ring in one record; NULL if it is invalid. It is checked and read in place: there
 * is no defence against a peer that writes to what it has published. */
static const struct message *whole_message(struct channel *channel, const void *payload, size_t payload_bytes) {
    const struct message *message = payload;
    if (payload_bytes < sizeof *message) return channel_restored(&channel->whole, payload, payload_bytes);
    if (message->body_bytes != payload_bytes - sizeof *message) return NULL;
    return message->body_bytes <= channel->max_message_bytes ? message : NULL;
}

/* Consumes a message in one record. Its bytes stay in place until ring_release. */
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
        if (assembled >= FRAGMENTS_PER_TURN_BYTES) return NULL;
        ring_consume(&channel->in);
        if (flags > FRAGMENT_WHOLE || !assembly_add(channel, payload, bytes, flags)) {
            channel_break(channel);
            return NULL;
        }
        /* Now, not at the end of the turn: the rest of a large message may be waiting for this room. */
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

void *channel_take(struct channel *channel, const void *bytes) {
    uint8_t *assembly = channel->assembly;
    if (assembly == NULL || (uintptr_t)bytes - (uintptr_t)assembly >= channel->assembly_capacity) return NULL;
    assert(channel->assembly_wanted == 0);
    channel->assembly = NULL;
    channel->assembly_capacity = 0;
    return assembly;
}

bool channel_keeps(const struct channel *channel, const void *bytes) {
    /* The data is mapped twice: a message that runs over the end of the ring is contiguous. */
    return channel->holds && (uintptr_t)bytes - (uintptr_t)channel->in.data < 2 * channel->in.data_bytes;
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

void channel_note(struct channel *channel, bool stays, uint32_t begun) {
    if (channel_broken(channel)) return;
    const struct ring_consumer *in = &channel->in;
    channel->stays = stays;
    channel->done = stays ? ring_last(in) : in->head;
    ring_note(&channel->out, channel->done, channel->done < in->head ? begun : 0);
}

void channel_release_noted(struct channel *channel) {
    if (channel_broken(channel)) return;
    if (!channel->stays) free_large_assembly(channel);
    ring_release_to(&channel->in, channel->done);
}

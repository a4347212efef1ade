/* NSQ's protocol: just IDENTIFY, SUB, RDY, PUB, MPUB, FIN and CLS on one topic. A message is kept as the frame in
 * which it is sent; each channel reads the same fifo at a cursor of its own. */
#define _GNU_SOURCE
#include <string.h>

#include "bare.h"
#include "big_endian.h"
#include "measure.h"

#define MAX_CHANNELS       1024u
#define NAME_BYTES         64u
#define FRAME_HEAD_BYTES   8u
#define MESSAGE_HEAD_BYTES 26u
#define FIN_BYTES          21u

struct channel {
    char name[NAME_BYTES];
    struct cursor cursor;
    struct connection *consumers; /* a list */
    struct connection *turn;      /* the next to get a message; NULL: the first */
};

static struct fifo messages;
static struct channel channels[MAX_CHANNELS];
static unsigned channel_count;

static void respond(struct connection *c, const char *text, size_t bytes) {
    char *to = bare_room(c, FRAME_HEAD_BYTES + bytes);
    memcpy(write_u32(write_u32(to, bytes + 4), 0), text, bytes);
}

static void keep(const char *body, size_t bytes) {
    static uint64_t id;
    char *to = fifo_push(&messages, FRAME_HEAD_BYTES + MESSAGE_HEAD_BYTES + bytes);
    to = write_u32(write_u32(to, 4 + MESSAGE_HEAD_BYTES + bytes), 2);
    memset(to, 0, 8); /* the timestamp */
    memcpy(to + 8, "\0\1", 2);
    memset(to + 10, '0', 16);
    id++;
    memcpy(to + 10, &id, sizeof id);
    memcpy(to + MESSAGE_HEAD_BYTES, body, bytes);
}

/* ---- channels ---- */

static struct channel *channel_named(const char *name, size_t bytes) {
    if (bytes >= NAME_BYTES) die("a name of %zu bytes", bytes);
    for (unsigned i = 0; i < channel_count; i++)
        if (strncmp(channels[i].name, name, bytes) == 0 && channels[i].name[bytes] == 0) return &channels[i];
    if (channel_count == MAX_CHANNELS) die("more than %u channels", MAX_CHANNELS);
    struct channel *channel = &channels[channel_count++];
    memcpy(channel->name, name, bytes);
    channel->cursor = (struct cursor){.chunk = messages.first};
    return channel;
}

static void leave_channel(struct connection *c) {
    if (c->channel == NULL) return;
    struct connection **at = &c->channel->consumers;
    while (*at != c) at = &(*at)->next_consumer;
    *at = c->next_consumer;
    c->channel->turn = NULL;
    c->channel = NULL;
}

static struct connection *next_ready(struct channel *channel) {
    struct connection *begin = channel->turn ? channel->turn : channel->consumers, *c = begin;
    if (c == NULL) return NULL;
    do {
        struct connection *next = c->next_consumer ? c->next_consumer : channel->consumers;
        if (c->credit > 0) {
            channel->turn = next;
            return c;
        }
        c = next;
    } while (c != begin);
    return NULL;
}

static void deliver(void) {
    uint64_t oldest = messages.last;
    for (unsigned i = 0; i < channel_count; i++) {
        struct channel *channel = &channels[i];
        while (!fifo_at_end(&messages, &channel->cursor)) {
            struct connection *c = next_ready(channel);
            if (c == NULL) break;
            size_t bytes;
            const char *frame = fifo_next(&messages, &channel->cursor, &bytes);
            bare_answer(c, frame, bytes);
            c->credit--;
        }
        if (channel->cursor.chunk < oldest) oldest = channel->cursor.chunk;
    }
    fifo_release(&messages, oldest);
}

/* ---- commands ---- */

static const char *publish_one(struct connection *c, const char *at, const char *end) {
    if ((size_t)(end - at) < 4 || (size_t)(end - at - 4) < read_u32(at)) return NULL;
    keep(at + 4, read_u32(at));
    respond(c, "OK", 2);
    return at + 4 + read_u32(at);
}

static const char *publish_many(struct connection *c, const char *at, const char *end) {
    if ((size_t)(end - at) < 4 || (size_t)(end - at - 4) < read_u32(at)) return NULL;
    size_t count = read_u32(at + 4);
    at += 8;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = read_u32(at);
        keep(at + 4, bytes);
        at += 4 + bytes;
    }
    respond(c, "OK", 2);
    return at;
}

static const char *identify(struct connection *c, const char *at, const char *end) {
    if ((size_t)(end - at) < 4 || (size_t)(end - at - 4) < read_u32(at)) return NULL;
    size_t bytes = read_u32(at);
    if (memmem(at + 4, bytes, "feature_negotiation", 19))
        respond(c, "{\"max_rdy_count\":10000}", 23);
    else
        respond(c, "OK", 2);
    return at + 4 + bytes;
}

static void subscribe(struct connection *c, const char *line, const char *line_end) {
    const char *name = memchr(line + 4, ' ', (size_t)(line_end - line - 4));
    if (name == NULL) die("a SUB without a channel");
    c->channel = channel_named(name + 1, (size_t)(line_end - 1 - name - 1));
    c->next_consumer = c->channel->consumers;
    c->channel->consumers = c;
    respond(c, "OK", 2);
}

/* Returns where the command ends, or NULL if it has not come whole. */
static const char *command(struct connection *c, const char *at, const char *end) {
    if (end - at >= (ptrdiff_t)FIN_BYTES && memcmp(at, "FIN ", 4) == 0) {
        c->credit++;
        return at + FIN_BYTES;
    }
    if (end - at >= 4 && memcmp(at, "  V2", 4) == 0) return at + 4;
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    if (newline == NULL || newline - at < 3) return NULL;
    const char *next = newline + 1;
    const char *ignored;
    if (memcmp(at, "PUB ", 4) == 0) return publish_one(c, next, end);
    if (memcmp(at, "MPUB ", 5) == 0) return publish_many(c, next, end);
    if (memcmp(at, "IDENTIFY", 8) == 0) return identify(c, next, end);
    if (memcmp(at, "SUB ", 4) == 0)
        subscribe(c, at, next);
    else if (memcmp(at, "RDY ", 4) == 0)
        c->credit = read_number(at + 4, &ignored); /* a client sets RDY once, before anything is in flight */
    else if (memcmp(at, "CLS\n", 4) == 0)
        respond(c, "CLOSE_WAIT", 10);
    else if (memcmp(at, "NOP\n", 4) != 0)
        die("an unknown command: %.*s", (int)(newline - at), at);
    return next;
}

static void handle(struct connection *c) {
    const char *at = c->in + c->in_begin, *end = c->in + c->in_end;
    while (at < end) {
        const char *next = command(c, at, end);
        if (next == NULL) break;
        at = next;
    }
    c->in_begin = (size_t)(at - c->in);
}

const struct protocol bare_nsq = {.name = "nsq", .handle = handle, .deliver = deliver, .gone = leave_channel};

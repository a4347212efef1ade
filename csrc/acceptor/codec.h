/* A codec: what a wire protocol is to the acceptor's engine. docs/protocols.md says how to make one.
 *
 * It has a state of its own for each acceptor (its options) and for each connection, in memory that the engine provides:
 * zeroed, and freed when the acceptor or the connection is. The engine calls it, and it calls the engine (engine.h); no
 * codec knows another. All of them are in one table, by their numbers, which begin with 1.
 *
 * Parsing. It is given a connection's input and takes what is complete of it, command by command, until there is no more
 * or the connection has to stall. It checks that it may go on (may_*) before it does anything that must not be done
 * twice: what was not taken will be given to it again.
 */
#ifndef MQ_CODEC_H
#define MQ_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ringbuf/board.h"
#include "ringbuf/message.h"

struct acceptor;
struct connection;
struct slot;

/* What Python says to a codec, or asks it, about one connection: see acceptor_call. */
struct codec_call {
    uint64_t value;
    const uint8_t *bytes;
    size_t bytes_count;
    uint32_t *out;
    size_t out_limit; /* numbers there is room for */
};

/* What acceptor_call returns besides numbers of the codec's own. */
enum { CALL_REFUSED = -1, CALL_CLOSED = 0, CALL_DONE = 1 };

/* What Python asks a codec, of all its connections: see acceptor_ask. */
struct codec_question {
    uint64_t value;
    const uint8_t *bytes;
    size_t bytes_count;
    uint8_t *out;
    size_t out_limit;
};

struct codec_bytes {
    const uint8_t *at;
    size_t bytes;
};

/* A message that another protocol has published to a topic. The body begins with `header_bytes` of headers. */
struct published {
    const uint8_t *topic;
    size_t topic_bytes;
    const uint8_t *body;
    size_t body_bytes, header_bytes;
    uint32_t headers_tag; /* enum headers_tag */
    /* What was said in those, also where the body has been taken out of them: `is_part`, of one message of a batch. */
    struct codec_bytes said;
    uint32_t said_tag;
    bool is_part;
};

/* What has to be done with a message that others have headers for, so that who does not know those gets what is in it. */
struct opening {
    bool opens; /* else it is given as it is */
    bool is_batch;
    uint32_t compression; /* by a number of the protocol's; 0: none */
    uint32_t bytes;       /* how large it is without */
};
/* A COMMAND of no connection that begins with this letter: the id of a message (8 bytes), the compression of its body (4), its
 * bytes without (4), and the body; it is answered by packed_opened. */
enum { PACKED_ASKS = 'u' };

struct codec {
    const char *name; /* as --listen has it, and before the dot of an option */
    size_t acceptor_bytes;
    size_t connection_bytes;

    /* What it counts on the board. From `first_gauge` on these are what is so now: they begin with 0 when the process
     * does. At most BOARD_COUNTERS. */
    const char *const *counters;
    uint32_t counter_count, first_gauge;

    /* What it publishes it has told to live subscribers itself: see bridge.h. */
    bool tells_live;
    /* Python's half keeps something of a connection that it has had a command of: it is told when that is closed. */
    bool python_keeps;
    /* Python's commands do not hold up the others of a connection: it makes requests for one that is not stalled for it. */
    bool python_alongside;

    /* How often in a turn a connection may be received from, as long as it has sent more: 0 and 1 are once. */
    uint32_t receives;

    /* Puts a reply into the output. `value` is the slot's; `id` the reply's. */
    void (*answer)(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t status, uint64_t value, uint64_t id,
                   const uint8_t *body, uint32_t body_bytes);
    /* Takes what it can of the input and returns how much that was. */
    size_t (*parse)(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);

    /* All that follow may be NULL. */

    /* Whether it takes this for the name of a topic. */
    bool (*is_name)(const uint8_t *name, size_t bytes);

    /* Prepares its part of a new acceptor; false when memory is short. */
    bool (*started)(struct acceptor *a, void *state);
    /* Gives back what that state refers to; all connections are closed and freed. */
    void (*stopped)(void *state);
    /* An option of its own; false when there is none of that name or the value is out of range. */
    bool (*set)(void *state, const char *option, uint64_t value);
    /* Python's word that is of no connection. CALL_REFUSED when there is no such thing or it cannot be. */
    int64_t (*configure)(struct acceptor *a, void *state, const char *what, uint64_t value, const uint8_t *bytes,
                         size_t bytes_count);
    /* Python's word about a connection. CALL_REFUSED when there is no such thing or a number is out of range. */
    int64_t (*call)(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call);

    /* Python's question about all connections, or word about none. The bytes of the answer; CALL_REFUSED when there is no such
     * thing. */
    int64_t (*ask)(struct acceptor *a, void *state, const char *what, const struct codec_question *question);

    /* Prepares a new connection. */
    void (*opened)(struct acceptor *a, struct connection *c);
    /* The client sends no more than was given to parse. */
    void (*ended)(struct acceptor *a, struct connection *c);
    /* The client has closed its side: what waits for a message need not wait any more. */
    void (*hung_up)(struct acceptor *a, struct connection *c);
    /* It has begun a large command and does not go on with it, while others wait for room: this says so, in its output,
     * and it is closed. Without this, `ended` says what it has to. */
    void (*crowded)(struct acceptor *a, struct connection *c);
    /* Some output has left. */
    void (*sent)(struct acceptor *a, struct connection *c);
    /* The time that timer_set named has come; the timer is not set any more. */
    void (*due)(struct acceptor *a, struct connection *c);
    /* The connection is about to be closed: what Python is to know of it then. */
    size_t (*last_words)(struct acceptor *a, struct connection *c, const uint8_t **words);
    /* The connection is closed, and later freed. */
    void (*closed)(struct acceptor *a, struct connection *c);
    void (*freed)(struct connection *c);
    /* What it has under way only waits for a message: a process that stops need not wait for it. */
    bool (*idles)(const struct connection *c);

    /* A worker said what nobody waits for: a message that is pushed, or the reply to a SUBSCRIBE that was repeated. */
    void (*pushed)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message);
    /* A worker's reply to a request that the codec sent by itself, without a slot of the connection: false if it is none. */
    bool (*heard_alone)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply);
    /* A worker's reply to a request, when it comes and before it is its turn to be answered. */
    void (*replied)(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
                    const struct message *reply);
    /* Python asks a worker to SUBSCRIBE (false if it may not), and what came of it. */
    bool (*subscribing)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                        const void *body);
    void (*subscribed)(struct acceptor *a, struct connection *c, uint8_t status);

    /* A worker has died; what it had to say has been heard. */
    void (*lost)(struct acceptor *a, struct connection *c, uint32_t worker);
    /* It is back, and knows nothing of the connection: this tells it what it must know. */
    void (*tell)(struct acceptor *a, struct connection *c, uint32_t worker);

    /* Of a slot of the kind SLOT_CODEC, which is the codec's to answer: a reply came for it, and: the worker is back, ask
     * again what it has not answered. */
    void (*heard)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply);
    void (*ask_again)(struct acceptor *a, struct connection *c, uint32_t worker);

    /* Whether it is to hear of what other protocols publish to a topic of that name, and what they have published; see
     * bridge.h. */
    bool (*wants_topic)(struct acceptor *a, void *state, const uint8_t *name, size_t bytes);
    void (*topic_published)(struct acceptor *a, void *state, const struct published *message);

    /* Of the headers that it writes (enum headers_tag; 0: none): what is in a message with such, and the next message of a batch
     * and what is said of it alone; false: there is no more. See packed.h. */
    uint32_t headers_tag;
    struct opening (*opens)(struct codec_bytes headers);
    bool (*next_packed)(struct codec_bytes *rest, struct codec_bytes *out, struct codec_bytes *said);

    /* A piece of what it had to leave for this turn: see codec_left. */
    void (*go_on)(struct acceptor *a, void *state);

    /* Of other acceptors (mesh.h): one has come, is gone, says something. */
    void (*mesh_joined)(struct acceptor *a, void *state, uint32_t other);
    void (*mesh_lost)(struct acceptor *a, void *state, uint32_t other);
    void (*mesh_heard)(struct acceptor *a, void *state, uint32_t other, const struct message *message);
    /* False as long as other acceptors have not said all that has to be known here: nobody is accepted until then. */
    bool (*may_serve)(const struct acceptor *a, const void *state);
};

/* The table: protocols/table.c. */
extern const struct codec *const codecs[];
extern const uint32_t codec_count;

/* NULL when there is no protocol of that number. */
static inline const struct codec *codec_at(uint32_t protocol) {
    return protocol > 0 && protocol <= codec_count ? codecs[protocol - 1] : NULL;
}

/* The number of a protocol; 0 when there is none of that name. */
uint32_t codec_number(const char *name, size_t name_bytes);

#endif

/* A codec: what a wire protocol is to the acceptor's engine. docs/protocols.md says how to make one.
 *
 * A codec has a state for each acceptor (its options) and for each connection, in memory that the engine provides:
 * zeroed, and freed with the acceptor or the connection. The engine calls the codec, and the codec calls the engine
 * (engine.h); no codec knows another. All codecs are in one table, by their numbers, which begin with 1.
 *
 * Parsing. A codec gets a connection's input and consumes complete commands, one after the other, until there is no
 * more or the connection has to stall. It checks that it may continue (may_*) before it does anything that must not be
 * done twice, as input that it has not consumed is passed to it again.
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

/* A call from Python to a codec about one connection: see acceptor_call. */
struct codec_call {
    uint64_t value;
    const uint8_t *bytes;
    size_t bytes_count;
    uint32_t *out;
    size_t out_limit; /* room in `out`, in numbers */
};

/* Results of acceptor_call, besides a codec's own numbers. */
enum { CALL_REFUSED = -1, CALL_CLOSED = 0, CALL_DONE = 1 };

/* A question from Python to a codec about all its connections: see acceptor_ask. */
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

/* A worker's reply whose turn has come. `value` is from the slot, `id` from the reply. */
struct codec_answer {
    uint8_t kind, status;
    uint32_t body_bytes;
    uint64_t value, id;
    const uint8_t *body;
};

/* A message that another protocol has published to a topic. The body begins with `header_bytes` of headers. */
struct published {
    const uint8_t *topic;
    size_t topic_bytes;
    const uint8_t *body;
    size_t body_bytes, header_bytes;
    uint32_t headers_tag; /* enum headers_tag */
    /* The headers, also when the body has been extracted from a packed message. `is_part`: they are those of one
     * message of a batch. */
    struct codec_bytes said;
    uint32_t said_tag;
    bool is_part;
};

/* How to open a message for a consumer that does not know its headers. */
struct opening {
    bool opens; /* false: the consumer gets the body as it is */
    bool is_batch;
    uint32_t compression; /* a number defined by the protocol; 0: not compressed */
    uint32_t bytes;       /* the decompressed size */
};

struct codec {
    const char *name; /* the scheme in --listen, and the first word of the protocol's options */
    size_t acceptor_bytes;
    size_t connection_bytes;

    /* Names of its counters on the board, at most BOARD_COUNTERS. Those from `first_gauge` on are current values, which
     * begin at 0 with each process. */
    const char *const *counters;
    uint32_t counter_count, first_gauge;

    /* The codec itself tells live subscribers what its clients publish: see bridge.h. */
    bool tells_live;
    /* Python's half keeps state of a connection once it has had a command of it, so it is told when the connection
     * closes. */
    bool python_keeps;
    /* Python's commands do not hold up a connection's other commands: Python makes requests while the connection goes
     * on. */
    bool python_alongside;

    /* Its connections are to other servers: what these send counts until they have ended their connections, even while
     * the process stops. See acceptor_quiesce. */
    bool joins_servers;

    /* Bytes that a client sends before its first command: who has sent no more than them has said nothing yet. */
    size_t greeting_bytes;

    /* Writes a worker's reply into the output. */
    void (*answer)(struct acceptor *a, struct connection *c, const struct codec_answer *answer);
    /* Handles the complete commands in the input. Returns how many bytes it used. */
    size_t (*parse)(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);

    /* All functions below may be NULL. */

    /* Whether this is a valid topic name in the protocol. */
    bool (*is_name)(const uint8_t *name, size_t bytes);

    /* What the protocol's rules make of a topic's name, whoever uses it: MSG_TOPIC_* flags. */
    uint16_t (*says_of_topic)(const uint8_t *name, size_t bytes);

    /* Prepares the codec's state of a new acceptor; false when memory is short. */
    bool (*started)(struct acceptor *a, void *state);
    /* Frees what that state refers to. All connections have been closed and freed. */
    void (*stopped)(void *state);
    /* Sets an option of the protocol; false when there is no such option or the value is out of range. */
    bool (*set)(void *state, const char *option, uint64_t value);
    /* A setting from Python that is not about one connection. CALL_REFUSED when it is unknown or impossible. */
    int64_t (*configure)(struct acceptor *a, void *state, const char *what, uint64_t value, const uint8_t *bytes,
                         size_t bytes_count);
    /* A call from Python about a connection. CALL_REFUSED when it is unknown or a number is out of range. */
    int64_t (*call)(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call);

    /* A question from Python about all connections. Returns the length of the answer, or CALL_REFUSED when it is
     * unknown. */
    int64_t (*ask)(struct acceptor *a, void *state, const char *what, const struct codec_question *question);

    /* How much unsent output a connection may have before its input waits, if the protocol has a limit of its own. */
    size_t (*unsent_limit)(const struct acceptor *a, const struct connection *c);

    /* Prepares a new connection. */
    void (*opened)(struct acceptor *a, struct connection *c);
    /* The client has closed its side, and all its input has been parsed. */
    void (*ended)(struct acceptor *a, struct connection *c);
    /* The client has closed its side: requests that wait for a message need not wait any longer. */
    void (*hung_up)(struct acceptor *a, struct connection *c);
    /* The client has stalled in the middle of a large command while others wait for room. Writes the protocol's error;
     * the connection is closed then. Without this function `ended` is called. */
    void (*crowded)(struct acceptor *a, struct connection *c);
    /* Some output has left. */
    void (*sent)(struct acceptor *a, struct connection *c);
    /* The time that timer_set named has come; the timer is not set any more. */
    void (*due)(struct acceptor *a, struct connection *c);
    /* The connection is about to be closed: what Python shall be told of it. Returns the length of *words. */
    size_t (*last_words)(struct acceptor *a, struct connection *c, const uint8_t **words);
    /* `closed`: the connection has been closed. `freed`: its memory is about to be freed. */
    void (*closed)(struct acceptor *a, struct connection *c);
    void (*freed)(struct connection *c);
    /* Whether the connection only waits for a message, so that a process that stops need not wait for it. */
    bool (*idles)(const struct connection *c);

    /* A message from a worker that is no reply to a slot: one pushed to a consumer, or the reply to a repeated
     * SUBSCRIBE. */
    void (*pushed)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message);
    /* A worker's reply to a request that the codec sent without a slot; false if it is no such reply. */
    bool (*heard_alone)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply);
    /* A worker's reply has come, perhaps before it is its turn to be answered. */
    void (*replied)(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
                    const struct message *reply);
    /* Python sends a SUBSCRIBE to a worker (return false to refuse), and its outcome. */
    bool (*subscribing)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                        const void *body);
    void (*subscribed)(struct acceptor *a, struct connection *c, uint8_t status);

    /* A worker has died, and all it had sent has been handled. */
    void (*lost)(struct acceptor *a, struct connection *c, uint32_t worker);
    /* The worker is back and knows nothing of the connection: tells it all it must know. */
    void (*tell)(struct acceptor *a, struct connection *c, uint32_t worker);

    /* For slots of kind SLOT_CODEC, which the codec answers itself. `heard`: a reply has come. `ask_again`: the worker
     * is back, so requests that it had not answered must be sent again. */
    void (*heard)(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply);
    void (*ask_again)(struct acceptor *a, struct connection *c, uint32_t worker);

    /* Whether the codec wants to be told what other protocols publish to a topic of that name, and the telling: see
     * bridge.h. */
    bool (*wants_topic)(struct acceptor *a, void *state, const uint8_t *name, size_t bytes);
    void (*topic_published)(struct acceptor *a, void *state, const struct published *message);

    /* `headers_tag`: of the headers that the protocol writes; 0: none. `opens`: how to open a message with such
     * headers. `next_packed`: the next message of an opened batch and its own headers; false at the end. See packed.h.
     * */
    uint32_t headers_tag;
    struct opening (*opens)(struct codec_bytes headers);
    bool (*next_packed)(struct codec_bytes *rest, struct codec_bytes *out, struct codec_bytes *said);

    /* Does the next piece of work that was left over for this turn: see codec_left. */
    void (*go_on)(struct acceptor *a, void *state);

    /* About other acceptors (mesh.h): one has joined, has gone, has sent a message. */
    void (*mesh_joined)(struct acceptor *a, void *state, uint32_t other);
    void (*mesh_lost)(struct acceptor *a, void *state, uint32_t other);
    void (*mesh_heard)(struct acceptor *a, void *state, uint32_t other, const struct message *message);
    /* False until other acceptors have sent all that must be known here; no client is accepted before that. */
    bool (*may_serve)(const struct acceptor *a, const void *state);
};

/* The protocols that an acceptor is given. The number of a protocol is its place in the table, from 1 on. */
struct codec_table {
    const struct codec *const *items;
    uint32_t count;
};

/* The codec of a protocol by its number, or NULL. */
static inline const struct codec *codec_at(const struct codec_table *codecs, uint32_t protocol) {
    return protocol > 0 && protocol <= codecs->count ? codecs->items[protocol - 1] : NULL;
}

/* The number of a protocol by its name, or 0. */
uint32_t codec_number(const struct codec_table *codecs, const char *name, size_t name_bytes);

#endif

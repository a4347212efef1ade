/* Pulsar's binary protocol: handles SEND, FLOW, ACK, REDELIVER, PING and PONG, and what workers answer and push. Python
 * handles all other commands (acceptor/protocols/pulsar/serving.py), and all that is done once for a producer or
 * consumer.
 *
 *   pulsar.c            parses frames and dispatches commands; the life of a connection; Python's calls about it
 *   pulsar_asks.c       requests to workers, and their places
 *   pulsar_say.c        commands to clients, and what Python is told
 *   pulsar_producer.c   SENDs and their receipts
 *   pulsar_consumer.c   messages that a worker pushes, and their FLOW, ACK and REDELIVER
 *   pulsar_foreign.c    messages that clients of other protocols published
 *   pulsar_rates.c      how fast producers may publish, and consumers be sent messages
 *   pulsar_clock.c      keep-alive
 *   pulsar_table.c      the producers and the consumers of a connection
 *   pulsar_leaving.c    those of connections that have closed
 *   pulsar_scan.c       reads protobuf
 *
 * A SEND and the barrier of an ACK take no slot of the connection: each has a struct pulsar_pending, and they may be
 * answered in any order. docs/pulsar-internals.md gives the reason and the overview.
 */
#ifndef MQ_PULSAR_STATE_H
#define MQ_PULSAR_STATE_H

#include "acceptor/engine.h"
#include "acceptor/protocols/pulsar/pulsar_scan.h"
#include "acceptor/protocols/pulsar/pulsar_terms.h"
#include "acceptor/protocols/pulsar/pulsar_upcalls.h"
#include "base/map.h"

enum {
    PULSAR_MAX_PARTS = 16384,     /* most producers of a connection, and most consumers */
    PULSAR_RATES_OF_PRODUCER = 3, /* the rates of its topic, of a resource group, and of the broker */
    PULSAR_RATES_OF_CONSUMER = 3, /* the rates of its topic, of its subscription, and of the broker */
    PULSAR_MAX_PENDING = 1000,    /* most SENDs and acknowledgements under way on a connection */
    PULSAR_MAX_WITH_PYTHON = 256, /* most commands of a connection that Python has not answered */
    PULSAR_FRAME_HEAD = 8,
    PULSAR_FRAME_SURPLUS = 10 << 10, /* how much longer a frame may be than the largest message */
};
/* How many bytes a worker whose ring is full may still be sent by connections that have to do with other workers too,
 * so that one slow shard does not keep the others waiting. The messages of the other connections stay where they were
 * received: to let them wait in the channel costs two copies. */
#define PULSAR_OVERFLOW_BYTES ((uint64_t)16 << 20)
#define PULSAR_CLOSED_REQUEST UINT64_MAX /* the request id in a CLOSE that no client asked for */

/* The codec's state of an acceptor. */
struct pulsar_options {
    uint32_t max_message_bytes;
    uint64_t keep_alive_ns;
    struct connection *leaving; /* closed, with producers or consumers that are still to be removed; a list */
};

/* Totals of a producer or consumer, and the time they are of, from which rates are computed. */
struct pulsar_counts {
    uint64_t at_ns;
    uint64_t messages, bytes;
};
/* More totals, which only a consumer has, of the same times. A batch is one entry; `acked`: ids acknowledged. */
struct pulsar_consumed {
    uint64_t entries, redelivered, acked;
};
/* Three of them: [0] the present totals, [1] and [2] as of the last PING and the one before, or as of its beginning. */
enum { PULSAR_COUNTED = 3 };

struct pulsar_producer {
    uint64_t id;
    struct pulsar_counts counts[PULSAR_COUNTED];
    struct pulsar_rate *rates; /* PULSAR_RATES_OF_PRODUCER of them; NULL: it has none */
    uint32_t number, topic;
    uint32_t pending; /* SENDs without a receipt yet */
    uint8_t worker;
    bool open;  /* it may send; false: its ATTACH is not answered yet, or it waits for other producers to leave */
    bool waits; /* it waits for other producers to leave, and its client has been told so */
    bool lost;  /* its worker has died, so Python cannot open it any more */
    bool deduplicates;
    bool closed;                /* we have closed it; its SENDs are ignored, as the client does not know yet */
    bool leaves : 1;            /* its client has sent a CLOSE_PRODUCER, which Python may not have seen yet */
    bool closing : 1;           /* by its client or fenced off; it ends when all receipts have been sent */
    bool delays;                /* its messages may be delayed, ... */
    uint32_t max_message_bytes; /* of an entry that is no chunk; 0: the topic has no limit of its own */
    uint64_t max_delay_ms;      /* ... by this much at most; 0: any time */
    uint64_t key, arrival;      /* from the reply to ATTACH */
};
/* There may be hundreds of thousands of them. */
_Static_assert(sizeof(struct pulsar_producer) <= 136, "a producer is small");

enum pulsar_active { PULSAR_ACTIVE_UNSAID, PULSAR_STANDS_BY, PULSAR_IS_ACTIVE };

struct pulsar_consumer {
    uint64_t id;
    uint64_t ledger;
    uint64_t next; /* behind the last entry that was delivered to it; 0: none was */
    uint64_t epoch;
    struct pulsar_counts counts[PULSAR_COUNTED];
    struct pulsar_consumed consumed[PULSAR_COUNTED];
    uint64_t flowed_ms, consumed_ms, acked_ms; /* when each last happened, by the wall clock */
    int64_t permits;                           /* given by its client and not used up by messages; ... */
    int64_t lent;                              /* ... those of them that its worker has, if it has rates */
    struct pulsar_rate *rates;                 /* PULSAR_RATES_OF_CONSUMER of them; NULL: it has none */
    uint32_t number, topic;
    int32_t partition;
    uint32_t most_unacked; /* if shared: entries it may leave unacknowledged; 0: any number */
    uint8_t worker;
    bool shared;    /* its subscription is Shared or Key_Shared */
    bool open;      /* its SUBSCRIBE has been answered */
    bool lost;      /* its worker has died, so Python cannot open it any more */
    bool has_epoch; /* `epoch` is set: its SUBSCRIBE or a REDELIVER had one */
    bool marked;    /* it has a mark in the output: see mark_bytes */
    bool refused;   /* an acknowledgement has been, for want of space; its receipt is still to say so */
    bool told;      /* its client has seen the answer to SUBSCRIBE, and may be told `active` */
    uint8_t active; /* enum pulsar_active */
    /* Bytes delivered and not yet reported SENT. If `marked`, the first mark_bytes of them end in the output at
     * mark_at. */
    uint64_t delivered_bytes, mark_bytes, mark_at;
    /* Of an Exclusive consumer that wants certain keys only: the slots of those; 0: it gets everything. */
    uint32_t range_count;
    struct key_range ranges[];
};

/* A SEND or acknowledgement that waits for its worker's answer. */
struct pulsar_pending {
    uint64_t sequence, highest; /* or an acknowledgement's request id and its consumer's id */
    uint32_t owner;             /* the number of its producer or consumer; 0: free */
    uint32_t next_free;         /* when free: the place of the next free one plus 1; 0: none */
    uint8_t worker;
    uint8_t kind;             /* MSG_PUBLISH or MSG_BARRIER */
    struct bridge_copy *copy; /* of the message, for live subscribers; NULL: they are not told */
};

/* The producers or consumers of a connection. Each is found by the id its client chose, or by a number that contains
 * its place here and is not soon given to another. */
struct pulsar_table {
    void **items;
    uint32_t *generations;
    uint32_t capacity, count;
    struct map ids;
};

/* The codec's state of a connection. */
struct pulsar {
    bool connected;
    bool heard;  /* the client has sent something since the last PING */
    bool pinged; /* Python waits for PULSAR_ALIVE */
    uint16_t with_python;
    uint16_t pending_count, pending_capacity;
    uint16_t pending_free;
    struct pulsar_pending *pending;
    struct pulsar_table producers, consumers;
    uint32_t marks;         /* how many consumers are `marked` */
    uint64_t keep_alive_ns; /* when the next PING is due */
    uint64_t rates_due_ns;  /* when its rates are checked again; 0: nothing waits for them */
    /* Of a closed connection: the next one that is leaving, and the places of its tables that are removed. */
    struct connection *next_leaving;
    uint32_t removed_producers, removed_consumers;
};

_Static_assert(sizeof(struct connection) + sizeof(struct pulsar) < 640, "an idle connection is small");

static inline struct pulsar *pulsar_of(const struct connection *c) {
    return connection_state(c);
}

static inline const struct pulsar_options *pulsar_options(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

static inline void pulsar_count_from(struct pulsar_counts *counts, uint64_t now_ns) {
    for (uint32_t i = 0; i < PULSAR_COUNTED; i++) counts[i].at_ns = now_ns;
}
static inline void pulsar_count_on(struct pulsar_counts *counts, uint64_t now_ns) {
    counts[2] = counts[1];
    counts[1] = counts[0];
    counts[1].at_ns = now_ns;
}
static inline uint64_t pulsar_wall_ms(const struct acceptor *a) {
    return a->wall_ns / 1000000;
}

/* Sets the timer to what is due first: the next PING, or a look at its rates. */
static inline void pulsar_set_timer(struct acceptor *a, struct connection *c) {
    const struct pulsar *p = pulsar_of(c);
    bool sooner = p->rates_due_ns != 0 && p->rates_due_ns < p->keep_alive_ns;
    timer_set(a, c, sooner ? p->rates_due_ns : p->keep_alive_ns);
}

#endif

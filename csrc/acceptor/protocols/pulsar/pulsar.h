/* Pulsar's binary protocol: SEND, FLOW, ACK, REDELIVER, PING and PONG, and what a worker says to them. All other commands
 * are Python's (acceptor/protocols/pulsar/pulsar.py), as is whatever has to be known once a producer or consumer.
 *
 *   pulsar.c            frames in, commands to who does them; the life of a connection; what Python says of it
 *   pulsar_producer.c   SENDs and their receipts
 *   pulsar_consumer.c   what a worker pushes, and what becomes of it
 *   pulsar_foreign.c    messages that others published
 *   pulsar_rates.c      how fast producers may publish, and consumers be sent messages
 *   pulsar_clock.c      keep-alive
 *   pulsar_table.c      the producers and the consumers of a connection
 *   pulsar_scan.c       bytes to numbers
 *
 * A SEND and the barrier of an ACK have no slot of the connection: they have a number of their own, and may be answered in
 * any order. docs/pulsar-internals.md says why, and what all this is.
 */
#ifndef MQ_PULSAR_H
#define MQ_PULSAR_H

#include "acceptor/engine.h"
#include "acceptor/protocols/pulsar/pulsar_scan.h"
#include "base/map.h"

enum {
    PULSAR_MAX_PARTS = 16384,     /* producers of a connection, and consumers */
    PULSAR_RATES_OF_CONSUMER = 2, /* of its topic, and of its subscription */
    PULSAR_MAX_PENDING = 1000,    /* SENDs and acknowledgements that are not answered */
    PULSAR_MAX_WITH_PYTHON = 256, /* commands */
    PULSAR_FRAME_HEAD = 8,
    PULSAR_FRAME_SURPLUS = 10 << 10, /* of a frame, beyond the largest message */
};
/* What a worker whose ring is full may be sent all the same. */
#define PULSAR_OVERFLOW_BYTES ((uint64_t)16 << 20)
#define PULSAR_CLOSED_REQUEST UINT64_MAX /* the request id of what nobody asked for */

/* So many in a period; 0: any number. What has been taken of it is on the board, for all acceptors. */
struct pulsar_rate {
    uint64_t key; /* by which they find it; 0: there is no rate */
    uint64_t messages, bytes, period_ns;
};

/* Of an acceptor. */
struct pulsar_options {
    uint32_t max_message_bytes;
    uint64_t keep_alive_ns;
};

enum pulsar_upcall {
    PULSAR_DO = 'd',
    PULSAR_PRODUCER_GONE = 'p',
    PULSAR_CONSUMER_GONE = 'c',
    PULSAR_PRODUCER_ATTACHED = 'x',
    PULSAR_ALIVE = 'a',
    PULSAR_TLS = 't'
};

/* Of a producer or consumer, ever; and when that was so, for rates. */
struct pulsar_counts {
    uint64_t at_ns;
    uint64_t messages, bytes;
    uint64_t entries, redelivered, acked; /* of a consumer: batches are one; acknowledgements */
};
/* What is so now (at 0), and was when the last two PINGs were sent, or since it has been there. */
enum { PULSAR_COUNTED = 3 };

struct pulsar_producer {
    uint64_t id;
    struct pulsar_counts counts[PULSAR_COUNTED];
    struct pulsar_rate *rate; /* NULL: none */
    uint32_t number, topic;
    uint32_t pending; /* SENDs without a receipt */
    uint64_t key;     /* its worker's for it */
    uint8_t worker;
    bool open;  /* it may send; else it is not known yet, or waits for others to go */
    bool waits; /* ... and its client has been told so */
    bool lost;  /* its worker went before its client heard of it */
    bool deduplicates;
    bool delays;           /* what it sends may wait for its time, ... */
    uint64_t max_delay_ms; /* ... and so long at most; 0: for ever */
    bool closed;           /* by us: what comes for it is let fall, until the client knows */
    bool closing;          /* by its client, as soon as it has all receipts */
};

enum pulsar_active { PULSAR_ACTIVE_UNSAID, PULSAR_STANDS_BY, PULSAR_IS_ACTIVE };

struct pulsar_consumer {
    uint64_t id;
    uint64_t ledger;
    uint64_t epoch;
    struct pulsar_counts counts[PULSAR_COUNTED];
    uint64_t flowed_ms, consumed_ms, acked_ms; /* when last, by the wall clock */
    int64_t permits;                           /* that it has given and nothing has taken; ... */
    int64_t lent;                              /* ... and of those, if it is limited, what its worker has */
    struct pulsar_rate *rates;                 /* PULSAR_RATES_OF_CONSUMER of them; NULL: none */
    uint32_t number, topic;
    int32_t partition;
    uint32_t most_unacked; /* entries that it may have, if it is Shared or Key_Shared; 0: any number */
    uint8_t worker;
    bool shared;    /* its subscription is Shared or Key_Shared */
    bool open;      /* its SUBSCRIBE has been answered */
    bool lost;      /* ... by a worker that is gone */
    bool has_epoch; /* its SUBSCRIBE had one */
    bool marked;    /* in the list of those with a mark */
    bool told;      /* ... and its client is past what it would forget */
    uint8_t active; /* enum pulsar_active: what its client is to hear then */
    /* What was delivered and not reported SENT; and of the first `mark_bytes` of it, where in the output they end. */
    uint64_t delivered_bytes, mark_bytes, mark_at;
};

/* Of what waits for a worker's answer. */
struct pulsar_pending {
    uint64_t sequence, highest; /* or an acknowledgement's request */
    uint32_t owner;             /* the producer's number, or the consumer's; 0: free */
    uint32_t next_free;         /* its place, and one more */
    uint8_t worker;
    uint8_t kind;             /* MSG_PUBLISH or MSG_BARRIER */
    uint8_t error;            /* enum pulsar_error */
    struct bridge_copy *copy; /* of what is published, for live subscribers; NULL: they are not told */
};

/* Things of a connection: each has a place, and a number that is not soon given again; found by the client's id. */
struct pulsar_table {
    void **items;
    uint32_t *generations;
    uint32_t capacity, count;
    struct map ids;
};

/* Of a connection. */
struct pulsar {
    bool connected;
    bool heard;  /* something, since the last tick */
    bool pinged; /* Python wants to know whether it is alive */
    uint16_t with_python;
    uint16_t pending_count, pending_capacity;
    uint16_t pending_free;
    struct pulsar_pending *pending;
    struct pulsar_table producers, consumers;
    uint32_t marks;         /* consumers that have one */
    uint64_t keep_alive_ns; /* when it is time for a PING, and ... */
    uint64_t rates_due_ns;  /* ... to look at its rates; 0: nobody waits */
};

_Static_assert(sizeof(struct connection) + sizeof(struct pulsar) < 640, "an idle connection is small");

static inline struct pulsar *pulsar_of(const struct connection *c) {
    return connection_state(c);
}

static inline const struct pulsar_options *pulsar_options(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

/* --- pulsar_table.c ------------------------------------------------------------------------------------------------ */

/* What is in a table begins with its id. NULL when there is none. */
void *pulsar_table_find(const struct pulsar_table *table, uint64_t id);
void *pulsar_table_at(const struct pulsar_table *table, uint32_t number);
/* The number of a new one; 0 when there can be no more. The id must be new. */
uint32_t pulsar_table_add(struct pulsar_table *table, uint64_t id, void *item);
void pulsar_table_remove(struct pulsar_table *table, uint64_t id, uint32_t number);
/* It is empty. */
void pulsar_table_free(struct pulsar_table *table);

/* --- pulsar.c ------------------------------------------------------------------------------------------------------ */

/* Room for a frame that has nothing behind its command; completed by pulsar_say. The command is to be written behind the first
 * PULSAR_FRAME_HEAD bytes. */
uint8_t *pulsar_room(struct acceptor *a, struct connection *c, size_t command_bytes);
void pulsar_say(struct acceptor *a, struct connection *c, uint8_t *room, uint8_t *end);
/* The command that has so many bytes of a message within it begins here. */
static inline uint8_t *pulsar_put_command(uint8_t *out, uint32_t type, size_t body_bytes) {
    out = pulsar_put_number(out, 1, type);
    out = pulsar_put_varint(out, PULSAR_TAG(type, PULSAR_BYTES));
    return pulsar_put_varint(out, body_bytes);
}
/* A frame of a command with a body that is there already. */
void pulsar_say_body(struct acceptor *a, struct connection *c, uint32_t type, const uint8_t *body, size_t bytes);
/* CLOSE_PRODUCER or CLOSE_CONSUMER that nobody asked for. */
void pulsar_say_closed(struct acceptor *a, struct connection *c, uint32_t type, uint64_t id);
/* Tells Python something about a connection. */
void pulsar_tell_python(struct acceptor *a, struct connection *c, enum pulsar_upcall what, uint64_t id);

/* A place for what a worker is asked; NULL when memory is short. Not more than PULSAR_MAX_PENDING. */
struct pulsar_pending *pulsar_pend(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t worker,
                                   uint32_t *place);
void pulsar_settle(struct acceptor *a, struct connection *c, struct pulsar_pending *pending);
/* Its input may go on, if it waits for that. */
void pulsar_wake(struct acceptor *a, struct connection *c);
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
/* Puts 64-bit numbers into what a call is to return. */
int64_t pulsar_put_counts(const struct codec_call *call, const uint64_t *counts, size_t count);
/* Whether a worker may be sent more; else the connection is stalled. */
bool pulsar_may_send(struct acceptor *a, struct connection *c, uint32_t worker);

/* --- pulsar_producer.c --------------------------------------------------------------------------------------------- */

/* False: not now. */
bool pulsar_send(struct acceptor *a, struct connection *c, const struct pulsar_send *send, struct pulsar_bytes entry);
void pulsar_published(struct acceptor *a, struct connection *c, const struct pulsar_pending *pending,
                      const struct message *reply);
/* It is none any more. */
void pulsar_producer_end(struct acceptor *a, struct connection *c, struct pulsar_producer *producer);
/* Its worker, or what it stands for, is gone: the client is told. */
/* Its worker says that it waits no more, or is one no more. */
void pulsar_producer_attached(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message);
void pulsar_producer_lose(struct acceptor *a, struct connection *c, struct pulsar_producer *producer);
int64_t pulsar_call_producer(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call);

/* --- pulsar_consumer.c --------------------------------------------------------------------------------------------- */

bool pulsar_flow(struct acceptor *a, struct connection *c, const struct pulsar_flow *flow);
bool pulsar_ack(struct acceptor *a, struct connection *c, struct pulsar_ids *ids);
bool pulsar_redeliver(struct acceptor *a, struct connection *c, struct pulsar_ids *ids);
void pulsar_acked(struct acceptor *a, struct connection *c, const struct pulsar_pending *pending);
void pulsar_pushed(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message);
void pulsar_sent(struct acceptor *a, struct connection *c);
void pulsar_consumer_end(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer);
void pulsar_consumer_lose(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer);
void pulsar_tell_permits(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                         uint64_t permits);
int64_t pulsar_call_consumer(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call);

/* --- pulsar_foreign.c ---------------------------------------------------------------------------------------------- */

/* A message that was not published as an entry. */
struct pulsar_foreign {
    uint64_t seq, time_ns;
    uint32_t tag; /* of its headers */
    struct pulsar_bytes headers, body;
};
/* What stands before its body, at most; and that: magic, checksum and metadata. */
size_t pulsar_foreign_bytes(const struct pulsar_foreign *of);
uint8_t *pulsar_put_foreign(uint8_t *out, const struct pulsar_foreign *of);

/* --- pulsar_rates.c ------------------------------------------------------------------------------------------------ */

/* False: not now, and the connection is stalled. */
bool pulsar_may_publish(struct acceptor *a, struct connection *c, const struct pulsar_producer *producer);
void pulsar_take_published(struct acceptor *a, const struct pulsar_producer *producer, uint64_t messages,
                           uint64_t bytes);
/* Its rate is another from now on; false: there is no memory for it. */
bool pulsar_limit_producer(struct acceptor *a, struct connection *c, struct pulsar_producer *producer,
                           const struct pulsar_rate *rate);
/* Gives the worker as many of a limited consumer's permits as may be used now. */
void pulsar_lend(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer);
void pulsar_take_delivered(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                           uint64_t messages, uint64_t bytes);
bool pulsar_limit_consumer(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                           const struct pulsar_rate *rates);
/* Who has waited long enough goes on. */
void pulsar_rates_due(struct acceptor *a, struct connection *c);

/* --- pulsar_clock.c ------------------------------------------------------------------------------------------------ */

void pulsar_opened(struct acceptor *a, struct connection *c);
void pulsar_due(struct acceptor *a, struct connection *c);
void pulsar_set_timer(struct acceptor *a, struct connection *c);

#endif

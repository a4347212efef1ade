/* The trace of a message. */
#ifndef MQ_NATS_TRACE_STATE_H
#define MQ_NATS_TRACE_STATE_H

#include "acceptor/protocols/nats/nats_state.h"
#include "base/json_text.h"

#define NATS_TRACE_HOP  "Nats-Trace-Hop:"
#define NATS_TRACE_DEST "Nats-Trace-Dest:"

enum {
    NATS_TRACES = 64,           /* most events that wait for other acceptors; then the oldest is published as it is */
    NATS_TRACE_BYTES = 1 << 20, /* most text of one event; further recipients are left out */
    NATS_TRACE_HEADERS = 256,   /* most headers of a message that are told */
    NATS_HOP_BYTES = 256,       /* longest hop */
};

/* Kinds of connections, by nats-server's numbers. */
enum nats_trace_kind { NATS_KIND_CLIENT = 0, NATS_KIND_ROUTE = 1, NATS_KIND_LEAF = 4 };

/* Where the message is, as bits; 0: in the account that it was published in. */
enum nats_leg {
    NATS_LEG_ABROAD = 1, /* in another account, which is named with each recipient */
    NATS_LEG_STREAM = 2, /* ... that imports it as a stream */
    NATS_LEG_CLOSED = 4, /* ... without allow_trace */
};

enum { NATS_LEGS_SHIFT = 8 }; /* of NATS_LEG_* among PASSED_*, for another acceptor */

struct nats_trace {
    struct nats_trace *next; /* among those that wait */
    uint64_t number;         /* unique over all acceptors */
    uint32_t account;        /* where it is published ... */
    uint32_t account_life;   /* ... if that is still there: struct nats_account_ref */
    uint32_t hops;           /* how many servers have been sent the message */
    uint32_t legs;           /* enum nats_leg */
    bool only;               /* the message is delivered to nobody */
    bool is_part;            /* another acceptor has the trace, and is told what happens here */
    int64_t waits;           /* how many acceptors have not told yet what they did */
    int64_t handed;          /* how many messages they have handed over, less how many of these have been told of */
    struct json_text request, ingress, events; /* parts of the event; of a part of it, only `events` */
    size_t whole_bytes;                        /* of `events`, as far as they are whole */
    size_t dest_bytes, hop_bytes;
    uint8_t texts[]; /* destination and hop */
};

/* A message that has come from a client, server or leaf node. */
struct nats_ingress {
    struct connection *connection;
    enum nats_trace_kind kind;
    uint32_t account;
    struct text subject; /* before mapping */
};

enum nats_traced { NATS_NOT_TRACED, NATS_TRACED, NATS_NOT_TAKEN };

struct nats_egress {
    enum nats_trace_kind kind;
    uint64_t cid;
    struct text name, hop;
    uint32_t account;                  /* 0: not named */
    const struct subject_entry *entry; /* NULL: none */
    const char *error;                 /* NULL: none */
};

#endif

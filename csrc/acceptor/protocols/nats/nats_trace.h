/* Message tracing. A message with the header Nats-Trace-Dest, or with traceparent in an account that has a destination
 * for traces, is delivered as any other, and what happens to it is published in its account as JSON: an event from each
 * server that it passes. With Nats-Trace-Only it is delivered to nobody, but its event tells who would have had it.
 *
 *   nats_trace.c     whether a message is traced
 *   nats_traced.c    what is told of it
 *   nats_trace_end.c ... when it is published, with what other acceptors tell
 *   nats_hops.c      traced messages for other servers
 *
 * `server->trace` is the trace of the message that is being delivered, NULL for nearly all messages. Other acceptors
 * tell what they did with the message; until all have, the event waits.
 */
#ifndef MQ_NATS_TRACE_H
#define MQ_NATS_TRACE_H

#include "acceptor/protocols/nats/nats.h"
#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_pass.h"
#include "acceptor/protocols/nats/nats_set_header.h"
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

/* --- nats_trace.c ------------------------------------------------------------------------------------------------- */

/* Whether headers have to be read to know whether a message is traced. Most have no line that begins so. */
bool nats_may_be_traced(const struct nats_account *account, const struct nats_message *m);
/* Begins the trace of a message, if it is to be traced; NATS_NOT_TAKEN: nothing at all is to be done with it. May
 * change its headers, so that no other server traces it. */
enum nats_traced nats_trace_begin(struct acceptor *a, struct nats_server *server, const struct nats_ingress *from,
                                  struct nats_message *m);
/* The value of a header ("Name:"); empty if there is none. */
struct text nats_header_of(const struct nats_message *m, const char *name);
/* The value of Nats-Trace-Dest by which servers know that they must not trace a message. */
struct text nats_trace_disabled(void);
/* Sets where messages with traceparent are traced to: "PERCENT SUBJECT"; empty: nowhere. */
bool nats_trace_account(struct nats_account *account, struct text said);

/* --- nats_traced.c ------------------------------------------------------------------------------------------------ */

struct nats_trace *nats_trace_new(struct acceptor *a, struct nats_server *server, uint32_t account, struct text dest,
                                  struct text hop);
/* The first event: the message has come. `names` and `values` are its headers. */
void nats_trace_ingress(struct acceptor *a, struct nats_trace *t, const struct nats_ingress *from,
                        const struct nats_message *m, const struct text *names, const struct text *values,
                        size_t headers);
/* Why the message was refused, like -ERR's text. */
void nats_trace_refused(struct nats_server *server, const char *text);
void nats_trace_violation(struct nats_server *server, const char *what, struct text subject);
void nats_trace_mapped(struct acceptor *a, struct nats_server *server, struct text subject);
void nats_trace_import(struct acceptor *a, struct nats_server *server, uint32_t account, struct text from,
                       struct text to);
struct nats_egress {
    enum nats_trace_kind kind;
    uint64_t cid;
    struct text name, hop;
    uint32_t account;                  /* 0: not named */
    const struct subject_entry *entry; /* NULL: none */
    const char *error;                 /* NULL: none */
};

void nats_trace_egress(struct acceptor *a, const struct nats_server *server, struct nats_trace *t,
                       const struct nats_egress *e);
/* What has happened to the message here, as another acceptor adds it to the event. */
struct text nats_trace_part(const struct nats_trace *t);
void nats_trace_add(struct nats_trace *t, struct text events);
void nats_trace_free(struct nats_trace *t);

/* --- nats_hops.c -------------------------------------------------------------------------------------------------- */

/* Sends the traced message to a server. */
void nats_trace_send(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account, uint32_t flags,
                     const struct nats_message *m, const struct nats_chosen *chosen);
/* The same at the acceptor with the route. */
void nats_trace_route(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account,
                      const struct nats_message *m, const struct nats_chosen *chosen);

/* --- nats_trace_end.c --------------------------------------------------------------------------------------------- */

/* The message has been delivered here: publishes the event, unless other acceptors have yet to tell their part. */
void nats_trace_end(struct acceptor *a, struct nats_server *server);
/* An acceptor has gone, perhaps with what it had to tell: publishes all events that wait. */
void nats_trace_give_up(struct acceptor *a, struct nats_server *server);
/* A traced message has come from another acceptor, ... */
void nats_trace_continue(struct acceptor *a, struct nats_server *server, uint64_t number, uint32_t flags);
/* ... and has been delivered: tells the acceptor that has the trace. */
void nats_trace_tell(struct acceptor *a, struct nats_server *server, uint32_t flags);
/* An acceptor tells its part. */
void nats_trace_told(struct acceptor *a, struct nats_server *server, uint64_t number, const uint8_t *body,
                     size_t bytes);

#endif

/* Latency of services. An account that exports a service with `latency` is sent a message for each sampled request to
 * it from another account: who asked, who answered, how long that took, or why there was no answer.
 *
 *   nats_latency.c    measures requests
 *   nats_results.c    publishes the results
 *   nats_halves.c     the half of a measurement that is made where the responder is
 *   nats_sampled.c    which requests are measured
 *
 * The acceptor where a request is made measures it. When the answer comes from a client of another acceptor or server,
 * the result waits for that one's half of the measurement: how long the responder took, and who it is. That one knows a
 * measured request by the end of its reply subject, "_R_....ID.T", and publishes its half in the system account at
 * $SYS.LATENCY.M2.ID, as a nats-server does. Python reads it there (acceptor/protocols/nats/latencies.py).
 *
 * Results are published in the next turn, since a result may be a request to a measured service itself.
 */
#ifndef MQ_NATS_LATENCY_H
#define MQ_NATS_LATENCY_H

#include "acceptor/protocols/nats/nats_message.h"
#include "base/json_text.h"

struct json_text;
struct nats_latency;
struct nats_measure;

enum {
    NATS_MEASURES = 1 << 13,    /* most requests measured at a time, less one; others are not measured */
    NATS_HALVES = 1 << 13,      /* most requests that clients here have got from elsewhere; older ones are forgotten */
    NATS_RESULTS = 1 << 13,     /* most results that wait to be published; further ones are dropped */
    NATS_KEPT_BYTES = 16 << 20, /* most bytes of headers, clients and results that wait; without room for them a request
                                   is not measured, or its result is dropped */
};

struct nats_latency *nats_latency_new(uint64_t percent, struct text subject);
void nats_latency_drop(struct nats_latency *latency);

/* A request that perhaps is measured. */
struct nats_measured {
    struct nats_latency *latency;
    const struct connection *asker; /* NULL: neither a client of ours nor a leaf node or hub */
    uint32_t exporter;              /* account */
    bool shared;                    /* the exporter is told who asks */
    uint64_t lifetime_ns;
    const struct nats_message *message;
};

/* Prepares the acceptor for measuring; false when memory is short. */
bool nats_latency_open(struct nats_server *server);
void nats_latency_close(struct nats_server *server);
/* See nats.c: "latency" names the system account and returns ID, "latency-half" brings the other half of a measurement
 * ("RTT_NS REQUEST RESPONDER"; the value is the time that the service took), "latency-expire" ends requests that have
 * waited too long. */
int64_t nats_latency_configure(struct acceptor *a, struct nats_server *server, const char *what, uint64_t value,
                               struct text said);

/* Begins to measure a request, if it is sampled. Returns the measurement's number; 0: it is not measured. */
uint32_t nats_latency_begin(struct acceptor *a, struct nats_server *server, const struct nats_measured *request);
/* The request's answer is awaited in that slot: see nats_answers.c. */
void nats_latency_await(struct nats_server *server, uint32_t number, uint32_t slot, uint64_t token);
/* The request is not made. */
void nats_latency_cancel(struct nats_server *server, uint32_t number);
/* Nobody got the request whose answer is awaited at that subject. */
void nats_latency_unavailable(struct acceptor *a, struct nats_server *server, struct text reply);
/* The answer has come, from a client of ours or (NULL) from elsewhere. */
void nats_latency_answered(struct acceptor *a, struct nats_server *server, uint32_t number, uint64_t token,
                           const struct connection *responder);
/* A client or leaf node wants no more of that pattern, or (empty) a client of any: its requests are over if nobody
 * wants their answers. Something is being measured. */
void nats_latency_unsubscribed(struct acceptor *a, struct nats_server *server, const struct connection *c,
                               struct text pattern);
/* Has a result published in the next turn. */
void nats_latency_say(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                      const struct json_text *result);

/* Describes a client as JSON, in full only if `whole`. Empty if there is none, or memory is short. */
struct text nats_latency_describe(const struct nats_server *server, const struct connection *c, bool whole,
                                  struct nats_room *room);

/* A measured request that a client here has got from elsewhere. */
struct nats_half {
    uint64_t hash; /* 0: free */
    uint64_t start_ns, start_wall_ns;
    struct nats_account_ref account;
};

struct nats_halves {
    struct nats_half items[NATS_HALVES];
};

/* A result that waits to be published. */
struct nats_result {
    struct nats_result *next;
    struct nats_account_ref account;
    size_t subject_bytes, payload_bytes;
    uint8_t text[]; /* subject, then payload */
};

/* What an acceptor has for measuring. */
struct nats_latencies {
    uint32_t system_account; /* 0: halves are not published */
    uint32_t used;           /* places of `measures` used so far; number 0 is not used */
    uint32_t first_free;
    uint32_t waiting; /* requests that are being measured */
    struct nats_measure *measures;
    uint32_t *by_asker; /* the first measure of each bucket of clients that ask */
    struct nats_halves *halves;
    struct nats_result *first, **last; /* results that wait to be published */
    uint32_t results;
    size_t kept_bytes;
    struct nats_room asker, responder; /* scratch for their descriptions */
};

static inline bool nats_is_measuring(const struct nats_server *server) {
    return server->latencies != NULL && server->latencies->waiting > 0;
}

#endif

/* Shares of an account: mappings, which change the subject of a published message, and imports, by which other
 * accounts get it.
 *
 *   mapping    "m PATTERN", then for each destination "d BELOW PIECES": the first one counts whose BELOW is above a
 *              random number below 100; if there is none, the message is dropped
 *   stream     "t ACCOUNT TRACED PATTERN PIECES": that account imports messages of this one, under another subject
 *   service    "v ACCOUNT TRACED ONCE LIFETIME_NS SHARED LATENCY PATTERN PIECES": requests made here go to that account.
 *              One answer comes back (ONCE) or several, within LIFETIME_NS. SHARED: the service is told who asks.
 *              LATENCY: "-", or "PERCENT SUBJECT": so many requests are measured, the results go there
 *   TRACED: traces of messages go on in the other account
 *
 * PIECES are those of nats_transform.h. All shares of an account are replaced together. A request goes to a service's
 * account at the acceptor where it was published, and is an ordinary message there. A message of a stream is imported by
 * each server of a cluster for its own clients and leaf nodes: where it was published, and where it comes over a route.
 */
#ifndef MQ_NATS_SHARES_H
#define MQ_NATS_SHARES_H

#include "acceptor/protocols/nats/nats.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_set_header.h"

enum {
    NATS_MAX_IMPORTED = 64, /* most imports of a subject */
    NATS_MAX_CHAIN = 64,    /* most accounts that a message passes in a chain, counting its own */
    NATS_MAX_COPIES = 1024, /* most copies made of one message */
    NATS_ANSWERS = 1 << 16, /* most answers waited for at a time; the oldest are dropped */
    NATS_ANSWER_REPLY_BYTES = 222,
    NATS_ANSWER_BYTES = 80 /* longest subject for answers */
};

/* --- nats_asker.c ------------------------------------------------------------------------------------------------- */

/* What is known of a client, leaf node or hub that makes requests. */
struct nats_requestor {
    struct text info; /* from Python; empty: only the account is told */
    uint32_t account;
    uint64_t rtt_ns; /* 0: unknown */
};

struct nats_requestor nats_requestor_of(const struct nats_server *server, const struct connection *c);

/* The publisher of a request, for services that are told: `connection` NULL: unknown. `service`: 0, or the account
 * whose service passes the request on. */
struct nats_asker {
    const struct connection *connection;
    uint32_t service;
};

/* Describes the publisher of a request as JSON, in full if `shared`, and returns the end. It is known, and has room of
 * nats_asker_bytes(). */
uint8_t *nats_put_asker(const struct nats_server *server, const struct nats_asker *asker, bool shared, uint8_t *out);
size_t nats_asker_bytes(const struct nats_server *server, const struct nats_asker *asker);

/* --- nats_shares.c ------------------------------------------------------------------------------------------------ */

struct nats_share;

struct nats_shares {
    struct subjects *mappings, *imports; /* the list of shares, or NULL */
    struct nats_share *first, *last;
    uint32_t count;
};

/* Sets an account's shares from text as above; false when it is invalid or memory is short. */
bool nats_shares_make(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                      size_t bytes);
/* Frees those of all accounts. */
void nats_shares_close(struct nats_server *server);
/* The account's subjects with imports (streams that others import, services that it imports), and its mapped subjects.
 * NULL: none, as when `shares` is NULL. */
static inline struct subjects *nats_shares_imports(const struct nats_shares *shares) {
    return shares != NULL ? shares->imports : NULL;
}

static inline struct subjects *nats_shares_mappings(const struct nats_shares *shares) {
    return shares != NULL ? shares->mappings : NULL;
}

/* Returns what a subject is mapped to, or the subject itself. `room` has NATS_MAX_CONTROL_LINE bytes. */
struct text nats_map(struct nats_server *server, const struct nats_shares *shares, struct text subject, uint8_t *room);
enum nats_imports { NATS_IMPORTS_ALL, NATS_IMPORTS_STREAMS, NATS_IMPORTS_SERVICES };
/* Finds the imports of an account's subject. Returns how many, at most NATS_MAX_IMPORTED. */
uint16_t nats_imports_of(struct nats_server *server, uint32_t account, struct text subject, enum nats_imports wanted,
                         const struct nats_share **imports);
/* Shares, one after the other; NULL: none any more. */
const struct nats_share *nats_shares_first(const struct nats_shares *shares);
const struct nats_share *nats_share_next(const struct nats_share *share);
/* The first stream from this share on; NULL: none. `share` may be NULL. */
const struct nats_share *nats_share_stream(const struct nats_share *share);
/* What is known of a stream by its share. */
struct nats_stream nats_stream_of(const struct nats_share *share);
/* The account that a share leads to; and whether it is a stream, which goes no further. */
uint32_t nats_share_account(const struct nats_share *share);
bool nats_share_is_stream(const struct nats_share *share);
/* Whether messages are traced in that account, too. */
bool nats_share_is_traced(const struct nats_share *share);

/* Turns a message of `account` into what a share makes of it; false when that is impossible or it is dropped. Sets
 * *measured to the number of the request's measurement (nats_latency.h); 0: it is not measured. */
bool nats_share_apply(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_asker *asker,
                      const struct nats_share *share, struct nats_message *m, struct nats_room *room,
                      uint32_t *measured);

/* --- nats_journey.c ----------------------------------------------------------------------------------------------- */

/* Must be called before there are shares or answers. False when memory is short. */
bool nats_journey_open(struct nats_server *server);
void nats_journey_close(struct nats_server *server);
/* Passes a message that was delivered in its account on to other accounts. `answers`: it may answer a request of
 * another account; `imports`: other accounts may import it. `asker`: the client, leaf node or hub that it came from;
 * NULL: none. False if nobody there got it. */
bool nats_go_on(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *asker,
                const struct nats_message *message, bool answers, bool imports);
/* The same for a message that came over a route, from `from`: of a server's only streams are imported. */
void nats_go_on_routed(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t from,
                       const struct nats_message *message, bool answers, bool imports);

/* --- nats_answers.c ----------------------------------------------------------------------------------------------- */

/* What answers are expected, ... */
struct nats_expected {
    uint32_t account; /* where they go on to `reply` */
    struct text reply;
    bool once;
    uint64_t lifetime_ns;
    uint32_t measured; /* the request's measurement; 0: none */
    /* ... and where they are awaited, which nats_answer_expect() sets. */
    uint32_t slot;
    uint64_t token;
};

/* Makes a subject for answers, in `room`; empty when that fails. */
struct text nats_answer_expect(struct acceptor *a, struct nats_server *server, struct nats_expected *expected,
                               uint8_t *room);

/* An answer that has come. */
struct nats_answered {
    uint32_t account;  /* where it is awaited */
    uint32_t measured; /* the request's measurement; 0: none */
    uint64_t token;
};

/* Gives an answer the subject at which it is awaited; false if nobody waits for it. */
bool nats_answer_take(struct acceptor *a, struct nats_server *server, struct nats_message *m, struct nats_room *room,
                      struct nats_answered *answered);
/* The subject that an answer would go on to, and the account; empty if it is not expected any more. */
struct text nats_answer_reply(const struct nats_server *server, uint32_t slot, uint64_t token, uint32_t *account);
/* No answer is expected any more. */
void nats_answer_forget(struct nats_server *server, uint32_t slot, uint64_t token);
/* The measurement of the request that is answered at a subject, and the answer's token; false if it is none of ours. */
bool nats_answer_number(const struct nats_server *server, struct text subject, uint32_t *measured, uint64_t *token);
/* The ID of nats_latency.h, as a number; CALL_REFUSED when memory is short. */
int64_t nats_answers_id(struct nats_server *server);
/* Subscribes to an account's answers to requests from other accounts. False when memory is short. */
bool nats_answers_open(struct acceptor *a, struct nats_server *server, uint32_t account);
/* Ends that. */
void nats_answers_end(struct acceptor *a, struct nats_server *server, uint32_t account);
void nats_answers_close(struct nats_server *server);

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* All of these deliver in one account, and set *answers if another account may wait for the message. */

/* Delivers a message that is published here; false if nobody got it. `from`: the publisher, who gets no echo, or NULL.
 * `asker`: the client whose next PONG has to wait for this, or NULL. */
bool nats_deliver_in(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *from,
                     struct connection *asker, const struct nats_message *message, bool *answers);
/* See nats_deliver_here(). */
size_t nats_deliver_from_acceptor(struct acceptor *a, struct nats_server *server, uint32_t account,
                                  const struct nats_message *message, bool alone, struct text *groups, size_t count,
                                  bool *answers);
/* See nats_deliver_routed(). */
void nats_deliver_from_route(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t from, bool kept,
                             const struct nats_message *message, const struct text *groups, size_t count,
                             bool *answers);

/* Delivers a message that `account` imports as a stream: to all here who want it, and to leaf nodes, but to no server,
 * since each imports for itself. Groups get it as they were awarded to the import (nats_shadows.h). `from_server`: it
 * came over a route, so that it does not go to hubs either. False if nobody got it. */
bool nats_deliver_imported(struct acceptor *a, struct nats_server *server, uint32_t account,
                           const struct nats_share *import, bool from_server, struct connection *asker,
                           const struct nats_message *message, bool *answers);

#endif

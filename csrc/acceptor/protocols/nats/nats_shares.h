/* Shares of an account: mappings, which change the subject of a published message, and imports, by which other
 * accounts get it.
 *
 *   mapping    "m PATTERN", then for each destination "d BELOW PIECES": the first one counts whose BELOW is above a
 *              random number below 100; if there is none, the message is dropped
 *   stream     "t ACCOUNT TRACED PATTERN PIECES": that account imports messages of this one, under another subject
 *   service    "v ACCOUNT TRACED SINGLE LIFETIME_NS SHARED LATENCY PATTERN PIECES": requests made here go to that
 *              account. One answer comes back (SINGLE) or several, within LIFETIME_NS. SHARED: the service is told who
 *              asks. LATENCY: "-", or "PERCENT SUBJECT": so many requests are measured, the results go there
 *   TRACED: traces of messages go on in the other account
 *
 * PIECES are those of nats_transform.h. All shares of an account are replaced together. A request goes to a service's
 * account at the acceptor where it was published, and is an ordinary message there. A message of a stream is imported
 * by each server of a cluster for its own clients and leaf nodes: where it was published, and where it comes over a
 * route.
 */
#ifndef MQ_NATS_SHARES_H
#define MQ_NATS_SHARES_H

#include "acceptor/protocols/nats/nats_message.h"
#include "acceptor/protocols/nats/nats_shadows_state.h"
#include "acceptor/protocols/nats/nats_shares_state.h"

struct nats_share;

/* Sets an account's shares from text as above; false when it is invalid or memory is short. */
bool nats_shares_make(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                      size_t bytes);
/* The same for lines that those given to nats_shares_make() are to follow: so a long text may take several turns. After
 * false all are forgotten. */
bool nats_shares_add(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                     size_t bytes);
/* Frees some of what accounts had before. */
void nats_shares_go_on(struct acceptor *a, struct nats_server *server);
/* Frees those of all accounts. */
void nats_shares_close(struct nats_server *server);

/* Returns what a subject is mapped to, or the subject itself. `room` has NATS_MAX_CONTROL_LINE bytes. */
struct text nats_map(struct nats_server *server, const struct nats_shares *shares, struct text subject, uint8_t *room);
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

#endif

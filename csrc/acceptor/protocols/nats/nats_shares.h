/* What becomes of a message in its account besides being handed out there: it may be published under another subject,
 * and other accounts may have it.
 *
 *   mapping    "m PATTERN", then for each destination "d BELOW PIECES": of a random number below 100 the first counts that is
 *              above it; none: nobody has the message
 *   stream     "t ACCOUNT PATTERN PIECES": that account imports what is published here, under another subject
 *   service    "v ACCOUNT ONCE LIFETIME_NS SHARED PATTERN PIECES": requests made here go to that account, and answers come
 *              back, one or more, for so long; SHARED: it is told who asks
 *
 * Pieces are nats_transform.h's. All that an account shares is replaced at once. Messages go on from account to account
 * only at the acceptor where they were published; their copies are then messages of those accounts like any other.
 */
#ifndef MQ_NATS_SHARES_H
#define MQ_NATS_SHARES_H

#include "acceptor/protocols/nats/nats.h"

enum {
    NATS_MAX_IMPORTED = 64, /* most imports of a subject */
    NATS_MAX_CHAIN = 64,    /* most accounts that a message passes one after the other, counting its own */
    NATS_MAX_COPIES = 1024, /* most copies made of one message */
    NATS_ANSWERS = 1 << 16, /* most answers waited for at a time; the oldest are dropped */
    NATS_ANSWER_REPLY_BYTES = 222,
    NATS_ANSWER_BYTES = 64 /* longest subject that an answer comes to */
};

struct nats_share;

/* Memory for the texts of a message that was made from another. */
struct nats_room {
    uint8_t *at;
    size_t bytes;
};

/* Room for so many bytes; NULL when memory is short. The old contents may be lost. */
uint8_t *nats_room_for(struct nats_room *room, size_t bytes);

/* Sets an account's shares from text as above; false when it is invalid or memory is short. */
bool nats_shares_make(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                      size_t bytes);
void nats_shares_free(struct nats_shares *shares);
/* Subjects that others import, that the account imports, that are mapped; NULL: none, as when `shares` is NULL. */
struct subjects *nats_shares_imports(const struct nats_shares *shares);
struct subjects *nats_shares_mappings(const struct nats_shares *shares);

/* What a subject is mapped to, or the subject itself. `room` has NATS_MAX_CONTROL_LINE bytes. */
struct text nats_map(struct nats_server *server, const struct nats_shares *shares, struct text subject, uint8_t *room);
/* Finds the imports of an account's subject. Returns how many, at most NATS_MAX_IMPORTED. */
uint16_t nats_imports_of(struct nats_server *server, uint32_t account, struct text subject,
                         const struct nats_share **imports);
/* The account that a share leads to; and whether it is a stream, which goes no further. */
uint32_t nats_share_account(const struct nats_share *share);
bool nats_share_is_stream(const struct nats_share *share);

/* Who asks, or has published: `connection` NULL: nobody is to be told; `service` 0, or the account whose service asks
 * in its stead. */
struct nats_asker {
    const struct connection *connection;
    uint32_t service;
};

/* Changes a message of `account` into what it is where it is imported; false when that cannot be, or nobody gets it. */
bool nats_share_apply(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_asker *asker,
                      const struct nats_share *share, struct nats_message *m, struct nats_room *room);

/* --- nats_journey.c ----------------------------------------------------------------------------------------------- */

/* To be called before there is a share, or answers come. False when memory is short. */
bool nats_journey_open(struct nats_server *server);
void nats_journey_close(struct nats_server *server);
/* A message that has been handed out in its account goes on to where else it is wanted: `answers`: it may be the answer
 * to a request of another account; `imports`: other accounts may import it. False if that was nobody. */
bool nats_go_on(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *asker,
                const struct nats_message *message, bool answers, bool imports);

/* --- nats_answers.c ----------------------------------------------------------------------------------------------- */

/* A subject for answers to `reply` in `account`; empty when there can be none. */
struct text nats_answer_expect(struct acceptor *a, struct nats_server *server, uint32_t account, struct text reply,
                               bool once, uint64_t lifetime_ns, uint8_t *room);
/* An answer has come: gives it the subject at which it is awaited, in *account; false if nobody waits for it. */
bool nats_answer_take(struct acceptor *a, struct nats_server *server, struct nats_message *m, struct nats_room *room,
                      uint32_t *account);
/* Subscribes to the answers of an account. False when memory is short. */
bool nats_answers_open(struct acceptor *a, struct nats_server *server, uint32_t account);
void nats_answers_close(struct nats_server *server);

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* Hands out in one account; false if that was to nobody. `from`, who has no echo, may be NULL; `asker`, who may count
 * on it after a PONG, too. `answers`: somebody in another account may wait for it. */
bool nats_deliver_in(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *from,
                     struct connection *asker, const struct nats_message *message, bool *answers);

#endif

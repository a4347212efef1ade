/* What becomes of a message in its account besides being handed out there: it may be published under another subject, and
 * other accounts may have it.
 *
 *   mapping    "m PATTERN", then for each destination "d BELOW PIECES": of a random number below 100 the first counts that is
 *              above it; none: nobody has the message
 *   stream     "t ACCOUNT PATTERN PIECES": that account imports what is published here, under another subject
 *   service    "v ACCOUNT ONCE LIFETIME_NS SHARED PATTERN PIECES": requests made here go to that account, and answers come
 *              back, one or more, for so long; SHARED: it is told who asks
 *
 * Pieces are nats_transform.h's. All that an account shares is replaced at once. Messages go on from account to account only
 * at the acceptor where they were published; their copies are then messages of those accounts like any other.
 */
#ifndef MQ_NATS_SHARES_H
#define MQ_NATS_SHARES_H

#include "acceptor/protocols/nats.h"

enum {
    NATS_MAX_IMPORTED = 64, /* copies of one message */
    NATS_MAX_CHAIN = 8,     /* accounts that a message goes on to, one from the other */
    NATS_ANSWERS = 1 << 16, /* that are waited for at one time; the oldest go */
    NATS_ANSWER_REPLY_BYTES = 222,
    NATS_ANSWER_BYTES = 64 /* of a subject that answers come to */
};

/* Text, as above; false when it is none, or memory is short. */
bool nats_shares_make(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                      size_t bytes);
void nats_shares_free(struct nats_shares *shares);

/* What a subject is mapped to; itself, if it is not. `room` is of NATS_MAX_CONTROL_LINE. */
struct text nats_map(struct nats_server *server, const struct nats_shares *shares, struct text subject, uint8_t *room);
/* Hands a message of an account on to those that import it; false if that was nobody. `asker` is who published it. */
bool nats_hand_on(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *asker,
                  const struct nats_message *message, uint32_t depth);

/* --- nats_answers.c ----------------------------------------------------------------------------------------------- */

/* A subject that answers to `reply`, in `account`, may come to; empty when there can be none. */
struct text nats_answer_expect(struct acceptor *a, struct nats_server *server, uint32_t account, struct text reply,
                               bool once, uint64_t lifetime_ns, uint8_t *room);
/* One has come; false if nobody waits for it. */
bool nats_answer(struct acceptor *a, struct nats_server *server, const struct nats_message *message, uint32_t depth);
/* Answers from an account come here. False when memory is short. */
bool nats_answers_open(struct acceptor *a, struct nats_server *server, uint32_t account);
void nats_answers_close(struct nats_server *server);

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* As nats_deliver, in an account; `from`, who has no echo, may be NULL. */
bool nats_deliver_in(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *from,
                     struct connection *asker, const struct nats_message *message, uint32_t depth);

#endif

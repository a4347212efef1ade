/* How answers find the way back to another account. */
#ifndef MQ_NATS_ANSWERS_H
#define MQ_NATS_ANSWERS_H

#include "acceptor/protocols/nats/nats_message.h"
#include "acceptor/protocols/nats/nats_shares_state.h"

/* Makes a subject for answers, in `room`; empty when that fails. */
struct text nats_answer_expect(struct acceptor *a, struct nats_server *server, struct nats_expected *expected,
                               uint8_t *room);

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

#endif

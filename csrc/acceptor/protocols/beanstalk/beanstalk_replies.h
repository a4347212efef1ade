/* Replies to bytes. */
#ifndef MQ_BEANSTALK_REPLIES_H
#define MQ_BEANSTALK_REPLIES_H

#include "acceptor/protocols/beanstalk/beanstalk_state.h"

enum { CRLF_BYTES = 2 };

void beanstalk_answer_failure(struct acceptor *a, struct connection *c, uint8_t status);
void beanstalk_answer(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t status, uint64_t value,
                      uint64_t id, const uint8_t *body, uint32_t body_bytes);

#endif

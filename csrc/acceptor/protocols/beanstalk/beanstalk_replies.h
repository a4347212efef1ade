/* Replies to bytes. */
#ifndef MQ_BEANSTALK_REPLIES_H
#define MQ_BEANSTALK_REPLIES_H

#include "acceptor/protocols/beanstalk/beanstalk_state.h"

enum { CRLF_BYTES = 2 };

void beanstalk_answer_failure(struct acceptor *a, struct connection *c, uint8_t status);
void beanstalk_answer(struct acceptor *a, struct connection *c, const struct codec_answer *answer);

#endif

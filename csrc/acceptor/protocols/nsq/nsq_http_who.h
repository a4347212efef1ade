/* Who may publish, where there are users. */
#ifndef MQ_NSQ_HTTP_WHO_H
#define MQ_NSQ_HTTP_WHO_H

#include "acceptor/protocols/nsq/nsq_http_state.h"

enum nsq_http_who {
    NSQ_HTTP_MAY,
    NSQ_HTTP_NOBODY,
    NSQ_HTTP_ASKED,  /* Python has been asked, or will be: not known yet */
    NSQ_HTTP_UNCLEAR /* something is wrong with it: the gateway answers */
};

/* Whether the client may publish to the request's topic. Reads the query. */
enum nsq_http_who nsq_http_who(struct acceptor *a, struct connection *c, struct nsq_http_request *r);

#endif

/* nsqd's HTTP API, as far as messages pass through it: POST /pub and /mpub on nsq-http://. All else is the gateway's:
 * the connection is handed over to it with what has come and was not taken (acceptor/protocols/nsq/http_serving.py),
 * and comes back with the next publish.
 *
 *   nsq_http.c        requests to messages, replies to answers, and connections that take too long
 *   nsq_http_head.c   a request's head and query taken apart
 *   nsq_http_body.c   bodies in chunks, and of many messages
 *   nsq_http_who.c    who may publish, where there are users
 *
 * A head is taken here only if it is plainly a publish and can be read in one way. Whatever else it is, HTTP that
 * others would read otherwise included, is refused or served by the gateway, which so has the last word about every
 * oddity.
 */
#ifndef MQ_NSQ_HTTP_STATE_H
#define MQ_NSQ_HTTP_STATE_H

#include "acceptor/protocols/nsq/nsq_http_body.h"
#include "acceptor/protocols/nsq/nsq_http_head.h"

enum { NSQ_HTTP_DATE_BYTES = 64 };

/* The options of an acceptor. */
struct nsq_https {
    struct nsq_http_limits limits;
    uint64_t max_req_timeout_ns, msg_timeout_ns;
    bool serves;    /* false: all unencrypted requests go to the gateway */
    bool asks;      /* there are users, so Python decides who may publish */
    uint16_t open;  /* listeners that ask nobody for a login, as bits */
    uint64_t known; /* numbers given so far to connections identified by a certificate */
    struct nsq_grants grants;
    bool prepares; /* the gateway is asked before the first message to an unknown topic */
    uint64_t date_second;
    char date[NSQ_HTTP_DATE_BYTES];
};

/* The codec's state of a connection. */
struct nsq_http {
    uint64_t idle_from_ns;
    uint64_t body_from_ns, part_ns; /* of a body that has begun to come */
    uint64_t left_before;           /* unsent output when the connection was last checked */
    uint64_t skip_bytes;            /* bytes still to be skipped of an unwanted body */
    struct nsq_http_chunks chunks;
    uint64_t known_as;         /* its number if it is identified by a certificate */
    struct nsq_granted wanted; /* the publish that Python was asked about ... */
    bool granted : 1;          /* ... which Python has allowed, */
    bool unknown : 1;          /* ... or the client is unknown, */
    bool left : 1;             /* ... or the gateway is to answer it */
    bool body_begun : 1;
    bool continued : 1; /* 100 Continue has been sent */
    bool admitted : 1;  /* the gateway has been asked about the topic */
    bool lingers : 1;   /* everything has been sent; input is read and ignored */
};

static inline struct nsq_http *nsq_http_of(const struct connection *c) {
    return connection_state(c);
}

static inline struct nsq_https *nsq_http_options(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

/* A request whose head is complete. */
struct nsq_http_request {
    struct nsq_http_head head;
    struct nsq_http_fields fields;
    struct text rest; /* the input behind the head */
};

#endif

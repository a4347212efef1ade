/* The head of a request and its query, taken apart. */
#ifndef MQ_NSQ_HTTP_HEAD_H
#define MQ_NSQ_HTTP_HEAD_H

#include "acceptor/protocols/nsq/nsq_command.h"

/* Requests with a longer head, or a longer Authorization header, go to the gateway. */
#define NSQ_HTTP_HEAD_BYTES          ((size_t)16 << 10)
#define NSQ_HTTP_AUTHORIZATION_BYTES ((size_t)1 << 10)

struct nsq_http_head {
    struct text query;
    struct text authorization; /* what the header says; of no bytes where there is none */
    size_t bytes;              /* length of the head with the empty line at its end */
    uint64_t body_bytes;       /* if the body does not come in chunks */
    bool many : 1;             /* the request is an /mpub */
    bool in_chunks : 1;
    bool is_old : 1;      /* HTTP/1.0: answered in that version, and the answer has to say keep-alive */
    bool keeps_alive : 1; /* the connection */
    bool expects_continue : 1;
};

enum nsq_http_found { NSQ_HTTP_MORE /* the head is not complete */, NSQ_HTTP_PUBLISH, NSQ_HTTP_ELSEWHERE };

enum nsq_http_found nsq_http_read_head(const uint8_t *data, size_t bytes, struct nsq_http_head *head);

/* The fields of a query, decoded; of a repeated field the first value. */
struct nsq_http_fields {
    bool has_topic, has_defer, has_binary;
    bool binary;
    uint8_t topic[NSQ_NAME_BYTES + 1]; /* one byte longer than a name may be: if full, the name is too long */
    size_t topic_bytes;
    int64_t defer_ms; /* -1: not a number, or negative */
};

/* False when it is not a valid query. */
bool nsq_http_read_query(struct text query, struct nsq_http_fields *fields);

#endif

/* nsqd's HTTP API, as far as messages pass through it: POST /pub and /mpub on nsq-http://. All else is the gateway's:
 * the connection is handed over to it with what has come and was not taken (acceptor/protocols/nsq/nsq_http.py), and
 * comes back with the next publish.
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
#ifndef MQ_NSQ_HTTP_H
#define MQ_NSQ_HTTP_H

#include "acceptor/protocols/nsq/nsq_command.h"

/* --- nsq_http_head.c ---------------------------------------------------------------------------------------------- */

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

/* --- nsq_http_body.c ---------------------------------------------------------------------------------------------- */

/* How far a body in chunks has been parsed. */
struct nsq_http_chunks {
    size_t at;    /* behind the last whole chunk; its line end may be missing */
    size_t bytes; /* bytes in the chunks so far */
    size_t waste; /* bytes of the lines between them, beyond the usual */
    size_t end;   /* behind the body, when it is WHOLE; a further walk finds the same again */
    bool begun;   /* there is a chunk before `at` */
};

/* OVER: there are more than `most` bytes. */
enum nsq_http_walk { NSQ_HTTP_INCOMPLETE, NSQ_HTTP_WHOLE, NSQ_HTTP_OVER, NSQ_HTTP_WRONG };

/* Continues parsing where the last walk stopped. */
enum nsq_http_walk nsq_http_walk_chunks(struct nsq_http_chunks *chunks, struct text input, size_t most);
/* Copies the contents of the chunks that were walked to `out`, at most `most` bytes. Returns how many. */
size_t nsq_http_join_chunks(struct text input, uint8_t *out, size_t most);

struct nsq_http_limits {
    size_t message_bytes, body_bytes;
};

/* What is wrong with a body; NULL: nothing. */
struct nsq_http_many {
    const char *wrong;
    uint32_t count;
    size_t bytes; /* bytes of all messages, each with its size in front */
};

/* The binary form: a count, then messages, each behind its size. Anything after them is ignored. */
struct nsq_http_many nsq_http_look_at_binary(struct text body, struct nsq_http_limits limits);
/* The text form: a message on each line; empty lines are ignored. */
struct nsq_http_many nsq_http_look_at_lines(struct text body, struct nsq_http_limits limits);
void nsq_http_put_lines(struct text body, uint8_t *out);

/* --- connections and requests ----------------------------------------------------------------------------------- */

enum { NSQ_HTTP_DATE_BYTES = 64 };

/* The options of an acceptor. */
struct nsq_https {
    struct nsq_http_limits limits;
    uint64_t max_req_timeout_ns, msg_timeout_ns;
    uint64_t refusing; /* workers whose disk refused the last message */
    bool serves;       /* false: all unencrypted requests go to the gateway */
    bool asks;         /* there are users, so Python decides who may publish */
    uint16_t open;     /* listeners that ask nobody for a login, as bits */
    uint64_t known;    /* numbers given so far to connections identified by a certificate */
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

/* --- nsq_http_who.c ----------------------------------------------------------------------------------------------- */

enum nsq_http_who {
    NSQ_HTTP_MAY,
    NSQ_HTTP_NOBODY,
    NSQ_HTTP_ASKED,  /* Python has been asked, or will be: not known yet */
    NSQ_HTTP_UNCLEAR /* something is wrong with it: the gateway answers */
};

/* Whether the client may publish to the request's topic. Reads the query. */
enum nsq_http_who nsq_http_who(struct acceptor *a, struct connection *c, struct nsq_http_request *r);

#endif

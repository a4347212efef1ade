/* nsqd's HTTP API, as far as messages pass through it: POST /pub and /mpub on nsq-http://. All else is the gateway's: the
 * connection is handed over to it with what has come and was not taken (acceptor/protocols/nsq/nsq_http.py), and comes back
 * with the next publish.
 *
 *   nsq_http.c        requests to messages, replies to answers, and connections that take too long
 *   nsq_http_head.c   a request's head and query taken apart
 *   nsq_http_body.c   bodies in chunks, and of many messages
 *   nsq_http_who.c    who may, where there are users
 *
 * A head is taken here only if it is plainly a publish and can be read in one way. Whatever else it is, HTTP that others
 * would read otherwise included, is refused or served by the gateway, which so has the last word about every oddity.
 */
#ifndef MQ_NSQ_HTTP_H
#define MQ_NSQ_HTTP_H

#include "acceptor/protocols/nsq/nsq_command.h"

/* --- nsq_http_head.c ---------------------------------------------------------------------------------------------- */

/* A larger head is the gateway's, and one that says more of who is there. */
#define NSQ_HTTP_HEAD_BYTES          ((size_t)16 << 10)
#define NSQ_HTTP_AUTHORIZATION_BYTES ((size_t)1 << 10)

struct nsq_http_head {
    struct text query;
    struct text authorization; /* what the header says; of no bytes where there is none */
    size_t bytes;              /* of the head, with the empty line at its end */
    uint64_t body_bytes;       /* unless it comes in chunks */
    bool many : 1;             /* /mpub */
    bool in_chunks : 1;
    bool keeps_alive : 1;     /* the connection */
    bool says_keep_alive : 1; /* a client of HTTP/1.0 has to be told */
    bool expects_continue : 1;
};

enum nsq_http_found { NSQ_HTTP_MORE /* its end has not come */, NSQ_HTTP_PUBLISH, NSQ_HTTP_ELSEWHERE };

enum nsq_http_found nsq_http_read_head(const uint8_t *data, size_t bytes, struct nsq_http_head *head);

/* Of a query, the first value of each; decoded. */
struct nsq_http_fields {
    bool has_topic, has_defer, has_binary;
    bool binary;
    uint8_t topic[NSQ_NAME_BYTES + 1]; /* too long for a name: all of it is used */
    size_t topic_bytes;
    int64_t defer_ms; /* -1: it is no number, or negative */
};

/* False when it is none. */
bool nsq_http_read_query(struct text query, struct nsq_http_fields *fields);

/* --- nsq_http_body.c ---------------------------------------------------------------------------------------------- */

/* How far a body in chunks has been looked at. */
struct nsq_http_chunks {
    size_t at;    /* behind the last chunk that is there; its line end may be missing */
    size_t bytes; /* that the chunks hold */
    size_t waste; /* of the lines around them, beyond what is usual */
    size_t end;   /* behind the body, when it is WHOLE; looked at again, it is found once more */
    bool begun;   /* there is a chunk before `at` */
};

/* OVER: more than `most` bytes of it are there. */
enum nsq_http_walk { NSQ_HTTP_INCOMPLETE, NSQ_HTTP_WHOLE, NSQ_HTTP_OVER, NSQ_HTTP_WRONG };

/* Goes on where it was left. */
enum nsq_http_walk nsq_http_walk_chunks(struct nsq_http_chunks *chunks, struct text input, size_t most);
/* What the chunks hold, put together, of input that was walked; at most so many bytes. How many there were. */
size_t nsq_http_join_chunks(struct text input, uint8_t *out, size_t most);

struct nsq_http_limits {
    size_t message_bytes, body_bytes;
};

/* What is wrong with a body; NULL: nothing. */
struct nsq_http_many {
    const char *wrong;
    uint32_t count;
    size_t bytes; /* of the messages, each behind its size */
};

/* Messages as they are behind the count, each behind its size. What follows them means nothing. */
struct nsq_http_many nsq_http_look_at_binary(struct text body, struct nsq_http_limits limits);
/* A message a line; empty lines are none. */
struct nsq_http_many nsq_http_look_at_lines(struct text body, struct nsq_http_limits limits);
void nsq_http_put_lines(struct text body, uint8_t *out);

/* --- connections and requests ----------------------------------------------------------------------------------- */

enum { NSQ_HTTP_DATE_BYTES = 64 };

/* Of an acceptor. */
struct nsq_https {
    struct nsq_http_limits limits;
    uint64_t max_req_timeout_ns, msg_timeout_ns;
    uint64_t refusing; /* workers whose disk took nothing of the last message */
    bool serves;       /* else all that is not encrypted is the gateway's */
    bool asks;         /* there are users: Python says who may publish */
    uint16_t open;     /* listeners where nobody is asked; by number */
    uint64_t known;    /* numbers given to connections that are somebody by themselves */
    struct nsq_grants grants;
    bool prepares; /* the gateway is asked before the first message of a topic */
    uint64_t date_second;
    char date[NSQ_HTTP_DATE_BYTES];
};

/* Of a connection. */
struct nsq_http {
    uint64_t idle_from_ns;
    uint64_t body_from_ns, part_ns; /* of a body that has begun to come */
    uint64_t left_before;           /* of its output, when it was looked at last */
    uint64_t skip_bytes;            /* of a body that nobody wants */
    struct nsq_http_chunks chunks;
    uint64_t known_as;         /* of one that is somebody by its certificate */
    struct nsq_granted wanted; /* what Python has been asked about */
    bool granted : 1;          /* ... and has allowed */
    bool unknown : 1;          /* ... or who asks for it is nobody */
    bool left : 1;             /* ... or the gateway is to answer */
    bool body_begun : 1;
    bool continued : 1; /* it has been told to send the body */
    bool admitted : 1;  /* the gateway has been asked about the topic */
    bool lingers : 1;   /* all is said: what still comes means nothing */
};

static inline struct nsq_http *nsq_http_of(const struct connection *c) {
    return connection_state(c);
}

static inline struct nsq_https *nsq_http_options(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

/* A request of which the head is there. */
struct nsq_http_request {
    struct nsq_http_head head;
    struct nsq_http_fields fields;
    struct text rest; /* of the input, behind the head */
};

/* --- nsq_http_who.c ----------------------------------------------------------------------------------------------- */

enum nsq_http_who {
    NSQ_HTTP_MAY,
    NSQ_HTTP_NOBODY,
    NSQ_HTTP_ASKED,  /* Python has been, or will be: not yet */
    NSQ_HTTP_UNCLEAR /* the gateway finds the words for what is wrong with it */
};

/* Whether who asks may publish what the request is about. Reads its query. */
enum nsq_http_who nsq_http_who(struct acceptor *a, struct connection *c, struct nsq_http_request *r);

#endif

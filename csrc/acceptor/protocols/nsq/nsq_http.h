/* nsqd's HTTP API, as far as messages pass through it: POST /pub and /mpub on nsq-http://. All else is the gateway's: the
 * connection is handed over to it with what has come and was not taken (acceptor/protocols/nsq/nsq_http.py), and comes back
 * with the next publish.
 *
 *   nsq_http.c        requests to messages, replies to answers, and connections that take too long
 *   nsq_http_head.c   a request's head and query taken apart
 *   nsq_http_body.c   bodies in chunks, and of many messages
 *
 * A head is taken here only if it is plainly a publish and can be read in one way. Whatever else it is, HTTP that others
 * would read otherwise included, is refused or served by the gateway, which so has the last word about every oddity.
 */
#ifndef MQ_NSQ_HTTP_H
#define MQ_NSQ_HTTP_H

#include "acceptor/protocols/nsq/nsq_command.h"

/* --- nsq_http_head.c ---------------------------------------------------------------------------------------------- */

/* A larger head is the gateway's. */
#define NSQ_HTTP_HEAD_BYTES ((size_t)16 << 10)

struct nsq_http_head {
    struct text query;
    size_t bytes;        /* of the head, with the empty line at its end */
    uint64_t body_bytes; /* unless it comes in chunks */
    bool many : 1;       /* /mpub */
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

#endif

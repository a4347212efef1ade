/* Bodies of requests: in chunks, and of many messages. */
#ifndef MQ_NSQ_HTTP_BODY_H
#define MQ_NSQ_HTTP_BODY_H

#include "acceptor/protocols/nsq/nsq_command.h"

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

#endif

/* What a connection may do where there are users; and what else Python says and asks. */
#ifndef MQ_BEANSTALK_ACCESS_H
#define MQ_BEANSTALK_ACCESS_H

#include "acceptor/protocols/beanstalk/beanstalk_state.h"

/* The answer to what is forbidden: every client expects it of every command. */
#define BEANSTALK_FORBIDDEN "UNKNOWN_COMMAND\r\n"

/* Whether Python must be asked about what this connection does. */
static inline bool beanstalk_is_guarded(const struct acceptor *a, const struct connection *c) {
    return beanstalk_options(a, c)->guarded && !beanstalk_of(c)->trusted;
}

/* A question to Python is a line: a zero byte, one of these, then what it is about. No client's line begins with a zero
 * byte. */
enum beanstalk_question {
    ASKS_NOTHING = 0,
    ASKS_WHO = 'h',
    ASKS_PUT = 'p',
    ASKS_WATCH = 'w',      /* about a tube's name: whether the client may consume from it */
    ASKS_READ = 'R',       /* ... look at its jobs */
    ASKS_MANAGE = 'M',     /* ... pause it, kick its jobs */
    ASKS_JOB = 'j',        /* about a job's id: whether the client may consume from its tube */
    ASKS_READ_JOB = 'r',   /* ... look at its jobs */
    ASKS_MANAGE_JOB = 'm', /* ... kick its jobs */
};

/* Whether the client is identified. False: Python has been asked, or the connection is stalled; the line is parsed
 * again later. */
bool beanstalk_introduced(struct acceptor *a, struct connection *c);
bool beanstalk_knows_put(struct acceptor *a, struct connection *c);
/* What Python says about this. VERDICT_NONE: it has been asked, or the connection is stalled, as above. */
enum beanstalk_verdict beanstalk_may(struct acceptor *a, struct connection *c, enum beanstalk_question question,
                                     const void *about, size_t bytes);
/* used: the topic it uses. watched: how many topics it watches; they go to `out`. introduced: who it is is known.
 * trusted: it may do everything. consumes-all: (0 or 1). may-put, verdict: (enum beanstalk_verdict). unwatch: (topic).
 * */
int64_t beanstalk_call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call);
bool beanstalk_set(void *state, const char *option, uint64_t value);

#endif

/* The beanstalkd protocol. Python has the rest of it: stats, the lists of tubes, and quit
 * (acceptor/protocols/beanstalk/serving.py).
 *
 *   beanstalk.c           bytes to requests
 *   beanstalk_words.c     numbers and names in a line
 *   beanstalk_replies.c   replies to bytes
 *   beanstalk_tubes.c     what a connection uses and watches, and how a worker that is back learns of it
 *   beanstalk_reserve.c   a reserve over several workers
 *   beanstalk_access.c    what a connection may do, where there are users; and what else Python says and asks
 *
 * What is accepted and what is refused, and how, is what beanstalkd 1.12 does to the byte, oddities included: a name
 * of a command is matched as a prefix, a carriage return without a line feed makes a line invalid, numbers may be
 * preceded by any number of spaces, the timeout of a reserve is whatever strtol accepts, and so on.
 */
#ifndef MQ_BEANSTALK_STATE_H
#define MQ_BEANSTALK_STATE_H

#include "acceptor/engine.h"

#define BEANSTALK_JOB_BYTES 65535u /* default of the option max-job-size */

/* A put with a larger body waits until the reserve before it on its connection has been answered, instead of being
 * parked at the worker behind it. */
#define MAX_PARKED_BODY_BYTES 4096u

enum { FEW_WATCHED = 4 };

/* Counters: commands, in the order of beanstalkd's stats, then current values. */
enum beanstalk_counter {
    COUNT_PUT,
    COUNT_PEEK,
    COUNT_PEEK_READY,
    COUNT_PEEK_DELAYED,
    COUNT_PEEK_BURIED,
    COUNT_RESERVE,
    COUNT_RESERVE_WITH_TIMEOUT,
    COUNT_DELETE,
    COUNT_RELEASE,
    COUNT_USE,
    COUNT_WATCH,
    COUNT_IGNORE,
    COUNT_BURY,
    COUNT_KICK,
    COUNT_TOUCH,
    COUNT_STATS,
    COUNT_STATS_JOB,
    COUNT_STATS_TUBE,
    COUNT_LIST_TUBES,
    COUNT_LIST_TUBE_USED,
    COUNT_LIST_TUBES_WATCHED,
    COUNT_PAUSE_TUBE,
    COUNT_PRODUCERS, /* connections that have sent a put */
    COUNT_WORKERS,   /* connections that have sent a reserve */
    COUNT_WAITING,   /* connections with a reserve unanswered */
    COUNT_ALL
};

/* The options of an acceptor. */
struct beanstalk_options {
    uint32_t max_job_bytes;
    uint32_t watches; /* of all connections, without one of each, so that those that watch one tube only do not count */
    uint32_t max_watches;
    bool guarded; /* a users file is in force */
};

/* What Python has decided, if it has. */
enum beanstalk_verdict { VERDICT_NONE = 0, VERDICT_ALLOWED, VERDICT_REFUSED };

enum gather_phase { GATHER_NONE = 0, GATHER_PROBING, GATHER_TAKING, GATHER_WAITING };

/* See beanstalk_reserve.h. */
struct gather {
    uint8_t phase;
    uint8_t best_worker;
    bool ready : 1;     /* some worker has a ready message */
    bool soon : 1;      /* some worker said DEADLINE_SOON */
    bool delivered : 1; /* the reply has been sent */
    bool cancelling : 1;
    uint32_t best_pri, next_pri;
    uint64_t best_id, next_id;
    uint64_t asked; /* workers that have not answered yet */
};

/* The codec's state of a connection. */
struct beanstalk {
    uint8_t phase;     /* where the parser is in the input */
    bool producer : 1; /* counted as a producer ... */
    bool consumer : 1;
    bool waiting : 1;
    bool implicit_use : 1;   /* it still uses its first tube implicitly */
    bool implicit_watch : 1; /* it still watches its first tube implicitly; the topic is `began_with` */
    bool introduced : 1;     /* Python has identified it, where there are users */
    bool trusted : 1;        /* Python need not be asked about anything */
    bool consumes_all : 1;   /* its user may consume from every tube */
    bool forbidden : 1;      /* the body is being discarded because the put is forbidden */
    uint8_t verdict : 2;     /* Python's answer about the line that is parsed next */
    uint8_t may_put : 2;     /* enum beanstalk_verdict: putting into the tube it uses */

    uint32_t put_pri;
    uint32_t put_bytes;
    union {
        uint64_t put_delay_ns;
        uint64_t discard_bytes; /* bytes still to be discarded of a put that is too large */
    };
    uint64_t put_ttr_ns;

    uint32_t used; /* topics (numbers of bindings); 0: none */
    uint32_t began_with;
    uint32_t watched_count, watched_capacity;
    uint32_t *watched;
    uint32_t few_watched[FEW_WATCHED];
    struct watch_index *watch_index; /* NULL: few tubes are watched */
    uint64_t watched_workers;        /* sets of workers: those of the watched topics */
    uint64_t holding_workers;        /* ... and those that may have messages in flight for it */

    uint32_t bodies_asked; /* reserve-jobs and peeks under way */
    uint32_t largest_body; /* largest body that a reserve or a peek has brought */

    struct gather gather;
};

_Static_assert(sizeof(struct connection) + sizeof(struct beanstalk) < 512, "an idle connection is small");

static inline struct beanstalk *beanstalk_of(const struct connection *c) {
    return connection_state(c);
}

static inline struct beanstalk_options *beanstalk_options(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

/* Whether its reserve is unanswered, for the figures. */
static inline void beanstalk_set_waiting(struct acceptor *a, struct connection *c, bool waiting) {
    struct beanstalk *b = beanstalk_of(c);
    if (b->waiting == waiting) return;
    b->waiting = waiting;
    codec_count_add(a, c, COUNT_WAITING, waiting ? 1 : (uint64_t)-1);
}

#endif

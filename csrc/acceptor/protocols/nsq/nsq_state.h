/* The NSQ protocol, V2: PUB, MPUB, DPUB, RDY, FIN, REQ, TOUCH, NOP, CLS and the frames that go to a client. IDENTIFY,
 * AUTH and SUB are Python's (acceptor/protocols/nsq: serving.py, authorizing.py); what nsqd checks before it looks at
 * their bodies is checked here.
 *
 *   nsq.c            bytes to requests, replies to frames
 *   nsq_command      a command taken apart, and the refusals of invalid ones
 *   nsq_publish.c    PUB, DPUB and MPUB
 *   nsq_producers    what each connection has published, for /stats
 *   nsq_consumer.c   a connection that has subscribed: messages pushed to it, and what happens when its worker dies
 *   nsq_heartbeat.c  heartbeats, and clients that are no longer heard of
 *   nsq_grants       who may publish where, as decided by Python
 *   go_quote.c       Go's %q, in which nsqd quotes names
 *
 * What is accepted and refused, in which order it is checked, and what is said, is what nsqd 1.3 does to the byte.
 */
#ifndef MQ_NSQ_STATE_H
#define MQ_NSQ_STATE_H

#include <string.h>

#include "acceptor/engine.h"
#include "acceptor/protocols/nsq/nsq_grants.h"

/* Limits: a line with its end (nsqd's reader holds no more), and a topic's or channel's name. */
#define NSQ_LINE_BYTES ((size_t)16 << 10)
#define NSQ_NAME_BYTES 64u

enum { NSQ_ID_BYTES = 16, NSQ_MAGIC_BYTES = 4, FRAME_HEAD_BYTES = 8 };
enum frame_type { FRAME_RESPONSE = 0, FRAME_ERROR = 1, FRAME_MESSAGE = 2 };
enum nsq_state { NSQ_NEW = 0, /* the magic has not come yet */ NSQ_INIT, NSQ_SUBSCRIBED, NSQ_CLOSING };

/* The options of an acceptor; sizes are in bytes. */
struct nsq_options {
    uint32_t max_msg_size, max_body_size;
    uint64_t max_rdy_count, max_req_timeout_ns, msg_timeout_ns, client_timeout_ns;
    bool auth, tls_required;
    uint64_t known; /* numbers given so far to connections that were granted something */
    struct nsq_grants grants;
};

/* The codec's state of a connection. */
struct nsq {
    uint8_t state;
    bool tls : 1;
    bool admitted : 1;      /* Python has allowed the command that comes next */
    bool taken : 1;         /* the client has taken some output since the last heartbeat */
    bool unsettled : 1;     /* a FIN, REQ or TOUCH that it sent may still be refused */
    bool publishes_all : 1; /* it may publish to every topic */
    uint8_t worker;         /* the worker of its subscription */
    uint32_t topic;         /* the topic it published to last; the number may have been bound to another name since, */
    uint32_t topic_hash;    /* ... which the hash of its name shows */

    uint64_t heartbeat_ns; /* 0: none */
    uint64_t beat_ns;      /* when the next heartbeat is due */
    uint64_t heard_ns;     /* when the last command was complete */

    uint64_t credit;
    uint64_t delivered_bytes;     /* delivered to it and not yet reported SENT */
    struct message *subscription; /* the SUBSCRIBE to send again when the worker is back, with its body */

    /* What it has published, by topic: see nsq_producers.h. If the current topic is not counted, `producing` is past
     * the last. */
    struct nsq_produced *produced;
    uint8_t produced_count, producing;
    uint64_t opened_ns;

    /* An incomplete MPUB: how far it has been checked. */
    size_t walked_bytes;
    uint32_t walked;

    uint64_t authorized_until_ns;
    uint64_t known_as; /* its number in `grants`; 0: nothing is granted */
};

_Static_assert(sizeof(struct connection) + sizeof(struct nsq) < 512, "an idle connection is small");

static inline struct nsq *nsq_of(const struct connection *c) {
    return connection_state(c);
}

static inline struct nsq_options *nsq_options(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

#endif

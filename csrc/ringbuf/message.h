/* The shard protocol: what crosses a ring between an acceptor and a worker.
 *
 * Every message is one `struct message`, then `body_bytes` of body. An acceptor sends requests, a worker sends
 * replies; nothing else travels. It knows no wire protocol: a wire protocol is a translator to it.
 *
 * Order. A worker executes the requests of one connection in the order in which they were sent. A RESERVE that has
 * to wait holds back the later requests of its connection (CANCEL and GONE excepted); other connections go on.
 * So the replies that one worker gives one connection come in the order of its requests.
 *
 * Identity. `conn` is the acceptor's number of a connection and `slot` its number of the request on it; both are
 * echoed and mean nothing to a worker beyond equality. `topic` is the acceptor's own number for a topic, bound to a
 * name by OPEN before its first use. `id` is the broker-wide message id: n * shards + shard, where n comes from the
 * board's counter, so that ids rise over time across shards and each tells its shard.
 *
 * Subscriptions. A topic's job queue is one kind: clients RESERVE from it. Channels (csrc/shards/subscription.h) are the other:
 * a SUBSCRIBE makes a consumer of one, and messages are then pushed to it, at most as many at once as its last CREDIT
 * said and no more than WINDOW_BYTES of them on their way: the acceptor says with SENT what has left it. A connection
 * may have several consumers, each with a number that the acceptor chose (`consumer`), credit, window and order.
 *
 * Headers. With MSG_HEADERS a body begins with a struct headers and its bytes. A request that wants them in its reply, or
 * in what is pushed (SUBSCRIBE_HEADERS), says so; others see the body alone.
 *
 * A message's numbers mean something else in each kind, and have a name for each: see struct message. docs/shard-protocol.md
 * says why all this is as it is.
 *
 * Time. Durations are nanoseconds in 64 bits; DURATION_FOREVER is "no end".
 */
#ifndef MQ_MESSAGE_H
#define MQ_MESSAGE_H

#include <stdint.h>

#define DURATION_FOREVER UINT64_MAX

enum message_kind {
    /* Requests without a reply. */
    MSG_OPEN = 1, /* topic, shard; body: its name */
    MSG_CLOSE,    /* topic: the number may be bound anew */
    MSG_USE,      /* conn publishes to topic from now on (instead of any other it used); topic 0: to none */
    MSG_WATCH,    /* conn's RESERVEs take from topic too */
    MSG_IGNORE,   /* ... no longer */
    MSG_CANCEL,   /* conn's RESERVE in slot, if it still waits, is answered CANCELLED; else nothing happens */
    MSG_RETURN,   /* id, delivered to conn, was not passed on: it is ready again as if never taken */
    MSG_GONE,     /* conn is closed: what it had in flight is ready again, what it used and watched is let go */

    /* Of a consumer, without a reply when they succeed; else a REFUSED comes back. */
    MSG_CREDIT, /* consumer, credit: how many messages it may have in flight, or see MSG_PERMITS; MSG_LEAVING: it wants no
                    more, ever */
    MSG_FINISH,  /* consumer, id: done with; or see MSG_UPTO, MSG_PARTS, MSG_BY_SEQ */
    MSG_REQUEUE, /* consumer, id: to be delivered again, after delay_ns; or see MSG_BY_SEQ, MSG_ALL */
    MSG_EXTEND,  /* consumer, id: its time to be finished begins anew */
    MSG_SENT,    /* consumer, sent_bytes: of what was delivered (heads included), with the client's socket now */

    /* Requests, each with one reply. */
    MSG_PUBLISH = 32, /* topic, id, pri, delay_ns, ttr_ns, body -> OK + seq + incarnation | NO_SPACE | TOO_MANY |
                         TERMINATED */
    MSG_RESERVE,      /* wait_ns -> OK + id + body | TIMED_OUT | DEADLINE_SOON | CANCELLED */
    MSG_PROBE,        /* -> OK + pri + id of the most urgent ready message conn may take | NONE | DEADLINE_SOON */
    MSG_TAKE,         /* pri, id -> the most urgent message if not less urgent than (pri, id): OK + id + body | NONE */
    MSG_RESERVE_ID,   /* id -> OK + id + body | NOT_FOUND */
    MSG_DELETE,       /* id -> OK | NOT_FOUND | FAILED */
    MSG_RELEASE,      /* id, pri, delay_ns -> OK | NOT_FOUND | NO_SPACE */
    MSG_BURY,         /* id, pri -> OK | NOT_FOUND | FAILED */
    MSG_TOUCH,        /* id -> OK | NOT_FOUND */
    MSG_PEEK_ID,      /* id -> OK + id + body | NOT_FOUND */
    MSG_PEEK_READY,   /* topic -> OK + id + body | NOT_FOUND */
    MSG_PEEK_DELAYED, /* topic -> OK + id + body | NOT_FOUND */
    MSG_PEEK_BURIED,  /* topic -> OK + id + body | NOT_FOUND */
    MSG_KICK,         /* topic, most -> OK + kicked */
    MSG_KICK_ID,      /* id -> OK | NOT_FOUND | NO_SPACE */
    MSG_PAUSE,        /* body: topic name; delay_ns -> OK | NOT_FOUND */
    MSG_STATS_ID,     /* id -> OK + body: struct job_stats, then the topic's name | NOT_FOUND */
    MSG_STATS_TOPIC,  /* body: topic name -> OK + body: struct topic_stats | NOT_FOUND */
    MSG_LIST, /* id: 0, or where the one before came to -> OK + id: where to go on, 0: that was all; body: for each
                         topic its name and a '\n', LIST_BYTES and a name at most */

    MSG_PUBLISH_MANY, /* topic, id: of the first, each next is `shards` higher; count; delay_ns, ttr_ns; body: for
                         each a big-endian uint32_t of its bytes, then those -> OK + seq of the first + incarnation, all
                         are there | NO_SPACE, TERMINATED, none is;
                         with MSG_IDEMPOTENT, a struct producer_part stands before them -> EARLY too; with MSG_PRIORITY
                         a struct publish_priority before that; with MSG_HEADERS the bytes of each begin with a struct
                         headers */
    MSG_SUBSCRIBE,    /* topic, consumer_number; body: struct subscribe, the channel's name, a description of the client
                         -> OK + seq: its cursor, incarnation | FULL + id: who is there, as in ATTACH | NO_SPACE | FAILED | INVALID */
    MSG_CHANGE,       /* shard, change: enum change; body: topic name, or topic name '\n' channel name
                         -> OK + incarnation | NOT_FOUND: no such topic | NONE: no such channel | NO_SPACE | FAILED */
    MSG_CATALOG,      /* with_consumers: 1: so; body: topic name (none: all) -> OK + body: see struct topic_figures */
    MSG_BARRIER,      /* -> OK: what conn sent before is done, and what there is to say of it has been said */
    MSG_UNSUBSCRIBE,  /* consumer_number: it is a consumer no more, what it had is delivered again -> OK | NOT_FOUND;
                         with MSG_DISMISS -> nothing, but it is DISMISSED, if it is one */
    MSG_SEEK, /* topic, start: enum start, seq: its number; body: a channel's name; with MSG_DISMISS all its consumers
                         are dismissed. The channel has from there on all that is retained, once, and nothing before; with
                         MSG_UPTO what is before is finished, and nothing else changes ->
                         OK + seq: its cursor, incarnation | NOT_FOUND: no such topic | NONE: no such channel |
                         NO_SPACE | FAILED */
    MSG_POSITION, /* topic, consumer_number: one of the connection's, or 0; body: a channel's name, or nothing -> OK + body:
                         struct position | NOT_FOUND: no such topic | NONE: no such channel */
    MSG_ATTACH, /* topic, producer_number; body: a struct attach and the producer's name: it is one of the topic's, which
                         retains from then on. -> OK + id: its key, seq: the last batch that is known of it (NO_PLACE: none),
                         epoch, incarnation | NONE: it waits, ATTACHED comes | FULL + refusal: why, and id: who is in the way, its
                         acceptor and connection, 32 bits each | TERMINATED | NO_SPACE | INVALID */
    MSG_DETACH,   /* producer_number: it is none of its topic's any more -> OK | NOT_FOUND */
    MSG_PEEK_SEQ, /* topic, seq -> OK + id, seq, time_ns, body: the message, if it is retained | NOT_FOUND */

    MSG_SCAN, /* topic, seq: from there on, what is retained, or in the topic's compacted view if that has passed it; some of it
                         -> OK + seq: where to go on, or the end, incarnation, body: of each message a struct scanned, its
                         headers, and of one that has parts its body | NOT_FOUND */
    MSG_COMPACT, /* topic, seq; body: struct superseded[], by seq, each with its words: the topic's compacted view has no
                         message of those any more, and has passed all before seq; it is made if there is none ->
                         OK + seq: its cursor | NOT_FOUND | NO_SPACE | INVALID */
    MSG_TXN_ACK, /* topic, consumer_number, id: a transaction's number, seq: finished by the consumer's channel, should it be committed;
                         body: what of its parts would be left, as bits; MSG_UPTO: and all before it
                         -> OK | NONE: it is finished | FULL, seq: it is in another transaction, or another has acknowledged all
                         up to that one | NOT_FOUND | NO_SPACE */
    MSG_TXN_END, /* topic, id: a transaction's number, commit: 1: what was published and acknowledged in it counts; 0: it never
                         does -> OK, also when there is no such transaction | NO_SPACE: ask again */
    MSG_TXN_LIST, /* -> OK + body: of each transaction of each topic a struct transaction_figures and the topic's name */
    MSG_TXN_PENDING, /* topic, id: a transaction's number, seq; body: a channel's name -> OK + seq: up to which all is finished by the
                         channel, should that transaction be committed, NO_PLACE: it says nothing of all; body: a struct pending_figures
                         of the message with that seq | NOT_FOUND: no such topic | NONE: no such channel */
    MSG_OLDEST, /* body: topic name, or topic name '\n' channel name -> OK + time_ns: when that was published which the channel has
                         not finished for longest; of a topic, which waits for a first channel, or is the tube's next job |
                         NONE: nothing | NOT_FOUND: no such topic or channel */
    MSG_RINGS, /* -> OK + body: of each acceptor that is there a struct ring_figures */
    MSG_PUBLISH_EACH, /* several PUBLISHes of a connection to one topic, in slots one behind the other: `several` of them; topic, pri,
                         delay_ns, ttr_ns, MSG_DURABLE: of each; id: of the first; body: of each a struct publish_each, its body,
                         zeros up to a multiple of 8 -> as to so many PUBLISHes with MSG_JOINED; all are there, or none is |
                         INVALID, one answer */
    MSG_REQUEST_EACH, /* `several` requests of a connection without a body, one behind the other; body: of each a struct request_each,
                         and room up to a multiple of REQUESTS_AT_ONCE that nobody looks at
                         -> as to each of them, if there is an answer to it | INVALID, one answer */

    /* Pushed to a consumer. */
    MSG_DELIVER =
        96, /* consumer, topic as its SUBSCRIBE had it, seq, id, attempts: this is which, time_ns: of its publish, body */
    MSG_REFUSED,   /* consumer, id, refused: the request's kind; NOT_FOUND: not in flight, NONE: but with another;
                    * FAILED: the worker died before it came to that */
    MSG_DISMISSED, /* consumer, why: its channel or topic was deleted, or moved: it is a consumer no more */
    MSG_ATTACHED, /* producer (as `consumer`): it waits no more. active: 1: it is the exclusive one, id: the epoch; 0: another has
                         thrown it out, and it is one no more */
    MSG_ACTIVE, /* consumer, active: 1: of those that stand by it is the first now; 0: another is */
};

enum { LIST_BYTES = 24 << 10 };

enum message_status {
    STATUS_OK = 0,
    STATUS_NONE,          /* nothing ready */
    STATUS_NOT_FOUND,     /* no such message, or not in a state, or not of a connection, that allows this */
    STATUS_TIMED_OUT,     /* the wait is over */
    STATUS_DEADLINE_SOON, /* something conn has in flight is within its last second and nothing is ready */
    STATUS_CANCELLED,
    STATUS_NO_SPACE,   /* a limit or the disk: try later; nothing has changed */
    STATUS_FAILED,     /* the disk failed: the outcome is not known */
    STATUS_FULL,       /* as many consumers as there may be */
    STATUS_EARLY,      /* what has to come before it is not there */
    STATUS_TOO_MANY,   /* topics, or consumers: nothing has changed */
    STATUS_INVALID,    /* it is not what a message of its kind looks like; nothing has changed */
    STATUS_TERMINATED, /* nothing is published to the topic any more */
};

/* In a reply's flags: conn has nothing in flight on this worker now. */
#define MSG_NONE_IN_FLIGHT 1u
/* In a PUBLISH's flags: the topic stays until it is deleted, and what nobody subscribes to yet waits for whoever does
 * first. PUBLISH_MANY and SUBSCRIBE always mean that. */
#define MSG_DURABLE 2u
/* In a USE's or WATCH's flags: nobody asked for it, every connection begins so. */
#define MSG_IMPLICIT 4u

/* In a DELETE's flags: of what conn has reserved, or of a tube that it watches; for it, nothing else is there. */
#define MSG_ONLY_CONSUMED 1u

/* In a PUBLISH's flags: its answer may be one with that of its neighbours. In those of the answer: it is that of `count` PUBLISHes
 * of the connection to one topic, which are OK: that in `slot`, with `id` and `seq`, and those in the slots that follow, with the seqs
 * that follow. Replies stay in the order of the requests; what is pushed may come before an answer that it came behind. */
#define MSG_JOINED 16384u
enum { JOINED_MOST = 256 };

/* In a PUBLISH_EACH: so many messages at most, of so many bytes at most. Their ids rise. */
enum { EACH_MOST = 64, EACH_BODY_BYTES = 4096 };
struct publish_each {
    uint64_t id;
    uint32_t bytes;
    uint32_t unused; /* 0 */
};
/* What it takes, with its body. */
static inline uint32_t publish_each_bytes(uint32_t body_bytes) {
    return (uint32_t)sizeof(struct publish_each) + ((body_bytes + 7) & ~(uint32_t)7);
}

/* In a REQUEST_EACH: so many at most, of the kinds that csrc/ringbuf/request_each.h names. */
enum { REQUESTS_MOST = 128, REQUESTS_AT_ONCE = 8 };
struct request_each {
    uint8_t kind;
    uint8_t unused; /* 0 */
    uint16_t flags;
    uint32_t slot; /* or consumer */
    uint64_t
        value; /* of a RESERVE its wait_ns; of a FINISH with MSG_UPTO or MSG_BY_SEQ its seq; else what stands in the place of id */
};

/* In an OPEN's flags: the topic is listed as long as the number is bound, though nobody uses it. */
#define MSG_LISTED 16u

/* In a CREDIT's flags: see there. */
#define MSG_LEAVING 1u

/* In a PUBLISH_MANY's flags: it is a part of a writer's batch. A part that is there already is OK and not written again;
 * one is taken only behind the part before it, or, being part 0, behind a batch of a lower number. In a PUBLISH's: the same, of
 * a producer that has a key from its ATTACH, whose batches have one part; what is there already is OK and has no place
 * (NO_PLACE for seq and incarnation). */
#define MSG_IDEMPOTENT 8u
#define NO_PLACE       UINT64_MAX
struct producer_part {
    uint64_t writer; /* its key */
    uint64_t batch;
    uint32_t part;
    uint32_t more; /* it stands for so many batches behind that one, too */
};

/* What may be on its way to one consumer: delivered, and not reported SENT. It is short while that is too much for all
 * consumers of an acceptor together (worker_push_at_most). */
#define WINDOW_BYTES       ((uint32_t)1 << 20)
#define SHORT_WINDOW_BYTES (WINDOW_BYTES / 16)

/* In a PUBLISH's, PUBLISH_MANY's, DELIVER's and the flags of a reply with a message: headers stand before the body. In
 * those of a RESERVE, TAKE, RESERVE_ID or PEEK: they are wanted. */
#define MSG_HEADERS 16u

/* Beside a message's body, on the rings and in the log: this, and then `bytes` of whatever `tag` says. */
struct headers {
    uint32_t bytes;
    uint16_t tag;   /* enum headers_tag, of who wrote them */
    uint16_t parts; /* a batch of so many messages; 0: one */
    uint32_t
        key_hash; /* of the key by which a subscription may choose a consumer; 0: it has none. And KEY_HASH_CHUNK */
    /* Who does not know these headers gets what is in the body instead of it: one message, or as many as it has parts, of so
     * many bytes together. Each of several has an id of its own: the first that of the message and `shards` more, each
     * next `shards` higher. 0: the body as it is. */
    uint32_t packed_bytes;
};
enum { HEADERS_MAX_BYTES = 65536 };
/* Beside a hash, of which it is no part: a chunk of a message, all chunks of which have the same hash. */
#define KEY_HASH_CHUNK ((uint32_t)1 << 31)
enum headers_tag { HEADERS_NATS = 1, HEADERS_PULSAR = 2, HEADERS_SPARK = 3 };

/* In a FINISH's flags: not the message `id`, but all that were delivered up to `seq`, by whomever they are in flight. */
#define MSG_UPTO 32u
/* In a FINISH's flags: of the message `id` (a batch) only some parts; body: uint64_t[], at most PARTS_MAX_WORDS, in which the
 * bits of those are set that are not finished. What comes of several is what all of them leave; the message is finished when
 * no bit is left. In a DELIVER's: before the headers stand a struct parts_head and its words: what is left of the message. */
#define MSG_PARTS 64u
struct parts_head {
    uint32_t words;
    uint32_t unused; /* 0 */
};
enum { PARTS_MAX_WORDS = 16 };

/* In a PUBLISH's and PUBLISH_MANY's flags, with MSG_DURABLE: the topic is one that retains (docs/shard-protocol.md), and what
 * nobody subscribes to yet waits for nobody. */
#define MSG_RETAIN 128u
/* In the flags of a FINISH, with MSG_PARTS or without, and of a REQUEUE: not the message `id` but that of `seq`. A FINISH is
 * then about any that the channel has passed, whoever has it; what is not there is not refused. */
#define MSG_BY_SEQ 256u
/* In a REQUEUE's: all that the consumer has in flight. */
#define MSG_ALL 512u
/* In a CREDIT's: `credit` is added to what the consumer may yet be sent, of which each message takes as many as it has parts
 * (see struct headers) that are not finished. It is sent something as long as that is more than 0, so what is left may become less.
 * A CREDIT without the flag then says how many it may have in flight; without one: any number. */
#define MSG_PERMITS 1024u
/* In a PUBLISH's, with MSG_DURABLE and MSG_RETAIN: it is part of transaction `txn` of its topic, and counts when that is committed. Its
 * seq is the topic's next, and nothing behind it is delivered until then. It has no delay. */
#define MSG_TXN 8192u
struct transaction_figures {
    uint64_t number, items;
    uint64_t first_seq;   /* of its messages in the topic; NO_PLACE: it has none there */
    uint64_t incarnation; /* of the topic */
    uint32_t state;       /* 0: it is open; 1, 2: it is being committed, aborted */
    uint32_t name_bytes;
};
/* What transactions have of a message and would finish, in one channel: `whole` of all of it, else of its parts, as bits. */
struct pending_figures {
    uint32_t whole, parts;
    uint64_t bits[16];
};
/* In a SEEK's and an UNSUBSCRIBE's: see there. */
#define MSG_DISMISS 2048u
/* In a DELIVER's and the flags of a reply with a message: before the headers stands a struct packed_run. It is that many
 * messages: those that are in the packed one, from `first` on. `id` is that of the first. */
#define MSG_PACKED 4096u
struct packed_run {
    uint64_t id; /* of the message that they are in */
    uint32_t first, count;
};
/* In a PUBLISH_MANY's: a struct publish_priority stands before all else in its body, and is that of each message. */
#define MSG_PRIORITY 8192u
struct publish_priority {
    uint32_t pri;
    uint32_t unused; /* 0 */
};
/* More parts than that are delivered as they lie there. */
enum { PACKED_MAX_PARTS = 1024 };
_Static_assert(PACKED_MAX_PARTS <= PARTS_MAX_WORDS * 64, "each part can be finished by itself");

/* A producer that is there under a name of its own in the topic: one at a time has it. */
enum { ATTACH_NAME_MAX = 1024 };
enum access {
    ACCESS_SHARED = 0,
    ACCESS_EXCLUSIVE, /* nobody else is there, or comes */
    ACCESS_WAIT,      /* the same, as soon as everybody else has gone */
    ACCESS_FENCE,     /* the same, at once: everybody else is thrown out */
};
struct attach {
    uint32_t access; /* enum access */
    uint32_t unused; /* 0 */
    uint64_t
        epoch; /* among those of its connection and number: a higher one takes the place of a lower one of its name */
    uint64_t least; /* what the topic's epoch must not be above; NO_PLACE: whatever it is */
};
enum attach_refusal { ATTACH_NAME_TAKEN = 1, ATTACH_EXCLUDED, ATTACH_OTHERS, ATTACH_OUTDATED };

/* Where a subscription begins, or goes on. */
enum start {
    START_LATEST = 0, /* behind all that was published */
    START_EARLIEST,   /* with the first that is retained, or held by anybody */
    START_SEQ,        /* with this one, or the next that is there */
    START_TIME,       /* with the first that was published at or after this wall clock, ns */
};

/* Why a consumer is DISMISSED. */
enum dismissed { DISMISSED_DELETED = 0, DISMISSED_MOVED, DISMISSED_CLOSED };

/* A POSITION: where a topic begins and ends, and a subscription of it stands. */
struct position {
    uint64_t incarnation;          /* 0: it is not one that retains */
    uint64_t began_seq;            /* where this incarnation began to count */
    uint64_t first_seq;            /* of the first message that is there; next_seq: none is */
    uint64_t next_seq;             /* that the next message will have */
    uint64_t last_time_ns;         /* of last_seq, if its record is there; 0: it is not, nor what follows */
    uint16_t last_tag, last_parts; /* of its struct headers */
    uint32_t terminated;
    /* Of the subscription, if one was asked for. */
    uint64_t cursor;     /* what comes before it has been delivered at least once, or passed over */
    uint64_t unfinished; /* the first message that is not finished: all before it are */
    uint64_t depth;      /* to be delivered, were there credit */
    uint64_t in_flight;
    /* Of the topic's compacted view. */
    uint64_t last_seq;           /* of the last message that may be delivered; NO_PLACE: there is none */
    uint64_t compacted_until;    /* its horizon; 0: there is none */
    uint64_t compacted_last;     /* its last message; NO_PLACE: it has none */
    uint64_t compacted_messages; /* in it */
    uint16_t compacted_tag;      /* of the last one's headers; ... */
    uint16_t compacted_parts;    /* ... and how many parts it has up to the last that is in the view */
    uint32_t consumer_in_flight; /* of those in flight, with the consumer that was named */
};

/* The channel that is a topic's compacted view: see csrc/shards/compacted.c. */
#define COMPACTION_NAME "__compaction"
/* The channel that holds what its topic is to keep, whoever has finished that. Nobody consumes from it; what others do not hold
 * is not there any more before it. */
#define RETENTION_NAME "__retention"
struct scanned {
    uint64_t seq;
    uint32_t headers_bytes; /* with their struct headers */
    uint32_t body_bytes;
    uint32_t given_bytes; /* of the body: all or nothing */
    uint32_t unused;
};
struct superseded {
    uint64_t seq;
    uint32_t
        words; /* behind it stand so many uint64_t: the bits of the parts that are not superseded. 0: it is as a whole */
    uint32_t unused;
};

struct message {
    uint8_t kind; /* of the request, in a reply too */
    union {
        uint8_t status;  /* of a reply */
        uint8_t several; /* PUBLISH_EACH, REQUEST_EACH */
    };
    uint16_t flags;
    uint32_t conn;
    union {
        uint32_t slot;     /* of what has a reply, and of the reply */
        uint32_t consumer; /* of what is a consumer's and has none, and of what is pushed */
    };
    uint32_t topic;
    union {
        uint64_t id;
        uint64_t shard;      /* OPEN, CHANGE */
        uint64_t credit;     /* CREDIT */
        uint64_t sent_bytes; /* SENT */
        uint64_t most;       /* KICK */
        uint64_t kicked;     /* its reply */
    };
    union {
        uint32_t pri;
        uint32_t count;           /* PUBLISH_MANY, a reply with MSG_JOINED */
        uint32_t change;          /* CHANGE */
        uint32_t with_consumers;  /* CATALOG */
        uint32_t consumer_number; /* SUBSCRIBE, UNSUBSCRIBE */
        uint32_t policy;          /* the reply to a SUBSCRIBE that is refused: enum policy of those that are there */
        uint32_t attempts;        /* DELIVER */
        uint32_t refused;         /* REFUSED */
        uint32_t active;          /* ACTIVE, ATTACHED */
        uint32_t producer_number; /* ATTACH, DETACH */
        uint32_t epoch;           /* its reply, ... */
        uint32_t refusal;         /* ... enum attach_refusal */
        uint32_t start;           /* SEEK */
        uint32_t why;             /* DISMISSED */
        uint32_t commit;          /* TXN_END */
    };
    uint32_t body_bytes;
    union {
        uint64_t delay_ns; /* PUBLISH, PUBLISH_MANY, RELEASE, REQUEUE, PAUSE */
        uint64_t wait_ns;  /* RESERVE */
        uint64_t txn;      /* PUBLISH with MSG_TXN */
        uint64_t time_ns;  /* DELIVER, the reply to PEEK_SEQ */
        uint64_t begin;    /* CHANGE_MAKE_AT: enum start, ... */
        uint64_t
            incarnation; /* of the topic, in replies to PUBLISH, PUBLISH_MANY, SUBSCRIBE, SEEK; 0: it retains not */
    };
    union {
        uint64_t ttr_ns; /* PUBLISH, PUBLISH_MANY */
        uint64_t seq;    /* DELIVER, FINISH with MSG_UPTO or MSG_BY_SEQ, SEEK, PEEK_SEQ, and replies that have one */
        uint64_t at;     /* ... and its seq or time */
    };
};

_Static_assert(sizeof(struct message) == 48 && sizeof(struct headers) == 16 && sizeof(struct parts_head) == 8 &&
                   sizeof(struct packed_run) == 16 && sizeof(struct publish_each) == 16 &&
                   sizeof(struct request_each) == 16 && EACH_MOST <= UINT8_MAX && REQUESTS_MOST <= UINT8_MAX &&
                   (int)EACH_MOST <= (int)JOINED_MOST,
               "a ring record's layout is shared between processes");

struct subscribe {
    uint64_t timeout_ns;     /* until a message that is not finished is delivered again */
    uint64_t timeout_max_ns; /* however often it is extended */
    uint32_t sample_percent; /* of the messages, delivered; the others are as good as finished. 0: all */
    uint32_t max_consumers;  /* 0: any number */
    uint16_t name_bytes;
    uint16_t flags;
    uint32_t description_bytes;
};
/* The channel goes with its last consumer, is not logged, and drops the oldest of more than EPHEMERAL_BACKLOG messages. */
#define SUBSCRIBE_EPHEMERAL 1u
/* What is delivered brings its headers along. */
#define SUBSCRIBE_HEADERS 2u
/* Behind the description, and a struct subscribe_start if there is one, stand a struct subscribe_policy, the consumer's own
 * name, and its ranges. Without it: POLICY_TURNS. */
#define SUBSCRIBE_POLICY 4u
/* Behind the description stands a struct subscribe_start: where the channel begins if there is none of that name yet; it takes
 * over nothing that waited but what lies behind there. The topic is one that retains from then on. With SUBSCRIBE_EPHEMERAL it is
 * a reader: it holds nothing that is published, is behind by any number, and misses what retention drops. A reader does not join
 * a channel that is none, nor the other way round: INVALID. */
#define SUBSCRIBE_START 8u
/* What the consumer has in flight when it goes counts as if it had not been delivered to it. */
#define SUBSCRIBE_UNCOUNTED 16u

/* Of what lies before its topic's compacted view's horizon the consumer gets what is in that; the rest is as good as finished. */
#define SUBSCRIBE_COMPACTED 32u

struct subscribe_start {
    uint32_t start;  /* enum start */
    uint32_t unused; /* 0 */
    uint64_t at;     /* the seq or time */
};

/* Who gets the next message of a subscription. That of its first consumer is that of all who join them; another is FULL. */
enum policy {
    /* Whoever may take one, in turn, of those with the lowest priority; a message that is delivered again takes turns with new
     * ones. */
    POLICY_TURNS = 0,
    /* With these, what is delivered again comes first, in the order of its seq. */
    POLICY_EXCLUSIVE, /* there is one consumer: a second is FULL */
    POLICY_FAILOVER, /* one of them, see struct subscribe_policy; the others stand by. Each is told by ACTIVE which it is */
    POLICY_KEY,      /* whoever has the slot of its key; one that others have in flight of that slot is waited for */
};
enum { KEY_SLOTS = 65536, KEY_MAX_RANGES = 64, CONSUMER_NAME_MAX = 1024 };

struct subscribe_policy {
    uint16_t policy;
    uint16_t name_bytes;
    uint32_t priority; /* the lowest number is the first; POLICY_TURNS knows 64 of them, the last for all behind it */
    union {
        uint32_t
            ranges; /* of POLICY_KEY: struct key_range; ones that overlap others' are INVALID. 0: slots are shared out */
        uint32_t pick; /* of POLICY_FAILOVER: the active one of n with the lowest priority is number pick % n, ... */
    };
    uint32_t order; /* ... counted from 0 by order, then name, then number */
    /* Messages that all consumers together may have in flight: with so many nothing more is delivered, until half are
     * finished. What whoever came last said holds; 0: any number. */
    uint32_t most_in_flight;
};
struct key_range {
    uint16_t first, last;
};
enum { EPHEMERAL_BACKLOG = 10000, DESCRIPTION_MAX_BYTES = 4096 };

enum change {
    CHANGE_MAKE = 1,
    CHANGE_DELETE,
    CHANGE_EMPTY,
    CHANGE_PAUSE,
    CHANGE_UNPAUSE,
    CHANGE_RETAIN,    /* a topic is made, if there is none, and retains from now on */
    CHANGE_TERMINATE, /* of a topic: nothing is published to it any more; for good */
    CHANGE_MAKE_AT,   /* a channel is made, if there is none, and begins at its place as with SUBSCRIBE_START */
};

/* A CATALOG: each topic's figures and name; behind it those of its channels; behind each its consumers', if asked for,
 * with the description that came with their SUBSCRIBE. All packed one behind the other, without padding. */
/* BLOCKED: it has as many messages in flight as it may, see struct subscribe_policy. */
enum { FIGURES_PAUSED = 1, FIGURES_EPHEMERAL = 2, FIGURES_DURABLE = 4, FIGURES_BLOCKED = 8 };

struct topic_figures {
    uint32_t name_bytes;
    uint32_t flags;
    uint32_t channels;
    uint32_t shard;
    uint64_t depth; /* messages that wait for a channel, or for the end of a pause */
    uint64_t messages;
    uint64_t message_bytes;
    uint64_t jobs;              /* in its job queue */
    uint64_t read_back;         /* of the messages, those that were read back when the worker began; */
    uint64_t read_back_bytes;   /* and of the bytes */
    uint64_t reserves, deletes; /* of its jobs, since then */
};

struct channel_figures {
    uint32_t name_bytes;
    uint32_t flags;
    uint32_t consumers;
    uint32_t consumers_listed;
    uint64_t depth;
    uint64_t in_flight;
    uint64_t deferred;
    uint64_t messages;
    uint64_t requeues;
    uint64_t timeouts;
    uint64_t read_back;           /* as the topic's */
    uint64_t delivered, finished; /* since the worker began */
};

struct consumer_figures {
    uint32_t acceptor, conn;
    uint32_t credit;
    uint32_t in_flight;
    uint64_t messages;
    uint64_t finishes;
    uint64_t requeues;
    uint32_t description_bytes;
    uint16_t sample_percent;
    uint16_t is_leaving; /* 1: it wants no more than what it has */
    uint32_t number;     /* its acceptor's, of the connection's consumers */
    uint32_t unused;
};
_Static_assert(sizeof(struct position) == 120 && sizeof(struct subscribe_start) == 16, "read by Python too");
_Static_assert(sizeof(struct topic_figures) == 80 && sizeof(struct channel_figures) == 88 &&
                   sizeof(struct consumer_figures) == 56 && sizeof(struct subscribe) == 32 &&
                   sizeof(struct producer_part) == 24 && sizeof(struct subscribe_policy) == 20,
               "read by Python too");

/* The rings between a worker and an acceptor: bytes that wait in each, of how many; what waits for room in the one to the
 * acceptor, and the most that ever did. */
struct ring_figures {
    uint32_t acceptor, unused;
    uint64_t in_bytes, in_room;
    uint64_t out_bytes, out_room;
    uint64_t overflow_bytes, overflow_peak_bytes;
};
_Static_assert(sizeof(struct ring_figures) == 56, "read by Python too");

enum job_state { JOB_READY = 1, JOB_RESERVED, JOB_DELAYED, JOB_BURIED };

struct job_stats {
    uint64_t id;
    uint32_t state; /* enum job_state */
    uint32_t pri;
    uint64_t age_ns;
    uint64_t delay_ns;
    uint64_t ttr_ns;
    uint64_t time_left_ns; /* 0 unless reserved or delayed */
    uint32_t file;         /* the log segment that holds it */
    uint32_t reserves;
    uint32_t timeouts;
    uint32_t releases;
    uint32_t buries;
    uint32_t kicks;
};

struct topic_stats {
    uint64_t urgent;
    uint64_t ready;
    uint64_t reserved;
    uint64_t delayed;
    uint64_t buried;
    uint64_t total;
    uint64_t using;
    uint64_t watching;
    uint64_t waiting;
    uint64_t deletes;
    uint64_t pauses;
    uint64_t pause_ns;
    uint64_t pause_left_ns;
};

#endif

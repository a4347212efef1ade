/* The shard protocol: what crosses a ring between an acceptor and a worker.
 *
 * Every message is one `struct message`, then `body_bytes` of body. An acceptor sends requests, a worker sends replies;
 * nothing else travels. It knows no wire protocol: the codec of a wire protocol translates to it.
 *
 * Order. A worker executes the requests of one connection in the order in which they were sent. A RESERVE that has to
 * wait holds back the later requests of its connection (CANCEL and GONE excepted); other connections go on. So the
 * replies that one worker gives one connection come in the order of its requests.
 *
 * Identity. `conn` is the acceptor's number of a connection and `slot` its number of a request on that connection; a
 * worker echoes both and only compares them. `topic` is the acceptor's own number for a topic, bound to a name by OPEN
 * before its first use. `id` is the broker-wide message id: n * shards + shard, where n comes from the board's counter,
 * so that ids rise over time across all shards, and each id tells its shard.
 *
 * Subscriptions. A topic's job queue is one kind: clients RESERVE from it. Channels (csrc/shards/subscription_state.h)
 * are the other: SUBSCRIBE makes a consumer of a channel, and messages are then pushed to it. Its last CREDIT limits
 * how many are in flight, and at most WINDOW_BYTES of them are on their way to the client: the acceptor reports with
 * SENT what has left it. A connection may have several consumers. Each has a number that the acceptor chose
 * (`consumer`), its own credit, window and order.
 *
 * Headers. With MSG_HEADERS a body begins with a struct headers and the headers' bytes. A request says if it wants them
 * in its reply (MSG_HEADERS) or in pushed messages (SUBSCRIBE_HEADERS); without that it gets the body alone.
 *
 * The numbers in a message's head mean different things in different kinds, and have a name for each meaning: see
 * struct message. docs/shard-protocol.md gives the reasons for all this.
 *
 * Time. Durations are nanoseconds in 64 bits; DURATION_FOREVER is "no end".
 */
#ifndef MQ_MESSAGE_H
#define MQ_MESSAGE_H

#include <stdint.h>

#include "base/time_units.h"

#define DURATION_FOREVER UINT64_MAX

enum message_kind {
    /* Requests without a reply. */
    MSG_OPEN = 1, /* topic, shard; body: the topic's name. Binds the number to the name */
    MSG_CLOSE,    /* topic: the number is free to be bound to another name */
    MSG_USE,      /* conn publishes to topic from now on, instead of the one it used before; topic 0: to none */
    MSG_WATCH,    /* conn's RESERVEs take from topic too */
    MSG_IGNORE,   /* conn's RESERVEs no longer take from topic */
    MSG_CANCEL,   /* conn's RESERVE in slot is answered CANCELLED if it still waits; else nothing happens */
    MSG_RETURN,   /* id was delivered to conn but not passed on: it is ready again as if it had never been reserved */
    MSG_GONE, /* conn is closed: its messages in flight are ready again, the topics it used and watched are released */

    /* Requests of a consumer. No reply when they succeed; else a REFUSED comes back. */
    MSG_CREDIT,  /* consumer, credit: how many messages it may have in flight, or see MSG_PERMITS; MSG_LEAVING: it wants
                    no more messages, ever */
    MSG_FINISH,  /* consumer, id: the message is acknowledged; or see MSG_UPTO, MSG_PARTS, MSG_BY_SEQ */
    MSG_REQUEUE, /* consumer, id: deliver the message again, after delay_ns; or see MSG_BY_SEQ, MSG_ALL */
    MSG_EXTEND,  /* consumer, id: the message's timeout begins anew */
    MSG_SENT,    /* consumer, sent_bytes: of the messages delivered (heads included), written to the client's socket */

    /* Requests, each with one reply. */
    MSG_PUBLISH = 32, /* topic, id, pri, delay_ns, ttr_ns, body -> OK + seq + incarnation | NO_SPACE | TOO_MANY |
                         TERMINATED */
    MSG_RESERVE,      /* wait_ns -> OK + id + body | TIMED_OUT | DEADLINE_SOON | CANCELLED */
    MSG_PROBE,        /* -> OK + pri + id of the most urgent ready message that conn may take | NONE | DEADLINE_SOON */
    MSG_TAKE,         /* pri, id -> the most urgent message, unless less urgent than (pri, id): OK + id + body | NONE */
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
    MSG_STATS_TOPIC,  /* body: topic name -> OK + body: struct topic_stats, then the topic's name | NOT_FOUND */
    MSG_LIST, /* id: 0, or the `id` of the reply before -> OK + id: where to go on, 0: that was all; body: for each
                         topic its name and a '\n', LIST_BYTES and one name at most */

    MSG_PUBLISH_MANY, /* topic; id: of the first message, each next one is `shards` higher; count; delay_ns, ttr_ns;
                         body: for each message its length, a big-endian uint32_t, then its bytes -> OK + seq of the
                         first + incarnation: all are published | NO_SPACE, TERMINATED: none is. With MSG_IDEMPOTENT a
                         struct producer_part precedes the messages, and EARLY is an answer too; with MSG_PRIORITY a
                         struct publish_priority precedes that; with MSG_HEADERS the bytes of each message begin with a
                         struct headers */
    MSG_SUBSCRIBE,    /* topic, consumer_number; body: struct subscribe, the channel's name, a description of the client
                         -> OK + seq: its cursor, incarnation | FULL + id: the consumer in the way, as in ATTACH; seq:
                         its order, see struct subscribe_policy | NO_SPACE | FAILED | INVALID */
    MSG_CHANGE,       /* shard, change: enum change; body: topic name, or topic name '\n' channel name
                         -> OK + incarnation | NOT_FOUND: no such topic | NONE: no such channel | NO_SPACE | FAILED */
    MSG_CATALOG,      /* with_consumers: 0 or 1; body: topic name (empty: all) -> OK + body: see struct topic_figures */
    MSG_BARRIER,      /* -> OK: all earlier requests of conn have been done, and answered or refused */
    MSG_UNSUBSCRIBE,  /* consumer_number: the consumer ends, its messages in flight are delivered again -> OK |
                         NOT_FOUND; with MSG_DISMISS there is no reply, but the consumer, if there is one, is
                         DISMISSED */
    MSG_SEEK, /* topic, start: enum start, seq: the seq or time; body: a channel's name. Moves the channel: it will get
                         all retained messages from there on, once each, and none before. With MSG_UPTO messages before
                         that are finished and nothing else changes; with MSG_DISMISS all its consumers are dismissed ->
                         OK + seq: its cursor, incarnation | NOT_FOUND: no such topic | NONE: no such channel | NO_SPACE
                         | FAILED */
    MSG_POSITION, /* topic; consumer_number: a consumer of conn, or 0; body: a channel's name, or nothing -> OK + body:
                         struct position | NOT_FOUND: no such topic | NONE: no such channel */
    MSG_ATTACH,   /* topic, producer_number; body: a struct attach and the producer's name. Attaches a named producer to
                         the topic, which retains messages from then on -> OK + id: the producer's key, seq: its last
                         batch that is known (NO_PLACE: none), epoch, arrival | NONE + the same: it waits, ATTACHED
                         comes later | FULL + refusal: why, and id: the producer in the way, its acceptor and
                         connection, 32 bits each | TERMINATED | NO_SPACE | INVALID */
    MSG_DETACH,   /* producer_number: the producer leaves its topic -> OK | NOT_FOUND */
    MSG_PEEK_SEQ, /* topic, seq, most -> OK + id, seq, time_ns, whole_bytes, body: the message, if it is retained; with
                     pri not 0 otherwise the next one that is. Of one with more than `most` bytes (0: any number) its
                     beginning, at most PEEK_MOST_BYTES; with MSG_HEAD its headers, if they are short, or nothing |
                     NOT_FOUND */

    MSG_SCAN, /* topic, seq: reads some messages from there on, as far as the topic's compacted view has come those in
                         the view, behind that all retained ones -> OK + seq: where to go on, or the end, incarnation,
                         body: for each message a struct scanned, its headers, and its body if it has parts |
                         NOT_FOUND */
    MSG_COMPACT, /* topic, seq; body: struct superseded[], ordered by seq, each followed by its words. Removes these
                         messages from the topic's compacted view and moves its horizon to seq; makes the view if there
                         is none -> OK + seq: its cursor | NOT_FOUND | NO_SPACE | INVALID */
    MSG_TXN_ACK, /* topic, consumer_number; id: a transaction; seq: a message that the consumer's channel finishes if
                         the transaction commits; body: the parts of it that would be left, as bits; MSG_UPTO: and all
                         before it
                         -> OK | NONE: it is finished already | FULL, seq: it is in another transaction, or another
                         transaction has acknowledged all up to that seq | NOT_FOUND | NO_SPACE */
    MSG_TXN_END, /* topic; id: a transaction; commit: 1: its messages and acknowledgements take effect; 0: they never do
                         -> OK, also when there is no such transaction | NO_SPACE: ask again */
    MSG_TXN_LIST,    /* -> OK + body: for each transaction of each topic a struct transaction_figures and the topic's
                         name */
    MSG_TXN_PENDING, /* topic; id: a transaction; seq; body: a channel's name -> OK + seq: the channel finishes all up
                         to that seq if the transaction commits (NO_PLACE: it acknowledges nothing cumulatively); body:
                         a struct pending_figures of the message asked for | NOT_FOUND: no such topic | NONE: no such
                         channel */
    MSG_BACKLOG, /* topic, seq; id; body: a channel's name: counts, of some messages from seq on, those that the channel
                         has not finished, and all before the seq id -> OK + seq: where to go on, or the end,
                         incarnation; body: a struct backlog_figures | NOT_FOUND: no such topic | NONE: no such
                         channel */
    MSG_OLDEST, /* body: topic name, or topic name '\n' channel name -> OK + time_ns: publish time of the oldest message
                         that the channel has neither finished nor deferred; for a topic, of the oldest that waits for a
                         first channel or is the tube's next job | NONE: there is none | NOT_FOUND: no such topic or
                         channel */
    MSG_RINGS,  /* -> OK + body: for each connected acceptor a struct ring_figures */
    MSG_PUBLISH_EACH, /* `several` PUBLISHes of a connection to one topic, in consecutive slots; topic, pri, delay_ns,
                         ttr_ns and MSG_DURABLE apply to each; id: of the first; body: for each a struct publish_each,
                         its body, zeros up to a multiple of 8 -> as to that many PUBLISHes with MSG_JOINED: all are
                         published or none is | INVALID, a single answer */
    MSG_REQUEST_EACH, /* `several` consecutive requests of a connection, without bodies; body: for each a struct
                         request_each, then unused room up to a multiple of REQUESTS_AT_ONCE
                         -> the reply of each that has one | INVALID, a single answer */

    /* Pushed to a consumer. */
    MSG_DELIVER =
        96, /* consumer; topic: as in its SUBSCRIBE; seq, id; attempts, this one included; time_ns: of publish; body */
    MSG_REFUSED,   /* consumer, id; refused: the request's kind. NOT_FOUND: the message is not in flight; NONE: it is in
                    flight with another consumer; FAILED: the worker died before it handled the request */
    MSG_DISMISSED, /* consumer, why: the consumer has ended, because its channel or topic was deleted or moved */
    MSG_ATTACHED,  /* the producer's number in `consumer`. active 1: it no longer waits and is the exclusive producer,
                         id: its epoch; 0: another producer has fenced it off, and it has ended */
    MSG_ACTIVE,    /* consumer. active 1: it is now the active one of a POLICY_FAILOVER subscription; 0: another is */
};

enum { LIST_BYTES = 24 << 10 };

enum message_status {
    STATUS_OK = 0,
    STATUS_NONE,          /* nothing ready */
    STATUS_NOT_FOUND,     /* no such message, or its state or its owner does not allow this */
    STATUS_TIMED_OUT,     /* the wait is over */
    STATUS_DEADLINE_SOON, /* a message that conn has in flight has less than a second left, and none is ready */
    STATUS_CANCELLED,
    STATUS_NO_SPACE,   /* a limit is reached or the disk is full: try later; nothing has changed */
    STATUS_FAILED,     /* the disk failed: the outcome is unknown */
    STATUS_FULL,       /* there are as many consumers, or producers, as may be */
    STATUS_EARLY,      /* an earlier part or batch is missing */
    STATUS_TOO_MANY,   /* too many topics or consumers; nothing has changed */
    STATUS_INVALID,    /* the request is malformed; nothing has changed */
    STATUS_TERMINATED, /* the topic takes no more messages */
    STATUS_FENCED,     /* another producer has been exclusive in the topic since the message's producer attached */
};

/* In a reply's flags: conn has no message in flight on this worker now. */
#define MSG_NONE_IN_FLIGHT 1u
/* In a PUBLISH's flags: the topic is durable: it stays until it is deleted, and messages that come before any
 * subscription wait for the first one. PUBLISH_MANY and SUBSCRIBE always mean that. */
#define MSG_DURABLE 2u
/* In a PUBLISH's flags: its body begins with its producer's arrival, a uint64_t from the reply to ATTACH, before
 * anything else. It is FENCED if the topic's last exclusive producer arrived later. */
#define MSG_OF_PRODUCER 4u
/* In a USE's or WATCH's flags: the client did not ask for it; every connection begins so. */
#define MSG_IMPLICIT 4u

/* In a DELETE's flags: only a message that conn has reserved or that is in a tube it watches; any other is NOT_FOUND.
 * */
#define MSG_ONLY_CONSUMED 1u

/* In a PUBLISH's flags: its reply may be joined with those of its neighbours. In a reply's flags: it answers `count`
 * PUBLISHes of the connection to one topic, all OK: the one in `slot`, with `id` and `seq`, and those in the slots that
 * follow, with the seqs that follow. Replies stay in the order of the requests, but a pushed message may overtake a
 * joined reply. */
#define MSG_JOINED 16384u
enum { JOINED_MOST = 256 };

/* Limits of a PUBLISH_EACH: how many messages, and how many bytes of body in each. Their ids rise. */
enum { EACH_MOST = 64, EACH_BODY_BYTES = 4096 };
struct publish_each {
    uint64_t id;
    uint32_t bytes;
    uint32_t unused; /* 0 */
};
/* The bytes that a publish_each and its body take, with padding. */
static inline uint32_t publish_each_bytes(uint32_t body_bytes) {
    return (uint32_t)sizeof(struct publish_each) + ((body_bytes + 7) & ~(uint32_t)7);
}

/* Limit of a REQUEST_EACH. csrc/ringbuf/request_each.h names the kinds that it may contain. */
enum { REQUESTS_MOST = 128, REQUESTS_AT_ONCE = 8 };
struct request_each {
    uint8_t kind;
    uint8_t unused; /* 0 */
    uint16_t flags;
    uint32_t slot;  /* or consumer */
    uint64_t value; /* a RESERVE's wait_ns; the seq of a FINISH with MSG_UPTO or MSG_BY_SEQ; else what is in `id` */
};

/* In an OPEN's flags, and in those of a CHANGE that makes a topic: what a topic of this name is. A durable one stays
 * what it was made as. */
#define MSG_TOPIC_EPHEMERAL      1u /* it is deleted with its last subscription, and does not outlive the process */
#define MSG_TOPIC_NON_PERSISTENT 2u /* its messages are not stored */
/* In a CHANGE's flags: the channel that it makes is ephemeral, as with SUBSCRIBE_EPHEMERAL. */
#define MSG_CHANNEL_EPHEMERAL 4u

/* In an OPEN's flags: LIST names the topic as long as the number is bound, even if nobody uses it. */
#define MSG_LISTED 16u

/* In a CREDIT's flags: see MSG_CREDIT. */
#define MSG_LEAVING 1u

/* In a PUBLISH_MANY's flags: it is one part of an idempotent producer's batch. A part that was published before is
 * answered OK and not written again. A part is accepted only behind the part before it; part 0 only behind a batch of a
 * lower number. In a PUBLISH's flags: the same for a producer with a key from its ATTACH, whose batches have one part
 * each; the OK of a message that was published before has no place (NO_PLACE for seq and incarnation). */
#define MSG_IDEMPOTENT 8u
#define NO_PLACE       UINT64_MAX
struct producer_part {
    uint64_t key; /* the producer's */
    uint64_t batch;
    uint32_t part;
    uint32_t more; /* how many batches behind `batch` it includes as well */
};

/* How many bytes may be on their way to one consumer: delivered and not yet reported SENT. The short window applies
 * while all consumers of an acceptor together have too much on its way (worker_push_at_most). */
#define WINDOW_BYTES       ((uint32_t)1 << 20)
#define SHORT_WINDOW_BYTES (WINDOW_BYTES / 16)

/* In the flags of a PUBLISH, PUBLISH_MANY, DELIVER or a reply with a message: headers precede the body. In the flags of
 * a RESERVE, TAKE, RESERVE_ID or PEEK: the client wants headers. */
#define MSG_HEADERS 16u

/* What precedes a message's body on the rings and in the log: this, then `bytes` bytes in the format that `tag` names.
 * */
struct headers {
    uint32_t bytes;
    uint16_t tag;      /* enum headers_tag: which protocol wrote them */
    uint16_t parts;    /* messages in the batch; 0: a single message */
    uint32_t key_hash; /* hash of the key by which POLICY_KEY chooses a consumer, with KEY_HASH_CHUNK; 0: no key */
    /* A client that does not know these headers gets the contents of the body instead of the body: one message, or
     * `parts` messages, of this many bytes together at most. Each of several has an id of its own: the first the
     * message's plus `shards`, each next `shards` more. 0: such a client gets the body as it is. */
    uint32_t packed_bytes;
};
enum { HEADERS_MAX_BYTES = 65536 };
/* A flag in key_hash, not part of the hash: the message is a chunk of a larger one, all chunks of which have the same
 * hash. */
#define KEY_HASH_CHUNK ((uint32_t)1 << 31)
enum headers_tag { HEADERS_NATS = 1, HEADERS_PULSAR = 2, HEADERS_SPARK = 3 };

/* In a FINISH's flags: instead of message `id`, all messages delivered up to `seq`, whichever consumer has them in
 * flight. */
#define MSG_UPTO 32u
/* In a FINISH's flags: only some parts of message `id`, a batch. body: uint64_t[], at most PARTS_MAX_WORDS, with the
 * bits set of the parts that are not finished. Several such bitmaps are ANDed, and when no bit is left the message is
 * finished. In a DELIVER's flags: a struct parts_head and its words precede the headers: the parts that are left. */
#define MSG_PARTS 64u
/* In the flags of a PEEK_SEQ, with MSG_HEADERS: only what precedes the message's contents is wanted. Headers of
 * HEADERS_MAX_BYTES may go on in the body, so such a message is sent whole. */
#define MSG_HEAD 64u
enum { PEEK_MOST_BYTES = 4 << 20 };
struct parts_head {
    uint32_t words;
    uint32_t unused; /* 0 */
};
enum { PARTS_MAX_WORDS = 256 };

/* In a PUBLISH's and PUBLISH_MANY's flags, with MSG_DURABLE: the topic retains messages (docs/shard-protocol.md), and
 * messages that come before any subscription do not wait for the first one. */
#define MSG_RETAIN 128u
/* In the flags of a FINISH (with MSG_PARTS or without) and a REQUEUE: the message with `seq`, not with `id`. Such a
 * FINISH may name any message that the channel has passed, whichever consumer has it; one that is not there is not
 * refused. */
#define MSG_BY_SEQ 256u
/* In a REQUEUE's flags: all messages that the consumer has in flight. */
#define MSG_ALL 512u
/* In a CREDIT's flags: `credit` permits are added to those the consumer has. Each message sent takes as many permits as
 * it has unfinished parts (see struct headers). Messages are sent while permits are left, so the last one may take them
 * below 0. But with a policy other than POLICY_TURNS, n permits begin a read of n messages (100 at most), all of which
 * are sent if they are there, whatever they take. With permits, a CREDIT without this flag limits the messages in
 * flight, counted in unfinished parts too: when so many are, the consumer is blocked until half are finished, or it
 * requeues some. Until there is such a CREDIT, any number may be in flight. */
#define MSG_PERMITS 1024u
/* In a PUBLISH's flags: delay_ns, if it is not 0, is the time by the wall clock at which the message is due, in whole
 * ms. It is at most DUE_MOST_NS ahead, but for one whose ttr_ns is not in whole ms: its record has room for any delay.
 * Messages that are due at one time are delivered in the order of their seqs. A channel comes to such a message in the
 * order of seqs, and makes it wait then, if its consumers take turns or go by key. */
#define MSG_DUE     64u
#define DUE_MOST_NS (MS_NS << 31)
/* In a PUBLISH's flags, with MSG_DURABLE and MSG_RETAIN: the message belongs to transaction `txn` of its topic and
 * takes effect when that commits: a uint64_t precedes the message, and follows what other flags put there. It takes the
 * topic's next seq, and no message behind it is delivered before the transaction ends. With MSG_DUE, or no delay. */
#define MSG_TXN 8192u
struct transaction_figures {
    uint64_t number, items;
    uint64_t first_seq;   /* of its first message in the topic; NO_PLACE: it has none there */
    uint64_t incarnation; /* of the topic */
    uint32_t state;       /* 0: open; 1: being committed; 2: being aborted */
    uint32_t name_bytes;
};
/* Of the messages that a BACKLOG has counted. */
struct backlog_figures {
    uint64_t entries, messages;   /* a batch is one entry, and as many messages as it has parts */
    uint64_t first_seq, last_seq; /* NO_PLACE: there is none */
};
_Static_assert(sizeof(struct backlog_figures) == 32, "read by Python too");

/* What open transactions would finish of a message in one channel: all of it (`whole`), or of its `parts` (0: nothing
 * of them) those whose bits are set. */
struct pending_figures {
    uint32_t whole, parts;
    uint64_t bits[PARTS_MAX_WORDS];
};
/* In the flags of a SEEK or UNSUBSCRIBE: see there. */
#define MSG_DISMISS 2048u
/* In the flags of a DELIVER or a reply with a message: a struct packed_run precedes the headers. What is delivered are
 * `count` messages that the packed message contains, from number `first` on. `id` is that of the first of them. */
#define MSG_PACKED 4096u
struct packed_run {
    uint64_t id; /* of the packed message */
    uint32_t first, count;
};
/* In a PUBLISH_MANY's flags: its body begins with a struct publish_priority, which applies to each message. */
#define MSG_PRIORITY 8192u
struct publish_priority {
    uint32_t pri;
    uint32_t unused; /* 0 */
};
/* A batch of more parts than this is delivered as it is. */
enum { PACKED_MAX_PARTS = 16384 };
_Static_assert(PACKED_MAX_PARTS <= PARTS_MAX_WORDS * 64, "each part can be finished by itself");

/* A producer with a name of its own in the topic: one producer at a time has that name. */
enum { ATTACH_NAME_MAX = 1024 };
enum access {
    ACCESS_SHARED = 0,
    ACCESS_EXCLUSIVE, /* no other producer is attached, or may attach */
    ACCESS_WAIT,      /* exclusive as soon as all others have left */
    ACCESS_FENCE,     /* exclusive at once: all others are thrown out */
};
struct attach {
    uint32_t access; /* enum access */
    uint32_t unused; /* 0 */
    uint64_t least;  /* the attach is refused if the topic's epoch is above this; NO_PLACE: never */
};
enum attach_refusal { ATTACH_NAME_TAKEN = 1, ATTACH_EXCLUDED, ATTACH_OTHERS, ATTACH_OUTDATED };

/* Where a subscription begins, or is moved to. */
enum start {
    START_LATEST = 0, /* behind the last message published */
    START_EARLIEST,   /* at the first message that is retained or that anything refers to */
    START_SEQ,        /* at the message with this seq, or the next one there is */
    START_TIME,       /* at the first message published at or after this wall clock time, in ns */
};

/* Why a consumer is DISMISSED. */
enum dismissed { DISMISSED_DELETED = 0, DISMISSED_MOVED, DISMISSED_CLOSED };

/* The answer to POSITION: where a topic begins and ends, and where one of its subscriptions stands. */
struct position {
    uint64_t incarnation;  /* 0: the topic does not retain messages */
    uint64_t began_seq;    /* first seq of this incarnation */
    uint64_t first_seq;    /* seq of the first message there is; next_seq: there is none */
    uint64_t next_seq;     /* seq of the next message to be published */
    uint64_t last_time_ns; /* publish time of last_seq; 0: its record is gone, and last_tag, last_parts are unset */
    uint16_t last_tag, last_parts; /* from its struct headers */
    uint16_t terminated;
    uint16_t consumer_blocked; /* the consumer that was named gets nothing: see MSG_PERMITS */
    /* Of the subscription, if one was asked for. */
    uint64_t cursor;     /* all messages before it have been delivered at least once, or skipped */
    uint64_t unfinished; /* the first message that is not finished */
    uint64_t depth;      /* messages that wait to be delivered */
    uint64_t in_flight;
    uint64_t last_seq; /* of the topic: the last message that may be delivered; NO_PLACE: there is none */
    /* Of the topic's compacted view. */
    uint64_t compacted_until;    /* its horizon; 0: there is no view */
    uint64_t compacted_last;     /* seq of its last message; NO_PLACE: it has none */
    uint64_t compacted_messages; /* how many messages it has */
    uint16_t compacted_tag;      /* from the headers of its last message */
    uint16_t compacted_parts;    /* the last message's parts, up to the last one that is in the view */
    uint32_t consumer_in_flight; /* what the consumer that was named has: of a batch each unfinished message */
    uint64_t messages; /* of the topic, from first_seq on: at most, and fewer than seqs where some are missing */
};

/* The name of the channel that holds a topic's compacted view: see csrc/shards/compacted.c. */
#define COMPACTION_NAME "__compaction"
/* The name of a channel that holds messages its topic must keep after all others have finished them. Nobody consumes
 * from it. Messages before its cursor are there only as long as another subscription holds them. */
#define RETENTION_NAME "__retention"
struct scanned {
    uint64_t seq;
    uint32_t headers_bytes; /* including the struct headers */
    uint32_t body_bytes;
    uint32_t given_bytes; /* how much of the body follows: all or nothing */
    uint32_t unused;
};
struct superseded {
    uint64_t seq;
    uint32_t words; /* how many uint64_t follow: bits of the parts that are not superseded. 0: all of it is */
    uint32_t unused;
};

struct message {
    uint8_t kind; /* a reply has the kind of its request */
    union {
        uint8_t status;  /* replies */
        uint8_t several; /* PUBLISH_EACH, REQUEST_EACH */
    };
    uint16_t flags;
    uint32_t conn;
    union {
        uint32_t slot;     /* requests with a reply, and replies */
        uint32_t consumer; /* a consumer's requests without a reply, and pushed messages */
    };
    uint32_t topic;
    union {
        uint64_t id;
        uint64_t shard;      /* OPEN, CHANGE */
        uint64_t credit;     /* CREDIT */
        uint64_t sent_bytes; /* SENT */
        uint64_t most;       /* KICK, PEEK_SEQ */
        uint64_t kicked;     /* its reply */
    };
    union {
        uint32_t pri;
        uint32_t count;           /* PUBLISH_MANY, a reply with MSG_JOINED */
        uint32_t change;          /* CHANGE */
        uint32_t with_consumers;  /* CATALOG */
        uint32_t consumer_number; /* SUBSCRIBE, UNSUBSCRIBE */
        uint32_t policy;          /* the reply to a SUBSCRIBE that is refused: enum policy of the present consumers */
        uint32_t attempts;        /* DELIVER */
        uint32_t whole_bytes;     /* the reply to PEEK_SEQ: how many the whole body would have */
        uint32_t refused;         /* REFUSED */
        uint32_t active;          /* ACTIVE, ATTACHED */
        uint32_t producer_number; /* ATTACH, DETACH */
        uint32_t epoch;           /* the reply to ATTACH */
        uint32_t refusal;         /* the reply to ATTACH: enum attach_refusal */
        uint32_t start;           /* SEEK */
        uint32_t why;             /* DISMISSED */
        uint32_t commit;          /* TXN_END */
    };
    uint32_t body_bytes;
    union {
        uint64_t delay_ns; /* PUBLISH, PUBLISH_MANY, RELEASE, REQUEUE, PAUSE */
        uint64_t wait_ns;  /* RESERVE */
        uint64_t time_ns;  /* DELIVER, the reply to PEEK_SEQ */
        uint64_t begin;    /* CHANGE_MAKE_AT: enum start */
        uint64_t arrival;  /* the reply to ATTACH: producers that attach later have a higher one */
        /* The topic's, in replies to PUBLISH, PUBLISH_MANY, SUBSCRIBE, SEEK; 0: it does not retain. */
        uint64_t incarnation;
    };
    union {
        uint64_t ttr_ns; /* PUBLISH, PUBLISH_MANY */
        uint64_t seq;    /* DELIVER, FINISH with MSG_UPTO or MSG_BY_SEQ, SEEK, PEEK_SEQ, and replies that have one */
        uint64_t at;     /* CHANGE_MAKE_AT: the seq or time */
    };
};

_Static_assert(sizeof(struct message) == 48 && sizeof(struct headers) == 16 && sizeof(struct parts_head) == 8 &&
                   sizeof(struct packed_run) == 16 && sizeof(struct publish_each) == 16 &&
                   sizeof(struct request_each) == 16 && EACH_MOST <= UINT8_MAX && REQUESTS_MOST <= UINT8_MAX &&
                   (int)EACH_MOST <= (int)JOINED_MOST,
               "a ring record's layout is shared between processes");

struct subscribe {
    uint64_t timeout_ns;     /* a message that is not finished within this time is delivered again */
    uint64_t timeout_max_ns; /* the most it may be extended to in all */
    uint32_t sample_percent; /* how many of the messages are delivered; the others count as finished. 0: all */
    uint32_t max_consumers;  /* 0: any number */
    uint16_t name_bytes;
    uint16_t flags;
    uint32_t description_bytes;
};
/* The channel is deleted with its last consumer, is not logged, and drops the oldest of more than EPHEMERAL_BACKLOG
 * messages. */
#define SUBSCRIBE_EPHEMERAL 1u
/* Messages are delivered with their headers. */
#define SUBSCRIBE_HEADERS 2u
/* A struct subscribe_policy, the consumer's own name and its ranges follow the description, and the struct
 * subscribe_start if there is one. Without this flag: POLICY_TURNS. */
#define SUBSCRIBE_POLICY 4u
/* A struct subscribe_start follows the description: where the channel begins if there is none of that name yet. Of the
 * messages that waited for a first channel it takes over only those from there on. The topic retains messages from then
 * on. With SUBSCRIBE_EPHEMERAL the channel is a reader: it keeps no message alive, may fall behind without limit, and
 * misses what retention drops. A reader cannot join a channel that is not one, nor the other way round: INVALID. */
#define SUBSCRIBE_START 8u
/* When the consumer leaves, its messages in flight count as not having been delivered: their attempts are taken back.
 * */
#define SUBSCRIBE_UNCOUNTED 16u

/* Before the horizon of the topic's compacted view the consumer gets only messages in the view; the others count as
 * finished. */
#define SUBSCRIBE_COMPACTED 32u
/* With POLICY_TURNS: redeliveries come before new messages, in the order of their seqs. As the policy, this is decided
 * by the first consumer for all who join it; but one that says otherwise is not refused. */
#define SUBSCRIBE_AGAIN_FIRST 64u

struct subscribe_start {
    uint32_t start;  /* enum start */
    uint32_t unused; /* 0 */
    uint64_t at;     /* the seq or time */
};

/* Who gets the next message of a subscription. The first consumer decides for all who join it; one with another policy
 * is FULL. */
enum policy {
    /* Consumers that may take a message take turns, among those with the lowest `priority`. Redeliveries take turns
     * with new messages, unless they come first (SUBSCRIBE_AGAIN_FIRST). */
    POLICY_TURNS = 0,
    /* With these, redeliveries come before new messages, in the order of their seqs. */
    POLICY_EXCLUSIVE, /* a single consumer; a second one is FULL */
    POLICY_FAILOVER,  /* one active consumer, the others stand by (struct subscribe_policy); ACTIVE tells each */
    POLICY_KEY,       /* who has the slot of the key; waits while another has a message of that slot in flight */
};
enum { KEY_SLOTS = 65536, KEY_MAX_RANGES = 64, CONSUMER_NAME_MAX = 1024 };

struct subscribe_policy {
    uint16_t policy;
    uint16_t name_bytes;
    uint32_t priority; /* the lowest number goes first; POLICY_TURNS tells 64 apart, the last stands for all above it */
    union {
        /* POLICY_KEY: how many struct key_range; INVALID if they overlap others'. 0: slots are shared out. */
        uint32_t ranges;
        /* POLICY_FAILOVER: of n consumers with the lowest priority, number pick % n is active. */
        uint32_t pick;
    };
    /* POLICY_FAILOVER: they are numbered from 0 by order, then name, then consumer number. POLICY_KEY: one with another
     * order than the present ones is FULL. */
    uint32_t order;
    /* How many messages all consumers together may have in flight, those of batches counted: when there are so many, no
     * new ones are delivered until fewer than half are left. The value of the consumer that came last applies; 0: any
     * number. */
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
    CHANGE_RETAIN,    /* makes the topic if there is none; it retains messages from now on */
    CHANGE_TERMINATE, /* the topic takes no more messages, for good */
    CHANGE_MAKE_AT,   /* makes the channel if there is none, beginning at `begin` and `at` as with SUBSCRIBE_START */
};

/* The answer to CATALOG: each topic's figures and name, followed by those of its channels; each channel is followed by
 * the figures of its consumers, if asked for, with the description from their SUBSCRIBE. All packed without padding. */
/* BLOCKED: the channel has as many messages in flight as it may, see struct subscribe_policy. POLICY and the bits above
 * it: 1 + enum policy of its consumers, or of the last ones if they are gone; 0: it has had none since the worker
 * began. */
enum { FIGURES_PAUSED = 1, FIGURES_EPHEMERAL = 2, FIGURES_DURABLE = 4, FIGURES_BLOCKED = 8, FIGURES_POLICY = 16 };

struct topic_figures {
    uint32_t name_bytes;
    uint32_t flags;
    uint32_t channels;
    uint32_t shard;
    uint64_t depth; /* messages that wait for a channel, or for the end of a pause */
    uint64_t messages;
    uint64_t message_bytes;
    uint64_t jobs;                      /* in its job queue */
    uint64_t read_back;                 /* of `messages`, those recovered from the log when the worker began */
    uint64_t read_back_bytes;           /* of `message_bytes`, the same */
    uint64_t reserves, deletes;         /* of its jobs, since the worker began */
    uint64_t reserved, delayed, buried; /* of `jobs` */
    uint64_t releases, timeouts;        /* since the worker began */
    /* Since the worker began: bytes of the headers of its messages; messages in batches, less one for each batch, which
     * are among `messages` only if the topic is not persistent. */
    uint64_t header_bytes, more_parts;
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
    uint64_t read_back;           /* as in struct topic_figures */
    uint64_t delivered, finished; /* since the worker began */
    uint64_t in_flight_parts;     /* in flight, of a batch that is given as one each unfinished message */
};

struct consumer_figures {
    uint32_t acceptor, conn;
    uint32_t credit;
    uint32_t in_flight; /* of a batch that it was given as one each unfinished message */
    uint64_t messages;
    uint64_t finishes;
    uint64_t requeues;
    uint32_t description_bytes;
    uint16_t sample_percent;
    uint16_t is_leaving; /* 1: it wants no more messages */
    uint32_t number;     /* chosen by its acceptor, unique on its connection */
    uint32_t is_blocked; /* 1: see MSG_PERMITS */
};
_Static_assert(sizeof(struct position) == 128 && sizeof(struct subscribe_start) == 16, "read by Python too");
_Static_assert(sizeof(struct topic_figures) == 136 && sizeof(struct channel_figures) == 96 &&
                   sizeof(struct consumer_figures) == 56 && sizeof(struct subscribe) == 32 &&
                   sizeof(struct producer_part) == 24 && sizeof(struct subscribe_policy) == 20,
               "read by Python too");

/* The two rings between a worker and an acceptor: bytes that wait in each, and its size; bytes that wait for room in
 * the ring to the acceptor, and the most that ever waited. */
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

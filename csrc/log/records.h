/* The records of a shard's log: what each kind means, and how its attributes and body are laid out.
 *
 * The records (see log.h for their frame):
 *
 *   TOPIC    topic: a number new to this shard; seq: its next_seq; flags: TOPIC_*; attributes, if TOPIC_STOPPED: uint64_t
 *            from which seq it keeps what is published itself: what it kept before, the channels that there are have by now, or, if
 *            there is none, it waits for the first; if TOPIC_RETAINS struct topic_attributes; body: its name. A segment has those of the topics of which it has
 *            messages, before them, and each followed by the SUBSCRIPTIONs of the topic; and begins with those of topics
 *            that readers of the log name. What a segment that is to go has alone is written anew before. Written twice:
 *            without it nobody would know whose the messages are that bear the number.
 *   FLOOR    seq: where topics that are made from now on begin to count; id: the highest message id given out so far; body:
 *            uint32_t[]: numbers of topics with nothing in them, which mean nothing from here on.
 *   PUBLISH  topic, seq, id, body, before it a struct headers and its bytes if MESSAGE_HEADERS; attributes: uint32_t pri, ttr in ms, and, if it is delayed, delay in ms; or, if one
 *            of them does not fit, struct publish_attributes.
 *   DELETE   topic, seq, id: the message is done with.
 *   STATE    topic, seq, id; attributes: struct state_attributes: what the job queue knows of the message now.
 *   PRODUCER   id: a writer's key, seq: its batch; attributes: uint32_t: the part of it that the shard has, or struct
 *            producer_attributes; flags: PRODUCER_NAMED: of one that has a name in a topic. With the flag
 *            PUBLISH_MORE it counts together with the PUBLISHes behind it. Each segment begins with those remembered.
 *   MOVED    a PUBLISH and its STATE in one, copied from a segment that is to go; attributes: struct moved_attributes;
 *            flags: MOVED_*.
 *
 *   STAGED   topic, seq, id, body as a PUBLISH; attributes: struct staged_attributes: it is published, should that transaction be
 *            committed: then by a PUBLISH with its seq and id.
 *   TXN_END  topic, id: a transaction's number; flags: TXN_COMMIT: what was staged follows as PUBLISH records. Without it nothing of it
 *            counts.
 *
 * Of subscriptions, whose number in the shard is the record's id:
 *
 *   SUBSCRIPTION  topic, seq: its cursor, flags: SUBSCRIPTION_*, body: its name; attributes, if it was set back: uint64_t: from
 *                 which seq on it holds messages. Written where TOPICs are, and twice, as they are.
 *   CURSOR        topic, seq: the cursor; what lies before it has been delivered once.
 *   FINISH        topic, seq: a message that is finished; attributes: uint32_t count: so are those that follow it, count
 *                 in all; or body: int32_t[] of how far from seq each one finished lies. FINISH_UPTO: all that were
 *                 passed up to seq. FINISH_PARTS: of that message, all but the parts whose bits are set in the body,
 *                 uint64_t[].
 *   REDELIVERY     topic, seq of a message behind the cursor; attributes: struct redelivery.
 *   EMPTY         topic, seq: the cursor; nothing before it is held by the subscription any more. id 0: what waits for
 *                 the topic's first subscription, or is kept by the topic itself, and comes before seq, is held by neither any more.
 *   SEEK          topic, seq: the cursor is there now; all from there on is to be delivered, nothing before.
 *   UNSUBSCRIBE   topic: the subscription is gone.
 *   ADOPT         topic, seq, if ADOPT_FROM: its cursor stands there then, or before; body: uint64_t[]: ids of messages in the job queue that the topic's first subscription gets too.
 *                 ADOPT_ALL: all that are in it. ADOPT_DELAYED: those that a pause kept, published with a delay;
 *                 not written any more, as no channel has what a pause keeps.
 *   PENDING       topic, seq; attributes: uint64_t: a transaction's number; it is acknowledged, should that be committed;
 *                 PENDING_PARTS: all but the parts whose bits are set in the body, uint64_t[]. PENDING_UPTO: together with all
 *                 before it.
 *   REFERENCES         topic, seq, body: struct reference[]; after a MOVED with MOVED_REFERENCED: which subscriptions hold the message.
 *   TOPIC_GONE    topic: it is deleted, with its messages and subscriptions.
 *
 * Records of one PUBLISH_MANY bear the flag PUBLISH_MORE, but for the last: without that one, none of them counts, nor
 * does the PRODUCER before them.
 * Version 2 of a segment may have MESSAGE_HEADERS; a version 1 has none. A kind that is not listed here is of a version
 * that is not known, and refused.
 *
 * Ephemeral subscriptions write nothing: what is published for nobody else bears PUBLISH_FLEETING.
 */
#ifndef MQ_RECORDS_H
#define MQ_RECORDS_H

#include <stdint.h>
#include <string.h>

#include "log/log.h"
#include "ringbuf/message.h"

enum record_kind {
    RECORD_TOPIC = 1,
    RECORD_FLOOR,
    RECORD_PUBLISH,
    RECORD_DELETE,
    RECORD_STATE,
    RECORD_MOVED,
    RECORD_SUBSCRIPTION,
    RECORD_CURSOR,
    RECORD_FINISH,
    RECORD_REDELIVERY,
    RECORD_EMPTY,
    RECORD_UNSUBSCRIBE,
    RECORD_ADOPT,
    RECORD_REFERENCES,
    RECORD_TOPIC_GONE,
    RECORD_PRODUCER,
    RECORD_SEEK,
    RECORD_STAGED,
    RECORD_PENDING,
    RECORD_TXN_END,
    RECORD_KINDS, /* none of this or a higher number is known */
};

enum record_flag {
    TOPIC_DURABLE = 1,
    TOPIC_TUBE = 2,
    TOPIC_STOPPED = 4,
    TOPIC_EPHEMERAL = 8, /* what it has does not outlive the process */
    PUBLISH_MORE = 1,
    PRODUCER_NAMED = 2,
    TOPIC_RETAINS = 16,
    TOPIC_TERMINATED = 32,
    TOPIC_RELEASES = 64,    /* with TOPIC_STOPPED: it is paused no more, and gives away what it has kept */
    PUBLISH_FLEETING = 2,   /* it does not outlive the process */
    PUBLISH_UNAWAITED = 4,  /* it waits for no first subscription */
    MESSAGE_HEADERS = 8,    /* of a PUBLISH or MOVED */
    MOVED_NO_JOB = 1,       /* the job queue does not have it */
    MOVED_REFERENCED = 2,   /* a REFERENCES follows */
    MOVED_IN_JOBS = 4,      /* it is several jobs: what became of each a DELETE or STATE behind it says */
    REFERENCES_DELAYED = 1, /* it was published with a delay */
    SUBSCRIPTION_PAUSED = 1,
    SUBSCRIPTION_BY_AGE = 2, /* it keeps its topic's messages, and what it has passed is not to be there */
    ADOPT_ALL = 1,
    ADOPT_DELAYED = 2,
    ADOPT_FROM = 4,
    FINISH_UPTO = 1,
    FINISH_PARTS = 2,
    TXN_COMMIT = 1,
    PENDING_PARTS = 1,
    PENDING_UPTO = 2,
};

struct topic_attributes {
    uint64_t stopped_seq;
    uint64_t incarnation, began_seq; /* of one that retains */
    uint64_t epochs;                 /* how many exclusive producers it has had */
};

struct producer_attributes {
    uint32_t part;
    uint32_t unused;
    uint64_t used_wall_ns; /* when it was heard of last; without it: when the record was written */
};

struct publish_attributes {
    uint32_t pri;
    uint32_t unused;
    uint64_t delay_ns; /* ready this long after the record's time */
    uint64_t ttr_ns;
};

struct staged_attributes {
    uint64_t txn;
    struct publish_attributes publish;
};

struct state_attributes {
    uint32_t pri;
    uint32_t state; /* enum job_state, never JOB_RESERVED: a crash gives such a job back */
    uint32_t reserves, timeouts, releases, buries, kicks;
    uint32_t unused;
    uint64_t delay_ns;
    uint64_t deadline_wall_ns; /* of a delayed one */
};

struct moved_attributes {
    struct publish_attributes publish;
    struct state_attributes state;
};
struct redelivery {
    uint32_t attempts;
    uint32_t unused;
    uint64_t deferred_until_wall_ns; /* 0: it is not deferred */
};

struct reference {
    uint32_t subscription; /* 0: the message waits for the topic's first, or the topic keeps it */
    uint32_t ahead;        /* 1: of its cursor */
    struct redelivery redelivery;
};
_Static_assert(sizeof(struct redelivery) == 16 && sizeof(struct reference) == 24, "on-disk layout");
enum { SHARD_REDELIVERY_BYTES = sizeof(struct redelivery) };
_Static_assert(sizeof(struct publish_attributes) == 24 && sizeof(struct state_attributes) == 48, "on-disk layout");

/* Writes the shortest form that says it to `out` (room for a struct publish_attributes) and returns how long that is. */
uint8_t publish_attributes_pack(const struct publish_attributes *a, void *out);
/* Of a PUBLISH or MOVED record, in whichever form. */
struct publish_attributes publish_attributes_of(const struct record *r);

/* Whether what a message consists of may begin with headers; *bytes are those of headers and the struct before them. */
static inline bool headers_fit(const void *content, size_t content_bytes, size_t *bytes) {
    struct headers h;
    if (content_bytes < sizeof h) return false;
    memcpy(&h, content, sizeof h);
    *bytes = sizeof h + h.bytes;
    return h.bytes <= HEADERS_MAX_BYTES && *bytes <= content_bytes;
}

/* Of a PUBLISH or MOVED record: how much stands before the body that consumers without headers see. */
static inline size_t message_headers_bytes(const struct record *r) {
    size_t bytes;
    bool some = (r->flags & MESSAGE_HEADERS) && headers_fit(record_body(r), record_body_bytes(r), &bytes);
    return some ? bytes : 0;
}

/* How many messages are in one for who does not know its headers; 0: it is as it is. */
static inline uint32_t headers_packed(const void *content) {
    struct headers h;
    memcpy(&h, content, sizeof h);
    if (!h.packed_bytes || h.parts > PACKED_MAX_PARTS) return 0;
    return h.parts > 1 ? h.parts : 1;
}
/* Of a PUBLISH or MOVED record. */
static inline uint32_t message_packed(const struct record *r) {
    return message_headers_bytes(r) ? headers_packed(record_body(r)) : 0;
}

/* The highest of the ids that are its. */
static inline uint64_t message_last_id(const struct record *r, uint32_t shards) {
    uint32_t parts = message_packed(r);
    return r->id + (parts > 1 ? (uint64_t)parts * shards : 0);
}

#endif

/* The records of a shard's log: what each kind means, and how its attributes and body are laid out.
 *
 * The records (see layout.h for their frame):
 *
 *   TOPIC       topic: a number new to this shard; seq: the topic's next_seq; flags: TOPIC_*; body: its name;
 *               attributes: struct topic_attributes if TOPIC_RETAINS, only its stopped_seq if just TOPIC_STOPPED.
 *               stopped_seq: the topic itself keeps the messages from this seq on; its channels have the earlier ones,
 *               which wait for the first channel if there is none. Each segment has, before the messages of a topic,
 *               its TOPIC, followed by its SUBSCRIPTIONs. It begins with the TOPICs of those topics that readers of the
 *               log name. A TOPIC that only a segment about to be deleted has is written anew before. Each is written
 *               twice (log/copies.h): without it nobody would know which topic the messages with its number belong to.
 *   FLOOR       seq: where topics made from now on begin to count; id: the highest message id given out so far; body:
 *               uint32_t[]: numbers of empty topics, which mean nothing from here on. Attributes: struct
 *               forgotten_topic[]: how far these, or others that were forgotten before, had counted. A segment begins
 *               with all that the shard remembers, the first of them with FLOOR_ALL_FORGOTTEN. Earlier versions have no
 *               attributes, and ignore them. With FLOOR_LOST, attributes: uint64_t: how many messages of each topic may
 *               have been in what was here before: all that are known so far count on behind that.
 *   PUBLISH     topic, seq, id, body, with a struct headers and its bytes before the body if MESSAGE_HEADERS;
 *               attributes: uint32_t pri, ttr in ms and, if delayed, delay in ms; or struct publish_attributes, if one
 *               does not fit.
 *   DELETE      topic, seq, id: the message is done with.
 *   STATE       topic, seq, id; attributes: struct state_attributes: what the job queue knows of the message now.
 *   PRODUCER    id: a producer's key; seq: its batch; attributes: uint32_t: the part of the batch that the shard has,
 *               or struct producer_attributes; flags: PRODUCER_NAMED: of a producer that has a name in a topic. With
 *               PUBLISH_MORE it counts together with the PUBLISHes behind it. Each segment begins with one for each
 *               producer that is remembered.
 *   MOVED       a PUBLISH and its STATE in one, copied from a segment that is to be deleted; attributes: struct
 *               moved_attributes; flags: MOVED_*. With MOVED_REFERENCED the message has moved only
 *               if its REFERENCES follows.
 *   STAGED      topic, seq, id, body as in a PUBLISH; attributes: struct staged_attributes: a message that is published
 *               if its transaction is committed, by a PUBLISH with the same seq and id.
 *   TXN_END     topic, id: a transaction's number; flags: TXN_COMMIT: what was staged follows as PUBLISH records.
 *               Without the flag nothing of the transaction counts.
 *
 * Records of subscriptions, whose number in the shard is the record's id:
 *
 *   SUBSCRIPTION  topic; seq: the cursor; flags: SUBSCRIPTION_*; body: its name; attributes, if it was set back:
 *                 uint64_t: from which seq on it holds messages. Written wherever its TOPIC is, and twice likewise.
 *   CURSOR        topic; seq: the cursor: messages before it have been delivered at least once.
 *   FINISH        topic; seq: a finished message; attributes: uint32_t: how many are finished from there on, itself
 *                 included; or body: int32_t[]: the distance from seq to each finished message. One that is not behind
 *                 the cursor is not to be delivered (an earlier release delivers it). FINISH_UPTO: all that
 *                 were delivered up to seq are. FINISH_PARTS: all parts of the message are, but those with bits in the
 *                 body, uint64_t[]; with attributes, uint32_t: the number of the body's first word, others are as they
 *                 were. (Of such words there are more than 16: an earlier release passes over the record.)
 *   REDELIVERY    topic; seq of a message behind the cursor; attributes: struct redelivery.
 *   EMPTY         topic; seq: the cursor: the subscription holds nothing before it any more. id 0: messages before seq
 *                 neither wait for the topic's first subscription nor are kept by the topic itself any more.
 *   SEEK          topic; seq: the cursor is here now: all from here on is to be delivered, nothing before; SEEK_UPTO:
 *                 but for what is finished already.
 *   UNSUBSCRIBE   topic: the subscription is deleted.
 *   ADOPT         topic; body: uint64_t[]: ids of messages in the job queue that the topic's first subscription also
 *                 gets; ADOPT_FROM: its cursor is at seq then, or before. ADOPT_ALL: it gets all in the job queue.
 *                 id 0: the topic's stream gets them: it retains.
 *                 ADOPT_DELAYED: those published with a delay that a pause kept; not written any more, as no channel
 *                 has what a pause keeps.
 *   PENDING       topic, seq: a message that is acknowledged if a transaction is committed; attributes: uint64_t: the
 *                 transaction's number. PENDING_PARTS: all its parts but those with bits in the body, uint64_t[].
 *                 PENDING_UPTO: it and all messages before it.
 *   REFERENCES    topic, seq, after a MOVED with MOVED_REFERENCED; body: struct reference[]: the subscriptions that
 *                 hold the message.
 *   TOPIC_GONE    topic: it is deleted, with its messages and subscriptions.
 *
 * All records of one PUBLISH_MANY but the last have the flag PUBLISH_MORE: without the last, none of them counts, nor
 * does the PRODUCER before them.
 *
 * Segments of version 2 may have MESSAGE_HEADERS, those of version 1 have none. A record of a kind that is not listed
 * here is from an unknown version, and refused.
 *
 * Ephemeral subscriptions write nothing: a message that is published only for them has PUBLISH_FLEETING.
 */
#ifndef MQ_RECORDS_H
#define MQ_RECORDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "log/layout.h"
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
    RECORD_KINDS, /* kinds from this number on are unknown */
};

enum record_flag {
    TOPIC_DURABLE = 1,
    TOPIC_TUBE = 2,
    TOPIC_STOPPED = 4,
    TOPIC_EPHEMERAL = 8, /* its messages do not outlive the process */
    FLOOR_ALL_FORGOTTEN = 1,
    FLOOR_LOST = 2,
    PUBLISH_MORE = 1,
    PRODUCER_NAMED = 2,
    TOPIC_RETAINS = 16,
    TOPIC_TERMINATED = 32,
    TOPIC_RELEASES = 64, /* with TOPIC_STOPPED: no longer paused, it hands out what it has kept */
    TOPIC_SAID = 128,    /* this and the next say what it is; older releases told that by the name */
    TOPIC_NON_PERSISTENT = 256,
    TOPIC_JOBS_JOINED = 512, /* with TOPIC_RETAINS: its stream has the messages of all jobs; not in older releases */
    PUBLISH_FLEETING = 2,    /* the message does not outlive the process */
    PUBLISH_UNAWAITED = 4,   /* it does not wait for a first subscription */
    PUBLISH_COMMITTED = 16,  /* its seq was given to it when it was STAGED */
    PUBLISH_DUE = 32,        /* what has a delay waits when a cursor comes to it, as does what is COMMITTED */
    MESSAGE_HEADERS = 8,     /* in a PUBLISH or MOVED: the body begins with headers */
    MOVED_NO_JOB = 1,        /* the message is not in the job queue */
    MOVED_REFERENCED = 2,    /* a REFERENCES record follows */
    MOVED_IN_JOBS = 4,       /* it is several jobs: a DELETE or STATE behind it says what became of each */
    REFERENCES_DELAYED = 1,  /* the message was published with a delay */
    SUBSCRIPTION_PAUSED = 1,
    SUBSCRIPTION_BY_AGE = 2, /* retention by age has moved it past messages, which are to be gone */
    ADOPT_ALL = 1,
    ADOPT_DELAYED = 2,
    ADOPT_FROM = 4,
    FINISH_UPTO = 1,
    FINISH_PARTS = 2,
    TXN_COMMIT = 1,
    SEEK_UPTO = 1,
    PENDING_PARTS = 1,
    PENDING_UPTO = 2,
    RECORD_FLAGS = 1023, /* all that any kind has */
};

struct topic_attributes {
    uint64_t stopped_seq;
    uint64_t incarnation, began_seq; /* of a topic that retains */
    uint64_t epochs;                 /* how many exclusive producers the topic has had */
};

struct producer_attributes {
    uint32_t part;
    uint32_t unused;
    uint64_t used_wall_ns; /* when the producer was last heard of; records without it: when they were written */
};

struct publish_attributes {
    uint32_t pri;
    uint32_t unused;
    uint64_t delay_ns; /* the job is ready this long after the record's time */
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
    uint64_t deadline_wall_ns; /* of a delayed job: when it becomes ready */
};

struct moved_attributes {
    struct publish_attributes publish;
    struct state_attributes state;
};
struct redelivery {
    uint32_t attempts;
    uint32_t unused;
    uint64_t deferred_until_wall_ns; /* 0: not deferred */
};

struct reference {
    uint32_t subscription; /* 0: the message waits for the topic's first one, or the topic keeps it */
    uint32_t ahead;        /* 1: the message is ahead of the subscription's cursor */
    struct redelivery redelivery;
};
_Static_assert(sizeof(struct redelivery) == 16 && sizeof(struct reference) == 24, "on-disk layout");
enum { SHARD_REDELIVERY_BYTES = sizeof(struct redelivery) };
_Static_assert(sizeof(struct publish_attributes) == 24 && sizeof(struct state_attributes) == 48, "on-disk layout");

/* Writes the shortest form to `out` (which has room for a struct publish_attributes), and returns its length. */
uint8_t publish_attributes_pack(const struct publish_attributes *a, void *out);
/* The attributes of a PUBLISH or MOVED record, in either form. */
struct publish_attributes publish_attributes_of(const struct record *r);

/* Whether a message's content may begin with headers; *bytes is the length of these and the struct before them. */
static inline bool headers_fit(const void *content, size_t content_bytes, size_t *bytes) {
    struct headers h;
    if (content_bytes < sizeof h) return false;
    memcpy(&h, content, sizeof h);
    *bytes = sizeof h + h.bytes;
    return h.bytes <= HEADERS_MAX_BYTES && *bytes <= content_bytes;
}

/* In a PUBLISH or MOVED record: the bytes before the body that consumers without headers see. */
static inline size_t message_headers_bytes(const struct record *r) {
    size_t bytes;
    bool some = (r->flags & MESSAGE_HEADERS) && headers_fit(record_body(r), record_body_bytes(r), &bytes);
    return some ? bytes : 0;
}

/* How many messages a packed one has, to unpack for consumers that do not know headers; 0: it is not packed. */
static inline uint32_t headers_packed(const void *content) {
    struct headers h;
    memcpy(&h, content, sizeof h);
    if (!h.packed_bytes || h.parts > PACKED_MAX_PARTS) return 0;
    return h.parts > 1 ? h.parts : 1;
}
/* The same of a PUBLISH or MOVED record. */
static inline uint32_t message_packed(const struct record *r) {
    return message_headers_bytes(r) ? headers_packed(record_body(r)) : 0;
}

/* How much of a record recovery needs: of a message all before its headers and its body, and the struct headers. */
static inline uint32_t record_kept_bytes(const struct record *r) {
    if (r->kind != RECORD_PUBLISH && r->kind != RECORD_MOVED && r->kind != RECORD_STAGED) return r->bytes;
    const uint32_t kept = (uint32_t)sizeof *r + r->attribute_bytes;
    const uint32_t headers = r->flags & MESSAGE_HEADERS ? (uint32_t)sizeof(struct headers) : 0;
    return r->bytes - kept < headers ? r->bytes : kept + headers;
}

/* The highest of the ids that belong to the message. */
static inline uint64_t message_last_id(const struct record *r, uint32_t shards) {
    uint32_t parts = message_packed(r);
    return r->id + (parts > 1 ? (uint64_t)parts * shards : 0);
}

#endif

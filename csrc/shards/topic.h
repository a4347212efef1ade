/* A topic on a worker: its next seq, its job queue, its subscriptions, and the clients that use or watch it.
 *
 * A topic is seen (listed, counted) while a client uses or watches it, a job is in it, or it is durable. After that it
 * sleeps: it keeps its number and next_seq, because a seq is never given out twice, until it is forgotten (sleeping.c).
 *
 * A message goes into the job queue. In a durable topic, which stays until it is deleted, it does so only if the tube
 * is wanted. There it also goes into the stream, where each subscription refers to it; as long as there is no
 * subscription it waits for the first one. While the topic is paused it keeps new messages itself, whichever
 * subscriptions come and go.
 */
#ifndef MQ_TOPIC_H
#define MQ_TOPIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena_pages.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/siphash.h"
#include "log/log.h"
#include "ringbuf/limits.h"
#include "ringbuf/message.h"
#include "shards/ready.h"
#include "shards/stream.h"

struct topic {
    uint32_t shard;
    uint32_t number; /* its number in the shard's log; 0: never written there */
    uint32_t name_bytes;
    char *name;
    uint64_t key; /* in the map of names */
    uint64_t next_seq;
    uint32_t known_previous, known_next; /* in the shard's list, ordered by when they were last named in the log */
    uint32_t earlier, later;             /* in the list of sleeping topics */
    uint32_t named_in, named_bytes;      /* the segment that certainly has its name; 0: none (known.c) */

    struct ready ready;
    struct heap delayed; /* by deadline */
    uint32_t buried_first, buried_last;
    uint32_t waiting_first, waiting_last; /* watches of clients whose RESERVE waits, in the order they came */

    uint32_t open; /* how many acceptors' numbers are bound to it */
    uint32_t held; /* references by clients that use or watch it, parked requests, acceptors that list it */
    uint32_t using, watching, waiting;
    uint32_t tombs;                            /* tombs with jobs of it (tomb.c) */
    uint32_t urgent, reserved, buried, pauses; /* a worker has fewer jobs than 2^32 */
    uint64_t total, reserves, deletes, releases, timeouts;

    uint64_t pause_ns;                 /* as last asked for; 0: not paused */
    uint64_t unpause_ns;               /* when the pause ends */
    uint32_t delay_place, pause_place; /* in the worker's heaps */

    log_position gone_until; /* messages logged before here were deleted with an earlier topic of this name */

    struct handover *handover; /* a handover of its backlog that is under way, or NULL */
    struct release *release;   /* a release of messages it kept, under way, or NULL */
    struct keeping *keeping;   /* rewriting of messages it is to retain, under way, or NULL (retain.c) */

    bool nameless; /* recovery has not found its name, so it has an invented one */
    bool asleep;   /* see sleeping.c */
    bool durable;
    bool listed;        /* as topic_listed() said when that was last noted on the board */
    bool ephemeral;     /* durable, but deleted with its last subscription */
    uint8_t said;       /* what acceptors say that it is: MSG_TOPIC_* */
    bool tube;          /* somebody put into, used, watched or reserved from its job queue */
    bool end_unwritten; /* it is no longer durable, but the log does not say so yet */
    bool stopped;       /* paused: it keeps what is published (pause.c) */
    bool keeps;         /* it keeps messages from stopped_seq on: it is stopped, or is releasing them since (pause.c) */
    bool ending;        /* it is being deleted: its stream is in a tomb already */
    bool terminated;    /* it takes no more messages */
    bool unserved;      /* its waiting clients are served in the next turn: see unreadable.h */
    bool jobs_joined;   /* it retains, and the messages of all its jobs are in the stream (retain.c) */
    bool blocked;       /* by an open transaction: nothing is delivered from blocked_seq on */
    /* It had an ephemeral subscription in this process, so the log may lack references that its stream has. */
    bool had_ephemeral;
    uint32_t subscriptions;               /* the first in its list */
    uint32_t subscription_count;          /* without readers, ... */
    uint32_t reader_count;                /* ... which are these */
    uint32_t ephemeral_count;             /* ephemeral ones of its subscriptions */
    uint32_t transactions;                /* the first in the list of open and ending ones */
    uint32_t staging_first, staging_last; /* those that have published, ordered by their first seq */
    uint64_t blocked_seq;                 /* see blocked */
    uint64_t due_until;                   /* messages before it may have to wait when a cursor comes to them */
    uint64_t era;                         /* of its transactions; see transactions.h */
    uint32_t compacted;                   /* the subscription that is its compacted view; 0: none */
    uint32_t retention;            /* its subscription RETENTION_NAME; 0: it retains as long as the segments stay */
    uint32_t producers, exclusive; /* attached producers: the first in the list, and the exclusive one; see attach.c */
    uint64_t epochs;               /* how many exclusive producers it has had */
    uint64_t fenced_before;        /* arrival of the last one in this process: those before it are fenced off */
    uint64_t incarnation, began_seq;             /* if it retains: the number of this incarnation, and its first seq */
    uint32_t previous_retaining, next_retaining; /* in the shard's list */
    struct stream stream;
    uint64_t ahead;                             /* messages put into the stream without a delay, ever */
    uint64_t waiting_messages, waiting_delayed; /* messages in the stream that wait for the first subscription */
    uint64_t stopped_seq;
    uint64_t kept_messages, kept_delayed; /* messages in the stream that the topic keeps, from stopped_seq on */
    uint64_t messages, message_bytes;     /* all that this process has seen, ... */
    union {
        uint64_t read_back;     /* ... of which so many were recovered from the log */
        uint64_t replayed_jobs; /* during recovery: how many jobs it has */
    };
    union {
        uint64_t read_back_bytes;
        uint64_t lost_before; /* during recovery: its next_seq was certain when the shard had lost so many seqs */
    };
    /* Since the worker began: bytes of headers; messages in batches, less one for each batch. */
    uint64_t header_bytes, more_parts;
};

/* An acceptor says what a topic of this name is. */
static inline void topic_hear(struct topic *t, uint16_t flags) {
    if (!t->durable) t->said = flags & (MSG_TOPIC_EPHEMERAL | MSG_TOPIC_NON_PERSISTENT);
}
/* Its messages are not stored (non_persistent.c). */
static inline bool topic_non_persistent(const struct topic *t) {
    return t->said & MSG_TOPIC_NON_PERSISTENT;
}

/* Priorities below this are urgent. */
#define URGENT_BELOW 1024u

struct topics {
    struct arena arena;
    struct arena_pages pages;
    struct map names;
    struct siphash_key key;
    uint32_t limit;
    uint64_t names_bytes; /* of all topics */
};

bool topics_open(struct topics *topics, uint32_t limit, struct siphash_key key);
void topics_close(struct topics *topics);

/* Strangers may name topics: the names of all take no more than those of as many as there may be, of so many bytes. */
enum { TOPIC_NAME_SHARE = 256 };

static inline uint64_t topics_most_name_bytes(const struct topics *topics) {
    return (uint64_t)topics->limit * TOPIC_NAME_SHARE;
}

/* Whether a name that is asked for may be added. What stands in the log is, in any case. */
static inline bool topics_have_room(const struct topics *topics, size_t name_bytes) {
    return topics->names_bytes + name_bytes <= topics_most_name_bytes(topics);
}

static inline struct topic *topic_at(const struct topics *topics, uint32_t topic) {
    return arena_at(&topics->arena, topic);
}

/* A topic by its name, or 0. */
uint32_t topics_find(const struct topics *topics, const char *name, size_t name_bytes);
/* Adds a topic, whose name must be new. 0 when the limit is reached or memory is short. */
uint32_t topics_add(struct topics *topics, const char *name, size_t name_bytes, uint32_t shard, uint64_t next_seq);
/* Renames a topic. False, with nothing changed, when another topic has that name or memory is short. */
bool topics_rename(struct topics *topics, uint32_t topic, const char *name, size_t name_bytes);
void topics_remove(struct topics *topics, uint32_t topic);

static inline uint64_t topic_jobs(const struct topic *t) {
    return (uint64_t)ready_count(&t->ready) + t->delayed.count + t->buried + t->reserved;
}
/* Subscriptions refer to no message from here on. */
static inline uint64_t topic_given_until(const struct topic *t) {
    return t->keeps && t->stopped_seq < t->stream.end ? t->stopped_seq : t->stream.end;
}
/* A message may have to wait when a cursor comes to it. */
static inline void topic_waits_until(struct topic *t, uint64_t seq) {
    if (seq >= t->due_until) t->due_until = seq + 1;
}
static inline bool topic_seen(const struct topic *t) {
    return t->held > 0 || topic_jobs(t) > 0 || t->durable;
}
/* Whether the catalog has a topic: a durable one, one with jobs, or one in use that has had messages. So a tube that is
 * always emptied at once has rates too, and does not come and go with each job. */
static inline bool topic_listed(const struct topic *t) {
    return t->durable || (t->messages > 0 && t->using + t->watching > 0) || topic_jobs(t) > 0;
}

static inline bool goes_to_queue(const struct topic *t) {
    return !t->durable || t->tube;
}
static inline bool goes_to_stream(const struct topic *t) {
    return t->durable && (t->subscription_count > 0 || !t->tube || t->stream.retains || t->keeps);
}
/* Whether the topic itself keeps a message, as it is paused. `unawaited`: the message waits for no first subscription,
 * and is only kept if there are subscriptions or a tube. */
static inline bool topic_keeps(const struct topic *t, uint64_t seq, bool unawaited) {
    return t->keeps && seq >= t->stopped_seq && (t->subscription_count || t->tube || !unawaited);
}
/* Whether all its subscriptions are ephemeral, so that the log does not know them. */
static inline bool only_ephemeral(const struct topic *t) {
    return t->ephemeral_count > 0 && t->subscription_count == t->ephemeral_count;
}

#endif

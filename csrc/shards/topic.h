/* A topic on a worker: its place in the sequence of messages, its job queue, its subscriptions, and who takes an
 * interest in it.
 *
 * A topic is seen (listed, counted) while somebody uses or watches it, a job is in it, or it is durable. After that it sleeps, with
 * its number and next_seq, because a seq is never given out twice, until it is forgotten (names.c).
 *
 * Where its messages go: into the job queue; but those of a durable topic, which stays until it is deleted, only if
 * somebody wants its tube, and otherwise into the stream, where each subscription holds them, or, as long as there is
 * none, they wait for the first. While it is paused it keeps them itself, once, whoever comes and goes.
 */
#ifndef MQ_TOPIC_H
#define MQ_TOPIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/heap.h"
#include "base/map.h"
#include "base/siphash.h"
#include "log/log.h"
#include "shards/ready.h"
#include "shards/stream.h"

#define TOPIC_NAME_MAX 1024

struct topic {
    uint32_t arena_link;
    uint32_t shard;
    uint32_t number; /* in the shard's log; 0: never written there */
    uint32_t name_bytes;
    char *name;
    uint64_t key; /* in the map of names */
    uint64_t next_seq;
    uint32_t known_previous, known_next; /* of the shard's, as they were named last */
    uint32_t earlier, later;             /* of those asleep */
    uint32_t named_in, named_bytes;      /* the segment that it can be relied upon to stand in; 0: none (naming.c) */

    struct ready ready;
    struct heap delayed; /* by deadline */
    uint32_t buried_first, buried_last;
    uint32_t waiting_first, waiting_last; /* watches of clients whose RESERVE waits, first come first */

    uint32_t open; /* acceptors' numbers bound to it */
    uint32_t held; /* by those who use or watch it, by parked requests, by acceptors that have it listed */
    uint32_t using, watching, waiting;
    uint32_t tombs; /* with jobs of it */
    uint64_t urgent, reserved, buried, total, reserves, deletes, pauses;

    uint64_t pause_ns;                 /* as last asked for; 0: not paused */
    uint64_t unpause_ns;               /* when it ends */
    uint32_t delay_place, pause_place; /* in the worker's heaps */

    log_position gone_until; /* what came to the log before was deleted with the topic */

    struct handover *handover; /* of its backlog, under way; or NULL */
    struct release *release;   /* of what it keeps, under way; or NULL */
    struct keeping *keeping;   /* of what it comes to retain, under way; or NULL (retain.c) */

    bool nameless; /* recovery has not found its name: it goes by one that was made up */
    bool asleep;   /* see names.c */
    bool durable;
    bool passing;       /* counted as one that comes and goes with its jobs */
    bool ephemeral;     /* durable, and gone with its last subscription */
    bool tube;          /* somebody put into, used, watched or reserved from its job queue */
    bool end_unwritten; /* it is durable no more, but the log does not say so yet */
    bool stopped;       /* what NSQ calls a paused topic: it keeps what is published */
    bool keeps;  /* what is there from stopped_seq on is its own: it is stopped, or was, and releases that (pause.c) */
    bool ending; /* its stream is buried already */
    bool terminated;             /* nothing is published to it any more */
    bool blocked;                /* by a transaction: nothing is delivered from blocked_seq on */
    bool had_ephemeral;          /* a subscription, in this process: the log need not have all that its stream has */
    uint32_t subscriptions;      /* first of the list */
    uint32_t subscription_count; /* those that hold what is published: all but ... */
    uint32_t reader_count;
    uint32_t ephemeral_count;             /* of its subscriptions */
    uint32_t transactions;                /* the first of those that are not over */
    uint32_t staging_first, staging_last; /* of them, those that publish; and the first seq that was published in one */
    uint64_t blocked_seq;
    uint64_t era;                    /* of the transactions; see transactions.h */
    uint32_t compacted;              /* the subscription that is its compacted view; 0: it has none */
    uint32_t retention;              /* the one that holds what it is to keep; 0: what its segments keep is there */
    uint32_t producers, exclusive;   /* that are attached: the first, and that which is alone; see attach.c */
    uint64_t epochs;                 /* how many of the latter it has had */
    uint64_t incarnation, began_seq; /* of one that retains: its number, and where that began to count */
    uint32_t previous_retaining, next_retaining; /* of the shard's */
    struct stream stream;
    uint64_t ahead;                             /* messages put into the stream without a delay, ever */
    uint64_t waiting_messages, waiting_delayed; /* in the stream for the first subscription */
    uint64_t stopped_seq;
    uint64_t kept_messages, kept_delayed; /* in the stream from there on, of the topic's own */
    uint64_t messages, message_bytes;     /* ever, in this process, ... */
    union {
        uint64_t read_back;     /* ... of which it has read back so many; */
        uint64_t replayed_jobs; /* while it does: how many jobs it has */
    };
    uint64_t read_back_bytes;
};

/* Priorities below this are urgent. */
#define URGENT_BELOW 1024u

struct topics {
    struct arena arena;
    struct map names;
    struct siphash_key key;
    uint32_t limit;
};

bool topics_open(struct topics *topics, uint32_t limit, struct siphash_key key);
void topics_close(struct topics *topics);

static inline struct topic *topic_at(const struct topics *topics, uint32_t topic) {
    return arena_at(&topics->arena, topic);
}

/* 0 when there is none. */
uint32_t topics_find(const struct topics *topics, const char *name, size_t name_bytes);
/* 0 when the limit or memory is reached. The name must be new. */
uint32_t topics_add(struct topics *topics, const char *name, size_t name_bytes, uint32_t shard, uint64_t next_seq);
/* False, with nothing changed, when the name is another topic's or memory is short. */
bool topics_rename(struct topics *topics, uint32_t topic, const char *name, size_t name_bytes);
void topics_remove(struct topics *topics, uint32_t topic);

static inline uint64_t topic_jobs(const struct topic *t) {
    return (uint64_t)ready_count(&t->ready) + t->delayed.count + t->buried + t->reserved;
}
/* Subscriptions hold nothing from here on. */
static inline uint64_t topic_given_until(const struct topic *t) {
    return t->keeps && t->stopped_seq < t->stream.end ? t->stopped_seq : t->stream.end;
}
static inline bool topic_seen(const struct topic *t) {
    return t->held > 0 || topic_jobs(t) > 0 || t->durable;
}

#endif

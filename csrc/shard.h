/* A shard's log, with meaning: which records a worker writes and what keeps a segment alive.
 *
 * The records (see log.h for their frame):
 *
 *   TOPIC    topic: a number new to this shard; seq: its next_seq; flags: TOPIC_*; attributes, if TOPIC_STOPPED: uint64_t
 *            from which seq; body: its name. Each segment begins with those of all topics known, so that the segments
 *            before it can go. Written twice: without it nobody would know whose the messages are that bear the number.
 *   FLOOR    seq: where topics that are made from now on begin to count; id: the highest message id given out so far.
 *   PUBLISH  topic, seq, id, body; attributes: uint32_t pri, ttr in ms, and, if it is delayed, delay in ms; or, if one
 *            of them does not fit, struct publish_attributes.
 *   DELETE   topic, seq, id: the message is done with.
 *   STATE    topic, seq, id; attributes: struct state_attributes: what the job queue knows of the message now.
 *   WRITER   id: a writer's key, seq: its batch; attributes: uint32_t: the part of it that the shard has. With the flag
 *            PUBLISH_MORE it counts together with the PUBLISHes behind it. Each segment begins with those remembered.
 *   MOVED    a PUBLISH and its STATE in one, copied from a segment that is to go; attributes: struct moved_attributes;
 *            flags: MOVED_*.
 *
 * Of subscriptions, whose number in the shard is the record's id:
 *
 *   SUBSCRIPTION  topic, seq: its cursor, flags: SUBSCRIPTION_PAUSED, body: its name. Each segment begins with those of all.
 *                 Written twice, as TOPICs are.
 *   CURSOR        topic, seq: the cursor; what lies before it has been delivered once.
 *   FINISH        topic, seq: a message that is finished; attributes: uint32_t count: so are those that follow it, count
 *                 in all; or body: int32_t[] of how far from seq each one finished lies.
 *   DEPARTURE     topic, seq of a message behind the cursor; attributes: struct departure.
 *   EMPTY         topic, seq: the cursor; nothing before it is held by the subscription any more. id 0: what waits for
 *                 the topic's first subscription, or for the end of its pause, is held by nobody any more.
 *   UNSUBSCRIBE   topic: the subscription is gone.
 *   ADOPT         topic, body: uint64_t[]: ids of messages in the job queue that the topic's first subscription gets too.
 *   HOLDS         topic, seq, body: struct holder[]; after a MOVED with MOVED_HELD: which subscriptions hold the message.
 *   TOPIC_GONE    topic: it is deleted, with its messages and subscriptions.
 *
 * Records of one PUBLISH_MANY bear the flag PUBLISH_MORE, but for the last: without that one, none of them counts, nor
 * does the WRITER before them.
 * Ephemeral subscriptions write nothing: what is published for nobody else bears PUBLISH_FLEETING.
 */
#ifndef MQ_SHARD_H
#define MQ_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "log.h"
#include "writers.h"

struct worker;
struct job;
struct topic;
struct subscription;
struct delivery;

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
    RECORD_DEPARTURE,
    RECORD_EMPTY,
    RECORD_UNSUBSCRIBE,
    RECORD_ADOPT,
    RECORD_HOLDS,
    RECORD_TOPIC_GONE,
    RECORD_WRITER,
};

enum record_flag {
    TOPIC_LASTING = 1,
    TOPIC_TUBE = 2,
    TOPIC_STOPPED = 4,
    TOPIC_EPHEMERAL = 8, /* what it has does not outlive the process */
    PUBLISH_MORE = 1,
    PUBLISH_FLEETING = 2, /* it does not outlive the process */
    MOVED_NO_JOB = 1,     /* the job queue does not have it */
    MOVED_HELD = 2,       /* a HOLDS follows */
    HOLDS_DELAYED = 1,    /* it was published with a delay */
    SUBSCRIPTION_PAUSED = 1,
};

struct publish_attributes {
    uint32_t pri;
    uint32_t unused;
    uint64_t delay_ns; /* ready this long after the record's time */
    uint64_t ttr_ns;
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
struct departure {
    uint32_t attempts;
    uint32_t unused;
    uint64_t deferred_until_wall_ns; /* 0: it is not deferred */
};

struct holder {
    uint32_t subscription; /* 0: the message waits for the topic's first */
    uint32_t ahead;        /* 1: of its cursor */
    struct departure departure;
};
_Static_assert(sizeof(struct departure) == 16 && sizeof(struct holder) == 24, "on-disk layout");
enum { SHARD_DEPARTURE_BYTES = sizeof(struct departure) };
_Static_assert(sizeof(struct publish_attributes) == 24 && sizeof(struct state_attributes) == 48, "on-disk layout");

/* Of a PUBLISH or MOVED record, in whichever form. */
struct publish_attributes publish_attributes_of(const struct record *r);

/* What a segment still holds for us. */
struct segment_use {
    uint64_t jobs; /* alive */
    uint64_t total;
};

struct shard {
    uint32_t number;
    uint32_t segment;      /* the active one, as far as its head has been written */
    uint32_t topics_known; /* highest topic number in the log */
    uint32_t topics_capacity;
    uint32_t *topics;             /* by number: the worker's topics; 0 where the log has forgotten it */
    uint32_t subscriptions_known; /* highest subscription number in the log */
    uint32_t subscriptions_capacity;
    uint32_t *subscriptions; /* by number: the worker's; 0: there is none any more */
    uint64_t floor;
    uint64_t top_id;
    struct writers writers;
    struct log *log;
    struct segment_use *use; /* of segments first_use, first_use + 1, ... */
    uint32_t first_use, use_count, use_capacity;
    uint64_t jobs;
    uint64_t scan_offset; /* of compaction, in the first segment */
    uint64_t sync_upto;   /* what the round of syncs under way covers */
    log_position moved;   /* recovery: of the MOVED just read, whose HOLDS is to follow and counts; 0: it does not */
    bool
        headless; /* recovery: whether the whole of the active segment's head was written is not known: write it anew */
    bool syncing;
    bool dirty;   /* appended to in this turn */
    bool refused; /* a segment that was wanted could not be had: no space until one can */
};

struct shard *shard_new(uint32_t number, uint32_t shards);
void shard_free(struct shard *shard);

/* Room for records whose attributes and bodies are `bytes` in all. Publishes keep back what deletes will need. */
enum log_result shard_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish);

/* These append; the caller has reserved. */
void shard_log_topic(struct worker *w, struct shard *s, uint32_t topic);
log_position shard_log_publish(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint64_t id,
                               struct publish_attributes attributes, const void *body, uint32_t body_bytes,
                               uint16_t flags);
/* The shard remembers it too. */
void shard_log_writer(struct worker *w, struct shard *s, const struct once *part, uint16_t flags);
void shard_log_delete(struct worker *w, struct shard *s, const struct job *job);
void shard_log_state(struct worker *w, struct shard *s, const struct job *job);
/* A copy of the PUBLISH or MOVED record that holds a message of the topic, with the state of now of the job, if it is one. */
log_position shard_log_moved(struct worker *w, struct shard *s, uint32_t topic, const struct job *job,
                             const struct record *from, uint16_t flags);
void shard_log_holds(struct worker *w, struct shard *s, const struct record *of, uint16_t flags,
                     const struct holder *holders, size_t count);
void shard_log_subscription(struct worker *w, struct shard *s, struct subscription *of);
void shard_log_cursor(struct worker *w, struct shard *s, struct subscription *of);
/* Of what subscription_finished has noted, which is forgotten. */
void shard_log_finish(struct worker *w, struct shard *s, struct subscription *of);
uint64_t shard_finish_bytes(const struct subscription *of);
void shard_log_departure(struct worker *w, struct shard *s, const struct subscription *of, const struct delivery *d);
struct departure shard_departure_of(const struct worker *w, const struct delivery *d);
void shard_log_adopted(struct worker *w, struct shard *s, const struct subscription *by, const uint64_t *ids,
                       size_t count);
/* EMPTY, UNSUBSCRIBE; `of` NULL: TOPIC_GONE. */
void shard_log_end(struct worker *w, struct shard *s, enum record_kind kind, uint32_t topic, struct subscription *of);
/* How many bytes a topic's (or subscription's) two records take beside their headers. */
uint64_t shard_topic_bytes(const struct topic *t);

/* Gives the topic a number in the shard's log, or a subscription. False when memory is short. */
bool shard_know_topic(struct worker *w, struct shard *s, uint32_t topic, uint32_t number);
bool shard_know_subscription(struct shard *s, uint32_t subscription, uint32_t number);

void shard_count_in(struct shard *s, log_position position);
void shard_count_out(struct shard *s, log_position position);

/* How many of the oldest segments hold nothing alive (the active one is never among them). */
uint32_t shard_dead_segments(const struct shard *s);
void shard_drop_first(struct worker *w, struct shard *s);
/* Of the topics that the shard knows now, those named (a newline between two; NULL: all) are not forgotten when the log
 * holds nothing of them any more, until this is called again: each call takes the place of the one before. */
void shard_keep_topics(struct worker *w, struct shard *s, const char *names, size_t bytes);

/* Moves live jobs of the oldest segment to the head of the log, looking at no more than `budget` bytes. True when the
 * segment has been gone through. */
bool shard_compact(struct worker *w, struct shard *s, uint64_t budget);

/* A place of a segment that could not be read: [offset, until); nothing whole came after it if the two are equal. */
struct damage {
    uint32_t shard, segment;
    uint64_t offset, until;
};

/* What recovery found; added up over the segments it is passed to. */
struct replay {
    uint64_t records, jobs, bytes;
    uint32_t damages;         /* seen */
    struct damage damage[64]; /* the first of them */
};
/* Replays all segments into memory (jobs get a state, but no place in a queue yet) and cuts them where they end. False
 * with errno if one cannot be cut. */
bool shard_replay(struct worker *w, struct shard *s, struct replay *out);
/* While it replays: a job that is in no state yet gets one; it is delayed if `due_wall_ns` has not come. */
void replay_queue_job(struct worker *w, uint32_t job, uint64_t due_wall_ns);
void replay_subscription_record(struct worker *w, struct shard *s, const struct record *r);
void replay_forget_ephemeral(struct worker *w);
/* After the last segment of all shards: jobs take their places in the queues. */
void replay_place_jobs(struct worker *w);

#endif

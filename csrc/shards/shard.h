/* A shard's log, with meaning: which records a worker writes and what keeps a segment alive.
 *
 * The records are laid out in log/records.h.
 */
#ifndef MQ_SHARD_H
#define MQ_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "log/log.h"
#include "log/records.h"
#include "shards/producers.h"
#include "shards/topic.h"

struct message;
struct worker;
struct job;
struct topic;
struct subscription;
struct delivery;
struct parts_left;

/* What a segment still holds for us. */
struct segment_use {
    uint64_t jobs; /* alive */
    uint64_t total;
    uint64_t names; /* bytes of those that stand in it and in no later one */
};

/* A PUBLISH_MANY that is written to the log, and then taken in, in pieces (group.c). */
struct group {
    uint64_t id;     /* of its first message; 0: there is none */
    bool counts;     /* all of it is in the log; it is being taken in */
    bool is_nobodys; /* its topic has ended since */
    bool is_queued;  /* it becomes jobs */
    uint16_t flags;  /* of its records, but for PUBLISH_MORE and MESSAGE_HEADERS */
    uint32_t topic_number;
    uint32_t done;     /* messages that are written, or taken in */
    uint64_t at;       /* where the next one is in the request's body */
    uint64_t body_at;  /* how much is written of the body of that one */
    uint64_t seq;      /* of the first */
    uint64_t wall_ns;  /* when it was begun */
    log_position next; /* where the next one that is taken in is in the log */
};

struct shard {
    uint32_t number;
    uint32_t segment;                      /* the active one, as far as its head has been written */
    uint32_t topics_known;                 /* the topic number in the log that was given last */
    struct map numbers;                    /* of the topics that the log knows: the worker's */
    uint32_t known_first, known_last;      /* those, as they were named last: naming.c */
    uint64_t names_bytes, names_recovered; /* in the log; of those, in a place that is not relied upon */
    uint32_t asleep_first, asleep_last, asleep;
    struct map keep; /* keys of the names that are not to be forgotten */
    bool keep_all;   /* no name is */
    bool drowsy;     /* some have to be forgotten */
    struct shard *next_drowsy;
    uint32_t subscriptions_known; /* highest subscription number in the log */
    uint32_t subscriptions_capacity;
    uint32_t *subscriptions;  /* by number: the worker's; 0: there is none any more */
    uint32_t retaining;       /* the first of the topics that retain */
    uint32_t forgetting;      /* of those, whose turn it is to forget what went with its segment; 0: none's */
    uint64_t forgetting_page; /* how far that has come */
    uint32_t pinned;          /* the first of the subscriptions that were set back */
    uint64_t floor;
    uint64_t top_id;
    struct producers writers, named; /* of batches in parts; that have a name in a topic */
    struct log *log;
    struct segment_use *use; /* of segments first_use, first_use + 1, ... */
    uint32_t first_use, use_count, use_capacity;
    uint64_t jobs;
    uint64_t replayed_ns; /* recovery: what the time of the log has come to, now */
    uint64_t scan_offset; /* of compaction, in the first segment */
    bool passed_over; /* ... of which something could not be read: what it still holds then is looked for (lost.c) */
    uint32_t rest_job, rest_topic; /* ... among these and those behind them, */
    uint64_t rest_seq;             /* ... of the topic's from here on */
    uint64_t sync_upto;            /* what the round of syncs under way covers */
    log_position moved; /* recovery: of the MOVED just read, whose REFERENCES is to follow and counts; 0: it does not */
    uint64_t took_from, took_until; /* recovery: what the channel that was read last took of the stream at once */
    uint32_t took_by;
    bool
        headless; /* recovery: whether the whole of the active segment's head was written is not known: write it anew */
    bool heals;   /* something of the log was lost: all names are to be written anew */
    bool
        damaged; /* recovery: something of the log was lost, so no record is to be relied on for what another should say */
    uint64_t large_id;          /* of the message that is being written in pieces; 0: none is */
    struct message *large_left; /* that one, if its client has gone meanwhile */
    uint32_t large_left_topic;
    struct group group;
    bool syncing;
    bool dirty;   /* appended to in this turn */
    bool asked;   /* the segment that is wanted is being made */
    bool refused; /* a segment that was wanted could not be had: no space until one can */
    bool full;    /* what a subscription has finished could not be written for that */
};

struct shard *shard_new(uint32_t number, uint32_t shards);
void shard_free(struct shard *shard);

/* Room for records whose attributes and bodies are `bytes` in all. Publishes keep back what deletes will need. */
enum log_result shard_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish);

/* --- naming.c: where in the log topics are named --- */

/* Room for what is published to a topic, which the segment that it goes to names by then. */
enum log_result shard_reserve_named(struct worker *w, struct shard *s, uint32_t topic, uint32_t records,
                                    uint64_t bytes);
/* A topic and all its channels have just been written; or the log does not know it any more. */
void shard_note_named(struct worker *w, struct shard *s, uint32_t topic);
/* A channel has been written behind the topic's name: what it takes to name the topic again is more. */
void shard_note_channel(struct worker *w, struct shard *s, uint32_t topic);
void shard_uncount_name(struct shard *s, struct topic *t);
void shard_names_recovered(struct worker *w, struct shard *s);
/* Bytes that would have to be written before a segment goes. */
uint64_t shard_segment_names(const struct shard *s, uint32_t segment);
enum names_moved { NAMES_MORE, NAMES_MOVED, NAMES_NO_ROOM };
/* Names some of what is named up to a segment and in no later one: at the head of the log. */
enum names_moved shard_move_names(struct worker *w, struct shard *s, uint32_t until);
/* After something of the log was lost: all that is known is named again, so that it stands in two places that are whole. */
enum names_moved shard_heal_names(struct worker *w, struct shard *s);

/* A message that is written in pieces (large.c): room for it; and, when all of its body is in the log, for its record and a producer's
 * of so many bytes, if any, which are the next to be appended. LOG_NO_SPACE then: too many names have come meanwhile. */
enum log_result shard_begin_large(struct worker *w, struct shard *s, uint32_t topic, uint8_t attribute_bytes,
                                  uint64_t body_bytes);
enum log_result shard_end_large(struct worker *w, struct shard *s, uint32_t topic, uint64_t beside_bytes);
/* The same for a group (group.c), which takes so much. */
enum log_result shard_begin_group(struct worker *w, struct shard *s, uint32_t topic, uint64_t bytes);

/* These append; the caller has reserved. */
/* Records that say nothing new, of so many bytes in all. */
enum { SHARD_FILLER_BYTES = 64 << 10 };
void shard_log_filler(struct worker *w, struct shard *s, uint64_t bytes);
/* Where topics made from now on begin to count; and numbers of topics that are known no more. */
void shard_log_floor(struct worker *w, struct shard *s, const uint32_t *numbers, size_t count);
void shard_log_topic(struct worker *w, struct shard *s, uint32_t topic);
log_position shard_log_publish(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint64_t id,
                               struct publish_attributes attributes, const void *body, uint32_t body_bytes,
                               uint16_t flags);
log_position shard_log_staged(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint64_t id,
                              const struct staged_attributes *a, const void *body, uint32_t body_bytes, uint16_t flags);
/* Both keep their segments until they are counted out. */
log_position shard_log_pending(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                               uint64_t txn, const struct parts_left *left, bool upto);
void shard_log_txn_end(struct worker *w, struct shard *s, uint32_t topic, uint64_t txn, bool commit);
/* The shard remembers it too. flags: PUBLISH_MORE, PRODUCER_NAMED. */
void shard_log_producer(struct worker *w, struct shard *s, const struct producer_part *part, uint16_t flags);
/* All that are remembered. */
void shard_log_producers(struct worker *w, struct shard *s, const struct producers *all, uint16_t flags);
void shard_log_delete(struct worker *w, struct shard *s, const struct job *job, uint64_t seq);
/* Of one of a message's jobs that has been done before. */
void shard_log_delete_part(struct worker *w, struct shard *s, const struct job *whole, uint64_t id);
void shard_log_state(struct worker *w, struct shard *s, const struct job *job);
/* A copy of the PUBLISH or MOVED record that holds a message of the topic, with the state of now of the job, if it is one. */
log_position shard_log_moved(struct worker *w, struct shard *s, uint32_t topic, const struct job *job,
                             const struct record *from, uint16_t flags);
void shard_log_references(struct worker *w, struct shard *s, uint32_t topic, const struct record *of, uint16_t flags,
                          const struct reference *references, size_t count);
void shard_log_subscription(struct worker *w, struct shard *s, struct subscription *of);
void shard_log_seek(struct worker *w, struct shard *s, struct subscription *of);
void shard_log_cursor(struct worker *w, struct shard *s, struct subscription *of);
/* Of what subscription_finished has noted, which is forgotten. */
void shard_log_finish(struct worker *w, struct shard *s, struct subscription *of);
/* Of all that it has passed up to a seq. */
void shard_log_finish_upto(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq);
void shard_log_finish_parts(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                            const struct parts_left *left);
uint64_t shard_finish_bytes(const struct subscription *of);
void shard_log_redelivery(struct worker *w, struct shard *s, const struct subscription *of, const struct delivery *d);
struct redelivery shard_redelivery_of(const struct worker *w, const struct delivery *d);
void shard_log_adopted(struct worker *w, struct shard *s, const struct subscription *by, const uint64_t *ids,
                       size_t count, uint16_t flags);
/* All that are there; what was delayed at that time it has as that. */
void shard_log_adopted_all(struct worker *w, struct shard *s, const struct subscription *by, uint64_t wall_ns);
/* EMPTY, UNSUBSCRIBE; `of` NULL: TOPIC_GONE. */
void shard_log_end(struct worker *w, struct shard *s, enum record_kind kind, uint32_t topic, struct subscription *of);
/* What the subscription with this number has, or, 0, what waits for the topic's first one, and comes before `until`, is its no more. */
void shard_log_emptied(struct worker *w, struct shard *s, uint32_t topic, uint32_t subscription, uint64_t until);
/* How many bytes a topic's record takes beside its header. */
uint64_t shard_topic_bytes(const struct topic *t);

/* The topic of a number in the shard's log; 0: it knows none of that number. */
static inline uint32_t shard_topic(const struct shard *s, uint32_t number) {
    return map_find(&s->numbers, number);
}
/* Gives a topic this number in the shard's log, which must be free; or a new one, unless it has one; a subscription. False
 * when memory is short. */
bool shard_know_topic(struct worker *w, struct shard *s, uint32_t topic, uint32_t number);
bool shard_number_topic(struct worker *w, struct shard *s, uint32_t topic);
bool shard_know_subscription(struct shard *s, uint32_t subscription, uint32_t number);
/* It comes to be the last of the known ones. */
void shard_list_last(struct worker *w, struct shard *s, uint32_t topic);

struct segment_use *shard_use_of(struct shard *s, log_position position);
void shard_count_in(struct shard *s, log_position position);
void shard_count_in_many(struct shard *s, uint32_t segment, uint64_t count);
void shard_count_out(struct shard *s, log_position position);
/* One that was counted out. */
void shard_count_back(struct shard *s, log_position position);

/* How many of the oldest segments hold nothing alive, nor what a subscription was set back to (the active one is never among
 * them). */
uint32_t shard_dead_segments(struct worker *w, struct shard *s);
/* Of position.c. The first that has something of the latter; UINT32_MAX: none. */
uint32_t shard_pinned_segment(struct worker *w, struct shard *s);
/* Of retain.c. After segments went: what was retained in them is forgotten, a piece a turn. True if there is more. */
void shard_forget_retained(struct worker *w, struct shard *s);
bool shards_forget_retained(struct worker *w);
/* Of names.c. The log knows a topic no more, and later ones count on from where it stopped. */
void shard_unknow_topic(struct worker *w, uint32_t topic);
/* After anything that may send it to sleep or wake it. One that the log does not know is gone then. */
void shard_settle_topic(struct worker *w, uint32_t topic);
/* Forgets some of those that have slept longest. True if there are more. */
bool shards_forget(struct worker *w);
void shard_sleep_after_replay(struct worker *w, struct shard *s);
/* Somebody remembers its seqs: it is not forgotten. */
static inline bool shard_keeps(const struct shard *s, const struct topic *t) {
    return s->keep_all || map_find(&s->keep, t->key);
}
/* No seq and no id is given out that could have been in so many segments more. */
void shard_skip(struct worker *w, struct shard *s, uint32_t segments);
/* Names what has to be named elsewhere before, if shard_move_names has not. False: there was no room for that. */
bool shard_drop_first(struct worker *w, struct shard *s);
/* Topics that are named (a newline between two; NULL: all) are not forgotten until this is called again: each call takes
 * the place of the one before. */
void shard_keep_topics(struct worker *w, struct shard *s, const char *names, size_t bytes);

/* Moves live jobs of the oldest segment to the head of the log, looking at no more than `budget` bytes. True when the
 * segment has been gone through. */
bool shard_compact(struct worker *w, struct shard *s, uint64_t budget);

/* The message that lives there, should it still do so: its record can be read. False: there is no room, or it has to wait. */
bool shard_move_from(struct worker *w, struct shard *s, log_position position);
/* A message that the stream has, as if its segment were to go: `r` is its record, and can be read. False: there is no room. */
bool shard_move_message(struct worker *w, struct shard *s, uint32_t topic, const struct record *r);

/* A place of a segment that could not be read: [offset, until); nothing whole came after it if the two are equal. */
struct damage {
    uint32_t shard, segment;
    uint64_t offset, until;
};

/* A record of a kind that is not known: who wrote it knew more than this program does. */
struct unknown {
    uint32_t shard, segment;
    uint64_t offset;
    uint32_t kind; /* 0: there is none */
};

/* What recovery found; added up over the segments it is passed to. */
struct replay {
    uint64_t records, jobs, bytes;
    uint32_t damages;         /* seen */
    struct damage damage[64]; /* the first of them */
    struct unknown unknown;
    uint32_t uncut; /* the last segment that could not be cut where it ends, and why; 0: all could */
    int uncut_errno;
};
/* Replays all segments into memory (jobs get a state, but no place in a queue yet) and cuts them where they end. False
 * with errno if one cannot be cut; EPROTO: `unknown` says where there is a record of a kind that is not known. */
bool shard_replay(struct worker *w, struct shard *s, struct replay *out);
/* While it replays: a job that is in no state yet gets one; it is delayed if `due_wall_ns` has not come. */
void replay_queue_job(struct worker *w, uint32_t job, uint64_t due_wall_ns);
/* A MOVED whose REFERENCES is not `next`, as it must be, was referenced by everybody, as far as anybody knows. */
void replay_unreferenced(struct worker *w, struct shard *s, const struct record *next);
void replay_subscription_record(struct worker *w, struct shard *s, const struct record *r);
void replay_durable(struct worker *w, uint32_t topic, bool ephemeral);
/* After the last segment of all shards: what was counted in the time of the shard's log, in this process's. */
uint64_t replay_deadline(const struct worker *w, const struct shard *s, uint64_t deadline_ns);
void replay_place_deferred(struct worker *w);
void replay_forget_ephemeral(struct worker *w);
/* After the last segment of all shards: jobs take their places in the queues. */
void replay_place_jobs(struct worker *w);

#endif

/* The meaning of a shard's log: which records a worker writes, and what keeps a segment alive.
 *
 * The layout of the records is in log/records.h.
 */
#ifndef MQ_SHARD_H
#define MQ_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "log/log.h"
#include "log/records.h"
#include "shards/forgotten.h"
#include "shards/producers.h"
#include "shards/topic.h"

struct message;
struct worker;
struct job;
struct topic;
struct subscription;
struct delivery;
struct parts_left;

/* What a segment still has that is needed. */
struct segment_use {
    uint64_t jobs; /* messages and other counted records that are alive */
    uint64_t total;
    uint64_t names; /* bytes of the names that are in it and in no later one */
};

/* A PUBLISH_MANY that is written to the log, and then entered into its topic, in pieces (group.c). */
struct group {
    uint64_t id;     /* of its first message; 0: there is no group */
    bool counts;     /* all of it is in the log, and is being entered */
    bool is_nobodys; /* its topic was deleted since */
    bool is_queued;  /* its messages become jobs */
    uint16_t flags;  /* of its records, without PUBLISH_MORE and MESSAGE_HEADERS */
    uint32_t topic_number;
    uint32_t done;     /* messages written, or, when it counts, entered */
    uint64_t at;       /* offset of the next one in the request's body */
    uint64_t body_at;  /* bytes written of the body of that one */
    uint64_t seq;      /* of the first message */
    uint64_t wall_ns;  /* when the group was begun */
    log_position next; /* where the next message to enter is in the log */
};

struct shard {
    uint32_t number;
    uint32_t segment;                      /* the active one, if what it begins with has been written */
    uint32_t topics_known;                 /* the last topic number given in the log */
    struct map numbers;                    /* from topic numbers in the log to the worker's */
    uint32_t known_first, known_last;      /* topics in the log, in the order they were named last: known.c */
    uint64_t names_bytes, names_recovered; /* of names in the log; of those named in a place that is not relied on */
    uint32_t asleep_first, asleep_last, asleep;
    struct map keep; /* keys of names that must not be forgotten */
    bool keep_all;   /* no name may be forgotten */
    bool drowsy;     /* some names are to be forgotten */
    struct shard *next_drowsy;
    uint32_t subscriptions_known; /* highest subscription number in the log */
    uint32_t subscriptions_capacity;
    uint32_t *subscriptions;  /* the worker's number by the log's; 0: deleted */
    uint32_t retaining;       /* the first topic that retains */
    uint32_t forgetting;      /* the one now forgetting what was in dropped segments; 0: none */
    uint64_t forgetting_page; /* where it continues */
    uint32_t pinned;          /* the first subscription that was set back */
    uint64_t floor;
    struct forgotten forgotten;
    uint64_t top_id;
    struct producers writers, named; /* producers of batches in parts; those with a name in a topic */
    struct log *log;
    struct segment_use *use; /* for segments first_use, first_use + 1, ... */
    uint32_t first_use, use_count, use_capacity;
    uint64_t jobs;
    uint64_t replayed_ns;           /* recovery: the time that the log's records have come to */
    uint64_t scan_offset;           /* where compaction continues in the first segment */
    bool passed_over;               /* ... some of which was unreadable: lost.c then looks for what it had */
    uint32_t rest_job, rest_topic;  /* ... from these on, */
    uint64_t rest_seq;              /* ... and from this seq of the topic */
    uint64_t sync_upto;             /* how far the round of syncs under way covers the log */
    log_position moved;             /* recovery: of the MOVED just read, if a REFERENCES must follow; 0: none */
    uint64_t took_from, took_until; /* recovery: the seqs that the channel read last took at once */
    uint32_t took_by;
    bool headless; /* recovery: the names at the beginning of the active segment may be incomplete: write them anew */
    bool heals;    /* something of the log was lost: write all names anew */
    bool damaged;  /* recovery: something of the log was lost, so no record can be relied on to complete another */
    uint64_t large_id;           /* id of the message that is written in pieces; 0: none */
    log_position large_from;     /* where it stands in the log, if it is being moved; 0: it is not */
    uint64_t large_behind_bytes; /* the room for records that will follow it */
    bool large_is_kept;          /* it is moved for its topic, whoever holds it */
    uint32_t large_staged_topic; /* the topic into which it is committed; 0: it is being published or staged */
    struct message *large_left;  /* that message, if its client has left */
    uint32_t large_left_topic;
    struct group group;
    bool syncing;
    bool dirty;   /* its log was appended to in this turn */
    bool asked;   /* a segment is being made for it */
    bool refused; /* no segment could be made: no space until one can */
    bool full;    /* finishes of a subscription could not be written for lack of space */
};

struct shard *shard_new(uint32_t number, uint32_t shards);
void shard_free(struct shard *shard);

/* Reserves room for records with `bytes` of attributes and bodies. Publishes also keep what deletes will need. */
enum log_result shard_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish);

/* --- naming.c: where topics are named in the log --- */

/* Reserves room for messages to a topic, and writes the topic's name first, if the segment does not have it yet. */
enum log_result shard_reserve_named(struct worker *w, struct shard *s, uint32_t topic, uint32_t records,
                                    uint64_t bytes);
/* Reserves room that nothing else is kept free for, to write names before a segment goes. */
enum log_result shard_reserve_for_names(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes);
/* Names a topic; its channels in the order in which they were made. */
void shard_write_name(struct worker *w, struct shard *s, uint32_t topic);

/* For a message that is written in pieces (large.c): the first makes room for it, and for records of `behind_bytes` that
 * will follow it. The second, when all of its body is in the log, makes room for its record and a PRODUCER record of
 * `beside_bytes`, if not 0, which must be appended next. LOG_NO_SPACE: too many names were written meanwhile. The third
 * is for the records that follow, for which there is room. */
enum log_result shard_begin_large(struct worker *w, struct shard *s, uint32_t topic, uint8_t attribute_bytes,
                                  uint64_t body_bytes, uint64_t behind_bytes);
enum log_result shard_end_large(struct worker *w, struct shard *s, uint32_t topic, uint64_t beside_bytes);
void shard_reserve_behind_large(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes);
/* The same for a group (group.c), whose records take `bytes`. */
enum log_result shard_begin_group(struct worker *w, struct shard *s, uint32_t topic, uint64_t bytes);

/* --- drop.c: before a segment goes --- */

enum names_moved { NAMES_MORE, NAMES_MOVED, NAMES_NO_ROOM };
/* Writes some of those names anew that are in segments up to `until` and in no later one. */
enum names_moved shard_move_names(struct worker *w, struct shard *s, uint32_t until);
/* After something of the log was lost: writes all names anew, so that each has two intact copies. */
enum names_moved shard_heal_names(struct worker *w, struct shard *s);
/* Drops the oldest segment, after writing the names anew that shard_move_names has not. False: no room for these. */
bool shard_drop_first(struct worker *w, struct shard *s);

/* --- records.c: these append records, for which the caller has reserved room --- */

/* Appends records that say nothing new, of `bytes` bytes in all. */
enum { SHARD_FILLER_BYTES = 64 << 10 };
void shard_log_filler(struct worker *w, struct shard *s, uint64_t bytes);
/* Says where topics made from now on begin to count, and which are not known any more: their numbers, and how far they
 * had counted. */
enum {
    SHARD_FORGOTTEN_AT_ONCE = 64,
    SHARD_FORGOTTEN_RECORD = UINT8_MAX / sizeof(struct forgotten_topic), /* so many fit into a record's attributes */
    SHARD_FLOOR_RECORDS = SHARD_FORGOTTEN_AT_ONCE / SHARD_FORGOTTEN_RECORD + 1,
    SHARD_FLOOR_BYTES = SHARD_FORGOTTEN_AT_ONCE * (sizeof(uint32_t) + sizeof(struct forgotten_topic)),
};
struct floor {
    uint32_t numbers[SHARD_FORGOTTEN_AT_ONCE];
    struct forgotten_topic topics[SHARD_FORGOTTEN_AT_ONCE];
    size_t count;
};
void shard_log_floor(struct worker *w, struct shard *s, const struct floor *floor);
/* What a segment begins with: the floor, and all forgotten topics that are remembered. */
void shard_log_forgotten(struct worker *w, struct shard *s);
void shard_log_topic(struct worker *w, struct shard *s, uint32_t topic);
log_position shard_log_publish(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint64_t id,
                               struct publish_attributes attributes, const void *body, uint32_t body_bytes,
                               uint16_t flags);
log_position shard_log_staged(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint64_t id,
                              const struct staged_attributes *a, const void *body, uint32_t body_bytes, uint16_t flags);
/* Both of these records keep their segment alive until they are counted out. */
log_position shard_log_pending(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                               uint64_t txn, const struct parts_left *left, bool upto);
void shard_log_txn_end(struct worker *w, struct shard *s, uint32_t topic, uint64_t txn, bool commit);
/* Also remembers the producer. flags: PUBLISH_MORE, PRODUCER_NAMED. */
void shard_log_producer(struct worker *w, struct shard *s, const struct producer_part *part, uint16_t flags);
/* Appends a record for each producer that is remembered. */
void shard_log_producers(struct worker *w, struct shard *s, const struct producers *all, uint16_t flags);
void shard_log_delete(struct worker *w, struct shard *s, const struct job *job, uint64_t seq);
/* Says again that one of a message's jobs is deleted. */
void shard_log_delete_part(struct worker *w, struct shard *s, const struct job *whole, uint64_t id);
void shard_log_state(struct worker *w, struct shard *s, const struct job *job);
/* Appends a copy of the PUBLISH or MOVED record of a message, with the present state of its job, if it has one. */
log_position shard_log_moved(struct worker *w, struct shard *s, uint32_t topic, const struct job *job,
                             const struct record *from, uint16_t flags);
void shard_log_references(struct worker *w, struct shard *s, uint32_t topic, const struct record *of, uint16_t flags,
                          const struct reference *references, size_t count);
void shard_log_subscription(struct worker *w, struct shard *s, struct subscription *of);
void shard_log_seek(struct worker *w, struct shard *s, struct subscription *of);
void shard_log_cursor(struct worker *w, struct shard *s, struct subscription *of);
/* Writes the finishes that subscription_finished has noted, and forgets them. */
void shard_log_finish(struct worker *w, struct shard *s, struct subscription *of);
/* Says that all that were delivered up to a seq are finished. */
void shard_log_finish_upto(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq);
void shard_log_finish_parts(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                            const struct parts_left *left);
uint64_t shard_finish_bytes(const struct subscription *of);
void shard_log_redelivery(struct worker *w, struct shard *s, const struct subscription *of, const struct delivery *d);
struct redelivery shard_redelivery_of(const struct worker *w, const struct delivery *d);
void shard_log_adopted(struct worker *w, struct shard *s, const struct subscription *by, const uint64_t *ids,
                       size_t count, uint16_t flags);
/* Says that the subscription gets all messages in the job queue; those delayed at `wall_ns` as delayed. */
void shard_log_adopted_all(struct worker *w, struct shard *s, const struct subscription *by, uint64_t wall_ns);
/* Appends EMPTY or UNSUBSCRIBE of a subscription; TOPIC_GONE, with `of` NULL. */
void shard_log_end(struct worker *w, struct shard *s, enum record_kind kind, uint32_t topic, struct subscription *of);
/* Says that the subscription with this number holds nothing before `until` any more; 0: the messages that wait for the
 * topic's first one are meant. */
void shard_log_emptied(struct worker *w, struct shard *s, uint32_t topic, uint32_t subscription, uint64_t until);

/* --- known.c: the topics that the log knows, and where it names them --- */

/* How many bytes a topic's record takes besides its header. */
static inline uint64_t shard_topic_bytes(const struct topic *t) {
    return t->name_bytes + sizeof(struct topic_attributes);
}
struct log_size {
    size_t records;
    uint64_t bytes; /* bytes of attributes and bodies */
};
static inline uint64_t log_size_bytes(struct log_size size) {
    return size.records * LOG_RECORD_OVERHEAD + size.bytes;
}
/* Whether a subscription is in the log; one that is being handed a backlog is not yet. */
bool shard_has_logged(const struct shard *s, const struct subscription *of, uint32_t subscription);
/* How much it takes to name a topic. */
struct log_size shard_name_size(const struct worker *w, const struct shard *s, const struct topic *t);
/* To be called when a topic and all its channels have just been written; or when the log does not know it any more. */
void shard_note_named(struct worker *w, struct shard *s, uint32_t topic);
/* To be called when a channel was written behind its topic's name: naming the topic again takes more bytes. */
void shard_note_channel(struct worker *w, struct shard *s, uint32_t topic);
void shard_names_recovered(struct worker *w, struct shard *s);
/* Bytes of names that must be written before a segment can be deleted. */
uint64_t shard_segment_names(const struct shard *s, uint32_t segment);
/* The topic that has a number in the shard's log; 0: none has. */
static inline uint32_t shard_topic(const struct shard *s, uint32_t number) {
    return map_find(&s->numbers, number);
}
/* Give a topic this number in the shard's log, which must be free; a topic a new number, unless it has one; a
 * subscription this number. False when memory is short. */
bool shard_know_topic(struct worker *w, struct shard *s, uint32_t topic, uint32_t number);
bool shard_number_topic(struct worker *w, struct shard *s, uint32_t topic);
bool shard_know_subscription(struct shard *s, uint32_t subscription, uint32_t number);
/* Makes the log forget a topic; topics made later count on from where it stopped. The second notes it for the record of
 * that. */
void shard_unknow_topic(struct worker *w, uint32_t topic);
void shard_forget_topic(struct worker *w, uint32_t topic, struct floor *floor);

struct segment_use *shard_use_of(struct shard *s, log_position position);
void shard_count_in(struct shard *s, log_position position);
void shard_count_in_many(struct shard *s, uint32_t segment, uint64_t count);
void shard_count_out(struct shard *s, log_position position);
/* Counts a record in again that was counted out. */
void shard_count_back(struct shard *s, log_position position);

/* How many of the oldest segments before `pinned` have nothing alive. The active one is never among them. */
uint32_t shard_dead_segments(const struct shard *s, uint32_t pinned);
/* cold.c: the first segment that a subscription was set back to; UINT32_MAX: none. */
uint32_t shard_pinned_segment(struct worker *w, struct shard *s);
/* The position from which on retained messages can be read. */
static inline uint64_t retained_oldest(const struct shard *s) {
    return (uint64_t)log_first_segment(s->log) << 32;
}
/* retain.c: after segments were dropped, forget the messages retained in them, a piece a turn. True: there is more. */
void shard_forget_retained(struct worker *w, struct shard *s);
bool shards_forget_retained(struct worker *w);

/* --- names.c: topics that sleep --- */

/* Makes a topic, 0 if it cannot. It counts on from where it had come if the shard remembers that, otherwise from
 * the shard's floor. */
uint32_t shard_make_topic(struct worker *w, struct shard *s, const char *name, size_t name_bytes);
/* To be called after anything that may send a topic to sleep or wake it. May remove one that the log does not know. */
void shard_settle_topic(struct worker *w, uint32_t topic);
/* Forgets some of the topics that have slept longest. True if there are more. */
bool shards_forget(struct worker *w);
void shard_sleep_after_replay(struct worker *w, struct shard *s);
/* Whether a topic must not be forgotten, as somebody remembers its seqs. */
static inline bool shard_keeps(const struct shard *s, const struct topic *t) {
    return s->keep_all || map_find(&s->keep, t->key);
}
/* Skips all seqs and ids that could have been given out in `segments` more segments. */
void shard_skip(struct worker *w, struct shard *s, uint32_t segments);
/* Sets the topics that must not be forgotten (names separated by newlines; NULL: all topics). Each call replaces the
 * previous one. */
void shard_keep_topics(struct worker *w, struct shard *s, const char *names, size_t bytes);

/* Appends live messages of the oldest segment to the log again, reading no more than `budget` bytes. True when the
 * whole segment has been read. */
bool shard_compact(struct worker *w, struct shard *s, uint64_t budget);

/* A damaged place in a segment: [offset, until); if the two are equal, nothing whole came after it. */
struct damage {
    uint32_t shard, segment;
    uint64_t offset, until;
};

/* A record of an unknown kind, written by a later version. */
struct unknown {
    uint32_t shard, segment;
    uint64_t offset;
    uint32_t kind; /* 0: none was found */
};

/* What recovery found, added up over shards. */
struct replay {
    uint64_t records, jobs, bytes;
    uint32_t damages;         /* found */
    struct damage damage[64]; /* the first of them */
    struct unknown unknown;
    uint32_t uncut; /* the last segment that could not be cut at its end, and why; 0: all could */
    int uncut_errno;
};
/* Replays all segments into memory (jobs get a state, but no place in a queue yet) and cuts them where they end. False
 * with errno if one cannot be cut; EPROTO: a record is of an unknown kind, see `unknown`. */
bool shard_replay(struct worker *w, struct shard *s, struct replay *out);
/* Moves a message, which is a job or held by its topic's stream, to another record. */
void replay_move(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint32_t job, log_position to);
/* If a MOVED was read and `next` is not its REFERENCES, as it must be: assumes that all subscriptions hold it. */
void replay_unreferenced(struct worker *w, struct shard *s, const struct record *next);
void replay_subscription_record(struct worker *w, struct shard *s, const struct record *r);
void replay_place_deferred(struct worker *w);
void replay_forget_ephemeral(struct worker *w);
/* After the last segment of all shards: jobs take their places in the queues. */
void replay_place_jobs(struct worker *w);

#endif

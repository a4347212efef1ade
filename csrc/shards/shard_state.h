/* The meaning of a shard's log: which records a worker writes, and what keeps a segment alive.
 *
 * The layout of the records is in log/records.h.
 */
#ifndef MQ_SHARDS_SHARD_STATE_H
#define MQ_SHARDS_SHARD_STATE_H

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

/* How far what is retained has been looked through for its oldest segment (needed.c). */
struct needed {
    bool looks;
    uint32_t topic; /* to be looked at next, */
    uint64_t seq;   /* ... from here on */
    uint32_t from;  /* nothing that was seen so far lies before this segment */
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
    uint32_t subscriptions_known; /* the last subscription number given in the log */
    struct map subscriptions;     /* from subscription numbers in the log to the worker's */
    uint32_t retaining;           /* the first topic that retains */
    uint32_t forgetting;          /* the one now forgetting what was in dropped segments; 0: none */
    uint64_t forgetting_page;     /* where it continues */
    uint32_t pinned;              /* the first subscription that was set back */
    uint64_t floor;
    struct forgotten forgotten;
    uint64_t top_id;
    struct producers batch_producers, named_producers; /* of batches in parts; with a name in a topic */
    struct log *log;
    struct segment_use *use; /* for segments first_use, first_use + 1, ... */
    uint32_t first_use, use_count, use_capacity;
    uint64_t jobs;
    uint64_t replayed_ns;           /* recovery: the time that the log's records have come to */
    uint32_t compacting;            /* the segment that compaction empties, */
    uint64_t scan_offset;           /* ... where it continues there */
    bool passed_over;               /* ... some of which was unreadable: unreadable.c then looks for what it had */
    uint32_t rest_job, rest_topic;  /* ... from these on, */
    uint64_t rest_seq;              /* ... and from this seq of the topic */
    uint64_t sync_upto;             /* how far the round of syncs under way covers the log */
    log_position moved;             /* recovery: of the MOVED just read, if a REFERENCES must follow; 0: none */
    uint64_t took_from, took_until; /* recovery: the seqs that the channel read last took at once */
    uint32_t took_by;
    struct needed needed;
    uint32_t doubtful_from; /* the oldest segment that was found damaged, or could not be read in places; 0: none */
    uint32_t read_from;     /* recovery: the first segment to be read; nothing before it is needed (needed.h), ... */
    bool needs_all;         /* ... but all of it is, as something that was read is damaged */
    log_position ended;     /* recovery: where the log ended at the last clean stop; 0: not known */
    uint64_t lost_seqs;     /* recovery: how many seqs each topic may have had in what is lost so far (skip.h) */
    bool lost_ids;          /* recovery: ids may be lost, above all that the log has behind that place */
    bool lost_end;          /* recovery: what was written last may be lost, and nothing in the log tells of it */
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
    uint64_t cut_again_ns; /* not before may a dropped one be cut off, as that has failed */
    struct group group;
    bool syncing;
    bool dirty;   /* its log was appended to in this turn */
    bool asked;   /* a segment is being made for it */
    bool refused; /* no segment could be made: no space until one can */
    bool full;    /* finishes of a subscription could not be written for lack of space */
};
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

#endif

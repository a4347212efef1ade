/* What Python calls of a worker: the process that owns shards.
 *
 * The functions are in the files of this folder that do what they ask for. */
#ifndef MQ_SHARDS_CALLS_H
#define MQ_SHARDS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct worker;

enum sync_mode { SYNC_NEVER, SYNC_INTERVAL, SYNC_ALWAYS };

/* Why worker_run returned. */
enum worker_event {
    WORKER_CONTROL = 1,       /* the control fd is readable */
    WORKER_WANTS_SEGMENT = 2, /* see worker_wanting_shard */
    WORKER_TICK = 4,          /* max_wait_ns is over */
    WORKER_FAILING = 8,       /* a log cannot be written or synced */
    WORKER_NO_SPACE = 16,     /* a publish was refused for lack of disk space */
};

enum names_moved { NAMES_MORE, NAMES_MOVED, NAMES_NO_ROOM };

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
    uint64_t end;             /* where the whole records of the shard read last ended */
    uint32_t damages;         /* found */
    struct damage damage[64]; /* the first of them */
    struct unknown unknown;
    uint32_t uncut; /* the last segment that could not be cut at its end, and why; 0: all could */
    int uncut_errno;
};

/* `seed`: for the hash of names; 0: a random one. */
struct worker *worker_new(uint32_t index, uint32_t workers, uint32_t shards, int board_fd, int wake_fd, uint64_t seed);
void worker_free(struct worker *w);
bool worker_sync_mode(struct worker *w, int mode, uint64_t interval_ns);
void worker_spin(struct worker *w, uint64_t spin_ns);
/* How much may be in flight to all consumers of an acceptor before they get short windows. */
void worker_push_at_most(struct worker *w, uint64_t bytes);

/* Whether the worker reads the clocks itself when messages have come in; worker_run switches that on. */
void worker_read_clock(struct worker *w, bool reads);

/* Makes the worker own a shard, whose segments are then added in order. */
bool worker_own(struct worker *w, uint32_t shard);
/* Adds a segment to a shard, which owns the fd from then on. False: the segment is not valid (see log_add_segment). */
bool worker_add_segment(struct worker *w, uint32_t shard, int fd, uint32_t segment, uint64_t bytes, bool is_new,
                        uint64_t wall_ns);
/* Gives a shard the file with the copies of a segment's names; the shard owns the fd from then on. */
bool worker_keep_copies(struct worker *w, uint32_t shard, int fd, uint32_t segment);
/* When all segments have been added: gives a shard the file with the heads of a sealed segment, so that these are read
 * and the segment is not. The caller closes it. Returns enum heads_found. */
int worker_use_heads(struct worker *w, uint32_t shard, int fd, uint32_t segment);
/* Before that: where the shard's log ended at the last clean stop. */
void worker_ended(struct worker *w, uint32_t shard, uint32_t segment, uint64_t end);
/* Before that: the first segment that has to be read, as worker_needed_from has returned it. */
void worker_read_from(struct worker *w, uint32_t shard, uint32_t segment);
/* Before that: what was written last may be lost without a trace, so all seqs and ids go on far behind what is
 * there. */
void worker_lost_end(struct worker *w, uint32_t shard);
/* Recovers a shard from its segments; adds what was found to `out`. False: errno says why. EAGAIN: the segments before
 * worker_read_from have to be read too, as others are damaged. Nothing was done about that. A new worker has to begin
 * with all shards, since this one has read a part. */
bool worker_replay(struct worker *w, uint32_t shard, struct replay *out, uint64_t now_ns, uint64_t wall_ns);
/* To be called after the last shard was recovered: the worker may serve from now on. */
void worker_recovered(struct worker *w);
/* After that, and when all shards have a segment: notes how far seqs and ids have gone on for worker_lost_end, which is
 * durable after worker_flush. False: some shard has no room for that, so it must be said again at the next start. */
bool worker_note_ends(struct worker *w);
/* After that: how many topics have lost their names and are called lost+found/shard-SHARD/..., and how many messages
 * they have. */
uint32_t worker_nameless(const struct worker *w, uint32_t shard, uint64_t *messages);
/* Reports each message that could not be read and was skipped, once. Returns how many were not reported before, this
 * one included; 0: none. Beyond WORKER_UNREADABLE_MOST, or half of that for one topic, they are only counted. *topic is
 * valid until the next turn. */
uint32_t worker_unreadable(struct worker *w, struct damage *place, const char **topic);
/* The shard that needs a segment next, how large it must be, and its number; -1: none. */
int64_t worker_wanting_shard(const struct worker *w, uint64_t *bytes, uint32_t *segment);
/* Says that the segment is being made, so that it is not asked for again. */
void worker_ask_segment(struct worker *w, uint32_t shard);
/* Says that the segment cannot be made now: publishes that need it are answered NO_SPACE until one is added, ... */
void worker_refuse_segment(struct worker *w, uint32_t shard);
/* ... or this is called, as it can perhaps be made now. */
void worker_retry_segments(struct worker *w);

uint32_t worker_dead_segments(struct worker *w, uint32_t shard);
/* To be called now and then: the first segment that the next start has to read, if the names in those before it are
 * moved (worker_move_names), and all that was appended until then is synced. 0: none beyond `from`, as far as is known
 * yet. */
uint32_t worker_needed_from(struct worker *w, uint32_t shard, uint32_t from);
uint32_t worker_first_segment(const struct worker *w, uint32_t shard);
uint32_t worker_active_segment(const struct worker *w, uint32_t shard);
/* When the shard's log was begun, by the wall clock: tells it from a log that was lost. 0: not known, or no log yet. */
uint64_t worker_log_began(const struct worker *w, uint32_t shard);
/* Where the records of a segment end, in bytes, staged ones included; 0: there is no such segment. */
uint64_t worker_segment_bytes(const struct worker *w, uint32_t shard, uint32_t segment);
/* Bytes appended to a shard's log, and synced, what was found at recovery included. */
uint64_t worker_appended(const struct worker *w, uint32_t shard);
uint64_t worker_synced(const struct worker *w, uint32_t shard);
/* To be called repeatedly before the oldest segments up to `until` are deleted: writes some of the names in them to the
 * active one too. Returns enum names_moved. `until` 0: writes all names anew, if something of the log was lost. */
uint32_t worker_move_names(struct worker *w, uint32_t shard, uint32_t until);
/* How many bytes of names must be written before a segment can be deleted. */
uint64_t worker_segment_names(const struct worker *w, uint32_t shard, uint32_t segment);
/* The seq that a topic's next message gets; 0: the topic is not in memory. */
uint64_t worker_next_seq(const struct worker *w, const char *name, size_t bytes);
/* Drops the oldest segment, after writing the names in it anew. False, with the segment kept: no room for these. */
bool worker_drop_first(struct worker *w, uint32_t shard);
/* Sets the topics that must not be forgotten (shard_keep_topics). */
void worker_keep_topics(struct worker *w, uint32_t shard, const char *names, size_t bytes);
/* Limits the number of topics, to less than WORKER_MAX_TOPICS. */
void worker_limit_topics(struct worker *w, uint32_t limit);
/* Limits the number of deliveries some of whose parts are finished, to WORKER_MAX_IN_PARTS or less. */
void worker_limit_parts(struct worker *w, uint32_t limit);
/* How many topics are in memory, asleep or not. */
uint32_t worker_topics(const struct worker *w);
/* Switches to a new segment, though there is room in the active one. */
void worker_roll(struct worker *w, uint32_t shard);
/* From now on the caller cuts full segments to worker_segment_bytes. */
void worker_leave_uncut(struct worker *w);
/* From now on segments are made of such as were dropped, if they are in memory (log/spares.h). */
void worker_reuse_segments(struct worker *w);
/* The descriptor of one that the next segment can be made of, which the worker owns; -1: there is none. */
int worker_spare_segment(struct worker *w);
/* Gives some of those, and of what was kept for full rings, back to the system if it is not needed; true: there is
 * more. */
bool worker_trim_spares(struct worker *w);
/* The errno of the last failure to write or sync, of the file *fd; 0: none. */
int worker_disk_errno(const struct worker *w, int *fd);
/* How many messages it has taken. */
uint64_t worker_published(const struct worker *w);
/* Whether a topic of the shard retains messages that nobody holds. */
bool worker_retains(const struct worker *w, uint32_t shard);
/* How many messages of a segment are alive, of *total. All are, if a subscription was set back to it. */
uint64_t worker_live_jobs(struct worker *w, uint32_t shard, uint32_t segment, uint64_t *total);
/* Moves messages of the oldest segment to the log's head, reading no more than `budget` bytes: true when all of it has
 * been read. The other does that to the oldest in which something is left. */
bool worker_compact(struct worker *w, uint32_t shard, uint64_t budget);
bool worker_compact_needed(struct worker *w, uint32_t shard, uint64_t budget);

/* Attaches (or replaces) the channel to an acceptor. What the connections of a previous one had is released. */
bool worker_peer(struct worker *w, uint32_t acceptor, int out_fd, int in_fd, int peer_wake_fd);
void worker_peer_gone(struct worker *w, uint32_t acceptor);

/* Runs one turn at a given time. True if anything was done. */
bool worker_turn(struct worker *w, uint64_t now_ns, uint64_t wall_ns);
/* When something is due next, even if no message comes; UINT64_MAX: never. */
uint64_t worker_next_ns(const struct worker *w);
/* The most messages and topics that one turn has touched since the last call. */
uint64_t worker_longest_turn(struct worker *w);
/* Sets what one request, or what is due, may touch in one turn, instead of WORKER_TURN_STEPS. */
void worker_limit_turn(struct worker *w, uint32_t steps);
/* Runs turns until Python is needed. Returns bits of enum worker_event. */
uint32_t worker_run(struct worker *w, int control_fd, uint64_t max_wait_ns);
/* Writes and syncs all that was appended; false: that failed. */
bool worker_flush(struct worker *w);

#endif

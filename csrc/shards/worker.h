/* A worker: the process that owns shards. This is its whole state; what is done with it is in
 *
 *   requests.c  who does what each message of the shard protocol asks for
 *   queue.c     the job queue: how jobs pass between ready, reserved, delayed, buried and gone
 *   subscription.h   the other kind of subscription: cursors over a topic's stream
 *   shard.c     what of that goes to the log; compact.c and replay.c, the log's other two uses
 *   worker.c    a turn: take messages in, let time pass, write the log, let replies out
 *
 * Law: no reply leaves before what it promises is in the log. Replies are sent into the channels during a turn and
 * published at its end, after the logs have been flushed (and, with SYNC_ALWAYS, synced).
 */
#ifndef MQ_WORKER_H
#define MQ_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/adaptive_spin.h"
#include "base/arena.h"
#include "base/heap.h"
#include "base/index.h"
#include "ringbuf/board.h"
#include "ringbuf/channel.h"
#include "ringbuf/limits.h"
#include "shards/attach.h"
#include "shards/client.h"
#include "shards/durations.h"
#include "shards/job.h"
#include "shards/shard.h"
#include "shards/subscription.h"
#include "shards/topic.h"
#include "shards/transactions.h"

enum {
    WORKER_MAX_SHARDS = 4096,
    WORKER_MAX_JOBS = 1 << 28, /* a reservation's number fits RESERVATION_MASK */
    WORKER_MAX_TOPICS = 1 << 20,
    WORKER_MAX_CLIENTS = (1 << 22) + 1, /* all connections of all acceptors, and number 0 */
    WORKER_MAX_WATCHES = 1 << 26,
    WORKER_MAX_OPEN_TOPICS = 1 << 20, /* numbers of one acceptor */
    WORKER_TURN_MESSAGES = 4096,      /* of one acceptor in one turn */
    WORKER_MAX_SUBSCRIPTIONS = 1 << 20,
    WORKER_MAX_DELIVERIES = 1 << 26,
    WORKER_TURN_STEPS =
        4096, /* messages or topics that one request, or time alone, touches in one turn; the rest in the next */
    WORKER_MAX_SLOTS = 1 << 22,    /* of which messages are in flight */
    WORKER_MAX_IN_PARTS = 1 << 20, /* deliveries of which parts are finished */
    WORKER_MAX_ATTACHED = 1 << 22, /* producers */
    WORKER_TURN_WALK = 1
        << 18, /* items of lists that requests walk along in one turn before the others wait for the next; */
    WORKER_LONG_WALK = 1 << 12, /* ... whoever has asked for so much goes on in the next */
    WORKER_LOST_IN_TURN = 64,   /* jobs that cannot be read, and so are looked at, in one turn */
    WORKER_LOST_MOST = 16,      /* messages that could not be read and nobody has asked about yet */
};

_Static_assert(WORKER_MAX_WATCHES > (MAX_ALL_WATCHED + MAX_CONNECTIONS) * BOARD_MAX_ACCEPTORS, "nor is a watch");
_Static_assert(BOARD_MAX_ACCEPTORS <= 64, "each has a bit");
_Static_assert(WORKER_MAX_CLIENTS > MAX_CONNECTIONS * BOARD_MAX_ACCEPTORS, "no connection is one too many");

/* The last part of a job's time to run, in which its client gets no further waiting. */
#define SAFETY_MARGIN_NS 1000000000ULL

/* A message that could not be read. */
struct lost {
    struct damage place;
    char topic[TOPIC_NAME_MAX + 1];
};

/* A message of so many bytes is written to the log in pieces, and stays where it was put together until then. */
enum { LARGE_BYTES = 8 << 20, LARGE_PIECE_BYTES = 1 << 20 };

/* Bodies that stand in line are counted, those of all clients together, but for small ones; with so many of them what comes next waits
 * in its ring. */
enum { HELD_SMALL_BYTES = 4 << 10, HELD_MOST_BYTES = 64 << 20 };

enum sync_mode { SYNC_NEVER, SYNC_INTERVAL, SYNC_ALWAYS };

/* Why worker_run came back. */
enum worker_event {
    WORKER_CONTROL = 1,       /* the control fd is readable */
    WORKER_WANTS_SEGMENT = 2, /* see worker_wanting_shard */
    WORKER_TICK = 4,          /* the wait is over */
    WORKER_FAILING = 8,       /* a log cannot be written or synced */
    WORKER_NO_SPACE = 16,     /* a publish was refused for want of disk */
};

/* What an acceptor's number for a topic is bound to. */
struct opened {
    uint32_t topic; /* 0: nothing */
    bool listed;
};

struct peer {
    struct channel *channel;
    struct opened *topics; /* by the acceptor's number */
    uint32_t topics_capacity;
    const struct message *stalled; /* could not be done yet, ... */
    uint32_t stalled_at;           /* ... being a REQUEST_EACH: from this one on */
    uint64_t round_tail;           /* replies before this are covered by the sync under way */
    struct message *joined;        /* the answer to what joined_client has published last, if it lies in the ring; */
    uint64_t joined_at;            /* ... where that is */
    uint32_t joined_client;        /* 0: something else has been answered since */
    bool full;                     /* nothing is to be pushed to it in this turn any more */
    uint64_t window_bytes;         /* of all its consumers */
    uint32_t leaving,
        closing; /* it is gone: the first client, and number of a topic's, that is yet to be let go; 0: it is there */
    struct channel *next; /* of the acceptor that is heard when all are; NULL: none */
};

struct worker {
    uint32_t index, workers, shards;
    uint64_t now_ns;  /* monotonic; while a log is read back: how much time its records saw pass */
    uint64_t wall_ns; /* wall clock; while a log is read back: that of its records */
    bool reads_clock; /* when messages have come in; else time is what a turn is told */

    struct shard *own[WORKER_MAX_SHARDS];
    struct arena jobs, reservations;
    uint64_t jobs_to_come; /* of groups that are in the log, and are yet to be taken in */
    struct index ids;
    struct topics topics;
    struct clients clients;
    struct subscriptions subscriptions;
    struct transactions transactions;
    struct attachments attachments;

    struct lost lost[WORKER_LOST_MOST];
    uint32_t lost_count, lost_listed, lost_told;
    uint32_t lost_in_turn, unserved_count;
    uint32_t unserved[WORKER_LOST_IN_TURN]; /* topics that somebody waits for: served in the next turn */

    struct wheel inflight;                  /* reservations, by when their last second begins, and then by deadline */
    struct heap delays;                     /* topics, by their first delayed job's deadline */
    struct heap pauses;                     /* topics, by the end of their pause */
    struct heap waits;                      /* waiting clients with something to wait no longer for */
    uint32_t runnable_first, runnable_last; /* clients with parked requests that may go on */
    uint32_t unfinished_first, unfinished_last; /* clients whose request goes on in the next turn */
    uint32_t leaving_first, leaving_last;       /* clients that are gone, and give back what they had in pieces; */
    uint32_t leaving_consumers, leaving_consumers_last; /* ... consumers, too */
    uint32_t yielding_consumers;
    uint64_t steps, most_steps; /* messages and topics touched in this turn, and ever in one */
    uint64_t spare_until;       /* see worker_spare */
    uint64_t walked;            /* see WORKER_TURN_WALK */
    uint64_t turns;
    uint32_t piece; /* WORKER_TURN_STEPS, or as few as a test says */

    struct peer peers[BOARD_MAX_ACCEPTORS + 1]; /* the last is NOBODY */
    uint64_t peers_there;                       /* those that have a channel, as bits */
    uint64_t peers_leaving;                     /* those of which more is to be let go: see peer.c */
    uint64_t push_most_bytes;                   /* to one of them, before its consumers' windows are short */
    struct board *board;
    struct worker_board *count;

    struct tomb *tombs; /* what is to be freed piece by piece */
    uint32_t orphans;   /* subscriptions of which only deliveries are left */
    struct handover *handovers;
    struct keeping *keepings;
    struct release *releases, *releases_last;
    uint64_t held_bytes;  /* of bodies that stand in line: see HELD_MOST_BYTES */
    bool larges_left;     /* some shard has a large message whose client has gone, or takes one away */
    bool forgetting;      /* some shard has to forget what was retained */
    struct shard *drowsy; /* the first of those with topics to be forgotten */
    struct shard *dirty[WORKER_MAX_SHARDS];
    uint32_t dirty_count;
    struct shard *wanting;        /* a shard whose log wants a segment */
    const struct channel *taking; /* from which the request that is handled has just come; NULL: it has waited */
    bool failing;                 /* a log cannot be written: nothing is taken in or let out */
    bool no_space;
    bool unsynced; /* something was written since the last round of syncs began */
    bool sync_refused;
    bool sync_failed; /* for good: what the kernel has dropped cannot be written again */

    bool replaying;
    enum sync_mode sync;
    uint64_t sync_interval_ns, synced_at_ns;
    struct syncer *syncer;
    uint64_t sync_ticket; /* of the round under way; 0: none */
    uint64_t next_ticket;
    struct durations durations;

    int wake_fd, poll_fd, control_fd;
    struct adaptive_spin adaptive_spin;
};

/* --- what Python calls -------------------------------------------------------------------------------------------- */

/* Zeroes it, but for the counter of ids. */
bool board_format(int fd);

/* `seed`: of the hash of names; 0: one that nobody knows. */
struct worker *worker_new(uint32_t index, uint32_t workers, uint32_t shards, int board_fd, int wake_fd, uint64_t seed);
void worker_free(struct worker *w);
bool worker_sync_mode(struct worker *w, int mode, uint64_t interval_ns);
void worker_spin(struct worker *w, uint64_t spin_ns);
/* So much may be on its way to all consumers of an acceptor before their windows are short. */
void worker_push_at_most(struct worker *w, uint64_t bytes);

/* Whether it reads the clocks itself when messages have come in, as it does from worker_run on. */
void worker_read_clock(struct worker *w, bool reads);

/* Takes on a shard; its segments are then given in order. */
bool worker_own(struct worker *w, uint32_t shard);
/* Gives a segment to a shard, which owns the fd from then on. False: it is not what it should be. */
bool worker_add_segment(struct worker *w, uint32_t shard, int fd, uint32_t segment, uint64_t bytes, bool is_new,
                        uint64_t wall_ns);
/* Gives it the file in which copies of a segment's names are kept, which it owns from then on. */
bool worker_keep_copies(struct worker *w, uint32_t shard, int fd, uint32_t segment);
/* Reads a shard's segments back; adds what was found to `out`. */
bool worker_replay(struct worker *w, uint32_t shard, struct replay *out, uint64_t now_ns, uint64_t wall_ns);
/* After worker_replay: so many of the newest segments are missing. No number that was given out in them is given out again. */
void worker_skip(struct worker *w, uint32_t shard, uint32_t segments);
/* After the last shard: from now on it may serve. */
void worker_recovered(struct worker *w);
/* After that: topics whose names are damaged, which go by lost+found/shard-SHARD/..., and how many messages they have. */
uint32_t worker_nameless(const struct worker *w, uint32_t shard, uint64_t *messages);
/* A message that could not be read and was left out, each once. Returns how many have not been told of, this one included; 0:
 * none. Beyond WORKER_LOST_MOST, or half of that of one topic, they are only counted. The name is there until the next turn. */
uint32_t worker_lost(struct worker *w, struct damage *place, const char **topic);
/* The shard that needs a segment next and how large it must be; -1: none. */
int64_t worker_wanting_shard(const struct worker *w, uint64_t *bytes, uint32_t *segment);
/* It is being made: nobody is told again that it is wanted. */
void worker_ask_segment(struct worker *w, uint32_t shard);
/* A segment that was wanted cannot be had now: publishes that need it are answered NO_SPACE until one comes. */
void worker_refuse_segment(struct worker *w, uint32_t shard);
/* ... or may be had again. */
void worker_retry_segments(struct worker *w);

uint32_t worker_dead_segments(struct worker *w, uint32_t shard);
uint32_t worker_first_segment(const struct worker *w, uint32_t shard);
uint32_t worker_active_segment(const struct worker *w, uint32_t shard);
/* Where a segment that is there ends, or will if it is the active one: bytes. */
uint64_t worker_segment_end(const struct worker *w, uint32_t shard, uint32_t segment);
/* How much was appended to a shard's log, and synced, since the worker began: bytes. */
uint64_t worker_appended(const struct worker *w, uint32_t shard);
uint64_t worker_synced(const struct worker *w, uint32_t shard);
/* Before the oldest segments up to this one go, once and again: some of the names that stand in them come to stand in the
 * active one too. enum names_moved: whether there are more, or no room. 0: of all names, if something of the log was lost. */
uint32_t worker_move_names(struct worker *w, uint32_t shard, uint32_t until);
/* How many bytes of names would have to be written before a segment goes. */
uint64_t worker_segment_names(const struct worker *w, uint32_t shard, uint32_t segment);
/* The seq that a topic's next message gets; 0: it is not in memory. */
uint64_t worker_next_seq(const struct worker *w, const char *name, size_t bytes);
/* Moves what names are left to be moved first. False, and it stays: there is no room for them. */
bool worker_drop_first(struct worker *w, uint32_t shard);
/* These topics are not to be forgotten (shard_keep_topics). */
void worker_keep_topics(struct worker *w, uint32_t shard, const char *names, size_t bytes);
/* Topics at most, less than WORKER_MAX_TOPICS. */
void worker_limit_topics(struct worker *w, uint32_t limit);
/* Deliveries of which parts are finished at most, no more than WORKER_MAX_IN_PARTS. */
void worker_limit_parts(struct worker *w, uint32_t limit);
/* How many are in memory, asleep or not. */
uint32_t worker_topics(const struct worker *w);
/* Where it ends; 0 if there is no such segment. */
uint64_t worker_segment_bytes(const struct worker *w, uint32_t shard, uint32_t segment);
/* Goes on in a new segment, though there is room in this one. */
void worker_roll(struct worker *w, uint32_t shard);
/* Segments that are full are cut to worker_segment_bytes by who calls this. */
void worker_leave_uncut(struct worker *w);
/* Why the disk failed last. */
int worker_disk_errno(const struct worker *w);
/* How many messages of a segment are alive, of how many that were ever in it. Of one that a subscription was set back to: all. */
uint64_t worker_live_jobs(struct worker *w, uint32_t shard, uint32_t segment, uint64_t *total);
bool worker_compact(struct worker *w, uint32_t shard, uint64_t budget);

/* Attaches (or replaces) the channel to an acceptor; what an earlier one's connections had is let go. */
bool worker_peer(struct worker *w, uint32_t acceptor, int out_fd, int in_fd, int peer_wake_fd);
void worker_peer_gone(struct worker *w, uint32_t acceptor);

/* One turn at a given time. True if anything was done. */
bool worker_turn(struct worker *w, uint64_t now_ns, uint64_t wall_ns);
/* When time alone will give it something to do; UINT64_MAX: never. */
uint64_t worker_next_ns(const struct worker *w);
/* The most messages and topics that one turn has touched since this was asked last. */
uint64_t worker_longest_turn(struct worker *w);
/* What one request, or time alone, touches in one turn, instead of WORKER_TURN_STEPS. */
void worker_limit_turn(struct worker *w, uint32_t steps);
/* Turns until Python is needed: returns enum worker_event bits. */
uint32_t worker_run(struct worker *w, int control_fd, uint64_t max_wait_ns);
/* Writes and syncs all that was appended; false if that failed. */
bool worker_flush(struct worker *w);

/* --- between the C files ------------------------------------------------------------------------------------------ */

static inline struct job *job_at(const struct worker *w, uint32_t job) {
    return arena_at(&w->jobs, job);
}
static inline struct reservation *reservation_at(const struct worker *w, uint32_t reservation) {
    return arena_at(&w->reservations, reservation);
}
static inline struct shard *shard_of_topic(const struct worker *w, const struct topic *t) {
    return w->own[t->shard];
}
static inline struct shard *shard_of_job(const struct worker *w, const struct job *j) {
    return w->own[topic_at(&w->topics, j->topic)->shard];
}
/* Without its body, for which there are log_body and log_read. */
static inline const struct record *job_record(const struct worker *w, const struct job *j) {
    return log_find(shard_of_job(w, j)->log, j->position);
}
/* There are, or will be. */
static inline uint64_t worker_jobs(const struct worker *w) {
    return w->jobs.live + w->jobs_to_come;
}
/* Its topic was deleted since: nobody knows of it any more (tomb.c). */
static inline bool job_is_gone(const struct worker *w, const struct job *j) {
    return w->tombs && j->position < topic_at(&w->topics, j->topic)->gone_until;
}
/* 0: there is none. */
static inline uint32_t job_of_message(const struct worker *w, uint64_t id) {
    uint32_t job = index_find(&w->ids, &w->jobs, id);
    return job && job_is_gone(w, job_at(w, job)) ? 0 : job;
}
/* One that a client may mean: of a batch not the whole of it. */
static inline uint32_t job_named(const struct worker *w, uint64_t id) {
    uint32_t job = job_of_message(w, id);
    return job && job_at(w, job)->state == JOB_SPLIT ? 0 : job;
}
static inline struct publish_attributes job_attributes(const struct worker *w, const struct job *j) {
    return publish_attributes_of(job_record(w, j));
}

/* When something is due that is due at `due_wall_ns`, by the monotonic clock; in `longest_ns` at the latest, whatever the wall
 * clock was set to. */
static inline uint64_t worker_deadline(const struct worker *w, uint64_t due_wall_ns, uint64_t longest_ns) {
    uint64_t left_ns = due_wall_ns > w->wall_ns ? due_wall_ns - w->wall_ns : 0;
    if (left_ns > longest_ns) left_ns = longest_ns;
    return left_ns > UINT64_MAX - w->now_ns ? UINT64_MAX : w->now_ns + left_ns;
}

/* A failure of the program or of memory that leaves no way on: the supervisor starts anew from the log. */
_Noreturn void worker_die(const char *why);

/* What may be on its way to a consumer now. */
static inline uint32_t consumer_window(const struct worker *w, const struct consumer *c) {
    const struct peer *peer = &w->peers[client_at(&w->clients, c->client)->acceptor];
    return peer->window_bytes < w->push_most_bytes ? WINDOW_BYTES : SHORT_WINDOW_BYTES;
}
/* Those that are there, one after the other; `rest` is peers_there at first. NULL: that were all. */
static inline struct peer *peer_next(struct worker *w, uint64_t *rest) {
    if (!*rest) return NULL;
    struct peer *p = &w->peers[__builtin_ctzll(*rest)];
    *rest &= *rest - 1;
    return p;
}
/* One of a turn's, as few as a request needs. */
static inline void worker_step(struct worker *w) {
    w->steps++;
}
/* A piece is shared by all who let go of much at once, and by all whose requests go on: so many steps are left of it. */
static inline uint64_t worker_spare(const struct worker *w) {
    return w->steps < w->spare_until ? w->spare_until - w->steps : 0;
}
static inline void worker_share_piece(struct worker *w) {
    w->spare_until = w->steps + w->piece;
}
/* Along a list that strangers can make long. */
static inline void worker_walk(struct worker *w, uint64_t items) {
    w->walked += items;
}

/* peer.c: some of what acceptors that are gone had is let go. True if there is more. */
bool peers_leave(struct worker *w);
void peers_free(struct worker *w);
/* requests.c. False: it cannot be done before a segment comes; ask again. */
bool request_handle(struct worker *w, uint32_t acceptor, const struct message *m);
void request_answer(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint8_t status, uint64_t id);
void request_deliver(struct worker *w, uint32_t client, uint32_t slot, uint8_t kind, uint32_t job);
bool requests_run_parked(struct worker *w);
/* large.c: those that nobody asks for any more. True if there are some; and all are let go. */
bool larges_go_on(struct worker *w);
void larges_free(struct worker *w);
/* What the turn before has left over comes again. True if there is any. */
bool requests_resume(struct worker *w);
void client_gone(struct worker *w, uint32_t client);

#endif

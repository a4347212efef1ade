/* A worker: the process that owns shards. This is its whole state. The work is done in
 *
 *   requests.c       messages of the shard protocol, in the order in which each client sent them
 *   execute.c        what is called for each
 *   queue.c          the job queue: how jobs pass between ready, reserved, delayed, buried and deleted
 *   subscription.c   the other kind of subscription: cursors over a topic's stream
 *   records.c        what of that is written to the log; compact.c and replay.c read it again
 *   worker.c         a turn: receive messages, handle what is due, write the log, publish replies
 *
 * Law: no reply leaves before what it promises is in the log. Replies are sent into the channels during a turn and
 * published at its end, after the logs have been flushed (and, with SYNC_ALWAYS, synced).
 */
#ifndef MQ_SHARDS_WORKER_STATE_H
#define MQ_SHARDS_WORKER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/adaptive_spin.h"
#include "base/arena.h"
#include "base/heap.h"
#include "base/index.h"
#include "base/process.h"
#include "base/time_units.h"
#include "log/spares.h"
#include "ringbuf/board.h"
#include "ringbuf/channel.h"
#include "ringbuf/limits.h"
#include "shards/attachments.h"
#include "shards/calls.h"
#include "shards/client.h"
#include "shards/durations.h"
#include "shards/job.h"
#include "shards/outcome.h"
#include "shards/shard_state.h"
#include "shards/subscription_state.h"
#include "shards/topic.h"
#include "shards/transaction.h"

enum {
    WORKER_MAX_SHARDS = 4096,
    WORKER_MAX_JOBS = 1 << 28, /* a reservation's number fits RESERVATION_MASK */
    WORKER_MAX_TOPICS = 1 << 20,
    WORKER_MAX_CLIENTS = (1 << 22) + 1, /* all connections of all acceptors, and number 0 */
    WORKER_MAX_WATCHES = 1 << 26,
    WORKER_MAX_OPEN_TOPICS = 1 << 20, /* topic numbers of one acceptor */
    WORKER_TURN_MESSAGES = 4096,      /* taken from one acceptor in one turn */
    WORKER_MAX_SUBSCRIPTIONS = 1 << 20,
    WORKER_MAX_DELIVERIES = 1 << 26,
    /* Messages or topics that one request, or what is due, touches in one turn; the rest in the next. */
    WORKER_TURN_STEPS = 4096,
    WORKER_MAX_SLOTS = 1 << 22,    /* key slots with messages in flight */
    WORKER_MAX_IN_PARTS = 1 << 20, /* deliveries some of whose parts are finished; of those with many parts, fewer */
    WORKER_MAX_ATTACHED = 1 << 22, /* producers */
    WORKER_TURN_WALK = 1 << 18, /* items of lists that requests walk in one turn; further requests wait for the next; */
    WORKER_LONG_WALK = 1 << 12, /* ... a client whose request walked this many goes on in the next */
    WORKER_LETTING_GO = 4,      /* steps that a watch, consumer or producer of a client that has left takes */
    WORKER_UNREADABLE_IN_TURN = 64, /* unreadable jobs that are handled in one turn */
    WORKER_SYNC_FDS = 4096,         /* synced in one round */
    WORKER_UNREADABLE_MOST = 16,    /* unreadable messages remembered until Python asks about them */
};

_Static_assert(WORKER_MAX_WATCHES > (MAX_ALL_WATCHED + MAX_CONNECTIONS) * BOARD_MAX_ACCEPTORS, "nor is a watch");
_Static_assert(BOARD_MAX_ACCEPTORS <= 64, "each has a bit");
_Static_assert(WORKER_MAX_CLIENTS > MAX_CONNECTIONS * BOARD_MAX_ACCEPTORS, "no connection is one too many");
/* In this last part of a job's time to run its client may not wait for another one. */
#define SAFETY_MARGIN_NS 1000000000ULL

/* A message that could not be read. */
struct unreadable {
    struct damage place;
    char topic[TOPIC_NAME_BYTES + 1];
};

/* A message of LARGE_BYTES or more is written to the log in pieces, and stays where it was assembled until then. */
enum { LARGE_BYTES = 8 << 20, LARGE_PIECE_BYTES = 1 << 20 };
/* A body of this size that is sent to an acceptor is lent to the channel, so that all else overtakes it. */
enum { LENT_LEAST_BYTES = 1 << 20 };

/* Bodies of parked requests count, over all clients together, unless they are small. From HELD_MOST_BYTES on, the next
 * one waits in its ring. */
enum { HELD_SMALL_BYTES = 4 << 10, HELD_MOST_BYTES = 64 << 20 };

/* The topic that an acceptor's number stands for. */
struct opened {
    uint32_t topic; /* 0: nothing */
    bool listed;
};

struct peer {
    struct channel *channel;
    struct opened *topics; /* by the acceptor's number */
    uint32_t topics_capacity;
    const struct message *stalled; /* a request that must wait for a segment, ... */
    uint32_t stalled_at;           /* ... if a REQUEST_EACH: from this one on */
    uint64_t round_tail;           /* the sync under way covers replies before this place */
    struct message *joined;        /* the answer to the last publish of joined_client, if it lies in the ring; */
    uint64_t joined_at;            /* ... its place there */
    uint32_t joined_client;        /* 0: another answer was sent to it since */
    bool full;                     /* no more deliveries are sent to it in this turn */
    uint64_t window_bytes;         /* in flight to all its consumers */
    /* The acceptor is gone: the first client, and topic number, not released yet; 0: it is there. */
    uint32_t leaving, closing;
    struct channel *next; /* of its successor, attached when all are released; NULL: none */
};

/* A large message of which it is looked piece by piece whether it can be read (unreadable.h). */
struct looked_at {
    const struct record *record; /* with its id and length, as another may come to lie there; NULL: none */
    uint64_t id;
    uint32_t bytes;
    size_t left; /* of its body; 0: all has been looked at, which counts until */
    uint64_t kept_until_ns;
    uint64_t turn; /* in which a piece was looked at last */
};

/* The subscriptions that refer to a message of a stream. */
struct references {
    struct reference items[TOPIC_MAX_SUBSCRIPTIONS + 1];
    size_t count;
    uint32_t in_parts;    /* subscriptions that have finished some of its parts, ... */
    uint64_t parts_bytes; /* ... and what they say of these in the log */
};

struct worker {
    uint32_t index, workers, shards;
    uint64_t now_ns;   /* monotonic; at recovery: the time that has passed in the log read */
    uint64_t wall_ns;  /* wall clock; at recovery: the time of the record read last */
    uint64_t ahead_ns; /* the wall clock before the monotonic one, modulo 2^64, to a ms */
    bool reads_clock;  /* it reads the clocks when messages have come in; else the time is as passed to a turn */

    struct shard *own[WORKER_MAX_SHARDS];
    struct arena jobs, reservations;
    uint64_t jobs_to_come; /* of groups (group.c) that are in the log and not queued yet */
    struct index ids;
    uint32_t last_whole; /* the batch of the part that was asked about last (job_parts.c) */
    struct topics topics;
    struct clients clients;
    struct subscriptions subscriptions;
    struct transactions transactions;
    struct attachments attachments;

    struct unreadable unreadable[WORKER_UNREADABLE_MOST];
    uint32_t unreadable_count, unreadable_listed, unreadable_told;
    uint32_t unreadable_in_turn;
    struct looked_at looked_at;
    uint32_t *unserved, unserved_count, unserved_capacity; /* topics: see unreadable_serve_later */

    struct wheel inflight; /* reservations, by when the last second begins, then by deadline */
    struct heap delays;    /* topics, by the deadline of the first delayed job */
    struct heap pauses;    /* topics, by the end of their pause */
    struct heap waits;     /* waiting clients, by when they stop waiting */
    uint32_t leaving_consumers, leaving_consumers_last; /* whose deliveries are given back in pieces */
    uint32_t yielding_consumers;
    uint64_t steps, most_steps; /* messages and topics touched in this turn; the most in any */
    uint64_t spare_until;       /* see worker_spare */
    uint64_t walked;            /* see WORKER_TURN_WALK */
    uint64_t taken_bytes;       /* bodies of the messages taken in in this turn */
    uint32_t taken;             /* their number, as message_count counts them */
    bool was_due;               /* earlier turns have left something to deliver */
    uint64_t turns;
    uint32_t piece; /* WORKER_TURN_STEPS, unless a test has set less */

    struct peer peers[BOARD_MAX_ACCEPTORS + 1]; /* the last one is for NOBODY */
    uint64_t peers_there;                       /* bits of those that have a live channel */
    uint64_t peers_leaving;                     /* bits of dead ones with more to release: see peer.c */
    uint64_t push_most_bytes;                   /* in flight to one acceptor before its consumers get short windows */
    struct board *board;
    struct worker_board *count;

    struct tomb *tombs; /* deleted things that are freed piece by piece */
    uint32_t orphans;   /* deleted subscriptions that still have deliveries */
    struct handover *handovers;
    struct keeping *keepings;
    struct release *releases, *releases_last;
    uint64_t held_bytes;  /* of bodies of parked requests: see HELD_MOST_BYTES */
    bool jobs_stale;      /* memory of a backlog of jobs is being given back */
    bool larges_left;     /* some shard has a large message whose client has left, or is cutting one off */
    bool forgetting;      /* some shard has retained messages to forget */
    struct shard *drowsy; /* the first of those with topics to forget */
    struct shard *dirty[WORKER_MAX_SHARDS];
    uint32_t dirty_count;
    struct shard *wanting;        /* a shard whose log wants a segment */
    struct spares spares;         /* segments in memory that are to be used again */
    const struct channel *taking; /* where the handled request comes from; NULL: it was parked */
    bool failing;                 /* a log cannot be written: nothing is received or published */
    bool no_space;
    bool unsynced; /* something was written since the last round of syncs began */
    bool sync_refused;
    int sync_errno;  /* of a sync that failed, for good: the kernel may have dropped what was to be synced */
    int unsynced_fd; /* the file, then */

    bool replaying;
    enum sync_mode sync;
    uint64_t sync_interval_ns, synced_at_ns;
    struct syncer *syncer;
    uint64_t sync_ticket; /* of the round under way; 0: none */
    uint64_t next_ticket;
    struct durations durations;

    int wake_fd, poll_fd, control_fd;
    struct adaptive_spin adaptive_spin;
    uint64_t written_bytes; /* to all logs, ever */

    /* Lists that one call fills and uses, and that no stack has room for. Nothing else of them is looked at, so that
     * memory is taken for as much as was ever filled. */
    int sync_fds[WORKER_SYNC_FDS];            /* start_round */
    uint32_t logged[TOPIC_MAX_SUBSCRIPTIONS]; /* naming.c */
    struct references references;             /* compact.c */
};

static inline struct job *job_at(const struct worker *w, uint32_t job) {
    return arena_at(&w->jobs, job);
}
static inline struct reservation *reservation_at(const struct worker *w, uint32_t reservation) {
    return arena_at(&w->reservations, reservation);
}
static inline struct subscription *worker_subscription(const struct worker *w, uint32_t subscription) {
    return subscription_at(&w->subscriptions, subscription);
}
static inline struct consumer *worker_consumer(const struct worker *w, uint32_t consumer) {
    return consumer_at(&w->subscriptions, consumer);
}
static inline struct delivery *worker_delivery(const struct worker *w, uint32_t delivery) {
    return delivery_at(&w->subscriptions, delivery);
}
static inline struct transaction *worker_transaction(const struct worker *w, uint32_t transaction) {
    return transaction_at(&w->transactions, transaction);
}
static inline struct shard *shard_of_topic(const struct worker *w, const struct topic *t) {
    return w->own[t->shard];
}
static inline struct topic *subscription_topic(const struct worker *w, const struct subscription *s) {
    return topic_at(&w->topics, s->topic);
}
static inline struct shard *subscription_shard(const struct worker *w, const struct subscription *s) {
    return shard_of_topic(w, subscription_topic(w, s));
}
static inline struct shard *shard_of_job(const struct worker *w, const struct job *j) {
    return w->own[topic_at(&w->topics, j->topic)->shard];
}
/* The record of a job. Its body may not be in place: see log_body and log_read. */
static inline const struct record *job_record(const struct worker *w, const struct job *j) {
    return log_find(shard_of_job(w, j)->log, j->position);
}
/* Jobs that exist, or will when groups in the log are queued. */
static inline uint64_t worker_jobs(const struct worker *w) {
    return w->jobs.live + w->jobs_to_come;
}
/* Whether there is room for so many deliveries more. */
static inline bool deliveries_fit(const struct worker *w, uint64_t count) {
    return w->subscriptions.deliveries.live + count < WORKER_MAX_DELIVERIES;
}
/* Whether the topic was deleted since, so that the job counts as deleted (tomb.c). */
static inline bool job_is_gone(const struct worker *w, const struct job *j) {
    return w->tombs && j->position < topic_at(&w->topics, j->topic)->gone_until;
}
/* The job of a message; 0: none. */
static inline uint32_t job_of_message(const struct worker *w, uint64_t id) {
    uint32_t job = index_find(&w->ids, &w->jobs, id);
    return job && job_is_gone(w, job_at(w, job)) ? 0 : job;
}
/* The job that a client means by an id: not that of a whole batch, which was split. 0: none. */
static inline uint32_t job_named(const struct worker *w, uint64_t id) {
    uint32_t job = job_of_message(w, id);
    return job && job_at(w, job)->state == JOB_SPLIT ? 0 : job;
}
static inline struct publish_attributes job_attributes(const struct worker *w, const struct job *j) {
    return publish_attributes_of(job_record(w, j));
}

/* The clocks are not read at once. So that a wall time is always the same monotonic time, `ahead_ns` follows them only
 * when they have moved against each other. */
static inline void worker_set_time(struct worker *w, uint64_t now_ns, uint64_t wall_ns) {
    const uint64_t ahead_ns = wall_ns - now_ns;
    w->now_ns = now_ns;
    w->wall_ns = wall_ns;
    if (ahead_ns - w->ahead_ns + MS_NS > 2 * MS_NS) w->ahead_ns = ahead_ns;
}

/* The monotonic time that corresponds to the wall time `due_wall_ns`; in `longest_ns` at the latest, whatever the wall
 * clock was set to. */
static inline uint64_t worker_deadline(const struct worker *w, uint64_t due_wall_ns, uint64_t longest_ns) {
    const uint64_t wall_ns = w->replaying ? w->wall_ns : w->now_ns + w->ahead_ns;
    uint64_t left_ns = due_wall_ns > wall_ns ? due_wall_ns - wall_ns : 0;
    if (left_ns > longest_ns) left_ns = longest_ns;
    return left_ns > UINT64_MAX - w->now_ns ? UINT64_MAX : w->now_ns + left_ns;
}

/* After the last segment of all shards was read back: converts a deadline from the time of the shard's log to this
 * process's. */
static inline uint64_t replay_deadline(const struct worker *w, const struct shard *s, uint64_t deadline_ns) {
    uint64_t left_ns = deadline_ns > s->replayed_ns ? deadline_ns - s->replayed_ns : 0;
    return left_ns > UINT64_MAX - w->now_ns ? UINT64_MAX : w->now_ns + left_ns;
}

/* How many bytes may be in flight to a consumer now. */
static inline uint32_t consumer_window(const struct worker *w, const struct consumer *c) {
    const struct peer *peer = &w->peers[client_at(&w->clients, c->client)->acceptor];
    return peer->window_bytes < w->push_most_bytes ? WINDOW_BYTES : SHORT_WINDOW_BYTES;
}
/* Counts bytes that are sent to a consumer as being on their way. */
static inline void consumer_widen(struct worker *w, struct consumer *c, uint32_t bytes) {
    c->window_bytes += bytes;
    w->peers[client_at(&w->clients, c->client)->acceptor].window_bytes += bytes;
}
/* Returns the acceptors that are there one after the other; `rest` is peers_there at first. NULL: those were all. */
static inline struct peer *peer_next(struct worker *w, uint64_t *rest) {
    if (!*rest) return NULL;
    struct peer *p = &w->peers[__builtin_ctzll(*rest)];
    *rest &= *rest - 1;
    return p;
}
/* A topic or channel was made or deleted: raises the catalog version. */
static inline void catalog_changed(struct worker *w) {
    /* Relaxed: this is the only writer, and a reader that sees a change asks the worker. */
    __atomic_store_n(&w->count->catalog_version, w->count->catalog_version + 1, __ATOMIC_RELAXED);
}
/* Counts one message or topic touched in this turn. */
static inline void worker_step(struct worker *w) {
    w->steps++;
}
/* How many steps are left of the current piece, which all requests and clean-ups of the same kind share in a turn. */
static inline uint64_t worker_spare(const struct worker *w) {
    return w->steps < w->spare_until ? w->spare_until - w->steps : 0;
}
static inline void worker_share_piece(struct worker *w) {
    w->spare_until = w->steps + w->piece;
}
/* Counts items walked of a list that clients can make long. */
static inline void worker_walk(struct worker *w, uint64_t items) {
    w->walked += items;
}

#endif

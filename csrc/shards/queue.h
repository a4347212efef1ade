/* The job queue of topics: how jobs change between ready, reserved, delayed, buried and deleted.
 *
 * The functions here change memory only; the caller has written the log first (the order does not matter inside a turn,
 * as replies leave after the flush). They keep the counts of topics and board true.
 */
#ifndef MQ_SHARDS_QUEUE_H
#define MQ_SHARDS_QUEUE_H

#include "shards/ready.h"
#include "shards/topic.h"
#include "shards/worker_state.h"

/* Adds a job, in no state yet. 0 when the limit is reached. */
uint32_t queue_add(struct worker *w, uint32_t topic, uint64_t id, uint32_t pri, log_position position);
/* Takes a job out of its state and frees it. */
void queue_forget(struct worker *w, uint32_t job);
/* Its reservation, made if it has none. */
struct reservation *queue_reservation(struct worker *w, uint32_t job);

/* These put a job that is in no state into one. */
void queue_make_ready(struct worker *w, uint32_t job);
void queue_make_delayed(struct worker *w, uint32_t job, uint64_t deadline_ns);
void queue_make_buried(struct worker *w, uint32_t job);
void queue_make_reserved(struct worker *w, uint32_t job, uint32_t client);
/* Takes a job out of the state it is in. */
void queue_take(struct worker *w, uint32_t job);

/* Jobs taken from a topic that was deleted, which are still to be freed. */
struct buried_jobs {
    struct ready ready;
    struct heap delayed;
    uint32_t buried;   /* the first of those that were buried */
    uint64_t reserved; /* found through their reservations */
};
void queue_bury(struct worker *w, uint32_t topic, struct buried_jobs *out);
/* Whether any but reserved ones are left. */
static inline bool buried_jobs_left(const struct buried_jobs *b) {
    return ready_count(&b->ready) || b->delayed.count || b->buried;
}
/* Takes one of those; 0: none this time, but there may be more. */
uint32_t queue_exhume(struct worker *w, struct buried_jobs *b);
/* Takes a reserved job from its client. */
void queue_unreserve(struct worker *w, uint32_t job);
/* Frees a job that is in no queue or list. */
void queue_free(struct worker *w, uint32_t job);
void buried_jobs_free(struct buried_jobs *b);

/* Extends a reservation by its time to run. */
void queue_touch(struct worker *w, uint32_t job);

/* Gives a new job, in no state yet, to a client that waits at its topic, without making it ready before. False: no
 * client waits, or another job would come first. */
bool queue_serve_at_once(struct worker *w, uint32_t job);
/* Gives ready jobs of a topic to the clients that wait for them. It stops at one that cannot be read: give_up.c removes
 * that in the next turn, and serves on. */
void queue_serve(struct worker *w, uint32_t topic);

/* The most urgent job that a client may take, or 0. Nobody has looked whether it can be read. */
uint32_t queue_best(struct worker *w, uint32_t client);
/* Whether a topic that the client watches has a ready job, paused or not. */
bool queue_any_ready(const struct worker *w, uint32_t client);
bool queue_deadline_soon(const struct worker *w, uint32_t client);

/* Lets the client wait at all topics it watches. */
void queue_wait(struct worker *w, uint32_t client, uint32_t slot, uint64_t timeout_ns);
void queue_stop_waiting(struct worker *w, uint32_t client);

void queue_pause(struct worker *w, uint32_t topic, uint64_t pause_ns);
static inline bool queue_paused(const struct worker *w, const struct topic *t) {
    return t->pause_ns && t->unpause_ns > w->now_ns;
}

/* To be called after anything that may make a topic seen or unseen, listed or unlisted. */
void queue_settle(struct worker *w, uint32_t topic, bool was_seen);
/* Tells the acceptors, by the board, whether the topic joined the catalog or left it. */
void queue_note_listed(struct worker *w, struct topic *t);

/* Each turn: gives back some of the memory of a backlog that has been worked off. True if there is more. */
bool queue_give_back(struct worker *w);

/* Does what is due up to w->now_ns. True if there was anything. */
bool queue_tick(struct worker *w);
uint64_t queue_next_ns(const struct worker *w);

/* During recovery, when jobs have no places in queues yet: gives a job the state that the log says, ... */
void queue_replay_state(struct worker *w, uint32_t job, const struct state_attributes *a, uint64_t time_ns);
/* ... or its first one: delayed, if `due_wall_ns` has not come. */
void replay_queue_job(struct worker *w, uint32_t job, uint64_t due_wall_ns);

#endif

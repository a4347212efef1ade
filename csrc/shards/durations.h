/* How long a worker's turns take, and publishes: from the turn that takes one in until its answer is let out.
 *
 * It is counted by the turn, with the clock that turns are given, and costs a message nothing.
 */
#ifndef MQ_DURATIONS_H
#define MQ_DURATIONS_H

#include <stdbool.h>
#include <stdint.h>

struct worker_board;

struct publishes {
    uint64_t since_ns; /* of the first of them */
    uint64_t count;
};

struct durations {
    uint64_t began_ns; /* the last turn */
    bool was_busy;
    uint64_t published; /* as the board had it when the turn began */
    struct publishes waiting, syncing, out;
};

/* A turn begins: the one before is over. */
void durations_turn(struct durations *d, struct worker_board *board, uint64_t now_ns);
/* It has taken in what it takes. */
void durations_taken(struct durations *d, const struct worker_board *board, uint64_t now_ns, bool busy);
/* What has been published is let out, ... */
void durations_let_out(struct durations *d);
/* ... or waits for a round of syncs that begins now, ... */
void durations_wait(struct durations *d);
/* ... which is over. */
void durations_synced(struct durations *d, struct worker_board *board, uint64_t now_ns);

#endif

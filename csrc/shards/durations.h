/* Measures a worker's turns, and its publishes from the turn that receives one until its answer is released.
 *
 * Everything is measured once a turn, with the time that is passed to the turn, so that a message costs nothing more.
 */
#ifndef MQ_DURATIONS_H
#define MQ_DURATIONS_H

#include <stdbool.h>
#include <stdint.h>

struct worker_board;

struct publishes {
    uint64_t since_ns; /* when the first of them came in */
    uint64_t count;
};

struct durations {
    uint64_t began_ns; /* the last turn did something */
    bool was_busy;
    uint64_t published; /* the board's count when the turn began */
    struct publishes waiting, syncing, out;
};

/* A turn begins, so the one before is over. */
void durations_turn(struct durations *d, struct worker_board *board, uint64_t now_ns);
/* The turn has handled its messages. */
void durations_taken(struct durations *d, const struct worker_board *board, uint64_t now_ns, bool busy);
/* The answers to publishes are released at once, ... */
void durations_let_out(struct durations *d);
/* ... or wait for a round of syncs that begins now, ... */
void durations_wait(struct durations *d);
/* ... which is over. */
void durations_synced(struct durations *d, struct worker_board *board, uint64_t now_ns);

#endif

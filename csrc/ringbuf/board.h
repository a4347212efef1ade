/* The board: memory that all processes of a broker share.
 *
 * It has the counter that message ids come from, the drain switch, what acceptors have used of the rates that they
 * share, and what each process counts about itself.
 *
 * Each block has one writer, the process it belongs to. Readers load single 64-bit values (relaxed), so a sum over
 * blocks is as fresh as a sum over processes can be. A worker writes its counters before it publishes the replies of
 * the same turn: a client that has received a reply finds it counted.
 */
#ifndef MQ_BOARD_H
#define MQ_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/login_attempts.h"
#include "base/time_histogram.h"

#define BOARD_MAX_ACCEPTORS 64
#define BOARD_MAX_WORKERS   64

/* How many wire protocols there may be, and how many counters each may have. */
#define BOARD_PROTOCOLS 8
#define BOARD_COUNTERS  32

/* How many names, of all protocols, may have a limit over all acceptors; further ones have it for each acceptor. */
#define BOARD_MEMBERSHIPS 4096

/* How many rates may be in use at a time, over all acceptors; beyond that, some share a bucket. */
#define BOARD_RATES 65536

/* What all acceptors have used of a rate, as the monotonic time until which that uses it up. A bucket that was not used
 * for a period is as good as none, so its place can be taken without anybody giving it back. */
struct rate_bucket {
    _Atomic uint64_t key; /* identifies the rate; 0: the place is free */
    _Atomic uint64_t messages_until, bytes_until;
    _Atomic uint64_t period_ns;
};

/* What a process waits for that it cannot provide. An acceptor's connections wait for a worker (it is gone, or its ring
 * is full), another acceptor, a client that does not read its replies, or memory; a worker's requests wait for a
 * segment. */
enum board_stall { WAITS_WORKER, WAITS_ACCEPTOR, WAITS_CLIENT, WAITS_ROOM, WAITS_SEGMENT, BOARD_STALLS };

/* What a process counts of its loop. A turn is long when it takes LONG_TURN_NS. An acceptor's clock is coarse, but the
 * sum is right all the same. */
#define LONG_TURN_NS 16777216u
struct loop_figures {
    uint64_t busy_ns, long_turns;
    uint64_t stalls[BOARD_STALLS];
};

/* One acceptor's block. When the acceptor is restarted, counters continue; numbers of what exists now start from 0. */
struct acceptor_board {
    _Alignas(64) uint64_t counters[BOARD_PROTOCOLS][BOARD_COUNTERS]; /* each protocol has its own order */
    uint64_t total_connections;
    uint64_t connections; /* open now */
    uint64_t gave_way;    /* closed for a newcomer, since they had said nothing */
    struct loop_figures loop;
    _Atomic uint32_t members[BOARD_MEMBERSHIPS]; /* of each name, now: see acceptor/members.h */
};

/* The durations that a worker measures: of its turns that did something; of publishes, from the turn that received one
 * until it was answered; of rounds of syncs, measured by the syncer's thread. */
enum board_duration { DURATION_TURN, DURATION_PUBLISH, DURATION_SYNC, BOARD_DURATIONS };

/* One worker's block, over its shards. When it is restarted, all start from 0 (or what recovery finds). */
struct worker_board {
    _Alignas(64) uint64_t urgent;
    uint64_t ready;
    uint64_t reserved;
    uint64_t delayed;
    uint64_t buried;
    uint64_t topics;
    uint64_t timeouts;
    uint64_t total_jobs; /* jobs of tubes */
    uint64_t published;  /* messages, to topics and tubes */
    uint64_t oldest_segment;
    uint64_t current_segment;
    uint64_t records_written;
    uint64_t records_migrated;
    uint64_t unreadable;      /* messages skipped because their medium had failed */
    uint64_t catalog_version; /* rises when a topic or a subscription is made or deleted */
    uint64_t names_version;   /* rises when a topic joins the catalog or leaves it, tubes too */
    struct time_histogram durations[BOARD_DURATIONS];
    uint64_t stalls; /* requests that had to wait for a segment */
};

struct board {
    _Alignas(64) _Atomic uint64_t next_id; /* n of the next message id; starts at 1 */
    _Atomic uint64_t lost_ids; /* how many may have been given out above all that were found in logs (shards/skip.h) */
    _Alignas(64) _Atomic uint32_t draining;
    _Atomic uint64_t memberships[BOARD_MEMBERSHIPS]; /* hash of the name each place is for; 0: free */
    _Alignas(64) struct rate_bucket rates[BOARD_RATES];
    struct acceptor_board acceptors[BOARD_MAX_ACCEPTORS];
    struct worker_board workers[BOARD_MAX_WORKERS];
    struct login_attempts logins; /* any process writes to it */
};

/* Formats a new board: all zeros, but for the counter of ids. */
bool board_format(int fd);
/* Turns on drain mode. */
bool board_drain(int fd);
/* NULL with errno: it cannot be mapped, or is no whole board. */
struct board *board_map(int fd);
void board_unmap(struct board *board);

#endif

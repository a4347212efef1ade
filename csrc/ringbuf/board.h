/* The board: one page set of shared memory that all processes of a broker see.
 *
 * It holds the counter that message ids come from, the drain switch, what acceptors take of rates that are all of theirs,
 * and what each process counts about itself.
 * Each block has one writer (the process it belongs to); readers take single 64-bit values with relaxed loads, so a
 * sum over blocks is as fresh as a sum over processes can be. A worker writes its counters before it publishes the
 * replies of the same turn: whoever has read a reply finds it counted.
 */
#ifndef MQ_BOARD_H
#define MQ_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/login_attempts.h"
#include "base/time_histogram.h"

#define BOARD_MAX_ACCEPTORS 64
#define BOARD_MAX_WORKERS   64

/* Wire protocols, and what each may count. */
#define BOARD_PROTOCOLS 8
#define BOARD_COUNTERS  32

/* Names that a limit over all acceptors may be for, of whatever protocol; beyond, one holds for each acceptor. */
#define BOARD_MEMBERSHIPS 4096

/* Rates that are used at one time, of all acceptors together; beyond, some share what they allow. */
#define BOARD_RATES 65536

/* What all acceptors have taken of a rate: when that is allowed, by the monotonic clock. One of which nothing was taken for
 * a period is as one that is not there, so its place is free without anybody giving it back. */
struct rate_bucket {
    _Atomic uint64_t key; /* of the rate, by which acceptors find it; 0: free */
    _Atomic uint64_t messages_until, bytes_until;
    _Atomic uint64_t period_ns;
};

/* What a process has to wait for that is not its to give: an acceptor's connections for a worker (it is gone, or its ring is full),
 * another acceptor, a client that does not take its replies, room in memory; a worker for a segment. */
enum board_stall { WAITS_WORKER, WAITS_ACCEPTOR, WAITS_CLIENT, WAITS_ROOM, WAITS_SEGMENT, BOARD_STALLS };

/* What a process counts of its loop. A turn is long when it takes LONG_TURN_NS; an acceptor's clock is a coarse one, which
 * adds up all the same. */
#define LONG_TURN_NS 16777216u
struct loop_figures {
    uint64_t busy_ns, long_turns;
    uint64_t stalls[BOARD_STALLS];
};

/* One acceptor's block. What is counted goes on when the acceptor is restarted; what is so now starts from 0. */
struct acceptor_board {
    _Alignas(64) uint64_t counters[BOARD_PROTOCOLS][BOARD_COUNTERS]; /* by protocol, in an order of its own */
    uint64_t total_connections;
    uint64_t connections; /* now */
    struct loop_figures loop;
    _Atomic uint32_t members[BOARD_MEMBERSHIPS]; /* now, of each name: see acceptor/members.h */
};

/* What a worker measures of time: its turns that did something; publishes, from the turn that took one in until it was
 * answered; rounds of syncs, by the thread that does them. */
enum board_duration { DURATION_TURN, DURATION_PUBLISH, DURATION_SYNC, BOARD_DURATIONS };

/* One worker's block, over its shards. All start from 0 (or what recovery finds) when it is restarted. */
struct worker_board {
    _Alignas(64) uint64_t urgent;
    uint64_t ready;
    uint64_t reserved;
    uint64_t delayed;
    uint64_t buried;
    uint64_t topics;
    uint64_t timeouts;
    uint64_t total_jobs; /* of tubes */
    uint64_t published;  /* messages, to whatever topic or tube */
    uint64_t oldest_segment;
    uint64_t current_segment;
    uint64_t records_written;
    uint64_t records_migrated;
    uint64_t unreadable;      /* messages that were left out because their medium had failed */
    uint64_t catalog_version; /* rises when a topic or a subscription is made or deleted */
    uint64_t passing; /* tubes that have had jobs: as topics they come and go with those, without a new version */
    struct time_histogram durations[BOARD_DURATIONS];
    uint64_t stalls; /* requests that had to wait for a segment */
};

struct board {
    _Alignas(64) _Atomic uint64_t next_id; /* n of the next message id; starts at 1 */
    _Alignas(64) _Atomic uint32_t draining;
    _Atomic uint64_t memberships[BOARD_MEMBERSHIPS]; /* which names they are, by hashes; 0: free */
    _Alignas(64) struct rate_bucket rates[BOARD_RATES];
    struct acceptor_board acceptors[BOARD_MAX_ACCEPTORS];
    struct worker_board workers[BOARD_MAX_WORKERS];
    struct login_attempts logins; /* any process writes to it */
};

#endif

/* What all targets stand on: workers with their logs, and an acceptor, in this process, one turn at a time, so that a
 * script does the same each time. Segments are memfds; what a worker has written is there for the next one.
 */
#ifndef MQ_FUZZ_WORLD_H
#define MQ_FUZZ_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "acceptor/calls.h"
#include "acceptor/protocols/table.h"
#include "shards/worker_state.h"

enum { WORKERS = 2, SHARDS = 4, SEGMENTS = 4096, RING_BYTES = 16 << 10, UNTIL_QUIET = 200000 };

#define SECOND ((uint64_t)1000000000)

struct segment {
    uint32_t shard, number;
    int fd, copies; /* copies: of its names */
    uint64_t bytes;
    bool begun; /* it is known to have a header, whatever is there now */
};

struct world {
    struct acceptor *acceptor;
    struct worker *workers[WORKERS]; /* NULL: it is away */
    int wakes[WORKERS], acceptor_wake, board;
    struct segment segments[SEGMENTS];
    uint32_t segment_count;
    uint32_t read_from[SHARDS]; /* the first segment that the next start reads */
    uint64_t now, wall, epoch;
    bool disk_full, disk_was_full;
    bool spoilt; /* what is found damaged is no wonder */
    uint64_t segment_bytes;
    uint32_t piece; /* what a turn touches at most (worker_limit_turn); 0: as many as usual */
};
extern struct world world;

/* A board; `segment_bytes` as a rule. No worker and no acceptor. */
void world_begin(uint64_t segment_bytes);
/* Engines are gone. */
void world_end(void);

void worker_start(uint32_t index);
void worker_stop(uint32_t index);
/* New rings between it and acceptor 0 of this world. */
void worker_join(uint32_t index);
/* A pair of rings: requests, replies. The caller closes them. */
void rings_make(int *there, int *back);
bool worker_takes_turn(uint32_t index);
/* Of the first segment, or of the first that has any. */
void shard_moves_live(uint32_t shard, uint64_t budget);
void shard_drops_dead(uint32_t shard);
/* The next start reads only what it has to. */
void shard_passes_over(uint32_t shard);
void disk_set_full(bool full);

void acceptor_start(void);
void acceptor_stop(void);

/* As a rule so much; or until a worker has something to do, if that is sooner. */
void world_pass_time(uint64_t span_ns);

#endif

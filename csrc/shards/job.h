/* A job: a worker's memory of one message in a topic's job queue. Its body, seq, ttr and time are in the log. A job
 * that has only ever been ready has no reservation.
 */
#ifndef MQ_JOB_H
#define MQ_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "base/index.h"
#include "base/wheel.h"
#include "ringbuf/message.h"

struct __attribute__((packed, aligned(4))) job {
    uint32_t next;  /* in the index's chain, or the arena's free list */
    uint32_t place; /* its place among the ready, delayed or reserved jobs */
    uint64_t id;
    uint64_t position; /* in the log */
    uint32_t topic;
    uint32_t pri;
    uint32_t reservation : 28; /* 0: none */
    uint32_t part : 1;         /* it is one of several jobs made of a batch: see job_parts.c */
    uint32_t state : 3;        /* enum job_state, or JOB_SPLIT; 0: none yet, or free */
};
/* Stands for a batch of which several jobs were made; in no queue. `place` counts the jobs left. */
enum { JOB_SPLIT = JOB_BURIED + 1 };
_Static_assert(JOB_SPLIT < 8, "it fits");
enum { RESERVATION_MASK = (1 << 28) - 1, CLIENT_MASK = INT32_MAX };
_Static_assert(sizeof(struct job) == 36, "the memory that a ready job costs is promised");
_Static_assert(offsetof(struct job, id) == offsetof(struct indexed, key), "the index finds it by its id");

/* The state of a job that has ever been reserved, delayed or buried. */
struct reservation {
    uint32_t previous, next; /* in its client's list of jobs in flight or its topic's list of buried ones */
    uint32_t client : 31;    /* the client that has reserved it */
    uint32_t soon : 1;       /* reserved, and its last second has begun */
    uint32_t reserves, timeouts, releases, buries, kicks;
    uint64_t delay_ns;    /* as last asked for */
    uint64_t deadline_ns; /* reserved and delayed jobs: when it is ready again */
    struct timer timer;   /* a reserved job's deadline in the wheel */
};

#endif

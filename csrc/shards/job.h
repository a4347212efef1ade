/* A job: what a worker keeps in memory of one message that waits in a topic's job queue. Its body, seq, ttr and time
 * are in the log; a message that has only ever been ready has no reservation.
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
    uint32_t place; /* where it is among those of its state: ready, delayed or in flight */
    uint64_t id;
    uint64_t position; /* in the log */
    uint32_t topic;
    uint32_t pri;
    uint32_t reservation : 28; /* 0: none */
    uint32_t part : 1;         /* it is one of several that a message is: see job_parts.c */
    uint32_t state : 3;        /* enum job_state, or JOB_SPLIT; 0: none yet, or free */
};
/* The message that several jobs are, in no queue: `place` is how many of them are left. */
enum { JOB_SPLIT = JOB_BURIED + 1 };
_Static_assert(JOB_SPLIT < 8, "it fits");
enum { RESERVATION_MASK = (1 << 28) - 1, CLIENT_MASK = INT32_MAX };
_Static_assert(sizeof(struct job) == 36, "the memory that a ready job costs is promised");
_Static_assert(offsetof(struct job, id) == offsetof(struct indexed, key), "the index finds it by its id");

/* What a job carries once it has been anything but ready. */
struct reservation {
    uint32_t previous, next; /* jobs: in its client's in-flight list or its topic's buried list */
    uint32_t client : 31;    /* that has it in flight */
    uint32_t soon : 1;       /* of a reserved one: its last second has begun */
    uint32_t reserves, timeouts, releases, buries, kicks;
    uint64_t delay_ns;    /* as last asked for */
    uint64_t deadline_ns; /* when it is ready again; of reserved and delayed ones */
    struct timer timer;   /* of a reserved one; it is that of its job */
};

#endif

/* A handover: a topic's backlog is given to another kind of reader, piece by piece (handover.c). */
#ifndef MQ_SHARDS_HANDOVER_STATE_H
#define MQ_SHARDS_HANDOVER_STATE_H

#include "shards/topic.h"

struct handover {
    struct handover *next;
    uint32_t topic, subscription; /* 0: to the job queue */
    uint32_t job, jobs_end;       /* the next of all the worker's jobs to look at, and their end */
    uint64_t end;                 /* the channel has everything published from this seq on */
    uint64_t seq;                 /* seq of the next message to become a job */
    uint64_t wall_ns;             /* when it began; jobs due later are delayed at recovery, too */
    /* The first of the deleted channels, each with messages from its `cursor` to its `held_from`; 0: none. */
    uint32_t leaving;
    bool to_queue; /* then hands messages to the job queue */
    bool of_group; /* only marks that a group is published to the topic (group.c) */
    bool written;  /* done, but kept until waiting consumers have joined */
    bool to_join;
    uint32_t waited; /* how many turns it has been kept for that */
};

/* Whether a handover is under way: requests that need or change the topic or its channels have to wait (MORE). */
static inline bool handover_goes_on(const struct topic *t) {
    return t->handover && !t->handover->written;
}
/* Whether a channel is taking over the topic's jobs. */
static inline bool handover_adopts(const struct topic *t) {
    return t->handover && t->handover->subscription;
}
/* Whether unlinked channels are releasing their messages: until then it is unknown whether a message has references or
 * waits. */
static inline bool handover_leaves(const struct topic *t) {
    return t->handover && t->handover->leaving;
}
/* Whether a group is being published to the topic (group.c): publishes have to wait too. */
static inline bool handover_takes_group(const struct topic *t) {
    return t->handover && t->handover->of_group;
}

#endif

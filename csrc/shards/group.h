/* A PUBLISH_MANY that is written to the log, and entered, in pieces. */
#ifndef MQ_SHARDS_GROUP_H
#define MQ_SHARDS_GROUP_H

#include "shards/worker_state.h"

struct many;

/* Whether a PUBLISH_MANY takes so long to write that it is handled as a group. */
bool group_takes(const struct worker *w, const struct message *m);
/* Begins a group, after publish_make_ready. MORE: it has begun (*begun), or must wait. */
enum outcome group_begin(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                         bool *begun, uint8_t *status);
/* Writes some of the group to the log. MORE until all is written; DONE with a status other than OK: that has failed. */
enum outcome group_write(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                         uint8_t *status);
/* Whether the topic has changed since the group was begun, so that its records would be wrong. */
bool group_is_outdated(const struct worker *w, uint32_t topic, const struct message *m);
/* Gives the group up: none of it counts, and what was written of it is cut off. */
void group_drop(struct worker *w, uint32_t topic);
/* Makes the group count, when all of it is written. False, with the status: it does not. */
bool group_count(struct worker *w, uint32_t topic, const struct message *m, const struct many *many, uint8_t *status);
/* Enters some of its messages into the topic. MORE until all are; *first: the seq of the first. */
enum outcome group_take_in(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                           uint64_t *first);

#endif

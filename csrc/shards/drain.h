/* Releases messages piece by piece, before an EMPTY, a SEEK or a DELETE. */
#ifndef MQ_SHARDS_DRAIN_H
#define MQ_SHARDS_DRAIN_H

#include "shards/worker_state.h"

/* Releases some of a channel's messages: those ahead of it before `until`, and its deliveries, except those that a SEEK
 * to `from` keeps. MORE, or DONE when few are left. */
enum outcome subscription_drain(struct worker *w, uint32_t client, uint32_t subscription, uint64_t until,
                                uint64_t from);
/* The same for the deliveries of all channels of a topic. */
enum outcome topic_drain(struct worker *w, uint32_t client, uint32_t topic);

#endif

/* A topic's view with only the last message of each key. */
#ifndef MQ_SHARDS_COMPACTED_H
#define MQ_SHARDS_COMPACTED_H

#include "shards/worker_state.h"

/* Whether the view has passed a message and does not have it any more. */
__attribute__((cold)) bool compacted_hides(const struct worker *w, uint32_t topic, uint64_t seq);
/* Leaves in a consumer's delivery only the parts that are in the view. False: none is. */
__attribute__((cold)) bool compacted_leaves(struct worker *w, uint32_t topic, uint32_t delivery);

enum outcome compacted_scan(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome compacted_make(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
/* Where the topic's compacted view ends, to a client that may have to wait (MORE). */
enum outcome compacted_position(struct worker *w, uint32_t client, const struct topic *t, struct position *out);

#endif

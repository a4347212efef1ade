/* A logged message enters its topic. */
#ifndef MQ_SHARDS_ENTER_H
#define MQ_SHARDS_ENTER_H

#include "log/records.h"
#include "shards/worker_state.h"

/* DELAYED: each subscription gets a delivery that is deferred, which no cursor comes to. DUE: it may have to wait when
 * a cursor comes to it. WITH_MORE: further messages follow at once; subscriptions that are due, or too far behind, are
 * looked for after the last one. */
enum stream_entry { ENTER_DELAYED = 1, ENTER_UNAWAITED = 2, ENTER_WITH_MORE = 4, ENTER_DUE = 8 };
/* How a message enters whose record has these flags, and a delay. */
static inline uint32_t enter_delayed(uint16_t publish_flags) {
    return publish_flags & (PUBLISH_DUE | PUBLISH_COMMITTED) ? ENTER_DUE : ENTER_DELAYED;
}
/* Puts a message into its topic's stream, if it belongs there. */
void stream_enter(struct worker *w, uint32_t topic, uint64_t seq, uint64_t id, log_position position,
                  enum stream_entry how);
/* Puts it into the topic's job queue, if it belongs there. There must be room for its jobs. */
void queue_enter(struct worker *w, uint32_t topic, uint64_t id, uint32_t parts, uint32_t pri, uint64_t delay_ns,
                 log_position position);

/* Drops the oldest messages that ephemeral subscriptions are too far behind with: at most `each` of each, and `all` in
 * all. Returns how many of `all` are left. */
uint32_t publish_trim_ephemeral(struct worker *w, const struct topic *t, uint32_t each, uint32_t all);

#endif

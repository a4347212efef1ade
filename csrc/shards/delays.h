/* When a delayed message is due. */
#ifndef MQ_SHARDS_DELAYS_H
#define MQ_SHARDS_DELAYS_H

#include "shards/worker_state.h"

/* When a message is due by the wall clock: at whole ms, so that those with one time to be due at (MSG_DUE) are due at
 * once. */
static inline uint64_t delay_ends(uint64_t time_ns, uint64_t delay_ns) {
    if (delay_ns > UINT64_MAX - time_ns - MS_NS) return UINT64_MAX;
    uint64_t due_ns = time_ns + delay_ns;
    return due_ns % MS_NS ? due_ns + MS_NS - due_ns % MS_NS : due_ns;
}
/* How long a message has to wait that is due at a time by the wall clock: rounded down to ms, which delay_ends
 * makes up for. While it waits for room its record keeps its form, which tells 0 from others, and these from those that
 * do not fit into 32 bits. */
static inline uint64_t delay_until(const struct worker *w, uint64_t due_ns, uint64_t ttr_ns) {
    uint64_t left = due_ns > w->wall_ns ? due_ns - w->wall_ns : 0;
    if (left > DUE_MOST_NS && ttr_ns % MS_NS == 0) left = DUE_MOST_NS;
    return left < MS_NS ? MS_NS : left - left % MS_NS;
}

#endif

/* Messages that a subscription has finished before its cursor came to them.
 *
 * They had been acknowledged in a transaction, which was committed after the subscription was moved back and before
 * they came again. The subscription still refers to each, and passes it when its cursor gets there.
 *
 * Memory only. In the log are the PENDING and the TXN_END, which lie behind the message and so go after it; if the
 * message is moved, a FINISH behind it says so.
 */
#ifndef MQ_SHARDS_FINISHED_AHEAD_H
#define MQ_SHARDS_FINISHED_AHEAD_H

#include "shards/worker_state.h"

/* Where there is no more room the message comes again. */
void finished_ahead_add(struct worker *w, uint32_t subscription, uint64_t seq);
bool finished_ahead_has(const struct worker *w, uint32_t subscription, uint64_t seq);
/* Forgets a message: true if it was there. */
bool finished_ahead_take(struct worker *w, uint32_t subscription, uint64_t seq);
/* Forgets all of a subscription; what they take is given back a piece a turn. */
void finished_ahead_forget(struct worker *w, uint32_t subscription);
/* Each turn: gives back a piece. True if there is more. */
bool finished_ahead_clear(struct worker *w);

#endif

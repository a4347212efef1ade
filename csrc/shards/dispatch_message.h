/* What becomes of one message: a consumer gets it, all of it or the parts that are left; it is split, held back, or
 * passed over. */
#ifndef MQ_SHARDS_DISPATCH_MESSAGE_H
#define MQ_SHARDS_DISPATCH_MESSAGE_H

#include "shards/worker_state.h"

enum dispatched { NOTHING, ONE, HIDDEN, STUCK, LOOKING /* at a large message, on in the next turn */ };

/* The next message at the cursor, which is `seq`; a redelivery. */
enum dispatched dispatch_front(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t consumer);
enum dispatched dispatch_again(struct worker *w, uint32_t subscription, uint32_t delivery, uint32_t consumer);
/* Passes the next message if it is not to be delivered now. NOTHING: it is. */
enum dispatched dispatch_pass_by(struct worker *w, uint32_t subscription, uint64_t seq);
/* Skips a message that cannot be read any more. `delivery` 0: it has none yet. */
__attribute__((cold, noinline)) enum dispatched dispatch_unreadable(struct worker *w, uint32_t subscription,
                                                                    uint64_t seq, uint32_t delivery);

#endif

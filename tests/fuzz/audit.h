/* What must hold of a worker between turns, however it came there, and what of it must survive its end. */
#ifndef MQ_FUZZ_AUDIT_H
#define MQ_FUZZ_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shards/worker_state.h"

/* Every count is what it counts; every message of a stream is held by those who say that they hold it. */
void audit_worker(struct worker *w);
/* Nobody who could be given a message waits for one: of a worker that has nothing to do, whose consumers have taken all
 * that was sent to them. */
void audit_at_rest(const struct worker *w);

/* What a worker holds and the log should too. */
struct holdings {
    struct holding *items;
    size_t count, capacity;
};
struct holdings holdings_of(const struct worker *w);
void holdings_free(struct holdings *all);
enum likeness {
    ALIKE,        /* what was held is held, in the same state, and nothing else is */
    NO_LESS,      /* what could not be written to a full disk may be as it was before */
    NO_NAME_LESS, /* topics and channels are there; what ephemeral channels have taken, or is being let go, may be gone
                     or back */
};
/* What may be expected if it ends now, in the midst of what goes on for several turns. */
enum likeness likeness_now(const struct worker *w);
/* What is lost with the record of a message. */
void holdings_without(struct holdings *all, uint64_t id);
void holdings_survive(const struct holdings *before, const struct holdings *after, enum likeness likeness);

#endif

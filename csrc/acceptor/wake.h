/* The next turn comes soon. */
#ifndef MQ_WAKE_H
#define MQ_WAKE_H

#include "acceptor/acceptor_state.h"

/* Something is left for the next turn: makes that come soon in a process that waits in another loop. */
void wake_self(struct acceptor *a);

/* The codec has more to do, in pieces: its go_on is called in the next turn. */
static inline void codec_left(struct acceptor *a, uint32_t protocol) {
    a->codecs_left |= (uint64_t)1 << protocol;
    wake_self(a);
}

#endif

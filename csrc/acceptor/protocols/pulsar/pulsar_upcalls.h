/* What Python is told: the first byte of an upcall says what it is. */
#ifndef MQ_PULSAR_UPCALLS_H
#define MQ_PULSAR_UPCALLS_H

#include <stdint.h>

enum pulsar_upcall {
    PULSAR_DO = 'd', /* the bytes of a BaseCommand follow; the others are followed by a struct pulsar_told */
    PULSAR_PRODUCER_ATTACHED = 'x',      /* one that waited is the exclusive one now */
    PULSAR_PRODUCER_WAITS_NO_MORE = 'w', /* its topic was closed, or its worker died, while it waited for that */
    PULSAR_PRODUCER_GONE = 'p',
    PULSAR_CONSUMER_GONE = 'c',
    PULSAR_ALIVE = 'a', /* a connection that was sent a PING is alive */
    PULSAR_TLS = 't'    /* a connection begins with TLS */
};

struct pulsar_told {
    uint64_t id;     /* of a producer or consumer; 0: it is about the connection */
    uint64_t number; /* its own, as another may have its id by now; of one that is attached: the epoch */
};

#endif

/* What Python tells of a producer or consumer: see pulsar_call_producer and pulsar_call_consumer. */
#ifndef MQ_PULSAR_TERMS_H
#define MQ_PULSAR_TERMS_H

#include <stdint.h>

/* How many messages and bytes are allowed in a period; 0: any number. The board has what all acceptors have used. */
struct pulsar_rate {
    uint64_t key; /* by which acceptors find it on the board; 0: there is no rate */
    uint64_t messages, bytes, period_ns;
};

/* The arguments of "open-producer": from the reply to ATTACH. A struct producer_terms follows. */
struct producer_place {
    uint64_t key, arrival;
};

/* The arguments of "limit-producer". */
struct producer_terms {
    uint64_t max_delay_ms;
    uint64_t max_message_bytes; /* 0: as the broker's */
    uint32_t deduplicates, delays;
    struct pulsar_rate rate, group, broker; /* of its topic, of its namespace's resource group, and of the broker */
};

/* The arguments of "add-consumer"; that many struct key_range follow, and then the topic. */
struct consumer_wish {
    uint32_t shared;
    int32_t partition;
    uint64_t epoch;
    uint32_t has_epoch;
    uint32_t most_unacked;
    uint32_t ranges; /* at most KEY_MAX_RANGES */
    uint32_t padding;
};

#endif

/* Entries of messages that were published by another protocol or by Spark. */
#ifndef MQ_PULSAR_FOREIGN_H
#define MQ_PULSAR_FOREIGN_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* A message that a client of another protocol published. */
struct pulsar_foreign {
    uint64_t seq, time_ns;
    uint32_t tag; /* of its headers: enum headers_tag */
    struct pulsar_bytes headers, body;
};
/* The magic, checksum and metadata that precede its body in an entry: their most bytes, and writing them. */
size_t pulsar_foreign_bytes(const struct pulsar_foreign *of);
uint8_t *pulsar_put_foreign(uint8_t *out, const struct pulsar_foreign *of);

#endif

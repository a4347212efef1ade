/* What connections have published, by topic: nsqd's pub_counts, which /stats shows of producers.
 *
 * A connection gets an entry for a topic when it first publishes to it, and then counts in place. Of one that publishes
 * to more topics than there is room for, the first are counted.
 */
#ifndef MQ_NSQ_PRODUCERS_H
#define MQ_NSQ_PRODUCERS_H

#include "acceptor/protocols/nsq/nsq_state.h"

enum { PRODUCED_TOPICS = 8 };

/* What Python is told of a connection that has published something; its topics follow, each a struct nsq_produced. */
struct nsq_producer {
    uint32_t conn, topics;
    uint64_t opened_ns;
};

struct nsq_produced {
    uint64_t messages;
    uint32_t hash; /* the hash of its binding, which depends on the name */
    uint32_t name_bytes;
    uint8_t name[NSQ_NAME_BYTES];
};

/* The connection publishes to another topic from now on. */
void nsq_produces(struct nsq *n, const struct binding *topic);

static inline void nsq_count_produced(struct nsq *n, uint32_t messages) {
    if (n->producing < n->produced_count) n->produced[n->producing].messages += messages;
}

/* From the connection at a place of the table on: a number, from which to ask next or 0; then of each producer a struct
 * nsq_producer and its topics. Looks at so many places only, so that no turn is long. */
int64_t nsq_ask_producers(const struct acceptor *a, const struct codec *codec, const struct codec_question *question);

#endif

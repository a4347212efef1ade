/* A message so large that it is written to the log a piece a turn (log/large.c), while other clients are served. */
#ifndef MQ_SHARDS_LARGE_H
#define MQ_SHARDS_LARGE_H

#include "shards/worker_state.h"

/* What a waiting message and its body count as. */
static inline uint64_t held_bytes(const struct message *m) {
    return m->body_bytes > HELD_SMALL_BYTES ? m->body_bytes : 0;
}
/* Whether there is no room for another large message to wait; with each turn some of the waiting ones get done. */
bool large_waits(const struct worker *w, uint32_t client, const struct message *m);

struct large_message {
    uint64_t id;
    const uint8_t *content;
    uint32_t content_bytes;
    uint8_t attribute_bytes; /* of its record */
    bool is_staged;          /* the content is that of a transaction's record in the log, not of a request */
    log_position from;       /* where it stands in the log, if it is to be moved; 0: it is not there yet */
    uint64_t beside_bytes;   /* of the record of its producer; 0: none */
    uint64_t behind_bytes;   /* of the records that follow it when it is moved */
};
/* Writes a piece of a large message; MORE until all of its content is in the log. Then the records that shard_end_large
 * has made room for must be appended at once. */
enum outcome large_write(struct worker *w, uint32_t topic, const struct large_message *large, uint8_t *status);
/* How much of the message's content is in the log. */
uint64_t large_written(const struct shard *s, uint64_t id);
/* Gives the pages of a body that has been used back to the kernel. */
void large_give_back(const uint8_t *from, const uint8_t *until);
/* Gives up a large publish, if it is the one being written. */
void large_forget(struct worker *w, struct shard *s, uint64_t id);

#endif

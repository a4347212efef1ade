/* Which connections have messages in a channel's lane, where they wait behind a lent one: later messages of the same
 * connection must not overtake these.
 *
 * Messages are counted by a hash of the connection's number; consecutive numbers have counters of their own.
 */
#ifndef MQ_BEHIND_H
#define MQ_BEHIND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "ringbuf/message.h"

enum { BEHIND_LOG2 = 12 };

struct behind {
    uint32_t *messages; /* how many wait, by hash; NULL: nothing was lent yet */
    uint32_t binds;     /* CLOSEs and OPENs that wait: nothing overtakes them */
    uint32_t conn;      /* whose message in fragments is being moved */
};

static inline uint32_t *behind_of(const struct behind *b, uint32_t conn) {
    return &b->messages[conn * 0x9e3779b9u >> (32 - BEHIND_LOG2)];
}

/* Whether the message changes what a topic's number means. */
static inline bool behind_binds(const struct message *header) {
    return header->kind == MSG_CLOSE || header->kind == MSG_OPEN;
}

/* Whether a message must go into the lane. A CLOSE overtakes nothing; nothing overtakes a CLOSE or an OPEN there. */
static inline bool behind_has(const struct behind *b, const struct message *header) {
    return header->kind == MSG_CLOSE || b->binds > 0 || *behind_of(b, header->conn) > 0;
}

/* To be called before anything is lent. False: no memory. */
static inline bool behind_prepare(struct behind *b) {
    if (b->messages == NULL) b->messages = calloc((size_t)1 << BEHIND_LOG2, sizeof *b->messages);
    return b->messages != NULL;
}

static inline void behind_put(struct behind *b, const struct message *header) {
    ++*behind_of(b, header->conn);
    b->binds += behind_binds(header);
}

/* To be called when a message has been moved, or a fragment of one. Only the first fragment has the header. */
static inline void behind_moved(struct behind *b, const struct message *header, bool is_first, bool is_last) {
    if (is_first) b->conn = header->conn;
    if (is_first && behind_binds(header)) b->binds--;
    if (is_last) --*behind_of(b, b->conn);
}

#endif

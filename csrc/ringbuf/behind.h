/* Of which connections something stands in a channel's lane, behind what was lent: what they are sent next must not overtake it.
 *
 * Counted by a hash of their numbers; those that follow each other have places of their own.
 */
#ifndef MQ_BEHIND_H
#define MQ_BEHIND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "ringbuf/message.h"

enum { BEHIND_LOG2 = 12 };

struct behind {
    uint32_t *messages; /* of each; NULL: nothing was lent yet */
    uint32_t binds;     /* CLOSEs and OPENs: all that comes behind them stays there */
    uint32_t conn;      /* of which a message in fragments is moved */
};

static inline uint32_t *behind_of(const struct behind *b, uint32_t conn) {
    return &b->messages[conn * 0x9e3779b9u >> (32 - BEHIND_LOG2)];
}

/* What a topic's number means changes with it. */
static inline bool behind_binds(const struct message *header) {
    return header->kind == MSG_CLOSE || header->kind == MSG_OPEN;
}

/* Whether it must not overtake what is there: nothing overtakes a CLOSE, nor an OPEN that is behind one. */
static inline bool behind_has(const struct behind *b, const struct message *header) {
    return header->kind == MSG_CLOSE || b->binds > 0 || *behind_of(b, header->conn) > 0;
}

/* Before anything is lent. False: without memory. */
static inline bool behind_prepare(struct behind *b) {
    if (b->messages == NULL) b->messages = calloc((size_t)1 << BEHIND_LOG2, sizeof *b->messages);
    return b->messages != NULL;
}

static inline void behind_put(struct behind *b, const struct message *header) {
    ++*behind_of(b, header->conn);
    b->binds += behind_binds(header);
}

/* A message has been moved, or a fragment of it: the first, which has its header, or the last. */
static inline void behind_moved(struct behind *b, const struct message *header, bool is_first, bool is_last) {
    if (is_first) b->conn = header->conn;
    if (is_first && behind_binds(header)) b->binds--;
    if (is_last) --*behind_of(b, b->conn);
}

#endif

/* Which members of queue groups a message goes to, and where these are. */
#ifndef MQ_NATS_CHOSEN_H
#define MQ_NATS_CHOSEN_H

#include "acceptor/protocols/nats/nats_state.h"

/* Most groups in one message, and bytes of their names; a single name always fits. As a server is sent a message only
 * once, no more groups can match a subject there. A nats-server has no such limit, and sends lines of any length. */
enum {
    NATS_GROUPS = 1 << 16,
    NATS_GROUPS_BYTES = 1 << 20,
    NATS_MAX_ROUTE_LINE = NATS_GROUPS_BYTES + 2 * NATS_MAX_CONTROL_LINE, /* subject, reply and sizes beside them */
    NATS_ROUTE_ARGUMENTS = 6 + NATS_GROUPS, /* account, subject, sign, reply, two sizes, groups */
};

/* Returns the bytes that a group's name takes up on a ring. */
static inline size_t nats_group_bytes(size_t name_bytes) {
    return sizeof(uint32_t) + name_bytes;
}

/* Groups of which another acceptor or server is to choose a member. */
struct nats_chosen {
    uint32_t other[NATS_GROUPS];
    struct text name[NATS_GROUPS];
    size_t count;
    size_t bytes; /* NATS_GROUPS_BYTES at most */
};

/* Scratch for the message being delivered: too large for the stack; pages are used only when written. */
struct nats_scratch {
    struct text words[NATS_ROUTE_ARGUMENTS]; /* words of a server's line, or groups that another acceptor names */
    struct nats_chosen chosen;
    uint8_t names[NATS_GROUPS_BYTES]; /* names of the groups for one acceptor */
};

enum {
    PASSED_ALONE = 1,
    PASSED_FROM_ROUTE = 4,
    PASSED_ONLY_TRACED = 8,  /* it is traced, and delivered to nobody */
    PASSED_HANDED_OVER = 16, /* it is traced, and has come by another acceptor */
};

/* Others with plain subscribers for a message. */
struct nats_alone {
    uint32_t count;
    uint16_t other[NATS_OTHERS];
};

#endif

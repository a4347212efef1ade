/* Counts, over all acceptors, how many connections are members of something with a name: an account with a limit.
 *
 * Each acceptor counts its own members on the board, so that its count ends with it. A newcomer is counted first and
 * then compared with the limit. So there are never too many, but two that come at the same moment for the last place
 * may both be refused.
 */
#ifndef MQ_MEMBERS_H
#define MQ_MEMBERS_H

#include "acceptor/acceptor_state.h"

/* A name's place on the board, as an acceptor knows it. */
struct membership {
    uint64_t hash;
    uint32_t place; /* BOARD_MEMBERSHIPS: not known, or all places are taken */
    uint32_t members;
};

struct membership membership_of(const void *name, size_t bytes);
/* Adds a member here, unless all acceptors together have `most`; if all places are taken, unless this one has. */
bool members_join(struct acceptor *a, struct membership *m, uint64_t most);
void members_leave(struct acceptor *a, struct membership *m);
/* Nobody here will ask for the name any more: gives its place back, unless others have members. */
void members_forget(struct acceptor *a, struct membership *m);
/* Clears the counts of a predecessor with this number, and gives back places that nobody needs. */
void members_begin(struct acceptor *a);

#endif

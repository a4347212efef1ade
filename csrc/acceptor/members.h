/* Counts, over all acceptors, how many connections are members of something with a name: an account with a limit.
 *
 * Each acceptor counts its own members on the board, so that its count ends with it. A newcomer is counted first and
 * then compared with the limit. So there are never too many, but two that come at the same moment for the last place
 * may both be refused.
 */
#ifndef MQ_MEMBERS_H
#define MQ_MEMBERS_H

#include "acceptor/acceptor_state.h"

/* A name's place on the board, made if need be; BOARD_MEMBERSHIPS when all places are taken. */
uint32_t members_place(struct acceptor *a, const void *name, size_t bytes);
/* Adds a member here, unless all acceptors together have `most`. */
bool members_join(struct acceptor *a, uint32_t place, uint64_t most);
void members_leave(struct acceptor *a, uint32_t place);
/* Clears the counts of a predecessor with this number. */
void members_begin(struct acceptor *a);

#endif

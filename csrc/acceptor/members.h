/* How many connections of all acceptors are members of something that has a name: an account that has a limit.
 *
 * Each acceptor counts its own on the board, so that what one that has died counted goes with it. Who comes is counted first
 * and then compared: there are never too many, and of two who come at one moment to a last place both may be refused.
 */
#ifndef MQ_MEMBERS_H
#define MQ_MEMBERS_H

#include "acceptor/engine.h"

/* The place of a name on the board, by which it is known; BOARD_MEMBERSHIPS when there are as many names as there may be. */
uint32_t members_place(struct acceptor *a, const void *name, size_t bytes);
/* One more at this acceptor, unless there are `most` at all of them. */
bool members_join(struct acceptor *a, uint32_t place, uint64_t most);
void members_leave(struct acceptor *a, uint32_t place);
/* Those of one that was here before. */
void members_begin(struct acceptor *a);

#endif

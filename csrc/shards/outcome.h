/* What becomes of a request. A function that takes a message of the shard protocol carries it out and answers it
 * (DONE). LATER: nothing was done; call again when there is a segment. MORE: some was done, as client.done and
 * client.sheet say; call again in the next turn.
 */
#ifndef MQ_SHARDS_OUTCOME_H
#define MQ_SHARDS_OUTCOME_H

#include <string.h>

enum outcome { DONE, LATER, MORE };

#endif

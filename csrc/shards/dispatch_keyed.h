/* With POLICY_KEY the key of a message says which consumer gets it; no message overtakes one with its key. */
#ifndef MQ_SHARDS_DISPATCH_KEYED_H
#define MQ_SHARDS_DISPATCH_KEYED_H

#include "shards/dispatch_message.h"

/* Delivers some messages, `most` at most. */
enum dispatched dispatch_keyed(struct worker *w, uint32_t subscription, int most);

#endif

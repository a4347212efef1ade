/* Deleted things that are freed piece by piece. */
#ifndef MQ_SHARDS_TOMB_H
#define MQ_SHARDS_TOMB_H

#include "shards/worker_state.h"

/* Empties a topic's stream at once; its messages are released in the next turns, whoever held them. */
void stream_bury(struct worker *w, uint32_t topic);
/* The same, with the topic's jobs. */
void topic_bury(struct worker *w, uint32_t topic);
/* Each turn: releases some of these. True if there are more. */
bool tombs_clear(struct worker *w);
void tombs_free(struct worker *w);

#endif

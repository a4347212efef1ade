/* A subscription's redeliveries. */
#ifndef MQ_SHARDS_REDELIVERY_H
#define MQ_SHARDS_REDELIVERY_H

#include "shards/worker_state.h"

void redelivery_put(struct worker *w, struct subscription *s, uint32_t delivery);
void redelivery_take(struct worker *w, struct subscription *s, uint32_t delivery);
/* POLICY_KEY: where to go on searching for one that can be delivered; 0: there is none. */
uint32_t redelivery_to_look_at(const struct worker *w, const struct subscription *s);
/* The first whose seq is higher; 0: there is none. */
uint32_t redelivery_after(const struct worker *w, const struct subscription *s, uint64_t seq);
/* One of this consumer's redeliveries was seen, at that seq. */
void redelivery_saw(const struct subscription *s, struct consumer_rank *rank, uint64_t seq, bool sent);
/* The consumer may take messages from now on. */
void redelivery_look_for(struct subscription *s, struct consumer_rank *rank);
/* Any redelivery may be another consumer's by now. */
void redelivery_look_anew(struct subscription *s);
/* All redeliveries from this seq on are to be looked at. */
void redelivery_look_from(struct subscription *s, uint64_t seq);
/* Brings `most` more redeliveries into the order of seqs. True: all are. */
bool redelivery_order(struct worker *w, struct subscription *s, uint32_t most);

#endif

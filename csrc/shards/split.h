/* Deliveries of batches to consumers that know no batches. */
#ifndef MQ_SHARDS_SPLIT_H
#define MQ_SHARDS_SPLIT_H

#include "shards/worker_state.h"

/* The split delivery that a part belongs to. */
uint32_t split_of(const struct worker *w, uint32_t delivery);
/* Whether `parts` more deliveries are allowed. */
bool split_fits(const struct worker *w, uint32_t parts);
/* Splits a delivery that is in no state: its unfinished parts become deliveries to be made. False, with nothing
 * changed, when a limit is reached or memory is short. */
bool delivery_split(struct worker *w, uint32_t delivery, uint32_t parts);
/* Frees a part, and the split delivery with its last part: true then; the message is not released. */
bool split_part_over(struct worker *w, uint32_t delivery);
/* The parts left of a message without this one; no words if there are none. */
void split_without(const struct worker *w, uint32_t delivery, struct parts_left *left);
/* Frees all parts but those in `left`, which are some. */
void split_leave(struct worker *w, uint32_t split, const struct parts_left *left);
/* Gives back the parts that a consumer has in flight, to be delivered again. */
void split_again(struct worker *w, uint32_t split, uint32_t consumer);
/* Frees a split delivery and all its parts. The message is not released. */
void split_over(struct worker *w, uint32_t split);
/* The first seq from which on a subscription refers to all messages. */
static inline uint64_t subscription_held_from(const struct subscription *s) {
    return s->cursor > s->held_from ? s->cursor : s->held_from;
}

#endif

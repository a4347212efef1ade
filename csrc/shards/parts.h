/* Deliveries of which parts are finished. */
#ifndef MQ_SHARDS_PARTS_H
#define MQ_SHARDS_PARTS_H

#include "shards/worker_state.h"

/* The parts left of a delivery; NULL: none is finished. */
const struct parts_left *delivery_parts(const struct worker *w, uint32_t delivery);
/* The parts that would be left: those left now that are also set in `bits`. False: none. */
bool delivery_parts_after(const struct worker *w, uint32_t delivery, const void *bits, uint32_t words,
                          struct parts_left *out);
/* Whether one more delivery with finished parts is allowed, beside those that transactions will need. */
bool parts_fit(const struct worker *w);
/* Sets the parts that are left. False when a limit is reached or memory is short. */
bool delivery_parts_set(struct worker *w, uint32_t delivery, const struct parts_left *left);
void delivery_parts_forget(struct worker *w, uint32_t delivery);

#endif

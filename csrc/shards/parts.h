/* Deliveries of which parts are finished. */
#ifndef MQ_SHARDS_PARTS_H
#define MQ_SHARDS_PARTS_H

#include "shards/worker_state.h"

bool parts_open(struct subscriptions *all);
void parts_copy(struct parts_left *to, const struct parts_left *from);
/* Leaves out the last words without a bit. */
void parts_trim(struct parts_left *left);
/* The first `count` parts. */
void parts_first(struct parts_left *out, uint32_t count);
uint32_t parts_count(const struct parts_left *left);

/* The parts left of a delivery; NULL: none is finished. */
const struct parts_left *delivery_parts(const struct worker *w, uint32_t delivery);
/* The same, or all that its message has: at least one. */
void delivery_all_parts(const struct worker *w, uint32_t delivery, struct parts_left *out);
/* The parts that would be left: those left now that are also set in `bits`. False: none. */
bool delivery_parts_after(const struct worker *w, uint32_t delivery, const void *bits, uint32_t words,
                          struct parts_left *out);
/* Whether one more delivery with finished parts is allowed, that has so many words, beside those that transactions will
 * need. */
bool parts_fit(const struct worker *w, uint32_t words);
/* Sets the parts that are left. False when a limit is reached or memory is short. */
bool delivery_parts_set(struct worker *w, uint32_t delivery, const struct parts_left *left);
void delivery_parts_forget(struct worker *w, uint32_t delivery);

/* What has to be written when `left` is going to be set. If it is not all, it is more than PARTS_FEW_WORDS. */
struct parts_span parts_changed(const struct worker *w, uint32_t delivery, const struct parts_left *left);
/* The parts that are left after what was written; false: none. */
bool delivery_parts_without(const struct worker *w, uint32_t delivery, struct parts_span span, const void *bits,
                            struct parts_left *out);

#endif

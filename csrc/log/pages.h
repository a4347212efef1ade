/* Pages for what a log is about to write.
 *
 * The kernel takes a page from its pool for each 4 KiB of a file that are written for the first time, and when it is given a
 * few KiB at a time it takes them one by one: that costs more than the copy. Given much at once it takes large ones. So a piece of a
 * segment ahead of its end is written as zeros, which is what is there anyway, and then written over: half of the cost of a
 * pwrite of 1 to 16 KiB, and less of one that is larger (docs/costs.md).
 *
 * It changes nothing that can be read. What it cannot do it leaves: the write that follows says what is wrong.
 */
#ifndef MQ_PAGES_H
#define MQ_PAGES_H

#include "log/log_state.h"

/* So much at once, at a multiple of that. A log that is shorter has none, nor what is as long. */
enum { PAGES_BYTES = 64 << 10 };

/* Before `bytes` are written to a segment at its end. */
void pages_prepare(struct segment *s, size_t bytes);

#endif

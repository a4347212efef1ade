/* Prepares pages of the page cache for what a log is about to write.
 *
 * The kernel takes a page from its pool for each 4 KiB of a file that are written for the first time. When it is given
 * a few KiB at a time it takes the pages one by one, which costs more than the copy; given much at once it takes large
 * ones. So a piece of the segment ahead of its end is written with zeros, which it contains anyway, and is overwritten
 * later. That saves half of the cost of a pwrite of 1 to 16 KiB, and less for larger ones (docs/costs.md).
 *
 * Changes nothing that can be read. A failure here is ignored: the write that follows reports it.
 */
#ifndef MQ_PAGES_H
#define MQ_PAGES_H

#include "log/log_state.h"

/* Prepared at a time, up to a multiple of it. Nothing is prepared in a shorter segment, nor for so long a write. */
enum { PAGES_BYTES = 64 << 10 };

/* To be called before `bytes` are written at the end of a segment. */
void pages_prepare(struct segment *s, size_t bytes);

#endif

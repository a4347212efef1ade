/* The syncer: one thread that does the fdatasyncs of a worker's logs, a round at a time (group commit).
 *
 * A round is a ticket (any number that rises from round to round) and the descriptors of the logs that were written
 * since the last one. At most one round is under way; what is written meanwhile goes into the next, so the disk sets
 * the pace and each of its flushes covers all that waited for it.
 *
 * Owns: its thread, and duplicates of the descriptors of the round, so that the worker may close its own. Must never:
 * make the worker wait (the lock is held for a few instructions only), or call a failed sync a success later: after an
 * fdatasync has failed the kernel may have dropped the pages and a second one that succeeds proves nothing. So the
 * first failure is for good: nothing is done and nothing advances after it.
 */
#ifndef MQ_SYNC_H
#define MQ_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/time_histogram.h"

/* Descriptors in one round, at most. */
#define SYNCER_MAX_FDS 4096u

struct syncer;

/* `wake_fd` is the eventfd that wakes the worker, not kept open here; -1: nobody is woken. `sync_fd` stands in for
 * fdatasync (returns 0, or -1 with errno), on the syncer's thread; NULL: fdatasync. NULL with errno if there is no
 * thread to be had. */
struct syncer *syncer_new(int wake_fd, int (*sync_fd)(int fd));

/* Waits for the round under way, then ends the thread. */
void syncer_free(struct syncer *syncer);

/* Counts how long rounds take from then on, on the syncer's thread; before the first. */
void syncer_measure(struct syncer *syncer, struct time_histogram *took);

/* Starts a round. False, and nothing happens, if one is under way, or one has failed, or the descriptors could not be
 * duplicated. `ticket` must be above the last. `wake`: write to wake_fd when it is done (when it fails, that is done
 * in any case). `fds` may be empty: then it is done at once by the same way. */
bool syncer_request(struct syncer *syncer, uint64_t ticket, const int *fds, size_t count, bool wake);

/* A round is under way: never once syncer_done() has given its ticket. For the worker that requests only. */
bool syncer_busy(const struct syncer *syncer);

/* The ticket of the last round all of whose syncs succeeded; 0 before the first. What was written before that round was
 * requested is on stable storage. */
uint64_t syncer_done(const struct syncer *syncer);

/* The errno of the first sync that failed, or 0. It stays. */
int syncer_error(const struct syncer *syncer);

#endif

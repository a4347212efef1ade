/* The syncer: one thread that does the fdatasyncs of a worker's logs, a round at a time (group commit).
 *
 * A round is a ticket (any number that rises from round to round) and the descriptors of the logs that were written
 * since the last round. At most one round is under way; what is written meanwhile is synced in the next. So the disk
 * sets the pace, and each of its flushes covers all that waited for it.
 *
 * Owns: its thread, and duplicates of the descriptors of the round, so that the worker may close its own. Must never:
 * make the worker wait (the lock is held for a few instructions only), or report success after a failed sync: when
 * fdatasync has failed the kernel may have dropped the pages, so that a second one that succeeds proves nothing. The
 * first failure is therefore final: no round is done after it.
 */
#ifndef MQ_SYNC_H
#define MQ_SYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/time_histogram.h"

/* The most descriptors in one round. */
#define SYNCER_MAX_FDS 4096u

struct syncer;

/* `wake_fd` is the eventfd that wakes the worker, which the caller keeps open; -1: nobody is woken. `sync_fd` is called
 * on the syncer's thread in place of fdatasync (returns 0, or -1 with errno); NULL: fdatasync. Returns NULL with errno
 * if no thread can be made. */
struct syncer *syncer_new(int wake_fd, int (*sync_fd)(int fd));

/* Waits for the round under way, then ends the thread. */
void syncer_free(struct syncer *syncer);

/* Lets the syncer's thread count in `took` how long rounds take; to be called before the first round. */
void syncer_measure(struct syncer *syncer, struct time_histogram *took);

/* Starts a round. False, with nothing changed, if a round is under way, or one has failed, or the descriptors could not
 * be duplicated. `ticket` must be above the last. `wake`: write to wake_fd when the round is done (a failure always
 * does). `fds` may be empty: such a round goes through the thread all the same, and is done at once. */
bool syncer_request(struct syncer *syncer, uint64_t ticket, const int *fds, size_t count, bool wake);

/* Whether a round is under way, until syncer_done() has returned its ticket. Only for the worker that requests. */
bool syncer_busy(const struct syncer *syncer);

/* The ticket of the last round all of whose syncs succeeded; 0 before the first. What was written before that round was
 * requested is on stable storage. */
uint64_t syncer_done(const struct syncer *syncer);

/* The errno of the first sync that failed, for good; 0: none has. */
int syncer_error(const struct syncer *syncer);
/* The file whose sync failed, which stays open until syncer_free; -1: none has. */
int syncer_failed_fd(const struct syncer *syncer);

#endif

/* Memory that was in use and is not any more is given back to the kernel in pieces: to give back all pages of a large
 * array at once takes milliseconds. */
#ifndef MQ_STALE_H
#define MQ_STALE_H

#include <stdbool.h>
#include <stddef.h>

/* Of an array that is mapped at `base`, of which the first `used` bytes are in use and those up to *stale were: gives
 * back `most` bytes at the end of that, and lowers *stale. True if there is more. `most` is at least 128 KiB. */
bool stale_give_back(char *base, size_t used, size_t *stale, size_t most);

#endif

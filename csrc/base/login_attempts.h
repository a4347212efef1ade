/* Recent login attempts by source address, shared by all processes that map this memory: how long the next one must
 * wait.
 *
 * An attempt counts as wrong from its beginning until it turns out to be right, so a thousand at once wait for each
 * other like a thousand in a row, by whichever process they come, and what a process had under way when it died stays
 * wrong. The table has a limit: of the few places where a source may stand, the one that was seen longest ago is given
 * to a new one.
 *
 * Nobody waits for anybody: each word is atomic by itself. When two processes take one place at the same time, an
 * attempt may be counted for the other's source.
 */
#ifndef MQ_LOGIN_ATTEMPTS_H
#define MQ_LOGIN_ATTEMPTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

/* After up to LOGIN_FREE wrong attempts there is no wait. What would wait longer than LOGIN_MAX_WAIT_MS is refused
 * unseen. */
enum {
    LOGIN_SOURCES = 4096,
    LOGIN_PLACES = 8,
    LOGIN_FREE = 5,
    LOGIN_FIRST_MS = 250,
    LOGIN_LONGEST_MS = 4000,
    LOGIN_MAX_WAIT_MS = 30000,
    LOGIN_FORGOTTEN_MS = 600000,
};

struct login_source {
    _Atomic uint64_t key;     /* 0: nobody */
    _Atomic uint64_t seen_ns; /* last */
    _Atomic uint64_t free_ns; /* when the next attempt may be checked */
    _Atomic uint64_t wrong;   /* wrong attempts, and those under way */
};
struct login_attempts {
    struct siphash_key secret;
    struct login_source sources[LOGIN_SOURCES];
};

/* The memory must be all zeros. `seed` 0: a random one. */
void login_attempts_format(struct login_attempts *all, uint64_t seed);
/* How long the attempt must wait before it is checked; -1: it is refused unchecked. The clock is one that only rises.
 * */
int64_t login_attempt_begin(struct login_attempts *all, const char *source, size_t bytes, uint64_t now_ns);
/* An attempt that had begun turned out to be right. */
void login_attempt_right(struct login_attempts *all, const char *source, size_t bytes);

#endif

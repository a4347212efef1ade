/* Reading a mapped file whose medium may fail. When a page cannot be read, or is beyond the end of the file by now, the
 * kernel sends SIGBUS, which ends the process. A caller that asks reads_touch first gets an answer instead.
 *
 * Owns: the process's handler of SIGBUS. Must never: take a fault elsewhere for a failing medium. Such a fault goes to
 * the handler that was installed before, and ends the process as usual.
 *
 * To be used by one thread of a process, the one that reads logs.
 */
#ifndef MQ_READS_H
#define MQ_READS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Installs the handler, the first time it is called; false with errno. */
bool reads_guard(void);

extern const volatile uint8_t *volatile reads_at; /* the byte that reads_touch is loading; NULL: none */
extern volatile bool reads_failed;

/* The step from one touched byte to the next; the system's pages are this large or larger. */
#define READS_PAGE ((uintptr_t)4096)

/* Whether all of `bytes` bytes (at least one) can be read. If not, *failed lies in the page that cannot: that page is
 * replaced with zeros in memory, until the file is mapped there again. Takes some ten instructions for bytes within one
 * page. */
static inline bool reads_touch(const void *from, size_t bytes, const uint8_t **failed) {
    const volatile uint8_t *p = from, *last = p + bytes - 1;
    for (;;) {
        reads_at = p;
        (void)*p;
        if (reads_failed) break;
        if (p == last) {
            reads_at = NULL;
            return true;
        }
        p = (const volatile uint8_t *)(((uintptr_t)p | (READS_PAGE - 1)) + 1);
        if (p > last) p = last;
    }
    reads_failed = false;
    reads_at = NULL;
    *failed = (const uint8_t *)p;
    return false;
}

/* Where the page begins that contains `at`, and in *bytes how long the pages of the system are. */
const uint8_t *reads_page(const void *at, size_t *bytes);

#endif

/* Reading a mapped file whose medium may fail: the kernel answers a page that it cannot read, or that is not there any
 * more, with SIGBUS, which ends a process. Who asks here first is told instead.
 *
 * Owns: the process's handler of SIGBUS. Must never: take for a failing medium what faults elsewhere: that goes to whoever
 * had the handler before, and ends the process as ever.
 *
 * For one thread of a process, that reads logs.
 */
#ifndef MQ_READS_H
#define MQ_READS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Once for all; false with errno. */
bool reads_guard(void);

extern const volatile uint8_t *volatile reads_at; /* what is being touched */
extern volatile bool reads_failed;

/* From where on pages end; a page of the system has so many bytes or more. */
#define READS_PAGE ((uintptr_t)4096)

/* Whether all of these bytes (there is one) can be read. If not, *failed is in the page that cannot: it is zeros in memory now,
 * until it is mapped anew. Some ten instructions for what lies in one page. */
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

/* The page of the system that this lies in, and how long it is. */
const uint8_t *reads_page(const void *at, size_t *bytes);

#endif

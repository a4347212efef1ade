#define _GNU_SOURCE
#include "log/reads.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

const volatile uint8_t *volatile reads_at;
volatile bool reads_failed;

static struct sigaction before;
static uintptr_t page_bytes;

const uint8_t *reads_page(const void *at, size_t *bytes) {
    *bytes = page_bytes;
    return (const uint8_t *)((uintptr_t)at & ~(page_bytes - 1));
}

/* What is touched is read again when this returns: so there has to be something to read. mmap is no function that POSIX allows
 * here, but a system call on Linux, and this handler runs where a load faulted, in nobody's midst. */
static void on_bus(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    size_t bytes;
    const uint8_t *page = reads_page(info->si_addr, &bytes), *touched = reads_page((const void *)reads_at, &bytes);
    if (reads_at && page == touched &&
        mmap((void *)(uintptr_t)page, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
        reads_failed = true;
        return;
    }
    (void)sigaction(SIGBUS, &before, NULL); /* it faults again, and what is to come comes */
}

bool reads_guard(void) {
    if (page_bytes) return true;
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&action.sa_mask);
    long bytes = sysconf(_SC_PAGESIZE);
    if (bytes < (long)READS_PAGE || sigaction(SIGBUS, &action, &before) != 0) return false;
    page_bytes = (uintptr_t)bytes;
    return true;
}

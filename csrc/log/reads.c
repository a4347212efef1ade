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

/* The load that faulted is repeated when this returns, so a page of zeros is mapped there. POSIX does not allow mmap in
 * a signal handler, but on Linux it is a plain system call, and this handler interrupts a single load, never a library
 * function. */
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
    (void)sigaction(SIGBUS, &before, NULL); /* the load faults again, into the handler before */
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

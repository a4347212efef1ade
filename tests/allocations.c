/* Loaded before the C library: counts how often memory is asked for, by who asks.
 *
 * Each process has a file in the folder ALLOCATIONS, named by its pid: SLOTS of struct slot. A slot is of one place in
 * the core that asks (its offset there, for addr2line); who asks from elsewhere, as Python does, is not counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 1 << 14 };

struct slot {
    _Atomic uintptr_t from;
    _Atomic uint64_t count;
    uint64_t offset; /* 0: not the core */
};

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static struct slot *slots;

static void begin(void) {
    const char *folder = getenv("ALLOCATIONS");
    char path[PATH_MAX];
    slots = NULL;
    if (!folder || snprintf(path, sizeof path, "%s/%d", folder, (int)getpid()) >= (int)sizeof path) return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    if (ftruncate(fd, SLOTS * sizeof *slots) == 0) {
        void *place = mmap(NULL, SLOTS * sizeof *slots, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (place != MAP_FAILED) slots = place;
    }
    close(fd);
}

__attribute__((constructor)) static void loaded(void) {
    begin();
    pthread_atfork(NULL, NULL, begin);
}

static void count(void *from) {
    struct slot *all = slots;
    if (!all) return;
    uintptr_t key = (uintptr_t)from;
    for (size_t i = key * 0x9e3779b97f4a7c15u >> 50, n = 0; n < SLOTS; n++, i = (i + 1) % SLOTS) {
        uintptr_t there = 0;
        if (atomic_compare_exchange_strong(&all[i].from, &there, key)) {
            Dl_info found;
            int kept = errno;
            if (dladdr(from, &found) && found.dli_fname && strstr(found.dli_fname, "_core."))
                all[i].offset = key - (uintptr_t)found.dli_fbase;
            errno = kept;
            there = key;
        }
        if (there != key) continue;
        atomic_fetch_add(&all[i].count, 1);
        return;
    }
}

void *malloc(size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t items, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_calloc(items, bytes);
}

void *realloc(void *old, size_t bytes) {
    count(__builtin_return_address(0));
    return __libc_realloc(old, bytes);
}

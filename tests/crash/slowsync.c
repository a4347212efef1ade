/* For tests: fsync, cutting a file, and making room behind its end, take a second for as long as the file that SLOW_IF
 * names is there, as on a disk that has much to do. fdatasync, with which segments are synced, is as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_if_slow(void) {
    const char *name = getenv("SLOW_IF");
    if (name && access(name, F_OK) == 0) usleep(1000000);
}

int fsync(int fd) {
    int (*really)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_if_slow();
    return really(fd);
}

int truncate(const char *path, off_t length) {
    int (*really)(const char *, off_t) = (int (*)(const char *, off_t))dlsym(RTLD_NEXT, "truncate");
    wait_if_slow();
    return really(path, length);
}

int ftruncate(int fd, off_t length) {
    int (*really)(int, off_t) = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate");
    wait_if_slow();
    return really(fd, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
    int (*really)(int, int, off_t, off_t) = (int (*)(int, int, off_t, off_t))dlsym(RTLD_NEXT, "fallocate");
    if (mode & FALLOC_FL_KEEP_SIZE) wait_if_slow();
    return really(fd, mode, offset, length);
}

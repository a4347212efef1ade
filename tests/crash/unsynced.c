/* For tests: a disk on which no log can be synced for as long as the file that UNSYNCED_IF names is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char END[] = ".log";

int fdatasync(int fd) {
    int (*really)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *name = getenv("UNSYNCED_IF");
    char place[64], path[4096];
    snprintf(place, sizeof place, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(place, path, sizeof path);
    size_t end = sizeof END - 1;
    if (!name || access(name, F_OK) || length < (ssize_t)end) return really(fd);
    if (memcmp(path + (size_t)length - end, END, end) != 0) return really(fd);
    errno = EIO;
    return -1;
}

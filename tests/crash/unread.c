/* Answers EIO to who reads the first block of a log with pread, while a file is there; for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd, off_t at) {
    const char *flag = getenv("UNREAD_IF");
    char link[64], path[4096];
    if (at >= 4096 || !flag || access(flag, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t bytes = readlink(link, path, sizeof path);
    return bytes > 4 && memcmp(path + bytes - 4, ".log", 4) == 0;
}

static ssize_t read_at(int fd, void *to, size_t bytes, off_t at) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) real = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread64");
    if (!fails(fd, at)) return real(fd, to, bytes, at);
    errno = EIO;
    return -1;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at) {
    return read_at(fd, to, bytes, at);
}

ssize_t pread64(int fd, void *to, size_t bytes, off_t at) {
    return read_at(fd, to, bytes, at);
}

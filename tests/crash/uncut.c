/* For tests: a disk that has no room for large pieces, and files that cannot be cut, for as long as the file that
 * UNCUT_IF names is there. Each cut that is tried adds a byte to that file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGE ((size_t)128 << 10)

static bool is_told(int how, const char *byte) {
    const char *name = getenv("UNCUT_IF");
    int fd = name ? open(name, how | O_CLOEXEC) : -1;
    if (fd < 0) return false;
    if (byte && write(fd, byte, 1) < 0) abort();
    close(fd);
    return true;
}

int ftruncate(int fd, off_t length) {
    int (*really)(int, off_t) = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate");
    if (!is_told(O_WRONLY | O_APPEND, "x")) return really(fd, length);
    errno = EIO;
    return -1;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    ssize_t (*really)(int, const void *, size_t, off_t) =
        (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    if (count < LARGE || !is_told(O_RDONLY, NULL)) return really(fd, bytes, count, offset);
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    return pwrite(fd, bytes, count, offset);
}

/* For tests: fdatasync takes as long as the file that HELD_IF names is there, as on a disk that does not answer. So
 * does fsync of a shard's folder or of a file in it, for HELD_FOLDERS_IF; with FAILED_FOLDERS it fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_for(const char *variable) {
    const char *name = getenv(variable);
    while (name && access(name, F_OK) == 0) usleep(1000);
}

int fdatasync(int fd) {
    int (*really)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for("HELD_IF");
    return really(fd);
}

int fsync(int fd) {
    int (*really)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        const int is_of_shard = strstr(path, "/shard-") != NULL;
        if (is_of_shard && getenv("FAILED_FOLDERS")) {
            errno = EIO;
            return -1;
        }
        if (is_of_shard) wait_for("HELD_FOLDERS_IF");
    }
    return really(fd);
}

/* For tests: fdatasync takes as long as the file that HELD_IF names is there, as on a disk that does not answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd) {
    int (*really)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *name = getenv("HELD_IF");
    while (name && access(name, F_OK) == 0) usleep(1000);
    return really(fd);
}

/* For tests: fsync takes a second for as long as the file that SLOW_IF names is there, as on a disk that has much to do. fdatasync,
 * with which segments are synced, is as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int fsync(int fd) {
    int (*really)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    const char *name = getenv("SLOW_IF");
    if (name && access(name, F_OK) == 0) usleep(1000000);
    return really(fd);
}

/* For tests: segments that cannot be removed for as long as the file that UNREMOVED_IF names is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_segment(const char *path) {
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".log") == 0;
}

int unlinkat(int folder, const char *path, int flags) {
    int (*really)(int, const char *, int) = (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
    const char *name = getenv("UNREMOVED_IF");
    if (!name || access(name, F_OK) || !is_segment(path)) return really(folder, path, flags);
    errno = EIO;
    return -1;
}

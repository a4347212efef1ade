/* What a power cut would leave: an LD_PRELOAD shim that keeps, beside a data directory, a copy of what was made
 * durable.
 *
 * POWERCUT_DIR is watched, POWERCUT_SHADOW is written to:
 *
 *   inode-<n>   what a file's content was when it was last synced
 *   names-<n>   the entries of a directory when it was last synced: lines of "<inode> <d or f> <name>"
 *
 * A file that was never synced has no content after the cut, and one whose directory was not synced since it was made
 * or renamed does not exist, whatever else was synced: POSIX promises no more. The copy is taken before the sync
 * begins, so that what is written meanwhile does not count.
 *
 * Nothing is synced for real: the processes are killed, not the machine.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)64 << 10)

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void give_up(const char *what) {
    fprintf(stderr, "powercut: %s: %s\n", what, strerror(errno));
    abort();
}

static bool is_watched(int fd) {
    const char *watched = getenv("POWERCUT_DIR");
    if (!watched) return false;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return false;
    path[length] = 0;
    size_t count = strlen(watched);
    return !strncmp(path, watched, count) && (path[count] == 0 || path[count] == '/');
}

static void shadow_path(char *path, size_t size, const char *kind, ino_t inode, const char *suffix) {
    snprintf(path, size, "%s/%s-%llu%s", getenv("POWERCUT_SHADOW"), kind, (unsigned long long)inode, suffix);
}

/* Copies the blocks in which the file and its shadow differ. */
static void copy_file(int fd, const struct stat *status) {
    char path[PATH_MAX];
    shadow_path(path, sizeof path, "inode", status->st_ino, "");
    int shadow = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (shadow < 0) give_up(path);
    if (ftruncate(shadow, status->st_size)) give_up("ftruncate");
    size_t size = (size_t)status->st_size;
    if (size) {
        char itself[64];
        snprintf(itself, sizeof itself, "/proc/self/fd/%d", fd);
        int readable = open(itself, O_RDONLY | O_CLOEXEC); /* fd may be for writing only */
        if (readable < 0) give_up(itself);
        char *from = mmap(NULL, size, PROT_READ, MAP_SHARED, readable, 0);
        if (from == MAP_FAILED) give_up("mmap");
        close(readable);
        char *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, shadow, 0);
        if (to == MAP_FAILED) give_up("mmap");
        for (size_t at = 0; at < size; at += COPY_BYTES) {
            size_t bytes = size - at < COPY_BYTES ? size - at : COPY_BYTES;
            if (memcmp(from + at, to + at, bytes)) memcpy(to + at, from + at, bytes);
        }
        munmap(from, size);
        munmap(to, size);
    }
    close(shadow);
}

static void copy_names(int fd, const struct stat *status) {
    char path[PATH_MAX], new_path[PATH_MAX];
    shadow_path(path, sizeof path, "names", status->st_ino, "");
    shadow_path(new_path, sizeof new_path, "names", status->st_ino, ".new");
    FILE *out = fopen(new_path, "we");
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = again < 0 ? NULL : fdopendir(again);
    if (!out || !directory) give_up(new_path);
    for (struct dirent *e; (e = readdir(directory)) != NULL;)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            fprintf(out, "%llu %c %s\n", (unsigned long long)e->d_ino, e->d_type == DT_DIR ? 'd' : 'f', e->d_name);
    closedir(directory);
    if (fclose(out) || rename(new_path, path)) give_up(path);
}

static void keep(int fd) {
    struct stat status;
    if (!is_watched(fd) || fstat(fd, &status)) return;
    int before = errno;
    pthread_mutex_lock(&one_at_a_time);
    if (S_ISREG(status.st_mode)) copy_file(fd, &status);
    if (S_ISDIR(status.st_mode)) copy_names(fd, &status);
    pthread_mutex_unlock(&one_at_a_time);
    errno = before;
}

int fsync(int fd) {
    keep(fd);
    return 0;
}

int fdatasync(int fd) {
    keep(fd);
    return 0;
}

#define _GNU_SOURCE
#include "log/sync.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct syncer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t requested;
    bool asked;    /* under the lock: the thread is to run a round */
    bool stopping; /* under the lock */
    int wake_fd;
    int (*sync_fd)(int fd);
    struct time_histogram *took; /* NULL: not measured */

    /* The round. The worker writes these fields when no round is under way, the thread reads them while one is. The
     * store to `done` or `error` ends the round: when the worker sees it, it may start the next one. */
    uint64_t ticket;
    size_t count;
    bool wake;
    int fds[SYNCER_MAX_FDS];

    _Atomic uint64_t done;
    _Atomic int error;
    int failed_fd; /* written before `error` */
};

static int sync_retrying(const struct syncer *s, int fd) {
    for (;;) {
        if (s->sync_fd(fd) == 0) return 0;
        if (errno != EINTR) return errno;
    }
}

static void wake_worker(const struct syncer *s) {
    if (s->wake_fd < 0) return;
    uint64_t one = 1;
    /* EAGAIN: the eventfd's count is at its maximum, so the worker is woken anyway. */
    while (write(s->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_round(struct syncer *s) {
    int error = 0;
    const uint64_t began_ns = now_ns();
    /* Writing is started on all files first, so that the device works on them together while we wait for one after the
     * other. */
    if (s->count > 1) {
        for (size_t i = 0; i < s->count; i++) (void)sync_file_range(s->fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    for (size_t i = 0; i < s->count; i++) {
        if (error == 0 && (error = sync_retrying(s, s->fds[i])) != 0)
            s->failed_fd = s->fds[i];
        else
            (void)close(s->fds[i]);
    }
    if (s->took) time_histogram_add(s->took, now_ns() - began_ns, 1);
    bool wake = s->wake || error != 0;
    /* Release: the worker that reads the ticket or the error (acquire) does so after the syncs, and after our last look
     * at the round's fields, which it may write from here on. */
    if (error == 0) {
        atomic_store_explicit(&s->done, s->ticket, memory_order_release);
    } else {
        atomic_store_explicit(&s->error, error, memory_order_release);
    }
    if (wake) wake_worker(s);
}

static void *syncer_main(void *argument) {
    struct syncer *s = argument;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        if (s->asked) {
            s->asked = false;
            pthread_mutex_unlock(&s->lock);
            run_round(s);
            pthread_mutex_lock(&s->lock);
        } else if (s->stopping) {
            break;
        } else {
            pthread_cond_wait(&s->requested, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals are for the main thread. The new thread inherits the mask set while it is made, which blocks all of them. */
static int start_thread(struct syncer *s) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    int error = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (error != 0) return error;
    error = pthread_create(&s->thread, NULL, syncer_main, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

struct syncer *syncer_new(int wake_fd, int (*sync_fd)(int fd)) {
    struct syncer *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->wake_fd = wake_fd;
    s->failed_fd = -1;
    s->sync_fd = sync_fd != NULL ? sync_fd : fdatasync;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->requested, NULL);
    int error = start_thread(s);
    if (error != 0) {
        free(s);
        errno = error;
        return NULL;
    }
    (void)pthread_setname_np(s->thread, "syncer");
    return s;
}

void syncer_measure(struct syncer *s, struct time_histogram *took) {
    s->took = took;
}

void syncer_free(struct syncer *s) {
    if (s == NULL) return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->requested);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    if (s->failed_fd >= 0) (void)close(s->failed_fd);
    pthread_cond_destroy(&s->requested);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static bool duplicate_all(struct syncer *s, const int *fds, size_t count) {
    for (size_t i = 0; i < count; i++) {
        s->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (s->fds[i] >= 0) continue;
        while (i-- > 0) (void)close(s->fds[i]);
        return false;
    }
    return true;
}

bool syncer_busy(const struct syncer *s) {
    return syncer_done(s) != s->ticket && syncer_error(s) == 0;
}

bool syncer_request(struct syncer *s, uint64_t ticket, const int *fds, size_t count, bool wake) {
    if (syncer_busy(s) || syncer_error(s) != 0) return false;
    assert(ticket > s->ticket);
    if (count > SYNCER_MAX_FDS || !duplicate_all(s, fds, count)) return false;
    s->ticket = ticket;
    s->count = count;
    s->wake = wake;
    pthread_mutex_lock(&s->lock);
    s->asked = true;
    pthread_cond_signal(&s->requested);
    pthread_mutex_unlock(&s->lock);
    return true;
}

uint64_t syncer_done(const struct syncer *s) {
    /* Acquire: pairs with the release in run_round. */
    return atomic_load_explicit(&s->done, memory_order_acquire);
}

int syncer_error(const struct syncer *s) {
    /* Acquire: pairs with the release in run_round. */
    return atomic_load_explicit(&s->error, memory_order_acquire);
}

int syncer_failed_fd(const struct syncer *s) {
    return syncer_error(s) != 0 ? s->failed_fd : -1;
}

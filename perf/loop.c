#define _GNU_SOURCE
#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MAX_EVENTS 256

static void open_timer(struct loop *l) {
    l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct timespec tick = {.tv_nsec = (long)TICK_NS};
    struct itimerspec ticks = {.it_interval = tick, .it_value = tick};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (l->timer_fd < 0 || timerfd_settime(l->timer_fd, 0, &ticks, NULL) != 0 ||
        epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->timer_fd, &event) != 0)
        die("timerfd: %s", strerror(errno));
}

void loop_open(struct loop *l, double rate, size_t in_bytes) {
    *l = (struct loop){.epoll_fd = epoll_create1(EPOLL_CLOEXEC), .timer_fd = -1, .in_bytes = in_bytes};
    l->in = allocate(1, in_bytes);
    if (l->epoll_fd < 0) die("epoll_create1: %s", strerror(errno));
    l->due_per_tick = rate * ((double)TICK_NS / 1e9);
    if (rate > 0) open_timer(l);
}

void loop_close(struct loop *l) {
    if (l->timer_fd >= 0) close(l->timer_fd);
    close(l->epoll_fd);
    free(l->in);
}

void loop_begin(struct loop *l) {
    l->now_ns = l->last_progress_ns = l->pace_begin_ns = now_ns();
}

static void receive(struct loop *l, struct stream *s, loop_take *take, void *owner) {
    size_t bytes = stream_receive(s, l->in, l->in_bytes);
    if (bytes == 0) return;
    l->now_ns = l->last_progress_ns = now_ns();
    size_t used = take(owner, s, l->in, bytes);
    stream_keep(s, l->in + used, bytes - used);
}

void loop_turn(struct loop *l, loop_take *take, void *owner) {
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_wait(l->epoll_fd, events, MAX_EVENTS, 50);
    if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        struct stream *s = events[i].data.ptr;
        if (s == NULL) {
            uint64_t ticks; /* the number of ticks does not matter, but the next one comes only when this one is read */
            if (read(l->timer_fd, &ticks, sizeof ticks) < 0 && errno != EAGAIN) die("timerfd: %s", strerror(errno));
            continue;
        }
        if (events[i].events & EPOLLOUT) stream_flush(s);
        if (events[i].events & ~(uint32_t)EPOLLOUT) receive(l, s, take, owner);
    }
    l->now_ns = now_ns();
    if (l->now_ns - l->last_progress_ns > STALL_NS) die("nothing came for %d s", (int)(STALL_NS / NS));
}

uint64_t loop_due_ns(const struct loop *l, uint64_t index) {
    return l->pace_begin_ns + (uint64_t)((double)(l->paced + index) / l->due_per_tick) * TICK_NS;
}

uint64_t loop_due(const struct loop *l, uint64_t most) {
    uint64_t due = 0;
    while (due < most && loop_due_ns(l, due) <= l->now_ns) due++;
    return due;
}

void loop_send_whole(int fd, const void *data, size_t bytes) {
    const char *at = data;
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = send(fd, at + sent, bytes - sent, MSG_NOSIGNAL);
        if (n < 0) die("send: %s", strerror(errno));
        sent += (size_t)n;
    }
}

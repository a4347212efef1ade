#define _GNU_SOURCE
#include "stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

int stream_connect(const char *host, uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("not an IPv4 address: %s", host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect to %s:%u: %s", host, port, strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* A host whose default congestion control paces would pace the load, with timers and estimates for a wire that
     * is not there. What the server's sockets use is up to the server and the host. */
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    return fd;
}

void stream_open(struct stream *s, int fd, int epoll_fd, size_t output_bytes, size_t carry_limit) {
    *s = (struct stream){.fd = fd, .epoll_fd = epoll_fd, .output_bytes = output_bytes, .carry_limit = carry_limit};
    s->output = allocate(1, output_bytes);
    s->carry = allocate(1, carry_limit);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

void stream_close(struct stream *s) {
    close(s->fd);
    free(s->output);
    free(s->carry);
}

static void watch_output(struct stream *s, bool blocked) {
    if (s->is_blocked == blocked) return;
    s->is_blocked = blocked;
    struct epoll_event event = {.events = EPOLLIN | (blocked ? (uint32_t)EPOLLOUT : 0u), .data.ptr = s};
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static size_t send_some(const struct stream *s, const char *data, size_t bytes) {
    ssize_t n = send(s->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return (size_t)n;
    if (errno == EAGAIN || errno == EINTR) return 0;
    die("send: %s", strerror(errno));
}

void stream_send(struct stream *s, const char *data, size_t bytes) {
    if (!s->is_blocked) {
        size_t sent = send_some(s, data, bytes);
        data += sent;
        bytes -= sent;
        if (bytes == 0) return;
    }
    if (s->output_end + bytes > s->output_bytes) {
        memmove(s->output, s->output + s->output_begin, s->output_end - s->output_begin);
        s->output_end -= s->output_begin;
        s->output_begin = 0;
    }
    if (s->output_end + bytes > s->output_bytes) die("more commands unanswered than should be");
    memcpy(s->output + s->output_end, data, bytes);
    s->output_end += bytes;
    watch_output(s, true);
}

void stream_flush(struct stream *s) {
    s->output_begin += send_some(s, s->output + s->output_begin, s->output_end - s->output_begin);
    if (s->output_begin < s->output_end) return;
    s->output_begin = s->output_end = 0;
    watch_output(s, false);
}

size_t stream_receive(struct stream *s, char *in, size_t in_bytes) {
    memcpy(in, s->carry, s->carry_bytes);
    ssize_t n = recv(s->fd, in + s->carry_bytes, in_bytes - 1 - s->carry_bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n < 0) die("recv: %s", strerror(errno));
    if (n == 0) die("the server closed a connection");
    size_t bytes = s->carry_bytes + (size_t)n;
    in[bytes] = 0;
    return bytes;
}

void stream_keep(struct stream *s, const char *rest, size_t bytes) {
    if (bytes > s->carry_limit) die("a reply that does not end");
    memcpy(s->carry, rest, bytes);
    s->carry_bytes = bytes;
}

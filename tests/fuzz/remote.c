#define _GNU_SOURCE
#include "remote.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world.h"

void bytes_add(struct bytes *to, const void *from, size_t count) {
    if (to->count + count > to->capacity) {
        to->capacity = (to->count + count) * 2;
        to->at = realloc(to->at, to->capacity);
        if (!to->at) abort();
    }
    if (count) memcpy(to->at + to->count, from, count);
    to->count += count;
}

void bytes_drop(struct bytes *from, size_t count) {
    from->count -= count;
    if (count) memmove(from->at, from->at + count, from->count);
}

void bytes_free(struct bytes *bytes) {
    free(bytes->at);
    *bytes = (struct bytes){0};
}

void remote_disconnect(struct remote *r) {
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
    bytes_free(&r->unsent);
    bytes_free(&r->got);
}

uint32_t remote_connect(struct remote *r, uint32_t protocol) {
    remote_disconnect(r);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) abort();
    r->fd = pair[0];
    uint32_t number = acceptor_adopt(world.acceptor, pair[1], protocol);
    if (!number) abort();
    return number;
}

void remote_say(struct remote *r, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    assert(bytes >= 0 && (size_t)bytes < sizeof line);
    bytes_add(&r->unsent, line, (size_t)bytes);
}

bool remote_flush(struct remote *r, size_t most) {
    size_t bytes = r->unsent.count < most ? r->unsent.count : most;
    if (r->fd < 0 || !bytes) return false;
    ssize_t sent = send(r->fd, r->unsent.at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EPIPE) {
        /* What it was told before may still be there to be read. */
        bytes_free(&r->unsent);
        return true;
    }
    if (sent < 0 && errno != EAGAIN) {
        remote_disconnect(r);
        return false;
    }
    if (sent <= 0) return false;
    bytes_drop(&r->unsent, (size_t)sent);
    return true;
}

bool remote_receive(struct remote *r) {
    if (r->fd < 0) return false;
    uint8_t buffer[4096];
    ssize_t got = recv(r->fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0)
        remote_disconnect(r);
    else
        bytes_add(&r->got, buffer, (size_t)got);
    return true;
}

#define _GNU_SOURCE
#include "bare.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

#define MAX_EVENTS  256
#define READ_BYTES  ((size_t)256 << 10)
#define WRITE_BYTES ((size_t)64 << 10)
#define MOST_UNSENT ((size_t)16 << 20) /* when a client has more unsent, the whole server waits for it */

#define PROTOCOL(name) &bare_##name,
static const struct protocol *const protocols[] = {PROTOCOLS};
#undef PROTOCOL

static const struct protocol *protocol;
static struct connection *dirty;
static int epoll_fd;

/* ---- the fifo ---- */

static void begin_chunk(struct fifo *f) {
    if (f->last - f->first + 1 >= MAX_CHUNKS) fifo_release(f, f->first + 1);
    f->last++;
    f->chunks[f->last % MAX_CHUNKS] = f->spare ? f->spare : allocate(1, CHUNK_BYTES);
    f->spare = NULL;
    f->end = 0;
}

char *fifo_push(struct fifo *f, size_t bytes) {
    size_t whole = sizeof(uint32_t) + bytes;
    if (whole + sizeof(uint32_t) > CHUNK_BYTES) die("a message of %zu bytes", bytes);
    char **chunk = &f->chunks[f->last % MAX_CHUNKS];
    if (*chunk == NULL) *chunk = allocate(1, CHUNK_BYTES);
    if (f->end + whole + sizeof(uint32_t) > CHUNK_BYTES) {
        memset(*chunk + f->end, 0xff, sizeof(uint32_t)); /* says that the next message is in the next chunk */
        begin_chunk(f);
        chunk = &f->chunks[f->last % MAX_CHUNKS];
    }
    char *at = *chunk + f->end;
    uint32_t length = (uint32_t)bytes;
    memcpy(at, &length, sizeof length);
    f->end += whole;
    return at + sizeof length;
}

bool fifo_at_end(const struct fifo *f, const struct cursor *cursor) {
    return cursor->chunk == f->last && cursor->at == f->end;
}

const char *fifo_next(const struct fifo *f, struct cursor *cursor, size_t *bytes) {
    if (cursor->chunk < f->first) *cursor = (struct cursor){.chunk = f->first};
    if (fifo_at_end(f, cursor)) return NULL;
    const char *at = f->chunks[cursor->chunk % MAX_CHUNKS] + cursor->at;
    uint32_t length;
    memcpy(&length, at, sizeof length);
    if (length == UINT32_MAX) {
        *cursor = (struct cursor){.chunk = cursor->chunk + 1};
        at = f->chunks[cursor->chunk % MAX_CHUNKS];
        memcpy(&length, at, sizeof length);
    }
    cursor->at += sizeof length + length;
    *bytes = length;
    return at + sizeof length;
}

void fifo_release(struct fifo *f, uint64_t chunk) {
    for (; f->first < chunk; f->first++) {
        char **old = &f->chunks[f->first % MAX_CHUNKS];
        free(f->spare);
        f->spare = *old;
        *old = NULL;
    }
}

/* ---- numbers ---- */

uint64_t read_number(const char *at, const char **end) {
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++) value = value * 10 + (uint64_t)(*at - '0');
    *end = at;
    return value;
}

char *write_number(char *to, uint64_t number) {
    char digits[20], *at = digits + sizeof digits;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    size_t bytes = (size_t)(digits + sizeof digits - at);
    memcpy(to, at, bytes);
    return to + bytes;
}

/* ---- connections ---- */

static void watch(struct connection *c, int operation, bool output) {
    struct epoll_event event = {.events = EPOLLIN | (output ? (uint32_t)EPOLLOUT : 0u), .data.ptr = c};
    if (epoll_ctl(epoll_fd, operation, c->fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static void flush(struct connection *c) {
    ssize_t n = send(c->fd, c->out + c->out_begin, c->out_end - c->out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) c->out_begin += (size_t)n;
    bool failed = n < 0 && errno != EAGAIN && errno != EINTR; /* the next recv() reports the broken connection */
    if (c->out_begin == c->out_end || failed) c->out_begin = c->out_end = 0;
    bool blocked = c->out_end > 0;
    if (blocked != c->is_blocked) watch(c, EPOLL_CTL_MOD, blocked);
    c->is_blocked = blocked;
}

static void wait_for_client(struct connection *c) {
    while (c->out_end - c->out_begin > MOST_UNSENT) {
        struct pollfd one = {.fd = c->fd, .events = POLLOUT};
        poll(&one, 1, -1);
        flush(c);
    }
}

char *bare_room(struct connection *c, size_t bytes) {
    if (!c->is_dirty) {
        c->is_dirty = true;
        c->next_dirty = dirty;
        dirty = c;
    }
    if (c->out_end + bytes > c->out_capacity) {
        wait_for_client(c);
        memmove(c->out, c->out + c->out_begin, c->out_end - c->out_begin);
        c->out_end -= c->out_begin;
        c->out_begin = 0;
        while (c->out_end + bytes > c->out_capacity) c->out_capacity *= 2;
        c->out = realloc(c->out, c->out_capacity);
        if (!c->out) die("out of memory");
    }
    char *room = c->out + c->out_end;
    c->out_end += bytes;
    return room;
}

void bare_answer(struct connection *c, const char *data, size_t bytes) {
    memcpy(bare_room(c, bytes), data, bytes);
}

static void open_connection(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct connection *c = allocate(1, sizeof *c);
    *c = (struct connection){.fd = fd, .in_capacity = READ_BYTES, .out_capacity = WRITE_BYTES};
    c->in = allocate(1, c->in_capacity + 1);
    c->out = allocate(1, c->out_capacity);
    watch(c, EPOLL_CTL_ADD, false);
    if (protocol->greet) protocol->greet(c);
}

/* Closes a connection. Its structure stays, a few bytes, as lists point to it until the end of the turn. */
static void close_connection(struct connection *c) {
    c->is_closed = true;
    c->out_begin = c->out_end = 0;
    if (protocol->gone) protocol->gone(c);
    close(c->fd);
    free(c->in);
    c->in = NULL;
}

static void make_room(struct connection *c) {
    if (c->in_begin > 0) {
        memmove(c->in, c->in + c->in_begin, c->in_end - c->in_begin);
        c->in_end -= c->in_begin;
        c->in_begin = 0;
    }
    if (c->in_end < c->in_capacity) return;
    c->in_capacity *= 2;
    c->in = realloc(c->in, c->in_capacity + 1);
    if (!c->in) die("out of memory");
}

static void on_readable(struct connection *c) {
    make_room(c);
    ssize_t n = recv(c->fd, c->in + c->in_end, c->in_capacity - c->in_end, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        close_connection(c);
        return;
    }
    c->in_end += (size_t)n;
    c->in[c->in_end] = 0;
    protocol->handle(c);
}

static void turn(int listener) {
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_wait(epoll_fd, events, MAX_EVENTS, -1);
    if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        struct connection *c = events[i].data.ptr;
        if (c == NULL) {
            open_connection(listener);
            continue;
        }
        if (events[i].events & EPOLLOUT) flush(c);
        if (events[i].events & ~(uint32_t)EPOLLOUT) on_readable(c);
    }
    if (protocol->deliver) protocol->deliver();
    for (; dirty; dirty = dirty->next_dirty) {
        dirty->is_dirty = false;
        if (!dirty->is_closed && dirty->out_end > 0) flush(dirty);
    }
}

static int listen_on(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1024) != 0)
        die("port %u: %s", port, strerror(errno));
    return fd;
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 3 && i < sizeof protocols / sizeof *protocols; i++)
        if (strcmp(argv[1], protocols[i]->name) == 0) protocol = protocols[i];
    if (protocol == NULL) die("usage: bare PROTOCOL PORT");
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_on((uint16_t)number(argv[2], 1, 65535));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event) != 0) die("epoll: %s", strerror(errno));
    for (;;) turn(listener);
}

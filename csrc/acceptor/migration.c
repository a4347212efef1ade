/* Connections that move to another process, or come from one: the socket and the unused input. Python passes these on
 * (ringbuf/handover.py); the connection is not interrupted and loses nothing. */
#include <string.h>
#include <sys/epoll.h>

#include "acceptor/framing.h"
#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/wake.h"

int acceptor_socket(const struct acceptor *a, uint32_t conn, const uint8_t **bytes, size_t *bytes_count) {
    const struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0 || c->stall != STALL_PYTHON || connection_unsent(c) > 0) return -1;
    *bytes = buffer_front(&c->in);
    *bytes_count = buffer_bytes(&c->in);
    return c->fd;
}

void acceptor_forget(struct acceptor *a, uint32_t conn) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0) return;
    /* close() would not remove it: the epoll set holds the open file, which another process still has. */
    if (!c->detached) epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    c->stall = STALL_NONE;
    socket_close(a, c);
    wake_self(a);
}

void acceptor_receive(struct acceptor *a, uint32_t conn, uint32_t listener, const void *bytes, size_t bytes_count) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->fd < 0) return;
    c->listener = listener & (MAX_LISTENERS - 1);
    if (bytes_count == 0) return;
    uint8_t *room = buffer_room(&a->blocks, &c->in, bytes_count);
    if (room == NULL) {
        engine_oom(a, c);
        return;
    }
    memcpy(room, bytes, bytes_count);
    c->in.end += c->framing != NULL ? framing_received(a, c, room, bytes_count) : bytes_count;
    if (c->closed) return;
    socket_schedule(a, c);
    wake_self(a);
}

size_t acceptor_take(struct acceptor *a, uint32_t conn, void *room, size_t most) {
    struct connection *c = connection_find(a, conn);
    if (c == NULL || c->stall != STALL_PYTHON) return 0;
    size_t bytes = buffer_bytes(&c->in) < most ? buffer_bytes(&c->in) : most;
    if (bytes == 0) return 0;
    memcpy(room, buffer_front(&c->in), bytes);
    buffer_consume(&a->blocks, &c->in, bytes);
    /* A filtered connection may now have room for more input. */
    socket_schedule(a, c);
    wake_self(a);
    return bytes;
}

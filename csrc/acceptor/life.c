/* Connections are made, end and are closed. */
#include "acceptor/life.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acceptor/listeners.h"
#include "acceptor/lists.h"
#include "acceptor/requests.h"
#include "acceptor/silent.h"
#include "acceptor/slots.h"
#include "acceptor/timers.h"
#include "acceptor/upcalls.h"

/* Such a connection has no input and no output, so its codec is never called. */
static const struct codec local_codec = {.name = ""};

static uint32_t number_for(struct acceptor *a, uint32_t index) {
    const uint32_t generations = 1u << (32 - INDEX_BITS);
    uint32_t generation = (a->generations[index] + 1u) % generations;
    if (generation == 0) generation = 1;
    a->generations[index] = (uint16_t)generation;
    return generation << INDEX_BITS | index;
}

static uint32_t next_index(const struct acceptor *a) {
    return a->free_indexes[a->free_head] ^ a->free_head;
}

/* Makes a connection with the next free number, not yet in the table. */
static struct connection *prepare(struct acceptor *a, int fd, uint32_t protocol, const struct codec *codec) {
    if (a->free_count == 0) {
        errno = EMFILE;
        return NULL;
    }
    uint32_t number = number_for(a, next_index(a));
    return connection_new(fd, number, protocol, codec, codec->connection_bytes);
}

static void enter(struct acceptor *a, struct connection *c) {
    uint32_t index = next_index(a);
    a->free_head = (a->free_head + 1) % MAX_CONNECTIONS;
    a->free_count--;
    a->table[index] = c;
    if (index >= a->highest_index) a->highest_index = index + 1;
}

struct connection *socket_open_local(struct acceptor *a) {
    struct connection *c = prepare(a, -1, 0, &local_codec);
    if (c == NULL) return NULL;
    c->stall = STALL_PYTHON;
    enter(a, c);
    return c;
}

/* Set for each connection, because those that came before the listener had these options did not inherit them. Other
 * sockets than TCP ignore them. */
static void set_tcp_options(int fd) {
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

bool socket_gives_way(struct acceptor *a) {
    struct connection *c = silent_choose(a);
    if (c == NULL) return false;
    socket_close(a, c);
    silent_count(a);
    return true;
}

struct connection *socket_open(struct acceptor *a, int fd, uint32_t protocol) {
    if (a->connections >= a->max_connections && !socket_gives_way(a)) {
        errno = EMFILE;
        return NULL;
    }
    struct connection *c = prepare(a, fd, protocol, codec_at(a->codecs, protocol));
    if (c == NULL) return NULL;
    c->events = EPOLLIN | EPOLLRDHUP;
    struct epoll_event event = {.events = c->events, .data.u64 = c->number};
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        free(c);
        return NULL;
    }
    set_tcp_options(fd);
    enter(a, c);
    a->connections++;
    board_add(&a->count->connections, 1);
    board_add(&a->count->total_connections, 1);
    if (c->codec->opened != NULL) c->codec->opened(a, c);
    return c;
}

void socket_close_by_reset(struct connection *c) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (c->fd >= 0) (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* It is freed later, because callers may still look at it. */
static void list_closed(struct acceptor *a, struct connection *c) {
    c->listed = true;
    c->next_closed = a->closed;
    a->closed = c;
}

void socket_close(struct acceptor *a, struct connection *c) {
    if (c->closed) return;
    c->closed = true;
    slots_forget(a, c);
    for (uint64_t rest = c->touched_workers; rest != 0; rest &= rest - 1) {
        struct message gone = {.kind = MSG_GONE, .conn = c->number};
        peer_send(a, first_of(rest), &gone, NULL);
    }
    timer_clear(a, c);
    silent_leave(a, c);
    if (c->stall == STALL_PYTHON || c->known || c->filter != NULL) {
        const uint8_t *words = NULL;
        size_t bytes = c->codec->last_words != NULL ? c->codec->last_words(a, c, &words) : 0;
        upcall_push(a, UPCALL_CLOSED, c->number, c->protocol, NULL, words, bytes);
    }
    if (c->codec->closed != NULL) c->codec->closed(a, c);

    uint32_t index = connection_index(c);
    a->table[index] = NULL;
    uint32_t place = (a->free_head + a->free_count++) % MAX_CONNECTIONS;
    a->free_indexes[place] = index ^ place;
    if (c->fd >= 0) {
        close(c->fd); /* this also removes it from the epoll set */
        board_add(&a->count->connections, (uint64_t)-1);
        a->connections--;
    }
    list_closed(a, c);
    if (!a->accepting) listeners_update(a);
}

void socket_free_closed(struct acceptor *a) {
    while (a->closed != NULL) {
        struct connection *c = a->closed;
        a->closed = c->next_closed;
        c->listed = false;
        connection_release(c, &a->blocks);
        if (c->kept) continue;
        if (c->codec->freed != NULL) c->codec->freed(c);
        free(c);
    }
}

void socket_let_go(struct acceptor *a, struct connection *c) {
    c->kept = false;
    if (!c->listed) list_closed(a, c);
}

void engine_oom(struct acceptor *a, struct connection *c) {
    socket_close(a, c);
}

/* The client has closed its side: it sends no more, but what it has sent counts, and it may still listen. Its waiting
 * reserves are cancelled. */
void socket_hung_up(struct acceptor *a, struct connection *c) {
    if (c->half_closed) return;
    c->half_closed = true;
    peer_cancel_reserves(a, c);
    if (c->codec->hung_up != NULL) c->codec->hung_up(a, c);
}

void socket_ended(struct acceptor *a, struct connection *c) {
    socket_hung_up(a, c);
    c->eof = true;
    socket_schedule(a, c);
}

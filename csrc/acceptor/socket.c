/* One connection's socket: receives, parses and sends its bytes.
 *
 * epoll is level-triggered, and a connection is registered for input once, so that a request costs no epoll_ctl. Events
 * that the connection does not want now are switched off only when they are in fact reported.
 */
#define _GNU_SOURCE
#include "acceptor/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "acceptor/compression.h"
#include "acceptor/filter.h"
#include "acceptor/framing.h"
#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/room.h"
#include "acceptor/silent.h"

/* Free room in an input buffer below which it grows before more is received. */
enum { MIN_RECEIVE_BYTES = 4096 };

/* --- epoll -------------------------------------------------------------------------------------------------------- */

/* Registers the events that the connection wants, if they have changed. */
static void listen_for(struct acceptor *a, struct connection *c) {
    if (c->closed || c->detached) return;
    uint32_t events = 0;
    if (!c->deaf && !c->eof && !c->closing) events |= EPOLLIN;
    if (!c->half_closed) events |= EPOLLRDHUP;
    if (c->choked) events |= EPOLLOUT;
    if (events == c->events) return;
    struct epoll_event event = {.events = events, .data.u64 = c->number};
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, c->fd, &event) != 0) {
        socket_close(a, c);
        return;
    }
    c->events = events;
}

/* epoll always reports a hung-up socket, so it has to leave the set while it is not read. */
static void detach(struct acceptor *a, struct connection *c) {
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL) != 0) {
        socket_close(a, c);
        return;
    }
    c->detached = true;
}

/* --- input -------------------------------------------------------------------------------------------------------- */

static bool takes_input(const struct acceptor *a, const struct connection *c) {
    return c->stall == STALL_NONE && !c->closing && !socket_is_quiet(a, c);
}

/* Whether received input can be worked on. */
static bool is_behind(const struct connection *c) {
    const struct compression *k = compression_of(c);
    return k != NULL && k->more;
}

/* Whether Python may have more input of a filtered connection. Its command may be waiting for just that (a handshake).
 * */
static bool takes_pieces(const struct acceptor *a, const struct connection *c) {
    if (c->closing || socket_is_quiet(a, c) || c->filter->input || is_behind(c)) return false;
    return c->stall == STALL_NONE || (c->stall == STALL_PYTHON && buffer_bytes(&c->in) <= RECEIVE_BYTES);
}

/* Whether more may be received. */
static bool takes_bytes(const struct acceptor *a, const struct connection *c) {
    return c->filter == NULL ? takes_input(a, c) && !is_behind(c) : takes_pieces(a, c) && !c->filter->more;
}

/* Whether all output has been written and has left. */
static bool is_done(const struct connection *c) {
    return c->closing && (c->slot_count == 0 || c->muted) && connection_unsent(c) == 0;
}

/* Closes a connection that sends nothing more and has been sent everything. */
static void finish_if_done(struct acceptor *a, struct connection *c) {
    if (c->closed || !c->eof || is_behind(c) || (c->filter != NULL && (c->filter->input || c->filter->more))) return;
    /* Input fed by Python is parsed first; that comes back here. */
    if (c->runnable) return;
    if (c->filter != NULL && c->stall == STALL_PYTHON) {
        filter_ended(a, c);
        return;
    }
    if (c->stall != STALL_NONE || c->slot_count > 0) return;
    if (!c->closing && c->codec->ended != NULL) c->codec->ended(a, c);
    if (c->closed) return;
    c->closing = true;
    if (connection_unsent(c) == 0)
        socket_close(a, c);
    else
        socket_dirty(a, c); /* a closing frame may have waited for this */
}

static void keep_input(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    uint8_t *room = buffer_room(&a->blocks, &c->in, bytes);
    if (room == NULL) {
        engine_oom(a, c);
        return;
    }
    memcpy(room, data, bytes);
    c->in.end += bytes;
}

static void parse_kept(struct acceptor *a, struct connection *c) {
    if (compression_of(c) != NULL) {
        compression_go_on(a, c);
        return;
    }
    const uint8_t *front = buffer_front(&c->in);
    size_t bytes = buffer_bytes(&c->in);
    if (bytes == 0) return;
    c->parsing = true;
    size_t used = c->codec->parse(a, c, front, bytes);
    silent_used(a, c, used);
    c->parsing = false;
    if (c->in_lent) {
        /* The lent buffer stays readable until the requests of this turn leave. */
        c->in_lent = false;
        c->in = (struct buffer){0};
        if (!c->closed && used < bytes) keep_input(a, c, front + used, bytes - used);
    } else if (!c->closed) {
        buffer_consume(&a->blocks, &c->in, used);
    }
}

static void take_back(void *owner, void *at, size_t bytes) {
    struct acceptor *a = owner;
    bytes_give(&a->blocks, at, bytes);
    a->room_is_back = true;
    if (at == a->overdraft_lent) a->overdraft_lent = NULL;
}

bool socket_lend(struct acceptor *a, struct connection *c, const void *body, size_t body_bytes, struct lent *lent) {
    uintptr_t at = (uintptr_t)body - (uintptr_t)c->in.bytes;
    if (!c->parsing || c->in_lent || at >= c->in.end || body_bytes > c->in.end - at) return false;
    *lent = (struct lent){c->in.bytes, c->in.capacity, take_back, a};
    return true;
}

void socket_lent(struct acceptor *a, struct connection *c) {
    c->in_lent = true;
    if (c->number == a->overdraft) a->overdraft_lent = c->in.bytes;
}

/* Whether recv() brought input to work on; -1 with EAGAIN brought nothing. */
static bool received(struct acceptor *a, struct connection *c, ssize_t n) {
    if (n > 0) return true;
    if (n == 0) {
        socket_hung_up(a, c);
        c->eof = true;
        finish_if_done(a, c);
    } else if ((errno != EAGAIN || c->unwritable) && errno != EINTR) {
        c->unreadable = true;
        socket_close(a, c);
    }
    return false;
}

/* Receives into the scratch buffer, behind the few bytes left over from last time. True, here and below, if it got all
 * that it asked for: there is probably more. */
static bool receive_to_scratch(struct acceptor *a, struct connection *c, size_t most) {
    size_t kept = c->filter != NULL ? 0 : buffer_bytes(&c->in);
    assert(kept <= MAX_MOVED_BYTES && most <= RECEIVE_ALONE_BYTES);
    ssize_t n = recv(c->fd, a->scratch + kept, most, MSG_DONTWAIT);
    if (!received(a, c, n)) return false;
    const bool all = (size_t)n == most;
    c->moved_bytes += (uint32_t)n;
    if (c->filter != NULL) {
        filter_received(a, c, a->scratch + kept, (size_t)n);
        return all;
    }
    if (kept > 0) {
        memcpy(a->scratch, buffer_front(&c->in), kept);
        buffer_release(&a->blocks, &c->in);
    }
    if (c->framing != NULL) n = (ssize_t)framing_received(a, c, a->scratch + kept, (size_t)n);
    if (c->closed) return false;
    size_t bytes = kept + (size_t)n;
    size_t used = c->codec->parse(a, c, a->scratch, bytes);
    silent_used(a, c, used);
    if (!c->closed && used < bytes && !c->closing) keep_input(a, c, a->scratch + used, bytes - used);
    return all;
}

/* Receives behind what is there of a long command: at most what the buffer has room for, which is made `least`. */
static bool receive_more(struct acceptor *a, struct connection *c, size_t least, size_t most) {
    uint8_t *room = buffer_room(&a->blocks, &c->in, least);
    if (room == NULL) {
        engine_oom(a, c);
        return false;
    }
    if (most > c->in.capacity - c->in.end) most = c->in.capacity - c->in.end;
    ssize_t n = recv(c->fd, room, most, MSG_DONTWAIT);
    if (!received(a, c, n)) return false;
    const bool all = (size_t)n == most;
    c->moved_bytes += (uint32_t)n;
    if (c->framing != NULL) n = (ssize_t)framing_received(a, c, room, (size_t)n);
    if (c->closed) return false;
    c->in.end += (size_t)n;
    parse_kept(a, c);
    return all;
}

/* Compressed input is received into the buffer it is decompressed from. */
static bool receive_packed(struct acceptor *a, struct connection *c) {
    struct buffer *packed = &compression_of(c)->packed;
    size_t most = room_receive_bytes(a);
    uint8_t *room = buffer_room(&a->blocks, packed, most);
    if (room == NULL) {
        engine_oom(a, c);
        return false;
    }
    ssize_t n = recv(c->fd, room, most, MSG_DONTWAIT);
    if (n > 0) packed->end += (size_t)n;
    buffer_consume(&a->blocks, packed, 0); /* an empty one holds no memory */
    if (!received(a, c, n)) return false;
    c->moved_bytes += (uint32_t)n;
    compression_go_on(a, c);
    return (size_t)n == most;
}

/* For a filtered connection there must be room for what its input becomes. */
static bool has_room(struct acceptor *a, struct connection *c, size_t least) {
    const struct compression *k = compression_of(c);
    const struct buffer *in = k != NULL ? &k->packed : &c->in;
    if (c->stall != STALL_NONE || buffer_bytes(in) <= MAX_MOVED_BYTES) return true;
    return room_for_input(a, c, in, c->filter != NULL ? 2 * FILTER_CHUNK_BYTES : least);
}

/* `again`: the socket has had more than the buffer had room for. */
static bool receive_once(struct acceptor *a, struct connection *c, size_t most, bool again) {
    const size_t least = again ? most : MIN_RECEIVE_BYTES;
    if (!has_room(a, c, least)) return false;
    if (compression_of(c) != NULL && c->filter == NULL) return receive_packed(a, c);
    if (buffer_bytes(&c->in) <= MAX_MOVED_BYTES || c->filter != NULL) return receive_to_scratch(a, c, most);
    return receive_more(a, c, least, most < RECEIVE_BYTES ? RECEIVE_BYTES : most);
}

static void receive(struct acceptor *a, struct connection *c) {
    const bool alone = a->events_taken <= FEW_EVENTS && room_receive_bytes(a) == RECEIVE_BYTES && c->filter == NULL;
    const size_t most = alone ? a->receive_alone_bytes : room_receive_bytes(a);
    const size_t taken = a->blocks.taken_bytes, dirty = a->dirty.count;
    const uint32_t moved = c->moved_bytes;
    uint32_t got = 0;
    while (receive_once(a, c, most - got, got > 0) && !c->closed && takes_bytes(a, c)) {
        got = c->moved_bytes - moved;
        if (got >= most) break;
    }
    if (!alone) return;
    /* Each connection with output has taken a block, however little of it is used. */
    const size_t blocks = (a->dirty.count - dirty) * BLOCK_BYTES;
    const bool is_much = a->blocks.taken_bytes > taken + blocks + RECEIVED_OUTPUT_BYTES;
    a->receive_alone_bytes = is_much ? RECEIVE_BYTES : RECEIVE_ALONE_BYTES;
}

void socket_run(struct acceptor *a, struct connection *c) {
    c->runnable = false;
    if (takes_input(a, c)) parse_kept(a, c);
    if (!c->closed && c->filter != NULL && c->filter->more && takes_pieces(a, c)) {
        /* The client has hung up, and its compressed input may expand to very much. */
        if (c->detached)
            socket_close(a, c);
        else if (has_room(a, c, MIN_RECEIVE_BYTES))
            filter_go_on(a, c);
    }
    if (!c->closed && takes_bytes(a, c) && c->detached && !c->eof) {
        receive(a, c);
        if (!c->closed && takes_bytes(a, c) && !c->eof) socket_schedule(a, c);
    }
    finish_if_done(a, c);
    if (c->closed || !takes_bytes(a, c)) return;
    c->deaf = false;
    listen_for(a, c);
}

static struct output *leaving_of(struct connection *c) {
    if (c->filter != NULL) return &c->filter->wire;
    return c->framing == NULL ? &c->out : &c->framing->wire;
}

static void drop_output(struct acceptor *a, struct connection *c) {
    struct output *leaving = leaving_of(c);
    output_consume(&a->blocks, leaving, output_bytes(leaving));
    c->choked = false;
}

/* Whether some of what has come is not carried out yet. */
static bool is_worked_on(const struct connection *c) {
    if (c->closing) return false;
    if (c->filter != NULL && (c->filter->input || c->filter->more)) return true;
    return c->runnable || c->stall != STALL_NONE || buffer_bytes(&c->in) > 0;
}

/* The client has gone. What it had sent before is carried out all the same, and the connection closed where its input
 * ends. */
static void outlive(struct acceptor *a, struct connection *c) {
    c->unwritable = true;
    drop_output(a, c);
    socket_hung_up(a, c);
    if (!c->closed && !c->detached) detach(a, c);
    if (c->closed) return;
    socket_dirty(a, c); /* it may have waited for its output to leave */
    socket_schedule(a, c);
}

void socket_event(struct acceptor *a, struct connection *c, uint32_t events) {
    if ((events & EPOLLOUT) != 0) {
        c->choked = false;
        socket_flush(a, c);
        if (c->closed) return;
    }
    bool dead = (events & (EPOLLERR | EPOLLHUP)) != 0;
    if (dead || (events & EPOLLRDHUP) != 0) socket_hung_up(a, c);
    if (c->closed) return;
    if (dead && (c->eof || c->closing)) {
        /* Nobody is left to take the output. */
        if (is_worked_on(c))
            outlive(a, c);
        else
            socket_close(a, c);
        return;
    }
    if ((events & EPOLLIN) != 0 || dead) {
        if (takes_bytes(a, c))
            receive(a, c);
        else if (dead)
            detach(a, c);
        else
            c->deaf = true;
    }
    listen_for(a, c);
}

/* --- output ------------------------------------------------------------------------------------------------------- */

/* The other side may still send when it hears the end, and what it sends counts. */
static void part_if_all_has_left(struct acceptor *a, struct connection *c) {
    if (!c->parting || c->parted || c->closed || connection_unsent(c) > 0) return;
    c->parted = true;
    if (shutdown(c->fd, SHUT_WR) != 0) socket_close(a, c);
}

/* The socket refuses output. What has not been received yet counts, too, unless it has to be decrypted. */
static void refused(struct acceptor *a, struct connection *c) {
    const bool is_gone = errno == EPIPE || errno == ECONNRESET;
    const bool may_come = !c->eof && !c->closing && c->filter == NULL;
    if (is_gone && (may_come || (c->eof && is_worked_on(c)))) {
        outlive(a, c);
        return;
    }
    c->unwritable = true;
    socket_close(a, c);
}

/* Output was sent. EPOLLOUT is asked for when the socket has not taken all that it was offered: otherwise it may be
 * full without being reported, and is offered more. */
static void sent(struct acceptor *a, struct connection *c, size_t offered, ssize_t n) {
    if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
        refused(a, c);
        return;
    }
    struct output *leaving = leaving_of(c);
    output_consume(&a->blocks, leaving, n > 0 ? (size_t)n : 0);
    if (n > 0) {
        a->sent_bytes += (size_t)n;
        c->moved_bytes += (uint32_t)n;
        c->left_bytes += (uint64_t)n;
    }
    c->choked = n < 0 || (size_t)n < offered;
    if (c->detached && c->choked) {
        socket_close(a, c); /* it has hung up and takes no output: epoll would not report when it does */
        return;
    }
    if (n > 0 && c->codec->sent != NULL) c->codec->sent(a, c);
    if (is_done(c))
        socket_close(a, c);
    else if (connection_unsent(c) > (c->choked ? output_bytes(leaving) : 0))
        socket_dirty(a, c);
}

static ssize_t send_front(int fd, const struct output *leaving, size_t most, size_t *offered) {
    enum { FLAGS = MSG_DONTWAIT | MSG_NOSIGNAL };
    if (leaving->first == NULL) {
        size_t bytes = buffer_bytes(&leaving->last);
        *offered = bytes < most ? bytes : most;
        return send(fd, buffer_front(&leaving->last), *offered, FLAGS);
    }
    struct iovec parts[OUTPUT_PARTS];
    size_t count = output_gather(leaving, parts, OUTPUT_PARTS, most);
    *offered = 0;
    for (size_t i = 0; i < count; i++) *offered += parts[i].iov_len;
    return sendmsg(fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = count}, FLAGS);
}

static void flush(struct acceptor *a, struct connection *c, size_t most) {
    c->dirty = false;
    if (c->framing != NULL) framing_pass(a, c);
    if (c->closed) return;
    if (c->filter != NULL) filter_pass(a, c);
    if (c->choked) return;
    if (c->unwritable || c->parted) drop_output(a, c);
    struct output *leaving = leaving_of(c);
    if (output_bytes(leaving) > 0) {
        size_t offered;
        ssize_t n = send_front(c->fd, leaving, most, &offered);
        sent(a, c, offered, n);
    } else if (is_done(c)) {
        socket_close(a, c);
    }
    part_if_all_has_left(a, c);
    if (c->stall == STALL_OUTPUT && connection_unsent(c) + c->kept_bytes <= room_unsent_bytes(a, c) / 2)
        socket_wake(a, c);
    listen_for(a, c);
}

void socket_put_off(struct acceptor *a, size_t had) {
    if (a->dirty.count - had <= SENDS_PER_TURN) return;
    for (size_t i = had; i < a->dirty.count; i++) connection_list_add(&a->late, a->dirty.items[i]);
    a->put_off += a->dirty.count - had;
    a->dirty.count = had;
}

void socket_flush(struct acceptor *a, struct connection *c) {
    flush(a, c, a->sent_bytes < SEND_BYTES_PER_TURN ? SEND_BYTES_PER_TURN : SHORT_SEND_BYTES);
}

void socket_flush_well(struct acceptor *a, struct connection *c) {
    if (!c->choked) flush(a, c, SEND_BYTES_PER_TURN);
}

/* A turn: receive replies, send bytes, wait, receive bytes, send requests. It also decides how to wait: when workers
 * owe replies, looking at the rings for a little while is faster than being woken; how long is learnt from how often it
 * pays (adaptive spin).
 */
#define _GNU_SOURCE
#include "acceptor/turn.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "acceptor/borrowed.h"
#include "acceptor/bridge.h"
#include "acceptor/compression.h"
#include "acceptor/life.h"
#include "acceptor/listeners.h"
#include "acceptor/lists.h"
#include "acceptor/mesh.h"
#include "acceptor/room.h"
#include "acceptor/silent.h"
#include "acceptor/socket.h"
#include "acceptor/timers.h"
#include "acceptor/upcalls.h"
#include "acceptor/workers.h"

/* How often acceptor_run looks at the clock while it is busy. */
enum { TURNS_PER_CLOCK = 64 };

/* While accepting is suspended, it is tried again so often. */
#define RETRY_ACCEPT_NS 100000000u

/* --- listeners ---------------------------------------------------------------------------------------------------- */

/* Out of descriptors or memory: until a connection closes, or a while has passed. */
static void stop_accepting(struct acceptor *a, int why) {
    a->accepting = false;
    a->accept_again_ns = a->now_ns + RETRY_ACCEPT_NS;
    upcall_push(a, UPCALL_CANNOT_ACCEPT, (uint32_t)why, 0, NULL, NULL, 0);
    for (uint32_t i = 0; i < a->listener_count; i++) {
        struct listener *l = &a->listeners[i];
        if (l->registered && epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL) == 0) l->registered = false;
    }
}

/* A connection cannot be accepted for want of room (why: errno, or 0). Whether to try again at once: one that had said
 * nothing has given way. accept() may fail though nobody waits. */
static bool makes_room(struct acceptor *a, const struct listener *l, int why) {
    struct pollfd waits = {.fd = l->fd, .events = POLLIN};
    if (poll(&waits, 1, 0) <= 0) return false;
    if (socket_gives_way(a)) return true;
    stop_accepting(a, why);
    return false;
}

static void accept_some(struct acceptor *a, const struct listener *l) {
    for (int i = 0; i < ACCEPTS_PER_TURN && a->accepting; i++) {
        if (a->connections >= a->max_connections && !makes_room(a, l, 0)) return;
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        int why = errno;
        if (fd >= 0) {
            struct connection *c = socket_open(a, fd, l->protocol);
            if (c == NULL) {
                why = errno;
                close(fd);
                stop_accepting(a, why);
                continue;
            }
            c->listener = l->number & (MAX_LISTENERS - 1);
            silent_enter(a, c);
            if (l->filtered) acceptor_filter(a, c->number);
        } else if (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM) {
            if (!makes_room(a, l, why)) return;
        } else if (why != ECONNABORTED && why != EINTR) {
            /* A client that has given up meanwhile must not keep the others waiting. */
            return;
        }
    }
}

/* --- a turn ------------------------------------------------------------------------------------------------------- */

static void run_runnable(struct acceptor *a) {
    a->filter_pieces = 0;
    /* Connections that become runnable meanwhile wait for the next turn. */
    struct connection_list now = a->runnable;
    a->runnable = a->running;
    a->running = now;
    for (size_t i = 0; i < now.count; i++) {
        struct connection *c = connection_find(a, now.items[i]);
        if (c != NULL && c->runnable) socket_run(a, c);
    }
    a->running.count = 0;
}

/* Lets the connections that have waited longest hand Python their commands: a share of each while there is room, and
 * one command though there is none, as others may leave none for long; of large ones one in this turn. */
static void run_for_python(struct acceptor *a) {
    struct connection_list *waiting = &a->for_python;
    size_t at = 0;
    a->handed_large = false;
    a->shares = true;
    for (bool ran = false; at < waiting->count && !a->handed_large && (!ran || upcall_has_room(a));) {
        struct connection *c = connection_find(a, waiting->items[at++]);
        if (c == NULL || c->stall != STALL_TURN) continue;
        c->stall = STALL_NONE;
        a->share = upcall_has_room(a) ? COMMANDS_SHARE : 1;
        socket_run(a, c);
        ran = true;
    }
    a->shares = false;
    if (at == 0) return;
    waiting->count -= at;
    memmove(waiting->items, waiting->items + at, waiting->count * sizeof waiting->items[0]);
}

static void run_codecs(struct acceptor *a) {
    uint64_t left = a->codecs_left;
    a->codecs_left = 0;
    for (; left != 0; left &= left - 1) {
        uint32_t protocol = first_of(left);
        codec_at(a->codecs, protocol)->go_on(a, codec_state(a, protocol));
    }
}

/* Replies that the connection waits for may be among those handled next, and can leave together with its output. */
static bool is_held(const struct connection *c) {
    if (c->slot_count == 0 || c->closing || c->filter != NULL || c->framing != NULL) return false;
    size_t bytes = output_bytes(&c->out);
    return bytes > 0 && bytes <= HELD_BYTES;
}

/* Sends to connections put off by earlier turns. One that has to wait for something else is left to the next turn. */
static void flush_late(struct acceptor *a, size_t most) {
    struct connection_list *late = &a->late;
    size_t at = 0;
    while (at < late->count && most > 0) {
        struct connection *c = connection_find(a, late->items[at++]);
        if (c == NULL || !c->dirty) continue;
        if (compression_waits(a, c)) {
            connection_list_add(&a->dirty, c->number);
            continue;
        }
        socket_flush(a, c);
        most--;
    }
    late->count -= at;
    memmove(late->items, late->items + at, late->count * sizeof *late->items);
}

/* A connection met again after the others has sent in this turn already, and may go on unless much has been sent in
 * all. */
static void flush_dirty(struct acceptor *a) {
    size_t held = 0, sends = 0, others = a->dirty.count;
    for (size_t i = 0; i < a->dirty.count; i++) {
        struct connection *c = connection_find(a, a->dirty.items[i]);
        if (c == NULL || !c->dirty) continue;
        bool has_had_much = i >= others && a->sent_bytes >= SEND_BYTES_PER_TURN;
        if (has_had_much || compression_waits(a, c) || (a->held_turns > 0 && is_held(c)))
            a->dirty.items[held++] = c->number;
        else if (sends++ < SENDS_PER_TURN)
            socket_flush(a, c);
        else
            connection_list_add(&a->late, c->number);
    }
    a->dirty.count = held;
    if (a->late.count == 0) return;
    flush_late(a, sends + LATE_SENDS_PER_TURN < SENDS_PER_TURN ? SENDS_PER_TURN - sends : LATE_SENDS_PER_TURN);
}

/* While output of earlier turns is still unsent, the recipients they considered count for this turn too, less a turn's
 * share. */
static void begin_to_hand_out(struct acceptor *a) {
    if (a->handed > a->heard_to) a->others_next = true;
    a->put_off = 0;
    a->handed = a->late.count > 0 && a->handed > HANDED_WHILE_LATE ? a->handed - HANDED_WHILE_LATE : 0;
}

static void on_event(struct acceptor *a, const struct epoll_event *event) {
    uint64_t what = event->data.u64;
    if (what <= UINT32_MAX) {
        struct connection *c = connection_find(a, (uint32_t)what);
        if (c != NULL) socket_event(a, c, event->events);
    } else if (what >= EVENT_LISTENER) {
        accept_some(a, &a->listeners[what - EVENT_LISTENER]);
    } else if (what == EVENT_POKE) {
        /* Acquire: whoever takes the upcall sees everything done before acceptor_poke. */
        if (atomic_exchange_explicit(&a->poked, 0, memory_order_acquire) != 0)
            upcall_push(a, UPCALL_POKED, 0, 0, NULL, NULL, 0);
    } else if (what == EVENT_CONTROL && !a->control_pending) {
        a->control_pending = true;
        upcall_push(a, UPCALL_CONTROL, 0, 0, NULL, NULL, 0);
    }
    /* EVENT_WAKE needs no action: it is edge-triggered, so the eventfd is never read. The same holds for EVENT_POKE. */
}

bool turn_may_sleep(struct acceptor *a) {
    for (uint32_t w = 0; w < a->workers; w++) {
        if (a->links[w].channel == NULL || channel_may_sleep(a->links[w].channel)) continue;
        while (w-- > 0)
            if (a->links[w].channel != NULL) channel_awake(a->links[w].channel);
        return false;
    }
    if (mesh_may_sleep(a)) return true;
    for (uint32_t w = 0; w < a->workers; w++)
        if (a->links[w].channel != NULL) channel_awake(a->links[w].channel);
    return false;
}

void turn_awake(struct acceptor *a) {
    for (uint32_t w = 0; w < a->workers; w++)
        if (a->links[w].channel != NULL) channel_awake(a->links[w].channel);
    mesh_awake(a);
}

static int wait_for_events(struct acceptor *a, struct epoll_event *events, int timeout_ms) {
    bool sleeping = timeout_ms != 0 && turn_may_sleep(a);
    if (timeout_ms != 0) a->reserved = false;
    int n = epoll_wait(a->epoll_fd, events, EVENTS_PER_TURN, sleeping ? timeout_ms : 0);
    if (sleeping) turn_awake(a);
    return n > 0 ? n : 0;
}

/* Heartbeats are seconds apart: a clock that ticks every few milliseconds is good enough, and costs next to nothing. */
static void read_clock(struct acceptor *a) {
    if (!a->live) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    a->now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    a->wall_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A turn is over, or the part of it before it waits. */
static void turn_over(struct acceptor *a) {
    if (!a->live) return;
    uint64_t took_ns = a->turn_ns != 0 ? a->now_ns - a->turn_ns : 0;
    if (took_ns != 0) board_add(&a->count->loop.busy_ns, took_ns);
    if (took_ns > LONG_TURN_NS) board_add(&a->count->loop.long_turns, 1);
    a->turn_ns = a->now_ns;
}

static void publish_all(struct acceptor *a) {
    if ((a->published_to | a->unhurried_to) != 0) peers_publish(a);
    if (a->mesh_published_to != 0) mesh_publish(a);
}

/* Adapts how much is received at a time to how long it took what was received to be worked off. Called before waiting
 * for events. */
static void pace_receiving(struct acceptor *a) {
    if (a->paced_ns == 0) return;
    const uint64_t took = clock_ns() - a->paced_ns;
    a->paced_ns = 0;
    size_t bytes = a->receive_bytes;
    if (took > LONG_RECEIVING_NS)
        bytes /= 2;
    else if (took < LONG_RECEIVING_NS / 2)
        bytes += LEAST_RECEIVE_BYTES;
    if (bytes < LEAST_RECEIVE_BYTES) bytes = LEAST_RECEIVE_BYTES;
    a->receive_bytes = bytes < RECEIVE_BYTES ? bytes : RECEIVE_BYTES; /* the scratch buffer has no room for more */
}

/* Whether timers that are due may run. If the process has stood still, or slept, they wait until what its clients have
 * sent meanwhile is received: it is still in their sockets, and may be what they are waited for. epoll reports all
 * connections in turn. */
static bool timers_may_run(struct acceptor *a) {
    uint64_t due;
    if (!timers_next(a, &due) || due > a->now_ns) {
        a->looks_due = 0;
        return true;
    }
    if (a->looks_due > 0) return --a->looks_due == 0;
    if (a->now_ns - a->looked_ns < STALL_NS) return true;
    a->looks_due = a->connections / EVENTS_PER_TURN + 1;
    return false;
}

static void looked(struct acceptor *a, uint64_t asked_ns, int events) {
    a->looked_ns = asked_ns;
    if (events < EVENTS_PER_TURN && a->looks_due > 1) a->looks_due = 1;
}

static void trim_channels(struct acceptor *a) {
    if (a->now_ns < a->trim_channels_ns) return;
    a->trim_channels_ns = a->now_ns + TRIM_CHANNELS_NS;
    a->blocks.freed_bytes += peers_trim(a) + mesh_trim(a);
}

bool turn(struct acceptor *a, int timeout_ms) {
    read_clock(a);
    turn_over(a);
    a->sent_bytes = a->opened_bytes = a->made_bytes = 0;
    begin_to_hand_out(a);
    bool heard = peers_hear(a);
    a->held_turns = a->unheard && a->held_turns < HELD_TURNS ? a->held_turns + 1 : 0;
    heard |= mesh_hear(a);
    peers_look(a);
    mesh_look(a);
    bridge_run(a);
    if (a->runnable.count > 0) run_runnable(a);
    if (a->for_python.count > 0 || a->handed_large) run_for_python(a);
    if (a->codecs_left != 0) run_codecs(a);
    if (timers_may_run(a)) timers_run(a);
    if (!a->accepting && a->now_ns >= a->accept_again_ns) listeners_update(a);
    trim_channels(a);
    room_look(a);
    /* The workers first: they can work while this process is in the system calls that follow. */
    publish_all(a);
    flush_dirty(a);
    borrowed_give_back(a);
    publish_all(a); /* a connection that could not be sent to, or is done, has gone */
    bool is_left = a->runnable.count > 0 || a->for_python.count > 0 || a->codecs_left != 0 || bridge_is_due(a) ||
                   a->held_turns > 0;
    is_left |= !is_all_sent(a); /* what is sent in the next turn */
    is_left |= a->room_is_back && room_is_wanted(a);
    if (a->upcall_count > 0 || is_left) timeout_ms = 0;

    if (timeout_ms != 0) {
        read_clock(a);
        turn_over(a);
    }
    pace_receiving(a);
    struct epoll_event events[EVENTS_PER_TURN];
    const uint64_t asked_ns = a->now_ns;
    int n = wait_for_events(a, events, timeout_ms);
    a->events_taken = n;
    if (timeout_ms != 0) {
        read_clock(a);
        a->turn_ns = a->now_ns;
    }
    looked(a, asked_ns, n);
    if (a->live && (n > FEW_EVENTS || a->receive_bytes < RECEIVE_BYTES)) a->paced_ns = clock_ns();
    for (int i = 0; i < n; i++) {
        on_event(a, &events[i]);
        if (i % RECEIVES_PER_WAKE == RECEIVES_PER_WAKE - 1) publish_all(a);
    }
    publish_all(a);
    socket_free_closed(a);
    return heard || n > 0;
}

void acceptor_set_now(struct acceptor *a, uint64_t now_ns) {
    a->now_ns = now_ns;
}

int acceptor_turn(struct acceptor *a) {
    a->live = false;
    do turn(a, 0);
    while (a->looks_due > 0); /* what is due at the time that was passed in is done when this returns */
    if (a->sent_bytes < SEND_BYTES_PER_TURN) flush_dirty(a);
    publish_all(a);
    socket_free_closed(a);
    return (int)a->upcall_count;
}

void acceptor_pause(struct acceptor *a) {
    /* What waits for Python must not grow without a limit. */
    if (a->upcalls_bytes < UPCALLS_BYTES) turn(a, 0);
}

/* --- when to come back -------------------------------------------------------------------------------------------- */

/* Spins on the rings. True as soon as a reply was handled; false when waiting longer does not pay. */
static bool look_for_replies(struct acceptor *a) {
    uint64_t begin = clock_ns(), limit = adaptive_spin_ns(&a->adaptive_spin), now = begin;
    uint32_t looks = 0;
    while (now - begin < limit) {
        looks++;
        sched_yield();
        now = clock_ns();
        if (!peers_hear(a)) continue;
        adaptive_spin_paid(&a->adaptive_spin, now - begin);
        return true;
    }
    adaptive_spin_in_vain(&a->adaptive_spin, looks);
    return false;
}

enum { RETRY_ACCEPT_MS = RETRY_ACCEPT_NS / 1000000, SWEEP_MS = SWEEP_NS / 1000000, COARSE_CLOCK_NS = 4000000 };

static int timeout_until(const struct acceptor *a, bool forever, uint64_t deadline) {
    int most = a->accepting || a->listener_count == 0 ? INT_MAX : RETRY_ACCEPT_MS;
    if (room_is_wanted(a) && most > SWEEP_MS) most = SWEEP_MS;
    uint64_t until = forever ? UINT64_MAX : deadline, due;
    /* Wakes a little after the timer is due, so that the coarse clock has reached it. */
    if (timers_next(a, &due) && due + COARSE_CLOCK_NS < until) until = due + COARSE_CLOCK_NS;
    if (a->shown_to != 0 && a->wake_ns + COARSE_CLOCK_NS < until) until = a->wake_ns + COARSE_CLOCK_NS;
    if (until == UINT64_MAX) return most == INT_MAX ? -1 : most;
    uint64_t now = clock_ns();
    if (now >= until) return 0;
    uint64_t ms = (until - now + 999999) / 1000000;
    return ms < (uint64_t)most ? (int)ms : most;
}

int acceptor_run(struct acceptor *a, int64_t max_wait_ns) {
    a->live = true;
    a->polled = false;
    if (a->upcall_count > 0 && a->upcalls_bytes < UPCALLS_BYTES) turn(a, 0);
    bool forever = max_wait_ns < 0;
    uint64_t deadline = forever ? 0 : clock_ns() + (uint64_t)max_wait_ns;
    bool in_vain = false; /* spinning brought nothing: sleep */
    for (uint32_t turns = 1; a->upcall_count == 0; turns++) {
        bool owed = (a->expected > 0 || a->reserved) && a->adaptive_spin.limit_ns > 0;
        /* With little to do, the reply comes sooner than a look at the sockets would take. */
        if (owed && !in_vain && a->events_taken <= FEW_EVENTS) {
            in_vain = !look_for_replies(a);
            owed = a->expected > 0 || a->reserved;
        }
        int timeout_ms = owed && !in_vain ? 0 : timeout_until(a, forever, deadline);
        if (turn(a, timeout_ms)) {
            in_vain = false;
            if (forever || turns % TURNS_PER_CLOCK != 0) continue;
        } else if (owed && !in_vain) {
            in_vain = !look_for_replies(a);
        }
        if (!forever && clock_ns() >= deadline) break;
    }
    return (int)a->upcall_count;
}

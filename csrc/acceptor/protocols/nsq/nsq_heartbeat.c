/* Heartbeats of NSQ connections: a frame each interval, so that clients know that we are there; and whoever sends no
 * command for two intervals, or takes no output for one, is not there any more.
 *
 * The timer of each connection that has an interval is set to the time at which something may be due. Commands that
 * come make it later than that, which is seen when the time comes: a command costs nothing here.
 */
#include "acceptor/protocols/nsq/nsq_heartbeat.h"

#include "acceptor/protocols/nsq/nsq_command.h"

static const char TEXT[] = "_heartbeat_";

static uint64_t silent_at(const struct nsq *n) {
    return n->heard_ns + 2 * n->heartbeat_ns;
}

static void schedule(struct acceptor *a, struct connection *c) {
    struct nsq *n = nsq_of(c);
    uint64_t due = n->beat_ns < silent_at(n) || c->closing ? n->beat_ns : silent_at(n);
    timer_set(a, c, due);
}

void nsq_set_heartbeat(struct acceptor *a, struct connection *c, uint64_t interval_ns) {
    struct nsq *n = nsq_of(c);
    timer_clear(a, c);
    n->heartbeat_ns = interval_ns;
    if (interval_ns == 0) return;
    n->heard_ns = a->now_ns;
    n->beat_ns = a->now_ns + interval_ns;
    n->taken = true;
    schedule(a, c);
}

/* Its input is not being read, or not yet answered, so its silence is our doing. */
static bool is_waiting_for_us(const struct connection *c) {
    return c->stall != STALL_NONE || c->slot_count > 0;
}

/* False if the connection need not be checked again. */
static bool beat(struct acceptor *a, struct connection *c) {
    struct nsq *n = nsq_of(c);
    if (is_waiting_for_us(c)) n->heard_ns = a->now_ns;
    /* It is checked until it has taken its last output, or takes nothing more. */
    bool silent = a->now_ns >= silent_at(n) && !c->closing;
    if (silent && !c->choked) nsq_cut_short(a, c);
    if (silent && c->choked) {
        socket_close(a, c);
        return false;
    }
    if (a->now_ns < n->beat_ns) return true;
    if (c->choked && !n->taken) {
        socket_close(a, c);
        return false;
    }
    n->taken = false;
    n->beat_ns += n->heartbeat_ns;
    if (n->beat_ns <= a->now_ns) n->beat_ns = a->now_ns + n->heartbeat_ns;
    /* While Python has a command, the connection may be about to be encrypted. */
    if (!c->closing && c->stall != STALL_PYTHON) nsq_say(a, c, FRAME_RESPONSE, TEXT, sizeof TEXT - 1);
    return !c->closed;
}

void nsq_due(struct acceptor *a, struct connection *c) {
    if (beat(a, c)) schedule(a, c);
}

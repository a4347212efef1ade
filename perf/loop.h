/* The turns of a load generator: its epoll set of streams, and the clock by which an open loop is paced. Knows no protocol.
 *
 * In an open loop things are due in bursts at fixed times, TICK_NS apart, whether or not the server has answered; when each was
 * due is what its latency counts from, so that a server that falls behind cannot hide it. */
#ifndef MQ_PERF_LOOP_H
#define MQ_PERF_LOOP_H

#include <stdint.h>

#include "measure.h"
#include "stream.h"

#define TICK_NS  (NS / 4000)
#define STALL_NS (20 * NS) /* a server that says nothing for so long has stopped */

struct loop {
    int epoll_fd;
    int timer_fd; /* of an open loop; in the epoll set without an address */
    uint64_t now_ns;
    uint64_t last_progress_ns;
    uint64_t pace_begin_ns;
    double due_per_tick; /* 0: a closed loop */
    uint64_t paced;      /* things sent since the pace began */
};

/* `rate`: things due a second, or 0. */
void loop_open(struct loop *l, double rate);
void loop_close(struct loop *l);

/* The load begins now. */
void loop_begin(struct loop *l);

/* Waits for what comes, sends what could not be sent, and calls `on_readable` for each stream that has something. Ends the program
 * if nothing has come for STALL_NS. */
void loop_turn(struct loop *l, void (*on_readable)(void *owner, struct stream *s), void *owner);

/* Of an open loop: how many things are due now, no more than `most`; and when the one that is `index` from now was. */
uint64_t loop_due(const struct loop *l, uint64_t most);
uint64_t loop_due_ns(const struct loop *l, uint64_t index);

/* Sends all of it on a socket that blocks. */
void loop_send_whole(int fd, const void *data, size_t bytes);

#endif

/* The turns of a load generator: its epoll set of streams, and the clock that paces an open loop. Knows no protocol.
 *
 * In an open loop things are due in bursts at fixed times, TICK_NS apart, whether or not the server has answered. A
 * latency counts from when the thing was due, so that a server that falls behind cannot hide it. */
#ifndef MQ_PERF_LOOP_H
#define MQ_PERF_LOOP_H

#include <stdint.h>

#include "measure.h"
#include "stream.h"

#define TICK_NS  (NS / 4000)
#define STALL_NS (20 * NS) /* a server that says nothing for so long is taken for stopped */

struct loop {
    int epoll_fd;
    int timer_fd; /* paces an open loop; in the epoll set its address is NULL */
    uint64_t now_ns;
    uint64_t last_progress_ns;
    uint64_t pace_begin_ns;
    double due_per_tick; /* 0: a closed loop */
    uint64_t paced;      /* things sent since the pace began */
    char *in;
    size_t in_bytes;
};

/* Takes input of a stream, and returns how many bytes it has used; the others come again. */
typedef size_t loop_take(void *owner, struct stream *s, const char *in, size_t bytes);

/* `rate`: things due a second; 0: a closed loop. `in_bytes`: room for what was left before and what recv() brings. */
void loop_open(struct loop *l, double rate, size_t in_bytes);
void loop_close(struct loop *l);

/* Begins the load. */
void loop_begin(struct loop *l);

/* Waits for input, sends output that was blocked, and calls `take` for each stream that has input. Ends the program if
 * nothing has come for STALL_NS. */
void loop_turn(struct loop *l, loop_take *take, void *owner);

/* In an open loop: how many things are due now, at most `most`; and when the one that is `index` from now was due. */
uint64_t loop_due(const struct loop *l, uint64_t most);
uint64_t loop_due_ns(const struct loop *l, uint64_t index);

/* Sends all of the data on a socket that blocks. */
void loop_send_whole(int fd, const void *data, size_t bytes);

#endif

/* Python takes some 25 ms for each MB of a command, and a command may have 5 MB. So it is given one large command a
 * turn, and all others are served between two of them, however many clients send such. */
#include "acceptor/protocols/pulsar/pulsar_large.h"

#include <string.h>

#include "acceptor/protocols/pulsar/pulsar_asks.h"

enum { LARGE_COMMAND_BYTES = 64 << 10 };

bool pulsar_may_hand_over(struct acceptor *a, struct connection *c, size_t bytes) {
    struct pulsar_options *options = codec_state(a, c->protocol);
    if (bytes <= LARGE_COMMAND_BYTES) return true;
    options->protocol = c->protocol;
    codec_left(a, c->protocol);
    if (!options->handed_large) {
        options->handed_large = true;
        return true;
    }
    connection_list_add(&options->large, c->number);
    return stalled(c, STALL_TURN);
}

void pulsar_large_go_on(struct acceptor *a, struct pulsar_options *options) {
    struct connection_list *waiting = &options->large;
    options->handed_large = false;
    while (waiting->count > 0 && !options->handed_large) {
        struct connection *c = connection_find(a, waiting->items[0]);
        waiting->count--;
        memmove(waiting->items, waiting->items + 1, waiting->count * sizeof waiting->items[0]);
        if (c == NULL || c->stall != STALL_TURN) continue;
        c->stall = STALL_NONE;
        socket_run(a, c);
    }
    if (waiting->count > 0) codec_left(a, options->protocol);
}

/* The wire protocols, one line each. The number of a protocol is its place in the list, from 1 on.
 * acceptor/protocols/table.py lists their Python halves. */
#include "acceptor/codec.h"

#define EACH_PROTOCOL(CODEC)                                                                                           \
    CODEC(beanstalk)                                                                                                   \
    CODEC(nsq)                                                                                                         \
    CODEC(nsq_http)                                                                                                    \
    CODEC(nats)                                                                                                        \
    CODEC(nats_route)                                                                                                  \
    CODEC(nats_leaf)                                                                                                   \
    CODEC(pulsar)

#define DECLARE(name) extern const struct codec name##_codec;
#define REFER(name)   &name##_codec,

EACH_PROTOCOL(DECLARE)

const struct codec *const codecs[] = {EACH_PROTOCOL(REFER)};
const uint32_t codec_count = sizeof codecs / sizeof *codecs;
_Static_assert(sizeof codecs / sizeof *codecs <= BOARD_PROTOCOLS, "each has its counters on the board");

/* The wire protocols, one line each. The number of a protocol is its place in the list, from 1 on.
 * acceptor/protocols/table.py has their Python halves. */
#include "acceptor/protocols/table.h"

#include <string.h>

#include "ringbuf/board.h"

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

static const struct codec *const codecs[] = {EACH_PROTOCOL(REFER)};
_Static_assert(sizeof codecs / sizeof *codecs <= BOARD_PROTOCOLS, "each has its counters on the board");

static const struct codec_table table = {codecs, sizeof codecs / sizeof *codecs};

const struct codec_table *table_protocols(void) {
    return &table;
}

uint32_t table_protocol(const char *name) {
    return codec_number(&table, name, strlen(name));
}

const char *table_name(uint32_t protocol) {
    const struct codec *codec = codec_at(&table, protocol);
    return codec != NULL ? codec->name : NULL;
}

bool table_is_name(uint32_t protocol, const char *name, size_t name_bytes) {
    const struct codec *codec = codec_at(&table, protocol);
    return codec != NULL && codec->is_name != NULL && codec->is_name((const uint8_t *)name, name_bytes);
}

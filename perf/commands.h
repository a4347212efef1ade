/* Commands of one length that are made once, and sent from where they are, back to back. Only the times in their bodies
 * change: those of commands at multiples of `sample`. */
#ifndef MQ_PERF_COMMANDS_H
#define MQ_PERF_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stream.h"

struct commands {
    char *block;
    size_t bytes;   /* of a command */
    size_t body_at; /* in it: where the body that carries the time begins */
    bool are_timed; /* the body has room for a time */
    unsigned sample;
};

/* Makes room for `count` commands, which the caller writes. */
void commands_open(struct commands *c, size_t count, size_t bytes, size_t body_at, size_t body_bytes, unsigned sample);
void commands_close(struct commands *c);

static inline char *commands_at(const struct commands *c, size_t index) {
    return c->block + index * c->bytes;
}

void commands_stamp(const struct commands *c, size_t index, uint64_t time_ns);

/* Stamps those of `n` commands from `begin` on that carry a time. */
void commands_stamp_sample(const struct commands *c, size_t begin, uint64_t n, uint64_t time_ns);

static inline void commands_send(const struct commands *c, struct stream *s, size_t begin, uint64_t n) {
    stream_send(s, commands_at(c, begin), (size_t)n * c->bytes);
}

#endif

#include "commands.h"

#include <stdlib.h>

#include "measure.h"

#define MAX_BYTES ((size_t)1 << 30)

void commands_open(struct commands *c, size_t count, size_t bytes, size_t body_at, size_t body_bytes, unsigned sample) {
    if (bytes > MAX_BYTES / count) die("commands of more than %zu bytes", MAX_BYTES);
    *c = (struct commands){
        .block = allocate(1, count * bytes + 1), /* sprintf() may end the last with a zero byte */
        .bytes = bytes,
        .body_at = body_at,
        .are_timed = body_bytes >= STAMP_BYTES,
        .sample = sample,
    };
}

void commands_close(struct commands *c) {
    free(c->block);
}

void commands_stamp(const struct commands *c, size_t index, uint64_t time_ns) {
    if (c->are_timed) write_stamp(commands_at(c, index) + c->body_at, time_ns);
}

void commands_stamp_sample(const struct commands *c, size_t begin, uint64_t n, uint64_t time_ns) {
    size_t end = begin + (size_t)n;
    for (size_t i = (begin + c->sample - 1) / c->sample * c->sample; i < end; i += c->sample)
        commands_stamp(c, i, time_ns);
}

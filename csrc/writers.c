#include "writers.h"

#include <string.h>

static uint32_t place_of(const struct writers *writers, uint64_t writer) {
    uint32_t i = 0;
    while (i < writers->count && writers->last[i].writer != writer) i++;
    return i;
}

enum writer_turn writers_ask(const struct writers *writers, const struct once *part) {
    uint32_t i = place_of(writers, part->writer);
    if (i == writers->count || part->batch > writers->last[i].batch)
        return part->part == 0 ? WRITER_NEXT : WRITER_EARLY;
    if (part->batch < writers->last[i].batch || part->part <= writers->last[i].part) return WRITER_DONE;
    return part->part == writers->last[i].part + 1 ? WRITER_NEXT : WRITER_EARLY;
}

void writers_note(struct writers *writers, const struct once *part) {
    uint32_t i = place_of(writers, part->writer);
    if (i == writers->count && ++writers->count > SHARD_WRITERS) {
        writers->count = SHARD_WRITERS;
        i = SHARD_WRITERS - 1;
    }
    memmove(&writers->last[1], &writers->last[0], i * sizeof writers->last[0]);
    writers->last[0] = *part;
}

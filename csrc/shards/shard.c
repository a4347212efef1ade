#include "shards/shard.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/forgotten.h"
#include "shards/producers.h"

struct shard *shard_new(uint32_t number, uint32_t shards) {
    struct shard *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->number = number;
    s->log = log_new(number, shards);
    if (!s->log) {
        free(s);
        return NULL;
    }
    s->batch_producers = producers_of(SHARD_BATCH_PRODUCERS, 0);
    s->named_producers = producers_of(SHARD_NAMED_PRODUCERS, NAMED_IDLE_NS);
    return s;
}

void shard_free(struct shard *shard) {
    log_free(shard->log);
    map_free(&shard->numbers);
    map_free(&shard->keep);
    forgotten_free(&shard->forgotten);
    producers_free(&shard->batch_producers);
    producers_free(&shard->named_producers);
    map_free(&shard->subscriptions);
    free(shard->use);
    free(shard);
}

/* --- subscriptions ------------------------------------------------------------------------------------------------ */

uint32_t shard_number_for_subscription(const struct shard *s) {
    uint32_t number = s->subscriptions_known;
    do number = number < UINT32_MAX ? number + 1 : 1;
    while (shard_subscription(s, number));
    return number;
}

bool shard_know_subscription(struct shard *s, uint32_t subscription, uint32_t number) {
    if (subscription && !map_insert(&s->subscriptions, number, subscription)) return false;
    if (number > s->subscriptions_known) s->subscriptions_known = number;
    return true;
}

void shard_unknow_subscription(struct shard *s, uint32_t number) {
    if (shard_subscription(s, number)) map_remove(&s->subscriptions, number);
}

/* --- what keeps a segment alive ----------------------------------------------------------------------------------- */

struct segment_use *shard_use_of(struct shard *s, log_position position) {
    uint32_t segment = (uint32_t)(position >> 32);
    if (!s->use_count) s->first_use = log_first_segment(s->log);
    assert(segment >= s->first_use);
    uint32_t index = segment - s->first_use;
    if (index >= s->use_capacity) {
        uint32_t capacity = s->use_capacity ? s->use_capacity : 16;
        while (capacity <= index) capacity *= 2;
        struct segment_use *use = realloc(s->use, sizeof *use * capacity);
        if (!use) process_die("out of memory");
        s->use = use;
        s->use_capacity = capacity;
    }
    while (s->use_count <= index) s->use[s->use_count++] = (struct segment_use){0};
    return &s->use[index];
}

void shard_count_in(struct shard *s, log_position position) {
    struct segment_use *use = shard_use_of(s, position);
    use->jobs++;
    use->total++;
    s->jobs++;
}

void shard_count_in_many(struct shard *s, uint32_t segment, uint64_t count) {
    struct segment_use *use = shard_use_of(s, (uint64_t)segment << 32);
    use->jobs += count;
    use->total += count;
    s->jobs += count;
}

void shard_count_out(struct shard *s, log_position position) {
    struct segment_use *use = shard_use_of(s, position);
    if (s->damaged && (!use->jobs || !s->jobs)) return; /* what was counted in is lost; mend_counts counts anew */
    assert(use->jobs > 0);
    use->jobs--;
    s->jobs--;
}

void shard_count_back(struct shard *s, log_position position) {
    shard_use_of(s, position)->jobs++;
    s->jobs++;
}

void shard_doubt(struct shard *s, uint32_t segment) {
    if (!s->doubtful_from || segment < s->doubtful_from) s->doubtful_from = segment;
}

uint32_t shard_dead_segments(const struct shard *s, uint32_t pinned) {
    uint32_t dead = 0;
    for (uint32_t n = log_first_segment(s->log); n < s->segment && n < pinned; n++, dead++)
        if (s->use_count && n >= s->first_use && n - s->first_use < s->use_count && s->use[n - s->first_use].jobs)
            break;
    return dead;
}

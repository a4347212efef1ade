/* What Python asks of the figures that all processes of the broker keep on the board. */
#include <string.h>

#include "acceptor/acceptor_state.h"

/* The first histogram bucket for turns longer than LONG_TURN_NS. */
enum { LONG_TURN_BUCKET = 24 - HISTOGRAM_FIRST_SHIFT + 1 };
_Static_assert(LONG_TURN_NS == 1u << 24, "the end of a bucket");

/* Relaxed: each figure stands by itself, and nothing that it announces is read here. */
static uint64_t read_of(const uint64_t *count) {
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

bool acceptor_count(struct acceptor *a, uint32_t protocol, const char *counter) {
    const struct codec *codec = codec_at(a->codecs, protocol);
    for (uint32_t i = 0; codec != NULL && i < codec->counter_count; i++) {
        if (strcmp(codec->counters[i], counter) != 0) continue;
        board_add(&a->count->counters[protocol - 1][i], 1);
        return true;
    }
    return false;
}

const char *acceptor_counter(const struct acceptor *a, uint32_t protocol, uint32_t place, uint64_t *sum) {
    const struct codec *codec = codec_at(a->codecs, protocol);
    if (codec == NULL || place >= codec->counter_count) return NULL;
    *sum = 0;
    for (uint32_t i = 0; i < BOARD_MAX_ACCEPTORS; i++)
        *sum += read_of(&a->board->acceptors[i].counters[protocol - 1][place]);
    return codec->counters[place];
}

static void add_acceptor(struct broker_totals *out, const struct acceptor_board *b) {
    out->total_connections += read_of(&b->total_connections);
    out->connections += read_of(&b->connections);
    out->gave_way += read_of(&b->gave_way);
}

static void add_worker(struct broker_totals *out, const struct worker_board *b) {
    out->urgent += read_of(&b->urgent);
    out->ready += read_of(&b->ready);
    out->reserved += read_of(&b->reserved);
    out->delayed += read_of(&b->delayed);
    out->buried += read_of(&b->buried);
    out->topics += read_of(&b->topics);
    out->timeouts += read_of(&b->timeouts);
    out->total_jobs += read_of(&b->total_jobs);
    out->published += read_of(&b->published);
    out->records_written += read_of(&b->records_written);
    out->records_migrated += read_of(&b->records_migrated);
    out->unreadable += read_of(&b->unreadable);
    uint64_t oldest = read_of(&b->oldest_segment), current = read_of(&b->current_segment);
    if (oldest < out->oldest_segment) out->oldest_segment = oldest;
    if (current > out->current_segment) out->current_segment = current;
}

void acceptor_worker_totals(const struct acceptor *a, uint32_t worker, struct broker_totals *out) {
    *out = (struct broker_totals){.oldest_segment = UINT64_MAX};
    if (worker < a->workers) add_worker(out, &a->board->workers[worker]);
}

void acceptor_totals(const struct acceptor *a, struct broker_totals *out) {
    *out = (struct broker_totals){.oldest_segment = UINT64_MAX};
    for (uint32_t i = 0; i < BOARD_MAX_ACCEPTORS; i++) add_acceptor(out, &a->board->acceptors[i]);
    for (uint32_t i = 0; i < a->workers; i++) add_worker(out, &a->board->workers[i]);
    out->draining = draining(a);
}

void acceptor_durations(const struct acceptor *a, uint32_t worker, uint32_t what, uint64_t *counts, uint64_t *sum_ns) {
    memset(counts, 0, HISTOGRAM_BUCKETS * sizeof *counts);
    *sum_ns = 0;
    if (worker >= a->workers || what >= BOARD_DURATIONS) return;
    const struct time_histogram *const h = &a->board->workers[worker].durations[what];
    for (uint32_t n = 0; n < HISTOGRAM_BUCKETS; n++) counts[n] = read_of(&h->counts[n]);
    *sum_ns = read_of(&h->sum_ns);
}

void acceptor_loop(const struct acceptor *a, bool of_worker, uint32_t index, struct loop_figures *out) {
    *out = (struct loop_figures){0};
    if (index >= (of_worker ? a->workers : BOARD_MAX_ACCEPTORS)) return;
    if (of_worker) {
        const struct worker_board *b = &a->board->workers[index];
        const struct time_histogram *turns = &b->durations[DURATION_TURN];
        out->busy_ns = read_of(&turns->sum_ns);
        for (uint32_t n = LONG_TURN_BUCKET; n < HISTOGRAM_BUCKETS; n++) out->long_turns += read_of(&turns->counts[n]);
        out->stalls[WAITS_SEGMENT] = read_of(&b->stalls);
        return;
    }
    const struct loop_figures *loop = &a->board->acceptors[index].loop;
    out->busy_ns = read_of(&loop->busy_ns);
    out->long_turns = read_of(&loop->long_turns);
    for (uint32_t n = 0; n < BOARD_STALLS; n++) out->stalls[n] = read_of(&loop->stalls[n]);
}

size_t acceptor_buffered_bytes(const struct acceptor *a) {
    return a->blocks.taken_bytes;
}

void acceptor_catalog_versions(const struct acceptor *a, uint64_t *out) {
    for (uint32_t i = 0; i < a->workers; i++) out[i] = read_of(&a->board->workers[i].catalog_version);
}

void acceptor_names_versions(const struct acceptor *a, uint64_t *out) {
    acceptor_catalog_versions(a, out);
    for (uint32_t i = 0; i < a->workers; i++) out[i] += read_of(&a->board->workers[i].names_version);
}

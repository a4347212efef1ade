#include "shards/jobs_of_topic.h"

#include <stdlib.h>

#include "shards/job_parts.h"

enum { LOOKED_IN_STEP = 16 };

static void add(struct job_list *all, uint32_t number) {
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 256;
        all->items = realloc(all->items, sizeof *all->items * all->capacity);
        if (!all->items) process_die("out of memory");
    }
    all->items[all->count++] = number;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Replaces the jobs of a batch by the batch, once. */
static void put_together(struct worker *w, struct job_list *all) {
    size_t kept = 0, parts = 0;
    for (size_t i = 0; i < all->count; i++) {
        if (!job_at(w, all->items[i])->part) continue;
        all->items[i] = queue_whole_of(w, all->items[i]);
        parts++;
    }
    if (!parts) return;
    qsort(all->items, all->count, sizeof *all->items, by_number);
    for (size_t i = 0; i < all->count; i++)
        if (!kept || all->items[kept - 1] != all->items[i]) all->items[kept++] = all->items[i];
    all->count = kept;
}

struct job_list jobs_of_topic(struct worker *w, uint32_t topic) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct job_list all = {0};
    if (w->replaying) { /* on recovery they are in no queues yet */
        for (uint32_t job = 1; t->replayed_jobs && job < w->jobs.end; job++)
            if (job_at(w, job)->state && !job_at(w, job)->part && job_at(w, job)->topic == topic) add(&all, job);
        return all;
    }
    for (uint32_t i = 0; i < t->ready.heap.count; i++) add(&all, heap_item(t->ready.heap.entries[i]));
    for (uint32_t i = t->ready.head; i < t->ready.tail; i++) {
        uint32_t job = t->ready.pages[i / RUN_PAGE][i % RUN_PAGE];
        if (job) add(&all, job);
    }
    for (uint32_t i = 0; i < t->delayed.count; i++) add(&all, heap_item(t->delayed.entries[i]));
    for (uint32_t job = t->buried_first; job; job = reservation_at(w, job_at(w, job)->reservation)->next)
        add(&all, job);
    for (uint32_t client = 1; t->reserved && client < w->clients.arena.end; client++) {
        uint32_t job = client_at(&w->clients, client)->inflight_first;
        for (; job; job = reservation_at(w, job_at(w, job)->reservation)->next)
            if (job_at(w, job)->topic == topic && !job_is_gone(w, job_at(w, job))) add(&all, job);
    }
    put_together(w, &all);
    return all;
}

/* Finding reserved jobs means looking at those of all clients. */
bool jobs_are_many(const struct worker *w, const struct topic *t) {
    uint64_t looked_at = t->reserved ? (uint64_t)w->clients.arena.end + w->reservations.live : 0;
    uint64_t spare = worker_spare(w);
    return topic_jobs(t) > spare || looked_at / LOOKED_IN_STEP > spare;
}

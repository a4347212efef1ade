#include "shards/ready.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "shards/job.h"

/* Set in a job's place: it is in the run; the other bits say where. */
#define IN_RUN 0x80000000u

static struct job *at(const struct arena *jobs, uint32_t job) {
    return arena_at(jobs, job);
}

static struct heap_entry key_of(const struct arena *jobs, uint32_t job) {
    return heap_key_of_job(at(jobs, job)->pri, at(jobs, job)->id, job);
}

static struct heap_places places_of(const struct arena *jobs) {
    return (struct heap_places){jobs->base + offsetof(struct job, place), sizeof(struct job)};
}

static uint32_t *slot(const struct ready *r, uint32_t index) {
    return &r->pages[index / RUN_PAGE][index % RUN_PAGE];
}

bool ready_first(const struct ready *r, const struct arena *jobs, struct heap_entry *key) {
    const struct heap_entry *top = heap_top(&r->heap);
    if (top) *key = *top;
    if (r->run) {
        struct heap_entry front = key_of(jobs, *slot(r, r->head));
        if (!top || heap_less(front, *top)) *key = front;
    }
    return top || r->run;
}

static void free_pages(struct ready *r) {
    for (uint32_t i = 0; i < r->page_count; i++) free(r->pages[i]);
    free(r->pages);
    r->pages = NULL;
    r->page_count = r->page_capacity = r->head = r->tail = r->base = 0;
}

/* Resets an empty run. One page stays as long as there are jobs, so that a put need not allocate. */
static void rewind_run(struct ready *r) {
    if (!r->heap.count) {
        free_pages(r);
        return;
    }
    while (r->page_count > 1) free(r->pages[--r->page_count]);
    r->head = r->tail = r->base = 0;
}

/* Makes room for one more at the tail. */
static bool grow_run(struct ready *r) {
    if (r->tail < r->page_count * RUN_PAGE) return true;
    if (r->page_count == r->page_capacity) {
        uint32_t capacity = r->page_capacity ? r->page_capacity * 2 : 8;
        uint32_t **pages = realloc(r->pages, sizeof *pages * capacity);
        if (!pages) return false;
        r->pages = pages;
        r->page_capacity = capacity;
    }
    uint32_t *page = malloc(sizeof *page * RUN_PAGE);
    if (!page) return false;
    r->pages[r->page_count++] = page;
    return true;
}

static bool has_many_gaps(const struct ready *r) {
    return r->tail - r->head > 2 * r->run + RUN_PAGE;
}

/* Where jobs are deleted behind one that nobody takes, gaps would be added without end. So with more gaps than jobs two
 * places are taken from the run's end for one that is added; a job that is there goes into the heap. */
__attribute__((cold, noinline)) static void shorten_run(struct ready *r, const struct arena *jobs) {
    for (int i = 0; i < 2 && has_many_gaps(r); i++) {
        uint32_t job = *slot(r, r->tail - 1);
        if (job && !heap_push(&r->heap, places_of(jobs), key_of(jobs, job))) return;
        r->run -= job != 0;
        r->tail--;
    }
    while (r->page_count * RUN_PAGE >= r->tail + 2 * RUN_PAGE) free(r->pages[--r->page_count]);
}

static bool add_to_run(struct ready *r, const struct arena *jobs, uint32_t job, struct heap_entry key) {
    if (has_many_gaps(r)) shorten_run(r, jobs);
    if (!grow_run(r)) return false;
    *slot(r, r->tail) = job;
    at(jobs, job)->place = IN_RUN | ((r->base + r->tail) & ~IN_RUN);
    r->tail++;
    r->run++;
    r->last = key;
    return true;
}

bool ready_add(struct ready *r, const struct arena *jobs, uint32_t job) {
    struct heap_entry key = key_of(jobs, job);
    bool in_order = r->run ? heap_less(r->last, key) : r->heap.count >= RUN_WORTH;
    if (in_order) return add_to_run(r, jobs, job, key);
    return heap_push(&r->heap, places_of(jobs), key);
}

/* The list of pages is moved up when so many at its front have been used up. */
enum { LEFT_PAGES = 128 };

/* Moves the head past gaps, and frees used-up pages. */
static void advance(struct ready *r) {
    while (r->head < r->tail && !*slot(r, r->head)) r->head++;
    uint32_t left = r->head / RUN_PAGE;
    if (left < LEFT_PAGES && left < r->page_count) return;
    for (uint32_t i = 0; i < left; i++) free(r->pages[i]);
    r->page_count -= left;
    memmove(r->pages, r->pages + left, sizeof *r->pages * r->page_count);
    r->base += left * RUN_PAGE;
    r->head -= left * RUN_PAGE;
    r->tail -= left * RUN_PAGE;
}

void ready_remove(struct ready *r, const struct arena *jobs, uint32_t job) {
    uint32_t place = at(jobs, job)->place;
    if (!(place & IN_RUN)) {
        heap_remove(&r->heap, places_of(jobs), place);
        return;
    }
    uint32_t index = (place - r->base) & ~IN_RUN;
    assert(index >= r->head && index < r->tail && *slot(r, index) == job);
    at(jobs, job)->place = HEAP_NOWHERE;
    *slot(r, index) = 0;
    if (--r->run == 0)
        rewind_run(r);
    else if (index == r->head)
        advance(r);
}

uint32_t ready_exhume(struct ready *r) {
    if (r->heap.count) return heap_item(r->heap.entries[--r->heap.count]);
    uint32_t job = *slot(r, --r->tail);
    if (job) r->run--;
    while (r->page_count * RUN_PAGE >= r->tail + RUN_PAGE) free(r->pages[--r->page_count]);
    return job;
}

void ready_free(struct ready *r) {
    heap_free(&r->heap);
    free_pages(r);
    *r = (struct ready){0};
}

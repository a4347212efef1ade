/* The ready jobs of a topic, the most urgent first: by priority, then by id.
 *
 * Most jobs become ready in that very order. A job that comes after all jobs of the run is appended to it, which takes
 * four bytes of memory and no search. Other jobs, and the first few of any topic, go into a heap. The most urgent
 * job is the first of the run or of the heap. A job removed from the middle of the run leaves a gap, which is skipped
 * later.
 *
 * Knows the place, the priority and the id of a job, and nothing else.
 */
#ifndef MQ_READY_H
#define MQ_READY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/heap.h"

/* The run is kept in pages, so that a long one grows and shrinks without being moved. Pages are small, so that even a
 * topic with few jobs may have one, as removing a job from the heap costs more. */
enum { RUN_PAGE = 128, RUN_WORTH = 16 };

struct ready {
    struct heap heap;
    uint32_t **pages; /* the pages of the run, of job numbers; 0: a gap */
    uint32_t page_count, page_capacity;
    uint32_t head, tail;    /* places in the run; there is a job, no gap, at head if head < tail */
    uint32_t base;          /* the place of the first page's first job */
    uint32_t run;           /* jobs in the run */
    struct heap_entry last; /* the key of the run's last job, even if that has left */
};

static inline uint32_t ready_count(const struct ready *r) {
    return r->heap.count + r->run;
}

/* The most urgent job and its key; false if there is none. */
bool ready_first(const struct ready *r, const struct arena *jobs, struct heap_entry *key);
/* Adds a job. False, with nothing changed, when memory is short. */
bool ready_add(struct ready *r, const struct arena *jobs, uint32_t job);
void ready_remove(struct ready *r, const struct arena *jobs, uint32_t job);
/* Takes out any entry, without touching the job; 0: it was a gap. There must be one. After the first call nothing else
 * may be done with the queue. */
uint32_t ready_exhume(struct ready *r);
void ready_free(struct ready *r);

#endif

/* Which pages a stream has: runs of neighbouring pages, each a list of pointers by their numbers.
 *
 * A stream nearly always has one run. Where seqs jump, because recovery raised them behind damage, or because old
 * messages were read back long after their neighbours, another run begins, as behind a message that stays while very
 * many come and go: so no pointers are kept for pages that nobody has.
 *
 * Owns the lists, not the pages. Must never: look at what is in a page.
 */
#ifndef MQ_STREAM_RUNS_H
#define MQ_STREAM_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream_page;

struct stream_run {
    struct stream_page **pages; /* pages[begin] is first_page, and so on; NULL: an empty page */
    uint64_t first_page;
    uint32_t begin, count, capacity;
};

struct stream_runs {
    struct stream_run last;     /* with the highest pages; its count is 0 only if there is no run */
    uint32_t earlier_count;     /* of the others, */
    struct stream_run *earlier; /* in rising order */
};

#define STREAM_NO_PAGE (UINT64_MAX >> 16) /* above all numbers of pages */

struct stream_page **stream_runs_earlier(const struct stream_runs *all, uint64_t number);

/* The place of a page, or NULL: no run has that number. */
static inline struct stream_page **stream_runs_place(const struct stream_runs *all, uint64_t number) {
    uint64_t at = number - all->last.first_page;
    if (at < all->last.count) return &all->last.pages[all->last.begin + at];
    return all->earlier_count ? stream_runs_earlier(all, number) : NULL;
}

/* The same, in a run that is made or grown if need be. NULL, with nothing changed, when memory is short. */
struct stream_page **stream_runs_reach(struct stream_runs *all, uint64_t number);

/* The lowest number of a page in a run that is not below this one, and the highest one that is not above it;
 * STREAM_NO_PAGE: there is none. */
uint64_t stream_runs_from(const struct stream_runs *all, uint64_t number);
uint64_t stream_runs_until(const struct stream_runs *all, uint64_t number);

/* The page of this number is gone, and so are places before the first page of its run, and many that lie together. */
void stream_runs_emptied(struct stream_runs *all, uint64_t number);

/* Takes the first page out; NULL: it was empty. False: there is none. */
bool stream_runs_take(struct stream_runs *all, struct stream_page **page);

void stream_runs_free(struct stream_runs *all);

#endif

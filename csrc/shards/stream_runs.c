#include "shards/stream_runs.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_CAPACITY = 2,
    FAR_PAGES = 64, /* the pointers between take more than another run does */
};

/* --- a run -------------------------------------------------------------------------------------------------------- */

static uint64_t end_of(const struct stream_run *run) {
    return run->first_page + run->count;
}

/* Makes room for `before` pages in front of the first and `after` behind the last. */
static bool make_room(struct stream_run *run, uint64_t before, uint64_t after) {
    if (run->begin >= before && run->capacity - run->begin - run->count >= after) return true;
    uint64_t needed = before + run->count + after;
    if (needed > UINT32_MAX / 4) return false;
    uint64_t capacity = run->capacity ? run->capacity : FIRST_CAPACITY;
    /* At most half full, so that each pointer moves about once as pages come and go. */
    while (capacity < 2 * needed) capacity *= 2;
    uint64_t begin = before + (before ? (capacity - needed) / 2 : 0);
    struct stream_page **pages = calloc(capacity, sizeof *pages);
    if (!pages) return false;
    if (run->count) memcpy(pages + begin, run->pages + run->begin, sizeof *pages * run->count);
    free(run->pages);
    run->pages = pages;
    run->begin = (uint32_t)begin;
    run->capacity = (uint32_t)capacity;
    return true;
}

static bool begin(struct stream_run *run, uint64_t number) {
    if (!make_room(run, 0, 1)) return false;
    run->pages[run->begin] = NULL;
    run->first_page = number;
    run->count = 1;
    return true;
}

/* Extends the run to include this page. */
static struct stream_page **extend(struct stream_run *run, uint64_t number) {
    if (number < run->first_page) {
        uint64_t before = run->first_page - number;
        if (!make_room(run, before, 0)) return NULL;
        run->begin -= (uint32_t)before;
        memset(run->pages + run->begin, 0, sizeof *run->pages * before);
        run->count += (uint32_t)before;
        run->first_page = number;
    } else if (number >= end_of(run)) {
        uint64_t after = number - end_of(run) + 1;
        if (!make_room(run, 0, after)) return NULL;
        memset(run->pages + run->begin + run->count, 0, sizeof *run->pages * after);
        run->count += (uint32_t)after;
    }
    return &run->pages[run->begin + (number - run->first_page)];
}

/* --- all runs ----------------------------------------------------------------------------------------------------- */

static struct stream_run *run_at(const struct stream_runs *all, uint32_t index) {
    return index < all->earlier_count ? &all->earlier[index] : (struct stream_run *)&all->last;
}

/* How many runs begin at this page or before; the last one, if it has no page, may count. */
static uint32_t runs_upto(const struct stream_runs *all, uint64_t number) {
    if (number >= all->last.first_page) return all->earlier_count + 1;
    uint32_t low = 0, high = all->earlier_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (all->earlier[middle].first_page <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct stream_page **stream_runs_earlier(const struct stream_runs *all, uint64_t number) {
    uint32_t upto = runs_upto(all, number);
    const struct stream_run *run = upto ? run_at(all, upto - 1) : NULL;
    return run && number < end_of(run) ? &run->pages[run->begin + (number - run->first_page)] : NULL;
}

/* Makes room for another run at this place among the earlier ones. */
static bool make_place(struct stream_runs *all, uint32_t index) {
    uint32_t count = all->earlier_count;
    if ((count & (count - 1)) == 0) { /* it is full */
        struct stream_run *earlier = realloc(all->earlier, sizeof *earlier * (count ? 2 * (size_t)count : 1));
        if (!earlier) return false;
        all->earlier = earlier;
    }
    memmove(all->earlier + index + 1, all->earlier + index, sizeof *all->earlier * (count - index));
    all->earlier_count++;
    return true;
}

static struct stream_page **insert(struct stream_runs *all, uint32_t index, uint64_t number) {
    struct stream_run run = {0};
    if (!begin(&run, number)) return NULL;
    if (!make_place(all, index < all->earlier_count ? index : all->earlier_count)) {
        free(run.pages);
        return NULL;
    }
    if (number > all->last.first_page) {
        all->earlier[all->earlier_count - 1] = all->last;
        all->last = run;
    } else {
        all->earlier[index] = run;
    }
    return &run.pages[run.begin];
}

struct stream_page **stream_runs_reach(struct stream_runs *all, uint64_t number) {
    if (!all->last.count) return begin(&all->last, number) ? &all->last.pages[all->last.begin] : NULL;
    uint32_t upto = runs_upto(all, number);
    struct stream_run *before = upto ? run_at(all, upto - 1) : NULL;
    if (before && number < end_of(before) + FAR_PAGES) return extend(before, number);
    struct stream_run *behind = upto <= all->earlier_count ? run_at(all, upto) : NULL;
    if (behind && behind->first_page - number <= FAR_PAGES) return extend(behind, number);
    return insert(all, upto, number);
}

uint64_t stream_runs_from(const struct stream_runs *all, uint64_t number) {
    uint32_t upto = all->last.count ? runs_upto(all, number) : 0;
    if (upto && number < end_of(run_at(all, upto - 1))) return number;
    return all->last.count && upto <= all->earlier_count ? run_at(all, upto)->first_page : STREAM_NO_PAGE;
}

uint64_t stream_runs_until(const struct stream_runs *all, uint64_t number) {
    uint32_t upto = all->last.count ? runs_upto(all, number) : 0;
    if (!upto) return STREAM_NO_PAGE;
    uint64_t end = end_of(run_at(all, upto - 1));
    return number < end ? number : end - 1;
}

static void remove_run(struct stream_runs *all, uint32_t index) {
    struct stream_run *run = run_at(all, index);
    uint32_t count = all->earlier_count;
    if (!count) { /* its list stays for the next page */
        run->begin = 0;
        return;
    }
    free(run->pages);
    if (index < count)
        memmove(all->earlier + index, all->earlier + index + 1, sizeof *all->earlier * (count - index - 1));
    else
        all->last = all->earlier[count - 1];
    if (--all->earlier_count) return;
    free(all->earlier);
    all->earlier = NULL;
}

static void trim(struct stream_runs *all, uint32_t index) {
    struct stream_run *run = run_at(all, index);
    while (run->count && !run->pages[run->begin]) {
        run->begin++;
        run->count--;
        run->first_page++;
    }
    if (!run->count) remove_run(all, index);
}

/* Makes two runs of one where FAR_PAGES are empty around this one, so that no pointers stay for what has come and gone
 * behind a message that nobody finishes. When memory is short they stay until a later page is emptied. */
static void split(struct stream_runs *all, uint32_t index, uint32_t empty) {
    struct stream_run *run = run_at(all, index);
    struct stream_page **pages = run->pages + run->begin;
    uint32_t left = empty, right = empty + 1;
    while (left > 0 && empty - left < FAR_PAGES && !pages[left - 1]) left--;
    while (right < run->count && right - empty <= FAR_PAGES && !pages[right]) right++;
    if (right - left < FAR_PAGES || right == run->count || !pages[right]) return;
    struct stream_run before = {.first_page = run->first_page};
    if (!make_room(&before, 0, left)) return;
    if (!make_place(all, index)) {
        free(before.pages);
        return;
    }
    memcpy(before.pages, pages, sizeof *pages * left);
    before.count = left;
    run = run_at(all, index + 1);
    run->begin += right;
    run->count -= right;
    run->first_page += right;
    all->earlier[index] = before;
}

void stream_runs_emptied(struct stream_runs *all, uint64_t number) {
    uint32_t index = runs_upto(all, number) - 1;
    struct stream_run *run = run_at(all, index);
    uint32_t at = (uint32_t)(number - run->first_page);
    run->pages[run->begin + at] = NULL;
    if (at)
        split(all, index, at);
    else
        trim(all, index);
}

bool stream_runs_take(struct stream_runs *all, struct stream_page **page) {
    struct stream_run *run = run_at(all, 0);
    if (!run->count) return false;
    *page = run->pages[run->begin++];
    run->count--;
    run->first_page++;
    if (!run->count) remove_run(all, 0);
    return true;
}

void stream_runs_free(struct stream_runs *all) {
    for (uint32_t i = 0; i <= all->earlier_count; i++) free(run_at(all, i)->pages);
    free(all->earlier);
    *all = (struct stream_runs){0};
}

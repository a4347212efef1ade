#include "base/subject_tail.h"

/* The lowest end of a tail behind a place; UINT32_MAX: there is none. */
static uint32_t next_bound(const struct subject_tail *first, const struct subject_entries *entries, uint32_t place) {
    uint32_t found = UINT32_MAX;
    for (const struct subject_tail *t = first; t != NULL; t = t->next) {
        if (t->entries != entries) continue;
        if (t->begin > place && t->begin < found) found = t->begin;
        if (t->end > place && t->end < found) found = t->end;
    }
    return found;
}

static void lower(struct subject_tail *first, const struct subject_entries *entries, uint32_t bound) {
    for (struct subject_tail *t = first; t != NULL; t = t->next) {
        if (t->entries != entries) continue;
        t->begin -= t->begin == bound;
        t->end -= t->end == bound;
    }
}

/* From bound to bound, so that no entry is moved across one: the last entry in front of a bound fills the gap, and the
 * bound is lowered to where that was. */
uint32_t subject_tails_close_gap(struct subject_tail *first, struct subject_entries *entries, uint32_t gap) {
    struct subject_entry **items = subject_entries_items(entries);
    for (uint32_t bound; (bound = next_bound(first, entries, gap)) != UINT32_MAX; gap = bound - 1) {
        struct subject_entry *moved = items[bound - 1];
        items[gap] = moved;
        moved->place = gap;
        lower(first, entries, bound);
    }
    return gap;
}

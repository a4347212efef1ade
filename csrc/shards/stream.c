#include "shards/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DELAYED ((uint16_t)0x8000)

enum { FIRST_CAPACITY = 2, FIRST_ROOM = 8, ROOM_GROWS = 4 };

void stream_free(struct stream *s) {
    for (uint32_t i = 0; i < s->count; i++) free(s->pages[s->begin + i]);
    free(s->pages);
    *s = (struct stream){0};
}

bool stream_dismantle(struct stream *s, uint32_t pages, void (*held)(void *context, uint64_t position), void *context) {
    for (; s->count && pages; pages--, s->begin++, s->count--) {
        struct stream_page *page = s->pages[s->begin];
        for (uint32_t i = 0; page && page->live && i < page->room; i++) {
            uint64_t position = page->positions[i];
            if (position && !(position & STREAM_RETAINED)) held(context, position & ~STREAM_KEPT);
        }
        free(page);
    }
    if (s->count) return true;
    free(s->pages);
    *s = (struct stream){0};
    return false;
}

/* Makes room for `before` pages in front of the first and `after` behind the last. */
static bool make_room(struct stream *s, uint64_t before, uint64_t after) {
    if (s->begin >= before && s->capacity - s->begin - s->count >= after) return true;
    uint64_t needed = before + s->count + after;
    if (needed > UINT32_MAX / 4) return false;
    uint64_t capacity = s->capacity ? s->capacity : FIRST_CAPACITY;
    /* At most half full, so that each pointer moves about once as pages come and go. */
    while (capacity < 2 * needed) capacity *= 2;
    uint64_t begin = before + (before ? (capacity - needed) / 2 : 0);
    struct stream_page **pages = calloc(capacity, sizeof *pages);
    if (!pages) return false;
    if (s->count) memcpy(pages + begin, s->pages + s->begin, sizeof *pages * s->count);
    free(s->pages);
    s->pages = pages;
    s->begin = (uint32_t)begin;
    s->capacity = (uint32_t)capacity;
    return true;
}

/* Extends the list of pages to include this one. */
static bool reach(struct stream *s, uint64_t page) {
    if (!s->count) {
        if (!make_room(s, 0, 1)) return false;
        s->pages[s->begin] = NULL;
        s->first_page = page;
        s->count = 1;
        return true;
    }
    if (page < s->first_page) {
        uint64_t before = s->first_page - page;
        if (!make_room(s, before, 0)) return false;
        s->begin -= (uint32_t)before;
        memset(s->pages + s->begin, 0, sizeof *s->pages * before);
        s->count += (uint32_t)before;
        s->first_page = page;
        return true;
    }
    uint64_t after = page - s->first_page + 1;
    if (after <= s->count) return true;
    after -= s->count;
    if (!make_room(s, 0, after)) return false;
    memset(s->pages + s->begin + s->count, 0, sizeof *s->pages * after);
    s->count += (uint32_t)after;
    return true;
}

static struct stream_page *make_page(uint32_t first, uint32_t room) {
    struct stream_page *page = calloc(1, sizeof *page + room * (sizeof(uint64_t) + sizeof(uint16_t)));
    if (!page) return NULL;
    page->first = first;
    page->room = room;
    return page;
}

static struct stream_page *enlarge(const struct stream_page *old, uint32_t first, uint32_t room) {
    struct stream_page *page = make_page(first, room);
    if (!page) return NULL;
    uint32_t shift = old->first - first;
    page->live = old->live;
    page->retained = old->retained;
    page->lowest = old->lowest;
    memcpy(page->positions + shift, old->positions, old->room * sizeof *old->positions);
    memcpy((uint16_t *)(page->positions + room) + shift, old->positions + old->room, old->room * sizeof(uint16_t));
    return page;
}

/* Makes room for the seq in the page at `place`. NULL when memory is short. */
static struct stream_page *fit(const struct stream *s, struct stream_page **place, uint64_t seq) {
    struct stream_page *page = *place, *larger;
    uint32_t at = (uint32_t)(seq % STREAM_PAGE);
    if (page && at - page->first < page->room) return page;
    if (!page) {
        uint32_t first = s->end ? 0 : at, left = STREAM_PAGE - first;
        return *place = make_page(first, s->end || left < FIRST_ROOM ? left : FIRST_ROOM);
    }
    if (at < page->first) {
        larger = enlarge(page, 0, STREAM_PAGE);
    } else {
        uint32_t left = STREAM_PAGE - page->first, room = page->room;
        while (room <= at - page->first) room *= ROOM_GROWS;
        larger = enlarge(page, page->first, room < left ? room : left);
    }
    if (larger) {
        free(page);
        *place = larger;
    }
    return larger;
}

/* No message of the page has references any more. */
static void retain(struct stream *s, struct stream_page *page, uint64_t seq) {
    uint64_t *position = &page->positions[stream_index(page, seq)];
    *position &= ~STREAM_KEPT;
    if (!page->retained || *position < page->lowest) page->lowest = *position;
    *position |= STREAM_RETAINED;
    page->retained++;
    page->live--;
    s->live--;
}

bool stream_put(struct stream *s, uint64_t seq, uint64_t position, uint32_t holds, bool delayed) {
    assert(position && (holds || s->retains) && holds <= STREAM_MAX_REFERENCES);
    uint64_t number = seq / STREAM_PAGE;
    if (!reach(s, number)) return false;
    struct stream_page **place = &s->pages[s->begin + (number - s->first_page)];
    struct stream_page *page = fit(s, place, seq);
    if (!page) return false;
    uint64_t *at = &page->positions[stream_index(page, seq)];
    assert(!*at || (*at & STREAM_RETAINED));
    if (*at) page->retained--;
    *at = position;
    *stream_page_holds(page, seq) = (uint16_t)(holds | (delayed ? DELAYED : 0));
    if (seq >= s->end) s->end = seq + 1;
    page->live++;
    s->live++;
    if (!holds) retain(s, page, seq);
    return true;
}

/* The next seq that the page may have room for. */
static uint64_t next_in(const struct stream_page *page, uint64_t seq) {
    uint64_t begin = seq - seq % STREAM_PAGE;
    if (seq - begin < page->first) return begin + page->first;
    return seq + 1 - begin < page->first + page->room ? seq + 1 : begin + STREAM_PAGE;
}

uint64_t stream_next(const struct stream *s, uint64_t seq) {
    if (seq < s->first_page * STREAM_PAGE) seq = s->first_page * STREAM_PAGE;
    while (seq < s->end) {
        const struct stream_page *page = stream_page(s, seq);
        uint64_t position = stream_page_position(page, seq);
        if (position && !(position & STREAM_RETAINED)) return seq;
        seq = page && page->live ? next_in(page, seq) : (seq / STREAM_PAGE + 1) * STREAM_PAGE;
    }
    return s->end;
}

uint64_t stream_find(const struct stream *s, uint64_t position, bool *walked) {
    uint64_t low = stream_next(s, 0), high = s->end, seq = low;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, next = stream_next(s, middle);
        uint64_t there = next < high ? stream_position(s, next) : UINT64_MAX;
        if (there == position) return next;
        if (there < position)
            low = next + 1;
        else
            high = middle;
    }
    *walked |= s->live > 0;
    for (; seq < s->end; seq = stream_next(s, seq + 1))
        if (stream_position(s, seq) == position) return seq;
    return UINT64_MAX;
}

void stream_move(struct stream *s, uint64_t seq, uint64_t position) {
    struct stream_page *page = stream_page(s, seq);
    assert(stream_place(s, seq) && position);
    uint64_t *at = &page->positions[stream_index(page, seq)];
    *at = position | (*at & (STREAM_KEPT | STREAM_RETAINED));
}

void stream_hold_by(struct stream *s, uint64_t seq, uint32_t more) {
    struct stream_page *page = stream_page(s, seq);
    assert(stream_position(s, seq));
    uint16_t *holds = stream_page_holds(page, seq);
    assert((*holds & STREAM_MAX_REFERENCES) + more <= STREAM_MAX_REFERENCES);
    *holds = (uint16_t)(*holds + more);
}

void stream_hold(struct stream *s, uint64_t seq) {
    stream_hold_by(s, seq, 1);
}

void stream_keep(struct stream *s, uint64_t seq, bool kept) {
    struct stream_page *page = stream_page(s, seq);
    assert(stream_position(s, seq) && stream_kept(s, seq) != kept);
    page->positions[stream_index(page, seq)] ^= STREAM_KEPT;
}

/* Removes empty pages at the front of the list. */
static void trim(struct stream *s) {
    while (s->count && !s->pages[s->begin]) {
        s->begin++;
        s->count--;
        s->first_page++;
    }
    if (!s->count) s->begin = 0;
}

static void let_go_page(struct stream *s, struct stream_page *page, uint64_t number) {
    if (page->live || page->retained) return;
    /* The page being filled stays, or a queue that is always nearly empty would allocate one for each message. */
    if (number == (s->end - 1) / STREAM_PAGE && s->end % STREAM_PAGE) return;
    free(page);
    s->pages[s->begin + (number - s->first_page)] = NULL;
    trim(s);
}

bool stream_release(struct stream *s, uint64_t seq) {
    struct stream_page *page = stream_page(s, seq);
    assert(stream_page_position(page, seq));
    uint16_t *holds = stream_page_holds(page, seq);
    assert(*holds & STREAM_MAX_REFERENCES);
    if (--*holds & STREAM_MAX_REFERENCES) return false;
    *holds = 0;
    if (s->retains) {
        retain(s, page, seq);
        return true;
    }
    page->positions[stream_index(page, seq)] = 0;
    s->live--;
    if (!--page->live) let_go_page(s, page, seq / STREAM_PAGE);
    return true;
}

/* --- what is retained --------------------------------------------------------------------------------------------- */

uint64_t stream_next_place(const struct stream *s, uint64_t seq, uint64_t oldest) {
    if (seq < s->first_page * STREAM_PAGE) seq = s->first_page * STREAM_PAGE;
    while (seq < s->end) {
        const struct stream_page *page = stream_page(s, seq);
        if (!page) {
            seq = (seq / STREAM_PAGE + 1) * STREAM_PAGE;
            continue;
        }
        uint64_t position = stream_page_position(page, seq);
        if (position && (position & ~(STREAM_RETAINED | STREAM_KEPT)) >= oldest) return seq;
        seq = next_in(page, seq);
    }
    return s->end;
}

uint64_t stream_previous_place(const struct stream *s, uint64_t seq, uint64_t oldest) {
    if (seq > s->end) seq = s->end;
    while (seq > s->first_page * STREAM_PAGE) {
        const struct stream_page *page = stream_page(s, --seq);
        uint64_t position = stream_page_position(page, seq) & ~(STREAM_RETAINED | STREAM_KEPT);
        if (position && position >= oldest) return seq;
        if (!page) seq -= seq % STREAM_PAGE;
    }
    return UINT64_MAX;
}

bool stream_take_back(struct stream *s, uint64_t seq) {
    struct stream_page *page = stream_page(s, seq);
    assert(stream_place(s, seq));
    if (stream_position(s, seq)) {
        stream_hold(s, seq);
        return false;
    }
    page->positions[stream_index(page, seq)] &= ~STREAM_RETAINED;
    /* Marked as delayed, so that subscriptions that have it ahead are not taken to refer to it. */
    *stream_page_holds(page, seq) = 1 | DELAYED;
    page->retained--;
    page->live++;
    s->live++;
    return true;
}

uint64_t stream_count(const struct stream *s, uint64_t from, uint64_t until) {
    uint64_t count = 0;
    if (from < s->first_page * STREAM_PAGE) from = s->first_page * STREAM_PAGE;
    if (until > s->end) until = s->end;
    while (from < until) {
        const struct stream_page *page = stream_page(s, from);
        bool whole = from % STREAM_PAGE == 0 && until - from >= STREAM_PAGE;
        if (page && !whole) {
            count += stream_page_position(page, from) != 0;
            from++;
            continue;
        }
        if (page) count += page->live + page->retained;
        from = (from / STREAM_PAGE + 1) * STREAM_PAGE;
    }
    return count;
}

uint64_t stream_lowest(const struct stream *s, uint64_t from, uint64_t until) {
    uint64_t lowest = UINT64_MAX;
    if (from < s->first_page * STREAM_PAGE) from = s->first_page * STREAM_PAGE;
    if (until > s->end) until = s->end;
    for (; from < until; from = (from / STREAM_PAGE + 1) * STREAM_PAGE) {
        const struct stream_page *page = stream_page(s, from);
        if (page && page->retained && page->lowest < lowest) lowest = page->lowest;
    }
    return lowest;
}

static uint32_t forget_below(struct stream_page *page, uint64_t oldest) {
    uint32_t count = 0;
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < page->room; i++) {
        uint64_t position = page->positions[i] & ~STREAM_RETAINED;
        if (position == page->positions[i]) continue;
        if (position < oldest) {
            page->positions[i] = 0;
            count++;
        } else if (position < lowest) {
            lowest = position;
        }
    }
    page->retained -= count;
    page->lowest = lowest;
    return count;
}

bool stream_forget(struct stream *s, uint64_t oldest, uint32_t pages, uint64_t *page) {
    if (*page < s->first_page) *page = s->first_page;
    for (; *page < s->first_page + s->count; ++*page) {
        struct stream_page *at = s->pages[s->begin + (*page - s->first_page)];
        if (!at || !at->retained) continue;
        if (!pages--) return true;
        /* Later pages are younger. */
        if (at->lowest >= oldest || !forget_below(at, oldest)) return false;
        let_go_page(s, at, *page);
        if (*page < s->first_page) *page = s->first_page - 1;
    }
    return false;
}

#include "shards/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DELAYED ((uint16_t)0x8000)

enum { FIRST_ROOM = 8, ROOM_GROWS = 4 };

void stream_free(struct stream *s) {
    struct stream_page *page;
    while (stream_runs_take(&s->runs, &page)) free(page);
    stream_runs_free(&s->runs);
    *s = (struct stream){0};
}

bool stream_dismantle(struct stream *s, uint32_t pages, void (*held)(void *context, uint64_t position), void *context) {
    struct stream_page *page;
    for (; pages && stream_runs_take(&s->runs, &page); pages--) {
        for (uint32_t i = 0; page && page->live && i < page->room; i++) {
            uint64_t position = page->positions[i];
            if (position && !(position & STREAM_RETAINED)) held(context, position & ~STREAM_KEPT);
        }
        free(page);
    }
    if (s->runs.last.count) return true;
    stream_runs_free(&s->runs);
    *s = (struct stream){0};
    return false;
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
    s->retained++;
    page->live--;
    s->live--;
}

bool stream_put(struct stream *s, uint64_t seq, uint64_t position, uint32_t references, bool delayed) {
    assert(position && (references || s->retains) && references <= STREAM_MAX_REFERENCES);
    struct stream_page **place = stream_runs_place(&s->runs, seq / STREAM_PAGE);
    if (!place) place = stream_runs_reach(&s->runs, seq / STREAM_PAGE);
    struct stream_page *page = place ? fit(s, place, seq) : NULL;
    if (!page) return false;
    uint64_t *at = &page->positions[stream_index(page, seq)];
    assert(!*at || (*at & STREAM_RETAINED));
    if (*at) page->retained--, s->retained--;
    *at = position;
    *stream_page_references(page, seq) = (uint16_t)(references | (delayed ? DELAYED : 0));
    if (seq >= s->end) s->end = seq + 1;
    page->live++;
    s->live++;
    if (!references) retain(s, page, seq);
    return true;
}

/* The next seq that the page may have room for. */
static uint64_t next_in(const struct stream_page *page, uint64_t seq) {
    uint64_t begin = seq - seq % STREAM_PAGE;
    if (seq - begin < page->first) return begin + page->first;
    return seq + 1 - begin < page->first + page->room ? seq + 1 : begin + STREAM_PAGE;
}

/* The first seq from this one on whose page is in a run. */
static uint64_t from_run(const struct stream *s, uint64_t seq) {
    uint64_t number = stream_runs_from(&s->runs, seq / STREAM_PAGE);
    return number == seq / STREAM_PAGE ? seq : number * STREAM_PAGE;
}

static uint64_t behind_page(const struct stream *s, uint64_t seq) {
    return from_run(s, (seq / STREAM_PAGE + 1) * STREAM_PAGE);
}

uint64_t stream_next(const struct stream *s, uint64_t seq) {
    if (seq < s->runs.last.first_page * STREAM_PAGE) seq = from_run(s, seq);
    while (seq < s->end) {
        const struct stream_page *page = stream_page(s, seq);
        uint64_t position = stream_page_position(page, seq);
        if (position && !(position & STREAM_RETAINED)) return seq;
        seq = page && page->live ? next_in(page, seq) : behind_page(s, seq);
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
    uint16_t *references = stream_page_references(page, seq);
    assert((*references & STREAM_MAX_REFERENCES) + more <= STREAM_MAX_REFERENCES);
    *references = (uint16_t)(*references + more);
}

void stream_hold(struct stream *s, uint64_t seq) {
    stream_hold_by(s, seq, 1);
}

void stream_keep(struct stream *s, uint64_t seq, bool kept) {
    struct stream_page *page = stream_page(s, seq);
    assert(stream_position(s, seq) && stream_kept(s, seq) != kept);
    page->positions[stream_index(page, seq)] ^= STREAM_KEPT;
}

static void let_go_page(struct stream *s, struct stream_page *page, uint64_t number) {
    if (page->live || page->retained) return;
    /* The page being filled stays, or a queue that is always nearly empty would allocate one for each message. */
    if (number == (s->end - 1) / STREAM_PAGE && s->end % STREAM_PAGE) return;
    free(page);
    stream_runs_emptied(&s->runs, number);
}

bool stream_release(struct stream *s, uint64_t seq) {
    struct stream_page *page = stream_page(s, seq);
    assert(stream_page_position(page, seq));
    uint16_t *references = stream_page_references(page, seq);
    assert(*references & STREAM_MAX_REFERENCES);
    if (--*references & STREAM_MAX_REFERENCES) return false;
    *references = 0;
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
    if (seq < s->runs.last.first_page * STREAM_PAGE) seq = from_run(s, seq);
    while (seq < s->end) {
        const struct stream_page *page = stream_page(s, seq);
        if (!page) {
            seq = behind_page(s, seq);
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
    while (seq > 0) {
        uint64_t number = stream_runs_until(&s->runs, (seq - 1) / STREAM_PAGE);
        if (number == STREAM_NO_PAGE) break;
        if (number < (seq - 1) / STREAM_PAGE) seq = (number + 1) * STREAM_PAGE;
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
    *stream_page_references(page, seq) = 1 | DELAYED;
    page->retained--;
    s->retained--;
    page->live++;
    s->live++;
    return true;
}

uint64_t stream_count(const struct stream *s, uint64_t from, uint64_t until) {
    uint64_t count = 0;
    from = from_run(s, from);
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
        from = behind_page(s, from);
    }
    return count;
}

uint64_t stream_lowest(const struct stream *s, uint64_t from, uint64_t until) {
    uint64_t lowest = UINT64_MAX;
    if (until > s->end) until = s->end;
    for (from = from_run(s, from); from < until; from = behind_page(s, from)) {
        const struct stream_page *page = stream_page(s, from);
        if (page && page->retained && page->lowest < lowest) lowest = page->lowest;
    }
    return lowest;
}

static uint32_t forget_below(struct stream *s, struct stream_page *page, uint64_t oldest) {
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
    s->retained -= count;
    page->lowest = lowest;
    return count;
}

void stream_forget_one(struct stream *s, uint64_t seq) {
    struct stream_page *page = stream_page(s, seq);
    if (!(stream_page_position(page, seq) & STREAM_RETAINED)) return;
    page->positions[stream_index(page, seq)] = 0;
    s->retained--;
    if (!--page->retained) let_go_page(s, page, seq / STREAM_PAGE);
}

bool stream_forget(struct stream *s, uint64_t oldest, uint32_t pages, uint64_t *page) {
    for (; (*page = stream_runs_from(&s->runs, *page)) != STREAM_NO_PAGE; ++*page) {
        struct stream_page *at = *stream_runs_place(&s->runs, *page);
        if (!at || !at->retained) continue;
        if (!pages--) return true;
        /* Later pages are younger. */
        if (at->lowest >= oldest || !forget_below(s, at, oldest)) return false;
        let_go_page(s, at, *page);
    }
    return false;
}

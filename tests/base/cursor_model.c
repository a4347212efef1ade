/* Walks over all patterns, a piece at a time, while others come and go between pieces and tables grow: a pattern that
 * is there all the while is come by, one that is not there is not, and a piece is no larger than was asked for, but for
 * what stands at one place. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/subjects.h"
#include "draw.h"

enum { PATTERNS = 6000, STAY = 1500, WALKS = 25, PIECE = 64, AT_ONE_PLACE = 16 };

static struct subject_entry entries[PATTERNS];
static uint32_t seen[PATTERNS];
static bool there[PATTERNS];
static struct subjects *subjects;
static size_t in_piece;

/* Some have wildcards; of those some end with ">", one at the very first token. */
static size_t text_of(uint32_t n, char *out, size_t room) {
    static const char *const forms[] = {"a.%u", "*.%u", "%u.>", "%u.b.*"};
    if (n == 0) return (size_t)snprintf(out, room, ">");
    return (size_t)snprintf(out, room, forms[n % 4], n);
}

static void add(uint32_t n) {
    char text[32];
    size_t bytes = text_of(n, text, sizeof text);
    bool first;
    if (there[n]) return;
    entries[n].weight = 1;
    assert(subjects_add(subjects, &entries[n], text, bytes, NULL, 0, &first) && first);
    there[n] = true;
}

static void take_out(uint32_t n) {
    if (there[n]) assert(subjects_remove(subjects, &entries[n]));
    there[n] = false;
}

static void see(void *context, struct subject_pattern *p) {
    assert(context == &subjects && p->alone.count == 1);
    size_t n = (size_t)(p->alone.one - entries);
    assert(n < PATTERNS && there[n]);
    seen[n]++;
    in_piece++;
}

static void walk(uint32_t most) {
    struct subjects_cursor cursor = {0};
    memset(seen, 0, sizeof seen);
    for (bool done = false; !done;) {
        size_t left = 1 + draw(PIECE), asked = left;
        in_piece = 0;
        done = subjects_each_from(subjects, &cursor, &left, see, &subjects);
        assert(in_piece <= asked + AT_ONE_PLACE && (done || left == 0));
        for (uint64_t changes = draw(40); changes > 0; changes--) {
            uint32_t n = STAY + (uint32_t)draw(most - STAY);
            if (draw(3) > 0)
                add(n);
            else
                take_out(n);
        }
    }
    for (uint32_t n = 0; n < STAY; n++) assert(seen[n] > 0);
}

int main(void) {
    random_seed(1);
    for (uint32_t round = 0; round < WALKS; round++) {
        subjects = subjects_new(siphash_key(round + 1));
        for (uint32_t n = 0; n < STAY; n++) add(n);
        walk(STAY + 1 + (uint32_t)draw(PATTERNS - STAY));
        memset(seen, 0, sizeof seen);
        subjects_each(subjects, see, &subjects);
        for (uint32_t n = 0; n < PATTERNS; n++) assert(seen[n] == there[n]);
        for (uint32_t n = 0; n < PATTERNS; n++) take_out(n);
        subjects_free(subjects);
    }
    puts("ok");
    return 0;
}

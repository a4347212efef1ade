/* A stream of messages beside a plain array of what each is: they come in order, or long after their neighbours; go in
 * any order, some never; are retained and forgotten, held again and looked for. And what a message that stays for ever
 * costs while millions come and go behind it. */
#include <assert.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/draw.h"
#include "shards/stream.h"

enum { SEQS = 1 << 18, STEPS = 12000, BEHIND = 4000000, ON_THE_WAY = 3000 };

static struct {
    uint64_t position;
    uint32_t references;
    bool kept;
} plain[SEQS];

static bool is_held(uint64_t seq) {
    return plain[seq].references > 0;
}

static uint64_t next_plain(uint64_t seq, uint64_t end, bool retained, uint64_t oldest) {
    while (seq < end && !(is_held(seq) || (retained && plain[seq].position))) seq++;
    while (retained && seq < end && (!plain[seq].position || plain[seq].position < oldest)) seq++;
    return seq;
}

static void same(const struct stream *s, uint64_t seq, uint64_t oldest) {
    assert(stream_position(s, seq) == (is_held(seq) ? plain[seq].position : 0));
    assert(stream_place(s, seq) == plain[seq].position);
    uint64_t from = seq > 2000 ? seq - 2000 : 0;
    assert(stream_next(s, from) == next_plain(from, s->end, false, 0));
    assert(stream_next_place(s, from, oldest) == next_plain(from, s->end, true, oldest));
}

static void put(struct stream *s, uint64_t seq, uint64_t position) {
    uint32_t references = (uint32_t)draw(3) + !s->retains;
    assert(stream_put(s, seq, position, references, draw(4) == 0));
    plain[seq].position = position;
    plain[seq].references = references;
}

static void release(struct stream *s, uint64_t seq) {
    bool last = plain[seq].references == 1;
    assert(stream_release(s, seq) == last);
    plain[seq].references--;
    if (last && !s->retains) plain[seq].position = 0;
}

static uint64_t held_count(uint64_t end, bool retained) {
    uint64_t count = 0;
    for (uint64_t seq = 0; seq < end; seq++) count += plain[seq].position && is_held(seq) != retained;
    return count;
}

static uint64_t held_seen;
static void see(void *context, uint64_t position) {
    assert(context == plain && position);
    held_seen++;
}

/* `stays` of a thousand are left when the others go. */
static void play(bool retains, uint64_t stays, uint64_t jumps) {
    struct stream s = {.retains = retains};
    uint64_t position = 0, oldest = 0;
    memset(plain, 0, sizeof plain);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t what = draw(1000), seq = s.end ? draw(s.end) : 0, end = s.end;
        if (what < 3 && end + 100 * STREAM_PAGE < SEQS && draw(1000) < jumps) {
            put(&s, end + draw(100 * STREAM_PAGE), ++position);
        } else if (what < 500 && end + 50 < SEQS) {
            for (int i = 0; i < 50; i++) put(&s, s.end, ++position);
        } else if (what < 900 && end) { /* a stretch goes */
            for (uint64_t until = seq + draw(draw(10) ? 1500 : 60000); seq < until && seq < end; seq++)
                while (is_held(seq) && seq % 1000 >= stays) release(&s, seq);
        } else if (what < 950 && end && plain[seq].position) {
            bool first = !is_held(seq);
            assert(stream_take_back(&s, seq) == first);
            plain[seq].references++;
        } else if (what < 960 && end && !plain[seq].position) {
            put(&s, seq, ++position);
        } else if (what < 970 && retains && end) {
            oldest = position - draw(position + 1) / 8;
            uint64_t page = 0;
            while (stream_forget(&s, oldest, 3, &page)) {
            }
            for (uint64_t i = 0; i < end; i++)
                if (!is_held(i) && !stream_place(&s, i)) plain[i].position = 0;
        } else if (end) {
            same(&s, seq, oldest);
        }
    }
    assert(s.live == held_count(s.end, false) && s.retained == held_count(s.end, true));
    for (uint64_t seq = 0; seq < s.end; seq++) assert(stream_place(&s, seq) == plain[seq].position);
    held_seen = 0;
    uint64_t live = s.live;
    while (stream_dismantle(&s, 7, see, plain)) {
    }
    assert(held_seen == live && !stream_has_pages(&s));
    stream_free(&s);
}

static size_t in_use(void) {
    struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

/* A few stay, each long before the next, and the others go in the order in which they came, or nearly. */
static void stay_for_ever(void) {
    struct stream s = {0};
    size_t before = in_use();
    for (uint64_t seq = 0; seq < BEHIND; seq++) {
        assert(stream_put(&s, seq, seq + 1, 1, false));
        if (seq < ON_THE_WAY) continue;
        uint64_t gone = (seq - ON_THE_WAY) ^ 1;
        if (gone % 1000000 != 17) assert(stream_release(&s, gone));
    }
    assert(s.live == ON_THE_WAY + 4 && stream_next(&s, 18) == 1000017);
    assert(in_use() - before < 90000);
    stream_free(&s);
}

int main(int argc, char **argv) {
    stay_for_ever();
    for (long seed = 1; seed <= (argc > 1 ? atol(argv[1]) : 1); seed++) {
        random_seed((uint64_t)seed);
        play(seed % 2 == 0, (uint64_t)seed % 5, seed % 3 ? 1000 : 0);
    }
    puts("ok");
    return 0;
}

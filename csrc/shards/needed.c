#include "shards/needed.h"

#include "shards/known.h"
#include "shards/shard.h"
#include "shards/stream.h"
#include "shards/unheld.h"

/* How often one call looks at a topic, and at how many pages of it each time. */
enum { LOOKS = 256, LOOK_PAGES = 16 };

/* What is finished while this goes on, and is retained from then on, was held when it began: so it lies behind. What is
 * damaged or could not be read may be there again at the next start, if its medium is. */
static void begin(struct worker *w, struct shard *s) {
    uint32_t from = log_first_segment(s->log) + shard_dead_segments(s, shard_pinned_segment(w, s));
    if (s->doubtful_from && s->doubtful_from < from) from = s->doubtful_from;
    s->needed = (struct needed){true, s->retaining, 0, from};
}

/* Looks at some pages of the next topic. Positions only become higher, so what was seen stays true. */
static void look(struct worker *w, struct shard *s) {
    struct needed *n = &s->needed;
    const struct topic *t = topic_at(&w->topics, n->topic);
    uint64_t seq = stream_next_place(&t->stream, n->seq, retained_oldest(s));
    if (seq >= t->stream.end) {
        n->topic = t->next_retaining;
        n->seq = 0;
        return;
    }
    uint64_t until = (seq / STREAM_PAGE + LOOK_PAGES) * STREAM_PAGE;
    uint32_t lowest = (uint32_t)(stream_lowest(&t->stream, seq, until) >> 32);
    if (lowest >= n->from) {
        n->seq = until;
        return;
    }
    n->from = lowest;
}

uint32_t shard_needed_from(struct worker *w, struct shard *s, uint32_t from) {
    if (from < log_first_segment(s->log)) from = log_first_segment(s->log);
    if (!s->needed.looks) begin(w, s);
    struct needed *n = &s->needed;
    for (uint32_t i = 0; i < LOOKS && n->topic && n->from > from; i++) look(w, s);
    if (n->topic && n->from > from) return 0;
    n->looks = false;
    return n->from > from ? n->from : 0;
}

/* A stream: a topic's messages by their number in the sequence (seq), as long as some subscription holds them.
 *
 * Ten bytes a message: its position in the log and how many hold it, in pages of STREAM_PAGE. A page whose last message
 * is released goes; what lies between is a null pointer, so that one old message does not keep what came after it.
 *
 * Knows nothing of who holds a message or what a position is, but that 0 is none.
 */
#ifndef MQ_STREAM_H
#define MQ_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STREAM_PAGE = 512, STREAM_MAX_REFERENCES = 0x7fff };

struct stream_page {
    uint64_t positions[STREAM_PAGE];
    uint16_t holds[STREAM_PAGE]; /* the high bit: no cursor takes it, as it was published with a delay */
    uint32_t live;
};

struct stream {
    struct stream_page **pages; /* of first_page, first_page + 1, ... at pages[begin] and on; NULL: nothing there */
    uint32_t begin, count, capacity;
    uint64_t first_page;
    uint64_t end;  /* beyond the last that was put */
    uint64_t live; /* messages held */
};

void stream_free(struct stream *s);

/* Holds a message `holds` times. The seq must not be held. False, with nothing changed, when memory is short. */
bool stream_put(struct stream *s, uint64_t seq, uint64_t position, uint32_t holds, bool delayed);

static inline struct stream_page *stream_page(const struct stream *s, uint64_t seq) {
    uint64_t page = seq / STREAM_PAGE - s->first_page;
    return page < s->count ? s->pages[s->begin + page] : NULL;
}

/* 0: it is not held. */
static inline uint64_t stream_position(const struct stream *s, uint64_t seq) {
    const struct stream_page *page = stream_page(s, seq);
    return page ? page->positions[seq % STREAM_PAGE] : 0;
}

static inline bool stream_delayed(const struct stream *s, uint64_t seq) {
    const struct stream_page *page = stream_page(s, seq);
    return page && page->holds[seq % STREAM_PAGE] > STREAM_MAX_REFERENCES;
}

/* The first seq from this one on that is held; s->end if there is none. */
uint64_t stream_next(const struct stream *s, uint64_t seq);

/* The next two are of a message that is held. */
void stream_move(struct stream *s, uint64_t seq, uint64_t position);
void stream_hold(struct stream *s, uint64_t seq);
/* One hold less: true if it was the last. The message is forgotten then. */
bool stream_release(struct stream *s, uint64_t seq);

#endif

/* A stream: a topic's messages by their number in the sequence (seq), as long as some subscription holds them, and in
 * one that retains, until it is told to forget them.
 *
 * A message takes ten bytes: its position in the log and how many hold it, in pages of STREAM_PAGE. A page is freed
 * with its last message; a null pointer takes its place, so that one old message does not keep the later pages. Seqs
 * that nobody ever had cost nothing, however many they are (stream_runs.h). The first page that a stream ever has
 * begins small, and grows, as many topics have few messages, once.
 *
 * Does not know who holds a message, except whether its topic does. Of positions it knows only that 0 is none, that the
 * two high bits are free, and that older messages usually have lower ones.
 */
#ifndef MQ_STREAM_H
#define MQ_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shards/stream_runs.h"

enum { STREAM_PAGE = 512, STREAM_MAX_REFERENCES = 0x7fff };

/* Flags in a position: the message has no references and is only retained; one of its references is its topic's. */
#define STREAM_RETAINED ((uint64_t)1 << 63)
#define STREAM_KEPT     ((uint64_t)1 << 62)

struct stream_page {
    uint32_t live;        /* messages with references, ... */
    uint32_t retained;    /* ... and retained; ... */
    uint64_t lowest;      /* ... at positions not below this */
    uint32_t first, room; /* it has room for the page's seqs from `first` on */
    uint64_t positions[]; /* then uint16_t references[room]; the high bit: no cursor takes it, it came with a delay */
};

struct stream {
    struct stream_runs runs;
    uint64_t end;      /* one beyond the last seq put in */
    uint64_t live;     /* messages with references, */
    uint64_t retained; /* and retained */
    bool retains;
};

void stream_free(struct stream *s);

/* Adds a message with `references`, which may be 0 if the stream retains. The seq must not be held. False, with
 * nothing changed, when memory is short. */
bool stream_put(struct stream *s, uint64_t seq, uint64_t position, uint32_t references, bool delayed);

static inline struct stream_page *stream_page(const struct stream *s, uint64_t seq) {
    struct stream_page **place = stream_runs_place(&s->runs, seq / STREAM_PAGE);
    return place ? *place : NULL;
}

/* Whether it has any page: one without may be thrown away. */
static inline bool stream_has_pages(const struct stream *s) {
    return s->runs.last.count > 0;
}

/* The index of a seq in its page; below page->room: the page has room for it. */
static inline uint32_t stream_index(const struct stream_page *page, uint64_t seq) {
    return (uint32_t)(seq % STREAM_PAGE) - page->first;
}
static inline uint64_t stream_page_position(const struct stream_page *page, uint64_t seq) {
    return page && stream_index(page, seq) < page->room ? page->positions[stream_index(page, seq)] : 0;
}
/* The references of a seq that the page has room for. */
static inline uint16_t *stream_page_references(struct stream_page *page, uint64_t seq) {
    return (uint16_t *)(page->positions + page->room) + stream_index(page, seq);
}

/* The position of a message; 0: it has no references and is not retained. */
static inline uint64_t stream_place(const struct stream *s, uint64_t seq) {
    return stream_page_position(stream_page(s, seq), seq) & ~(STREAM_RETAINED | STREAM_KEPT);
}

/* The position of a message with references; else 0. */
static inline uint64_t stream_position(const struct stream *s, uint64_t seq) {
    uint64_t position = stream_page_position(stream_page(s, seq), seq);
    return position & STREAM_RETAINED ? 0 : position & ~STREAM_KEPT;
}

static inline bool stream_kept(const struct stream *s, uint64_t seq) {
    return (stream_page_position(stream_page(s, seq), seq) & STREAM_KEPT) != 0;
}

static inline bool stream_delayed(const struct stream *s, uint64_t seq) {
    struct stream_page *page = stream_page(s, seq);
    return page && stream_index(page, seq) < page->room && *stream_page_references(page, seq) > STREAM_MAX_REFERENCES;
}

/* Frees at most `pages` pages of a stream, the first ones first, and calls `held` with the position of each message
 * held in them. True if there are more. After the first call nothing else may be done with the stream. */
bool stream_dismantle(struct stream *s, uint32_t pages, void (*held)(void *context, uint64_t position), void *context);

/* The first seq from this one on that has references; s->end if there is none. */
uint64_t stream_next(const struct stream *s, uint64_t seq);

/* The seq of the held message at a position; UINT64_MAX: there is none. By bisection, as positions rise with the seqs;
 * if they do not (messages were moved), all are looked at: *walked. */
uint64_t stream_find(const struct stream *s, uint64_t position, bool *walked);

/* Changes the position of a message that has references or is retained, to a higher one. */
void stream_move(struct stream *s, uint64_t seq, uint64_t position);
/* The next four are for messages with references. */
void stream_hold(struct stream *s, uint64_t seq);
void stream_hold_by(struct stream *s, uint64_t seq, uint32_t more);
/* Marks one of its references as its topic's, or unmarks it. */
void stream_keep(struct stream *s, uint64_t seq, bool kept);
/* Drops a reference: true if it was the last. The message is then forgotten, or only retained. */
bool stream_release(struct stream *s, uint64_t seq);

/* --- what is retained --- */

/* The first seq from `seq` on that is held, or is retained at a position not below `oldest`; s->end: there is none. */
uint64_t stream_next_place(const struct stream *s, uint64_t seq, uint64_t oldest);
/* The last such seq before this one, or UINT64_MAX. */
uint64_t stream_previous_place(const struct stream *s, uint64_t seq, uint64_t oldest);
/* Adds a hold to a message that is held or retained. True if it was the first: a delivery's, as if it was delayed. */
bool stream_take_back(struct stream *s, uint64_t seq);
/* How many messages of [from, until) there are. Approximate: some below `oldest` may be counted too. */
uint64_t stream_count(const struct stream *s, uint64_t from, uint64_t until);
/* A lower bound for the positions of messages retained in [from, until); UINT64_MAX if there are none. */
uint64_t stream_lowest(const struct stream *s, uint64_t from, uint64_t until);
/* Forgets a message if it is only retained. */
void stream_forget_one(struct stream *s, uint64_t seq);
/* Forgets messages retained below `oldest`, in at most `pages` pages from *page on, which advances. True: more left. */
bool stream_forget(struct stream *s, uint64_t oldest, uint32_t pages, uint64_t *page);

#endif

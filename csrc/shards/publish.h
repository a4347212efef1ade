/* Shared by the files that publish messages: publish.c (one message), many.c (many at once), group.c (so many that they
 * take several turns).
 */
#ifndef MQ_SHARDS_PUBLISH_H
#define MQ_SHARDS_PUBLISH_H

#include "ringbuf/many.h"
#include "shards/arrival.h"
#include "shards/topic.h"
#include "shards/worker_state.h"

struct large_message;

enum outcome publish(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);
enum outcome publish_each(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

/* The place of a message's record in the log, and what it says. */
struct publish_record {
    uint64_t seq;
    log_position position;
    uint16_t flags;
};

/* The parts of the body of a PUBLISH_MANY. */
struct many {
    const uint8_t *at, *end;
    struct producer_part part;
    bool idempotent;
    uint32_t pri;
};

/* Separates headers from the body. False: the request says that there are headers, and there are none. */
bool publish_split_headers(const struct message *m, struct arrival *one);
/* Those flags of the record that depend on the topic's state. */
uint32_t publish_who_waits(const struct topic *t, const struct message *m);
static inline uint16_t publish_flags(const struct topic *t, const struct message *m, const struct arrival *one,
                                     bool more) {
    uint32_t headers = one->headers_bytes ? MESSAGE_HEADERS : 0, due = m->flags & MSG_DUE ? PUBLISH_DUE : 0;
    return (uint16_t)((more ? PUBLISH_MORE : 0) | headers | due | publish_who_waits(t, m));
}
/* Makes the topic durable, retaining or a tube, as the message requires, and checks the limits of tables for `count`
 * messages. DONE with a status other than OK: it cannot be published. MORE: a group is being written to the topic. */
enum outcome publish_make_ready(struct worker *w, uint32_t topic, const struct message *m, uint32_t count,
                                uint8_t *status);
/* The same, and reserves room in the log. `large`: a message that is written in pieces, which this does, returning MORE
 * until all of it is written; else NULL. */
enum outcome publish_prepare(struct worker *w, uint32_t topic, const struct message *m, uint32_t count, uint64_t bytes,
                             const struct large_message *large, uint8_t *status);
/* After that: writes the message to the log, and enters it into the stream and the job queue. */
void publish_enter(struct worker *w, uint32_t topic, const struct message *m, const struct arrival *one, bool more);
/* Only enters it, as its record is in the log already. */
void publish_take_in(struct worker *w, uint32_t topic, const struct message *m, const struct arrival *one,
                     const struct publish_record *record);
/* `seq`: of the message, or of the first of many. */
void publish_answer(struct worker *w, uint32_t client, uint32_t topic, const struct message *m, uint8_t status,
                    uint64_t seq);

/* The next message. All must be whole. */
static inline struct arrival next_of_many(struct many *many) {
    struct arrival one = {.content_bytes = many_size(many->at), .content = many->at + sizeof(uint32_t)};
    many->at = one.content + one.content_bytes;
    return one;
}

#endif

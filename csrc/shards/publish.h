/* What the files share that carry out what publishers ask for: publish.c (one message), many.c (many at once), group.c (so many that
 * they take turns).
 */
#ifndef MQ_PUBLISH_H
#define MQ_PUBLISH_H

#include "ringbuf/many.h"
#include "shards/requests.h"

struct arrival {
    uint64_t id;
    const uint8_t *content; /* headers, if it has any, and body */
    uint32_t content_bytes;
    uint32_t headers_bytes; /* with the struct before them; 0: none */
};

/* Where it went in the log, and what its record says. */
struct publish_record {
    uint64_t seq;
    log_position position;
    uint16_t flags;
};

/* What a PUBLISH_MANY brings, beside its message. */
struct many {
    const uint8_t *at, *end;
    struct producer_part part;
    bool once;
    uint32_t pri;
};

/* --- publish.c --- */

/* False: it says that it has headers, and has not. */
bool publish_split_headers(const struct message *m, struct arrival *one);
/* Of the flags of a record, those that the topic's state decides. */
uint32_t publish_who_waits(const struct topic *t, const struct message *m);
static inline uint16_t publish_flags(const struct topic *t, const struct message *m, const struct arrival *one,
                                     bool more) {
    uint32_t headers = one->headers_bytes ? MESSAGE_HEADERS : 0;
    return (uint16_t)((more ? PUBLISH_MORE : 0) | headers | publish_who_waits(t, m));
}
/* The topic is what the message wants it to be, and there is room for so many in the tables that have limits. DONE with another status than
 * OK: it cannot be published. MORE: others are being written to it in pieces. */
enum outcome publish_make_ready(struct worker *w, uint32_t topic, const struct message *m, uint32_t count,
                                uint8_t *status);
/* The same, and the topic has a number in the log, which has room. `large`: of a message that is written in pieces, MORE until all of it is;
 * else NULL. */
enum outcome publish_prepare(struct worker *w, uint32_t topic, const struct message *m, uint32_t count, uint64_t bytes,
                             const struct arrival *large, uint8_t *status);
/* After that: to the log, and to all who get it. */
void publish_enter(struct worker *w, uint32_t topic, const struct message *m, const struct arrival *one, bool more);
/* The latter alone. */
void publish_take_in(struct worker *w, uint32_t topic, const struct message *m, const struct arrival *one,
                     const struct publish_record *record);
/* `seq`: where it went, or the first of many. */
void publish_answer(struct worker *w, uint32_t client, uint32_t topic, const struct message *m, uint8_t status,
                    uint64_t seq);
/* The oldest of what ephemeral subscriptions are behind with goes, of each so many messages, and of all: how many of these are left. */
uint32_t publish_trim_ephemeral(struct worker *w, const struct topic *t, uint32_t each, uint32_t all);

/* --- many.c --- */

/* One behind the other, of those that are all whole. */
static inline struct arrival next_of_many(struct many *many) {
    struct arrival one = {.content_bytes = many_size(many->at), .content = many->at + sizeof(uint32_t)};
    many->at = one.content + one.content_bytes;
    return one;
}

/* --- group.c --- */

/* What takes so long to write that it is a group. */
bool group_takes(const struct worker *w, const struct message *m);
/* The topic has been made ready. MORE: it is begun, or has to wait; *begun says which. */
enum outcome group_begin(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                         bool *begun, uint8_t *status);
/* Some of it goes to the log. MORE until all of it has; DONE with another status than OK: it cannot be written. */
enum outcome group_write(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                         uint8_t *status);
/* Its topic is not any more what it was when it was begun. */
bool group_is_outdated(const struct worker *w, uint32_t topic, const struct message *m);
/* None of it counts, and what is there of it is taken away. */
void group_drop(struct worker *w, uint32_t topic);
/* All of it is written, and counts from now on. False, with the status: it does not. */
bool group_count(struct worker *w, uint32_t topic, const struct message *m, const struct many *many, uint8_t *status);
/* Some of it comes to all who get it. MORE until all of it has; *first: the seq of the first. */
enum outcome group_take_in(struct worker *w, uint32_t topic, const struct message *m, const struct many *many,
                           uint64_t *first);

#endif

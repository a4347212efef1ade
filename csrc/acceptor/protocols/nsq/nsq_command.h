/* A command of NSQ's protocol, taken apart, and the refusals of invalid ones. */
#ifndef MQ_NSQ_COMMAND_H
#define MQ_NSQ_COMMAND_H

#include "acceptor/protocols/nsq/nsq_frames.h"
#include "base/text.h"
#include "base/time_units.h"

enum { SIZE_BYTES = 4, SHORT_TEXT = 256 };

/* Which command a PUBLISH was, kept in its slot. */
enum { WAS_PUB, WAS_DPUB };

/* A command: its line, taken apart from the front, and the input behind the line. */
struct command {
    struct text name;
    const uint8_t *line, *at, *end;
    bool more; /* another parameter begins at `at` */
    const uint8_t *body;
    size_t line_bytes; /* length of the line with its end */
    size_t body_bytes; /* bytes behind the line that have come */
};

static inline bool next_param(struct command *k, struct text *param) {
    if (!k->more) return false;
    const uint8_t *space = memchr(k->at, ' ', (size_t)(k->end - k->at));
    const uint8_t *end = space != NULL ? space : k->end;
    *param = (struct text){k->at, (size_t)(end - k->at)};
    k->more = space != NULL;
    k->at = space != NULL ? space + 1 : k->end;
    return true;
}

static inline bool is(struct text text, const char *word) {
    return text.bytes == strlen(word) && memcmp(text.at, word, text.bytes) == 0;
}

/* Reads a number as nsqd does: an empty one is 0, and overflow wraps modulo 2^64. */
static inline bool get_decimal(struct text text, uint64_t *value) {
    uint64_t v = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t digit = (uint8_t)(text.at[i] - '0');
        if (digit > 9) return false;
        v = v * 10 + digit;
    }
    *value = v;
    return true;
}

/* Milliseconds as a Go duration: signed 64-bit nanoseconds, where overflow wraps. */
static inline int64_t duration_ns(uint64_t ms) {
    return (int64_t)(ms * MS_NS);
}

static inline uint32_t get_be32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

/* Cuts off a line and its first word. False if the line's end has not come. */
bool nsq_cut_line(const uint8_t *data, size_t bytes, struct command *k);
/* The client sends nothing more, perhaps in the middle of a command: says what nsqd says then, and ends the connection.
 * */
void nsq_cut_short(struct acceptor *a, struct connection *c);

bool nsq_is_name(const uint8_t *name, size_t name_bytes);
/* What a topic's name says by NSQ's rules: see struct codec. */
uint16_t nsq_says_of_topic(const uint8_t *name, size_t bytes);
/* Whether this is the topic that the connection published to last, as it mostly is. */
bool nsq_is_last_topic(const struct acceptor *a, const struct nsq *n, struct text topic);

/* In its turn. May reply. */
void nsq_reply(struct acceptor *a, struct connection *c, enum frame_type type, const void *data, size_t bytes);
/* FIN, REQ and TOUCH are answered only when they fail, and perhaps by another worker than the one that answers the next
 * command. So the next reply waits until their refusals would have come. */
bool nsq_may_settle(struct acceptor *a, struct connection *c);
bool nsq_may_reply_in_turn(struct acceptor *a, struct connection *c);

/* These return how much of the input was used; 0: nothing, and the command is parsed again later. */

/* Sends an error that ends the connection: later input is ignored and counts as used. */
size_t nsq_fatal(struct acceptor *a, struct connection *c, const struct command *k, const char *text);
__attribute__((format(printf, 4, 5))) size_t nsq_fatal_with(struct acceptor *a, struct connection *c,
                                                            const struct command *k, const char *format, ...);
/* The same with a piece of the client's input in the text, which may be long: as it is, or quoted. */
size_t nsq_fatal_about(struct acceptor *a, struct connection *c, const struct command *k, const char *before,
                       struct text what, bool quoted, const char *after);
/* Ends the connection without an error. */
size_t nsq_hang_up(struct acceptor *a, struct connection *c, size_t bytes);

#endif

#include "acceptor/protocols/nsq/nsq_command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "acceptor/protocols/go_quote.h"

/* Letters, digits and .-_ */
static const bool name_byte[256] = {
    ['A'] = 1, ['B'] = 1, ['C'] = 1, ['D'] = 1, ['E'] = 1, ['F'] = 1, ['G'] = 1, ['H'] = 1, ['I'] = 1, ['J'] = 1,
    ['K'] = 1, ['L'] = 1, ['M'] = 1, ['N'] = 1, ['O'] = 1, ['P'] = 1, ['Q'] = 1, ['R'] = 1, ['S'] = 1, ['T'] = 1,
    ['U'] = 1, ['V'] = 1, ['W'] = 1, ['X'] = 1, ['Y'] = 1, ['Z'] = 1, ['a'] = 1, ['b'] = 1, ['c'] = 1, ['d'] = 1,
    ['e'] = 1, ['f'] = 1, ['g'] = 1, ['h'] = 1, ['i'] = 1, ['j'] = 1, ['k'] = 1, ['l'] = 1, ['m'] = 1, ['n'] = 1,
    ['o'] = 1, ['p'] = 1, ['q'] = 1, ['r'] = 1, ['s'] = 1, ['t'] = 1, ['u'] = 1, ['v'] = 1, ['w'] = 1, ['x'] = 1,
    ['y'] = 1, ['z'] = 1, ['0'] = 1, ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1, ['5'] = 1, ['6'] = 1, ['7'] = 1,
    ['8'] = 1, ['9'] = 1, ['.'] = 1, ['-'] = 1, ['_'] = 1,
};

/* A topic or channel with this behind its name goes with its last consumer. */
static const char EPHEMERAL[] = "#ephemeral";
enum { EPHEMERAL_BYTES = sizeof EPHEMERAL - 1 };

static bool is_ephemeral(const uint8_t *name, size_t bytes) {
    return bytes > EPHEMERAL_BYTES && memcmp(name + bytes - EPHEMERAL_BYTES, EPHEMERAL, EPHEMERAL_BYTES) == 0;
}

uint16_t nsq_says_of_topic(const uint8_t *name, size_t bytes) {
    return is_ephemeral(name, bytes) ? MSG_TOPIC_EPHEMERAL : 0;
}

bool nsq_is_name(const uint8_t *name, size_t name_bytes) {
    if (name_bytes > NSQ_NAME_BYTES) return false;
    const size_t bytes = is_ephemeral(name, name_bytes) ? name_bytes - EPHEMERAL_BYTES : name_bytes;
    for (size_t i = 0; i < bytes; i++)
        if (!name_byte[name[i]]) return false;
    return bytes > 0;
}

bool nsq_is_last_topic(const struct acceptor *a, const struct nsq *n, struct text topic) {
    const struct binding *last = binding_at(&a->bindings, n->topic);
    if (last->name == NULL || last->hash != n->topic_hash || last->name_bytes != topic.bytes) return false;
    return memcmp(last->name, topic.at, topic.bytes) == 0;
}

void nsq_reply(struct acceptor *a, struct connection *c, enum frame_type type, const void *data, size_t bytes) {
    uint8_t *frame = malloc(FRAME_HEAD_BYTES + bytes);
    if (frame == NULL) {
        engine_oom(a, c);
        return;
    }
    memcpy(put_frame_head(frame, type, bytes), data, bytes);
    reply_text(a, c, frame, FRAME_HEAD_BYTES + bytes);
    free(frame);
}

bool nsq_may_settle(struct acceptor *a, struct connection *c) {
    struct nsq *n = nsq_of(c);
    if (!n->unsettled) return true;
    if (!may_ask(a, c, n->worker)) return false;
    n->unsettled = false;
    struct message barrier = {.kind = MSG_BARRIER};
    peer_ask(a, c, n->worker, &barrier, NULL, 0, 0);
    return !c->closed;
}

bool nsq_may_reply_in_turn(struct acceptor *a, struct connection *c) {
    return nsq_may_settle(a, c) && may_reply(c);
}

size_t nsq_fatal(struct acceptor *a, struct connection *c, const struct command *k, const char *text) {
    if (!nsq_may_reply_in_turn(a, c)) return 0;
    nsq_reply(a, c, FRAME_ERROR, text, strlen(text));
    c->closing = true;
    socket_dirty(a, c);
    return k->line_bytes + k->body_bytes;
}

size_t nsq_fatal_with(struct acceptor *a, struct connection *c, const struct command *k, const char *format, ...) {
    char text[SHORT_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return nsq_fatal(a, c, k, text);
}

size_t nsq_fatal_about(struct acceptor *a, struct connection *c, const struct command *k, const char *before,
                       struct text what, bool quoted, const char *after) {
    if (!nsq_may_reply_in_turn(a, c)) return 0;
    size_t begin = strlen(before), rest = strlen(after);
    uint8_t *text = malloc(begin + QUOTED_BYTES(what.bytes) + rest);
    if (text == NULL) {
        engine_oom(a, c);
        return 0;
    }
    memcpy(text, before, begin);
    uint8_t *end = text + begin;
    if (quoted) {
        end = go_quote(end, what.at, what.bytes);
    } else {
        memcpy(end, what.at, what.bytes);
        end += what.bytes;
    }
    memcpy(end, after, rest);
    nsq_reply(a, c, FRAME_ERROR, text, (size_t)(end - text) + rest);
    free(text);
    c->closing = true;
    return k->line_bytes + k->body_bytes;
}

size_t nsq_hang_up(struct acceptor *a, struct connection *c, size_t bytes) {
    c->closing = true;
    socket_dirty(a, c);
    return bytes;
}

bool nsq_cut_line(const uint8_t *data, size_t bytes, struct command *k) {
    const uint8_t *feed = memchr(data, '\n', bytes < NSQ_LINE_BYTES ? bytes : NSQ_LINE_BYTES);
    if (feed == NULL) return false;
    *k = (struct command){.line = data,
                          .at = data,
                          .end = feed > data && feed[-1] == '\r' ? feed - 1 : feed,
                          .more = true,
                          .body = feed + 1,
                          .line_bytes = (size_t)(feed + 1 - data)};
    k->body_bytes = bytes - k->line_bytes;
    return next_param(k, &k->name);
}

/* What nsqd answers when a body does not come. */
static const char *cut_short_text(const struct acceptor *a, const struct nsq *n, const struct command *k) {
    bool sized = k->body_bytes >= SIZE_BYTES;
    if (is(k->name, "PUB"))
        return sized ? "E_BAD_MESSAGE PUB failed to read message body"
                     : "E_BAD_MESSAGE PUB failed to read message body size";
    if (is(k->name, "DPUB"))
        return sized ? "E_BAD_MESSAGE DPUB failed to read message body"
                     : "E_BAD_MESSAGE DPUB failed to read message body size";
    if (is(k->name, "IDENTIFY"))
        return sized ? "E_BAD_BODY IDENTIFY failed to read body" : "E_BAD_BODY IDENTIFY failed to read body size";
    if (is(k->name, "AUTH"))
        return sized ? "E_BAD_BODY AUTH failed to read body" : "E_BAD_BODY AUTH failed to read body size";
    (void)a;
    if (!is(k->name, "MPUB")) return NULL;
    if (!sized) return "E_BAD_BODY MPUB failed to read body size";
    if (n->walked_bytes == 0) return "E_BAD_BODY MPUB failed to read message count";
    return "E_BAD_MESSAGE MPUB failed to read message body";
}

void nsq_cut_short(struct acceptor *a, struct connection *c) {
    struct command k;
    const struct nsq *n = nsq_of(c);
    size_t bytes = buffer_bytes(&c->in);
    c->closing = true;
    socket_dirty(a, c);
    if (n->state == NSQ_NEW || bytes == 0 || !nsq_cut_line(buffer_front(&c->in), bytes, &k)) return;
    if (is(k.name, "MPUB") && n->walked_bytes > 0 && k.body_bytes < n->walked_bytes + SIZE_BYTES) {
        char text[SHORT_TEXT];
        int length = snprintf(text, sizeof text, "E_BAD_MESSAGE MPUB failed to read message(%u) body size", n->walked);
        nsq_say(a, c, FRAME_ERROR, text, (size_t)length);
        return;
    }
    const char *text = cut_short_text(a, n, &k);
    if (text != NULL) nsq_say(a, c, FRAME_ERROR, text, strlen(text));
}

#include "acceptor/protocols/nsq/nsq_http_who.h"

#include <stdio.h>
#include <time.h>

#include "base/time_units.h"

/* As the gateway has them: to the next request, head and all; a body, and from one part of it to the next; what is left
 * of a body that nobody wants; and a client that takes nothing. */
#define IDLE_NS       (75 * SECOND_NS)
#define BODY_NS       (60 * SECOND_NS)
#define BODY_PAUSE_NS (10 * SECOND_NS)
#define LINGER_NS     SECOND_NS
#define UNSENT_NS     (30 * SECOND_NS)
/* If more than this is left of an unwanted body, its connection ends. */
#define LINGER_BYTES ((uint64_t)256 << 10)
/* At most this much input goes to the gateway along with a connection (MOST_BYTES of ringbuf/handover.py). */
#define HANDED_BYTES ((size_t)4 << 20)

enum { PRIORITY = 1024, MOST_ANSWER_BYTES = 512 };

_Static_assert(sizeof(struct connection) + sizeof(struct nsq_http) < 640, "an idle connection is small");

/* --- answers ------------------------------------------------------------------------------------------------------ */

enum answer {
    ANSWER_OK,
    ANSWER_MSG_TOO_BIG,
    ANSWER_BODY_TOO_BIG,
    ANSWER_BAD_BODY,
    ANSWER_BAD_MESSAGE,
    ANSWER_MSG_EMPTY,
    ANSWER_INVALID_REQUEST,
    ANSWER_MISSING_TOPIC,
    ANSWER_INVALID_TOPIC,
    ANSWER_INVALID_DEFER,
    ANSWER_TIMEOUT,
    ANSWER_FAILED,
    ANSWER_EXITING,
    ANSWER_TOO_MANY,
    ANSWER_BUSY,
    ANSWER_UNKNOWN,
    ANSWER_FORBIDDEN,
};

/* The gateway's answer to a client it cannot identify. */
#define WHO "who are you? A login is needed"
static const char UNKNOWN_BODY[] = "{\"error\":\"" WHO "\",\"message\":\"" WHO "\",\"reason\":\"" WHO "\"}";

static const struct {
    const char *status, *said;
} ANSWERS[] = {
    [ANSWER_OK] = {"200 OK", "OK"},
    [ANSWER_MSG_TOO_BIG] = {"413 Request Entity Too Large", "MSG_TOO_BIG"},
    [ANSWER_BODY_TOO_BIG] = {"413 Request Entity Too Large", "BODY_TOO_BIG"},
    [ANSWER_BAD_BODY] = {"413 Request Entity Too Large", "BAD_BODY"},
    [ANSWER_BAD_MESSAGE] = {"413 Request Entity Too Large", "BAD_MESSAGE"},
    [ANSWER_MSG_EMPTY] = {"400 Bad Request", "MSG_EMPTY"},
    [ANSWER_INVALID_REQUEST] = {"400 Bad Request", "INVALID_REQUEST"},
    [ANSWER_MISSING_TOPIC] = {"400 Bad Request", "MISSING_ARG_TOPIC"},
    [ANSWER_INVALID_TOPIC] = {"400 Bad Request", "INVALID_TOPIC"},
    [ANSWER_INVALID_DEFER] = {"400 Bad Request", "INVALID_DEFER"},
    [ANSWER_TIMEOUT] = {"408 Request Timeout", "TIMEOUT"},
    [ANSWER_FAILED] = {"500 Internal Server Error", "INTERNAL_ERROR"},
    [ANSWER_EXITING] = {"503 Service Unavailable", "EXITING"},
    [ANSWER_TOO_MANY] = {"503 Service Unavailable", "TOO_MANY_TOPICS"},
    [ANSWER_BUSY] = {"503 Service Unavailable", "BUSY"},
    [ANSWER_UNKNOWN] = {"401 Unauthorized", UNKNOWN_BODY},
    [ANSWER_FORBIDDEN] = {"403 Forbidden", "FORBIDDEN"},
};

/* What an answer says about the connection, and in which version: the value in a request's slot. */
enum { SAYS_CLOSE = 1, SAYS_KEEP_ALIVE = 2, SAYS_OLD = 4 };

static const char *date_of(struct acceptor *a, struct nsq_https *options) {
    uint64_t second = a->wall_ns / SECOND_NS;
    if (options->date[0] != 0 && options->date_second == second) return options->date;
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = (time_t)second;
    struct tm t;
    if (gmtime_r(&now, &t) == NULL) t = (struct tm){0};
    snprintf(options->date, sizeof options->date, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
             days + (ptrdiff_t)(3 * t.tm_wday), t.tm_mday % 100, months + (ptrdiff_t)(3 * t.tm_mon),
             (t.tm_year + 1900) % 10000, t.tm_hour % 100, t.tm_min % 100, t.tm_sec % 100);
    options->date_second = second;
    return options->date;
}

static uint8_t *put_text(uint8_t *out, const char *text) {
    size_t bytes = strlen(text);
    memcpy(out, text, bytes);
    return out + bytes;
}

static const char *headers_of(enum answer which) {
    if (which == ANSWER_OK)
        return "\r\nX-Nsq-Content-Type: nsq; version=1.0\r\nContent-Type: text/plain; "
               "charset=utf-8\r\nContent-Length: ";
    if (which == ANSWER_UNKNOWN)
        return "\r\nContent-Type: application/json\r\nWWW-Authenticate: Bearer realm=\"mq-shards\"\r\nContent-Length: ";
    return "\r\nX-Nsq-Content-Type: nsq; version=1.0\r\nContent-Type: application/json; "
           "charset=utf-8\r\nContent-Length: ";
}

static uint8_t *put_answer(struct acceptor *a, const struct connection *c, uint8_t *out, enum answer which,
                           uint64_t says) {
    static const char before[] = "{\"message\":\"", after[] = "\"}";
    bool is_ok = which == ANSWER_OK || which == ANSWER_UNKNOWN; /* said as it stands there */
    const char *said = ANSWERS[which].said;
    size_t bytes = strlen(said) + (is_ok ? 0 : sizeof before - 1 + sizeof after - 1);
    char length[24];
    snprintf(length, sizeof length, "%zu", bytes);
    out = put_text(out, says & SAYS_OLD ? "HTTP/1.0 " : "HTTP/1.1 ");
    out = put_text(put_text(out, ANSWERS[which].status), headers_of(which));
    out = put_text(put_text(out, length), "\r\nDate: ");
    out = put_text(put_text(out, date_of(a, nsq_http_options(a, c))), "\r\nServer: mq-shards\r\n");
    if (says & SAYS_CLOSE) out = put_text(out, "Connection: close\r\n");
    if (says & SAYS_KEEP_ALIVE) out = put_text(out, "Connection: keep-alive\r\n");
    out = put_text(put_text(put_text(out, "\r\n"), is_ok ? "" : before), said);
    return put_text(out, is_ok ? "" : after);
}

/* Answers behind the replies that are due before. A slot must be free. */
static void reply(struct acceptor *a, struct connection *c, enum answer which, uint64_t says) {
    uint8_t text[MOST_ANSWER_BYTES];
    reply_text(a, c, text, (size_t)(put_answer(a, c, text, which, says) - text));
}

/* Sends an answer at once, whatever replies are due. */
static void say(struct acceptor *a, struct connection *c, enum answer which, uint64_t says) {
    uint8_t *room = socket_room(a, c, MOST_ANSWER_BYTES);
    if (room != NULL) socket_written(a, c, put_answer(a, c, room, which, says));
}

static void answer(struct acceptor *a, struct connection *c, const struct codec_answer *of) {
    enum answer failed = of->status == STATUS_TOO_MANY ? ANSWER_TOO_MANY
                         : of->kind == MSG_CHANGE      ? ANSWER_FAILED
                                                       : ANSWER_EXITING;
    say(a, c, of->status == STATUS_OK ? ANSWER_OK : failed, of->value);
}

/* --- what becomes of the connection ------------------------------------------------------------------------------- */

static void request_is_over(const struct acceptor *a, struct nsq_http *h) {
    h->idle_from_ns = a->now_ns;
    h->body_begun = h->continued = h->admitted = h->granted = h->unknown = h->left = false;
    h->chunks = (struct nsq_http_chunks){0};
}

/* Everything has been sent. Input is still read for a moment, as closing at once could cost the client the answer. */
static void linger(struct acceptor *a, struct connection *c) {
    nsq_http_of(c)->lingers = true;
    timer_set(a, c, a->now_ns + LINGER_NS);
}

static uint64_t says_of(const struct nsq_http_request *r, bool ends) {
    if (!r->head.is_old) return ends ? SAYS_CLOSE : 0;
    return SAYS_OLD | (ends ? SAYS_CLOSE : SAYS_KEEP_ALIVE);
}

/* Hands the connection to the gateway, once all earlier output has been sent. */
static size_t hand_over(struct acceptor *a, struct connection *c) {
    if (!may_do_alone(c)) return 0;
    if (connection_unsent(c) > 0) {
        stalled(c, STALL_OUTPUT);
        return 0;
    }
    /* The connection may come back with another request, about which nothing is known yet. */
    request_is_over(a, nsq_http_of(c));
    reply_by_python(a, c, (const uint8_t *)"", 0);
    return 0;
}

/* These return how much of the input was used; 0: nothing, and it is parsed again later. */

/* Refuses a request whose body is not read. */
static size_t refuse_unread(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                            enum answer which) {
    if (!may_reply(c)) return 0;
    uint64_t left = r->head.in_chunks ? LINGER_BYTES + 1 : r->head.body_bytes;
    bool ends = !r->head.keeps_alive || left > LINGER_BYTES || (r->head.expects_continue && left > 0);
    reply(a, c, which, says_of(r, ends));
    if (c->closed) return 0;
    request_is_over(a, nsq_http_of(c));
    if (ends)
        linger(a, c);
    else
        nsq_http_of(c)->skip_bytes = left;
    return r->head.bytes;
}

/* A body in one piece. */
struct body {
    struct text text;
    size_t taken; /* how much input behind the head it took */
    bool cut;     /* it is longer than allowed */
    uint8_t *owned;
};

/* The request is answered, or will be: the connection goes on, or ends. */
static size_t request_taken(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                            const struct body *body) {
    if (c->closed) return 0;
    request_is_over(a, nsq_http_of(c));
    if (body->cut) {
        linger(a, c);
    } else if (!r->head.keeps_alive) {
        c->closing = true;
        socket_dirty(a, c);
    }
    return r->head.bytes + body->taken;
}

static size_t refuse(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                     const struct body *body, enum answer which) {
    if (!may_reply(c)) return 0;
    reply(a, c, which, says_of(r, body->cut || !r->head.keeps_alive));
    return request_taken(a, c, r, body);
}

/* The body is malformed. */
static size_t break_off(struct acceptor *a, struct connection *c, const struct nsq_http_request *r) {
    const struct body none = {.cut = true};
    return refuse(a, c, r, &none, ANSWER_FAILED);
}

/* --- bodies ------------------------------------------------------------------------------------------------------- */

/* Asks the client for its body if it waits for that (100-continue); false if the body has to wait. */
static bool may_come(struct acceptor *a, struct connection *c, const struct nsq_http_request *r) {
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct nsq_http *h = nsq_http_of(c);
    if (!r->head.expects_continue || h->continued || (!r->head.in_chunks && r->head.body_bytes == 0)) return true;
    if (!may_reply(c)) return false;
    h->continued = true;
    reply_text(a, c, text, sizeof text - 1);
    return !c->closed;
}

static void wait_for_more(struct acceptor *a, struct connection *c) {
    struct nsq_http *h = nsq_http_of(c);
    h->part_ns = a->now_ns;
    if (h->body_begun) return;
    h->body_begun = true;
    h->body_from_ns = a->now_ns;
    timer_set(a, c, a->now_ns + BODY_PAUSE_NS);
}

/* Whether the body is there: WHOLE, OVER if it is longer than `most`; otherwise it cannot be used yet. */
static enum nsq_http_walk body_there(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                                     size_t most) {
    enum nsq_http_walk found;
    if (r->head.in_chunks)
        found = nsq_http_walk_chunks(&nsq_http_of(c)->chunks, r->rest, most);
    else
        found = r->rest.bytes < r->head.body_bytes ? NSQ_HTTP_INCOMPLETE : NSQ_HTTP_WHOLE;
    if (found == NSQ_HTTP_INCOMPLETE) wait_for_more(a, c);
    return found;
}

/* Puts a body that is WHOLE or OVER in one piece. False when memory is short; the connection is closed then. */
static bool gather(struct acceptor *a, struct connection *c, const struct nsq_http_request *r, enum nsq_http_walk there,
                   size_t most, struct body *body) {
    const struct nsq_http_chunks *chunks = &nsq_http_of(c)->chunks;
    *body = (struct body){.text = {r->rest.at, (size_t)r->head.body_bytes}, .taken = (size_t)r->head.body_bytes};
    if (!r->head.in_chunks) return true;
    body->cut = there == NSQ_HTTP_OVER;
    body->taken = chunks->end;
    body->text.bytes = body->cut ? most + 1 : chunks->bytes;
    body->owned = bytes_take(&a->blocks, body->text.bytes + 1);
    if (body->owned == NULL) {
        engine_oom(a, c);
        return false;
    }
    body->text.at = body->owned;
    body->text.bytes = nsq_http_join_chunks(r->rest, body->owned, body->text.bytes);
    return true;
}

static void give_back(struct acceptor *a, const struct body *body, size_t bytes) {
    if (body->owned != NULL) bytes_give(&a->blocks, body->owned, bytes + 1);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* What is wrong with the fields that /pub and /mpub share; ANSWER_OK: nothing. */
static enum answer check_topic(const struct nsq_http_fields *fields, bool readable) {
    if (!readable) return ANSWER_INVALID_REQUEST;
    if (!fields->has_topic) return ANSWER_MISSING_TOPIC;
    return nsq_is_name(fields->topic, fields->topic_bytes) ? ANSWER_OK : ANSWER_INVALID_TOPIC;
}

/* Whether the gateway, if it wants to be asked about new topics, has been asked if this one has channels elsewhere. */
static bool may_publish(struct acceptor *a, struct connection *c, const struct nsq_http_request *r) {
    const struct nsq_http_fields *fields = &r->fields;
    if (!nsq_http_options(a, c)->prepares || nsq_http_of(c)->admitted) return true;
    if (bindings_find(&a->bindings, fields->topic, fields->topic_bytes) != 0) return true;
    if (may_do_alone(c)) reply_by_python(a, c, fields->topic, fields->topic_bytes);
    return false;
}

/* The topic's binding, when its worker can be asked to take so much: else NULL, and *which is what to answer;
 * ANSWER_OK: nothing yet. */
static const struct binding *topic_of(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                                      size_t body_bytes, uint32_t *number, enum answer *which) {
    *which = ANSWER_OK;
    if (!may_publish(a, c, r)) return NULL;
    if (draining(a)) {
        *which = ANSWER_EXITING;
        return NULL;
    }
    *number = topic_look_up(a, r->fields.topic, r->fields.topic_bytes);
    if (*number == 0) {
        *which = ANSWER_EXITING;
        return NULL;
    }
    const struct binding *to = binding_at(&a->bindings, *number);
    return may_bring(a, c, to->worker, body_bytes) ? to : NULL;
}

static size_t publish_one(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                          const struct body *body, uint64_t delay_ns) {
    enum answer which;
    uint32_t number;
    const struct binding *to = topic_of(a, c, r, body->text.bytes, &number, &which);
    if (to == NULL) return which == ANSWER_OK ? 0 : refuse(a, c, r, body, which);
    struct message request = {.kind = MSG_PUBLISH,
                              .flags = MSG_DURABLE,
                              .topic = number,
                              .id = ids_take(a, to, 1),
                              .pri = PRIORITY,
                              .delay_ns = delay_ns,
                              .ttr_ns = nsq_http_options(a, c)->msg_timeout_ns};
    peer_ask(a, c, to->worker, &request, body->text.at, (uint32_t)body->text.bytes, says_of(r, !r->head.keeps_alive));
    return request_taken(a, c, r, body);
}

/* As in nsqd, the query is checked only when the body has come. */
static size_t pub_whole(struct acceptor *a, struct connection *c, struct nsq_http_request *r, const struct body *body) {
    const struct nsq_https *options = nsq_http_options(a, c);
    if (body->cut) return refuse(a, c, r, body, ANSWER_MSG_TOO_BIG);
    if (body->text.bytes == 0) return refuse(a, c, r, body, ANSWER_MSG_EMPTY);
    enum answer wrong = check_topic(&r->fields, nsq_http_read_query(r->head.query, &r->fields));
    if (wrong != ANSWER_OK) return refuse(a, c, r, body, wrong);
    uint64_t delay_ns = 0;
    if (r->fields.has_defer) {
        uint64_t most_ms = options->max_req_timeout_ns / MS_NS;
        if (r->fields.defer_ms < 0 || (uint64_t)r->fields.defer_ms > most_ms)
            return refuse(a, c, r, body, ANSWER_INVALID_DEFER);
        delay_ns = (uint64_t)r->fields.defer_ms * MS_NS;
    }
    return publish_one(a, c, r, body, delay_ns);
}

static size_t pub(struct acceptor *a, struct connection *c, struct nsq_http_request *r) {
    size_t most = nsq_http_options(a, c)->limits.message_bytes;
    if (!r->head.in_chunks && r->head.body_bytes > most) return refuse_unread(a, c, r, ANSWER_MSG_TOO_BIG);
    if (!may_come(a, c, r)) return 0;
    enum nsq_http_walk there = body_there(a, c, r, most);
    if (there == NSQ_HTTP_WRONG) return break_off(a, c, r);
    struct body body;
    if (there == NSQ_HTTP_INCOMPLETE || !gather(a, c, r, there, most, &body)) return 0;
    size_t bytes = body.cut ? most + 1 : body.text.bytes;
    size_t used = pub_whole(a, c, r, &body);
    give_back(a, &body, bytes);
    return used;
}

/* A topic is made even when there is no message for it. */
static void make_topic(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                       const struct binding *to, uint64_t says) {
    struct message request = {.kind = MSG_CHANGE,
                              .flags = topic_said(a, to->name, to->name_bytes),
                              .shard = to->shard,
                              .change = CHANGE_MAKE};
    peer_ask(a, c, to->worker, &request, r->fields.topic, (uint32_t)r->fields.topic_bytes, says);
}

static enum answer answer_named(const char *wrong) {
    for (uint32_t i = ANSWER_MSG_TOO_BIG; i <= ANSWER_BAD_MESSAGE; i++)
        if (strcmp(ANSWERS[i].said, wrong) == 0) return (enum answer)i;
    return ANSWER_FAILED;
}

/* Publishes the messages of a body with a PUBLISH_MANY. */
static size_t publish_many(struct acceptor *a, struct connection *c, const struct nsq_http_request *r,
                           const struct body *body, struct nsq_http_many many) {
    enum answer which;
    uint32_t number;
    const struct binding *to = topic_of(a, c, r, many.bytes, &number, &which);
    if (to == NULL) return which == ANSWER_OK ? 0 : refuse(a, c, r, body, which);
    uint64_t says = says_of(r, body->cut || !r->head.keeps_alive);
    if (many.count == 0) {
        make_topic(a, c, r, to, says);
        return request_taken(a, c, r, body);
    }
    struct message request = {.kind = MSG_PUBLISH_MANY,
                              .flags = MSG_DURABLE,
                              .topic = number,
                              .id = ids_take(a, to, many.count),
                              .pri = many.count,
                              .ttr_ns = nsq_http_options(a, c)->msg_timeout_ns};
    if (r->fields.binary) {
        peer_ask(a, c, to->worker, &request, body->text.at + SIZE_BYTES, (uint32_t)many.bytes, says);
        return request_taken(a, c, r, body);
    }
    uint8_t *messages = bytes_take(&a->blocks, many.bytes);
    if (messages == NULL) {
        engine_oom(a, c);
        return 0;
    }
    nsq_http_put_lines(body->text, messages);
    peer_ask(a, c, to->worker, &request, messages, (uint32_t)many.bytes, says);
    bytes_give(&a->blocks, messages, many.bytes);
    return request_taken(a, c, r, body);
}

static size_t mpub(struct acceptor *a, struct connection *c, struct nsq_http_request *r) {
    struct nsq_http_limits limits = nsq_http_options(a, c)->limits;
    if (!r->head.in_chunks && r->head.body_bytes > limits.body_bytes)
        return refuse_unread(a, c, r, ANSWER_BODY_TOO_BIG);
    enum answer wrong = check_topic(&r->fields, nsq_http_read_query(r->head.query, &r->fields));
    if (wrong != ANSWER_OK) return refuse_unread(a, c, r, wrong);
    if (!may_come(a, c, r)) return 0;
    enum nsq_http_walk there = body_there(a, c, r, limits.body_bytes);
    if (there == NSQ_HTTP_WRONG) return break_off(a, c, r);
    struct body body;
    if (there == NSQ_HTTP_INCOMPLETE || !gather(a, c, r, there, limits.body_bytes, &body)) return 0;
    size_t bytes = body.cut ? limits.body_bytes + 1 : body.text.bytes, used;
    struct nsq_http_many many =
        r->fields.binary ? nsq_http_look_at_binary(body.text, limits) : nsq_http_look_at_lines(body.text, limits);
    if (many.wrong == NULL && many.bytes > MAX_BODY_BYTES) many.wrong = "BODY_TOO_BIG";
    if (many.wrong != NULL)
        used = refuse(a, c, r, &body, answer_named(many.wrong));
    else
        used = publish_many(a, c, r, &body, many);
    give_back(a, &body, bytes);
    return used;
}

/* --- input -------------------------------------------------------------------------------------------------------- */

static size_t take_request(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct nsq_http_request r;
    if (!nsq_http_options(a, c)->serves && c->filter == NULL) return hand_over(a, c);
    enum nsq_http_found found = nsq_http_read_head(data, bytes, &r.head);
    if (found == NSQ_HTTP_MORE) return 0;
    if (found == NSQ_HTTP_ELSEWHERE) return hand_over(a, c);
    r.rest = (struct text){data + r.head.bytes, bytes - r.head.bytes};
    switch (nsq_http_who(a, c, &r)) {
    case NSQ_HTTP_ASKED: return 0;
    case NSQ_HTTP_UNCLEAR:
        /* The right to publish was withdrawn while the body came. */
        return bytes > HANDED_BYTES ? refuse_unread(a, c, &r, ANSWER_FORBIDDEN) : hand_over(a, c);
    case NSQ_HTTP_NOBODY: return refuse_unread(a, c, &r, ANSWER_UNKNOWN);
    default: return r.head.many ? mpub(a, c, &r) : pub(a, c, &r);
    }
}

static size_t skip(struct nsq_http *h, size_t bytes) {
    size_t skipped = h->skip_bytes < bytes ? (size_t)h->skip_bytes : bytes;
    h->skip_bytes -= skipped;
    return skipped;
}

static size_t parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct nsq_http *h = nsq_http_of(c);
    size_t at = 0;
    while (at < bytes && !h->lingers && c->stall == STALL_NONE && !c->closed && !c->closing && may_go_on(a, c)) {
        size_t used = h->skip_bytes > 0 ? skip(h, bytes - at) : take_request(a, c, data + at, bytes - at);
        if (used == 0) break;
        at += used;
    }
    return h->lingers ? bytes : at;
}

/* --- the life of a connection ------------------------------------------------------------------------------------- */

/* nsqd's defaults. */
static const struct nsq_https DEFAULTS = {
    .limits = {.message_bytes = (size_t)1 << 20, .body_bytes = (size_t)5 << 20},
    .max_req_timeout_ns = 3600 * SECOND_NS,
    .msg_timeout_ns = 60 * SECOND_NS,
    .serves = true,
};

static bool started(struct acceptor *a, void *state) {
    (void)a;
    *(struct nsq_https *)state = DEFAULTS;
    nsq_grants_open(&((struct nsq_https *)state)->grants);
    return true;
}

static void stopped(void *state) {
    nsq_grants_close(&((struct nsq_https *)state)->grants);
}

static void opened(struct acceptor *a, struct connection *c) {
    nsq_http_of(c)->idle_from_ns = a->now_ns;
    timer_set(a, c, a->now_ns + UNSENT_NS);
}

static void ended(struct acceptor *a, struct connection *c) {
    if (nsq_http_of(c)->body_begun) say(a, c, ANSWER_FAILED, SAYS_CLOSE);
}

static void crowded(struct acceptor *a, struct connection *c) {
    say(a, c, ANSWER_BUSY, SAYS_CLOSE);
}

/* Whether the client has taken some output since it was last checked. */
static bool takes_output(const struct connection *c) {
    struct nsq_http *h = nsq_http_of(c);
    bool takes = connection_unsent(c) == 0 || c->left_bytes != h->left_before;
    h->left_before = c->left_bytes;
    return takes;
}

static uint64_t sooner(uint64_t first_ns, uint64_t second_ns) {
    return first_ns < second_ns ? first_ns : second_ns;
}

/* When the client's time for what it has begun runs out. */
static uint64_t timeout_ends(const struct nsq_http *h) {
    if (!h->body_begun) return h->idle_from_ns + IDLE_NS;
    return sooner(h->body_from_ns + BODY_NS, h->part_ns + BODY_PAUSE_NS);
}

static void give_up(struct acceptor *a, struct connection *c) {
    struct nsq_http *h = nsq_http_of(c);
    if (h->body_begun && !h->lingers) {
        h->body_begun = false;
        say(a, c, ANSWER_TIMEOUT, SAYS_CLOSE);
        if (!c->closed) linger(a, c);
        return;
    }
    c->closing = true;
    socket_dirty(a, c);
    timer_set(a, c, a->now_ns + UNSENT_NS);
}

static void due(struct acceptor *a, struct connection *c) {
    struct nsq_http *h = nsq_http_of(c);
    /* Its input is not being read, or not yet answered, so its silence is our doing. */
    if (c->stall != STALL_NONE || c->slot_count > 0) h->idle_from_ns = h->body_from_ns = h->part_ns = a->now_ns;
    uint64_t look_ns = a->now_ns + UNSENT_NS;
    bool is_over = h->lingers || a->now_ns >= timeout_ends(h);
    if (!c->closing && is_over) {
        give_up(a, c);
    } else if (!takes_output(c)) {
        socket_close(a, c);
    } else {
        timer_set(a, c, c->closing ? look_ns : sooner(look_ns, timeout_ends(h)));
    }
}

/* --- what Python says --------------------------------------------------------------------------------------------- */

/* "max-msg-size", "max-body-size", "max-req-timeout-ns", "msg-timeout-ns"; "serves" (0: every request that is not
 * encrypted is the gateway's). */
static bool set(void *state, const char *option, uint64_t value) {
    struct nsq_https *options = state;
    bool is_size = value > 0 && value <= MAX_BODY_BYTES, is_time = value < (uint64_t)1 << LONGEST_TIME_NS_BITS;
    if (strcmp(option, "max-msg-size") == 0 && is_size)
        options->limits.message_bytes = (size_t)value;
    else if (strcmp(option, "max-body-size") == 0 && is_size)
        options->limits.body_bytes = (size_t)value;
    else if (strcmp(option, "max-req-timeout-ns") == 0 && is_time)
        options->max_req_timeout_ns = value;
    else if (strcmp(option, "msg-timeout-ns") == 0 && is_time)
        options->msg_timeout_ns = value;
    else if (strcmp(option, "serves") == 0 && value <= 1)
        options->serves = value != 0;
    else
        return false;
    return true;
}

/* "prepares" (1: Python is given the name of a topic that is not known here, before anything is published to it),
 * "users" (there are some, or they are others: Python says who may publish, and what it has said before is forgotten).
 * */
static int64_t configure(struct acceptor *a, void *state, const char *what, uint64_t value, const uint8_t *bytes,
                         size_t bytes_count) {
    (void)a;
    (void)bytes;
    (void)bytes_count;
    struct nsq_https *options = state;
    if (strcmp(what, "prepares") == 0 && value <= 1) {
        options->prepares = value != 0;
    } else if (strcmp(what, "users") == 0) {
        options->asks = true;
        nsq_grants_forget(&options->grants);
    } else {
        return CALL_REFUSED;
    }
    return CALL_DONE;
}

/* "admit": the gateway has been asked about the topic. "grant": who asks may publish to it, until "users". "unknown":
 * who asks is nobody. "leave": the gateway is to answer. "open": nobody is asked where the connection came from. */
static int64_t call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call) {
    struct nsq_https *options = nsq_http_options(a, c);
    struct nsq_http *h = nsq_http_of(c);
    (void)call;
    if (strcmp(what, "admit") == 0) {
        h->admitted = true;
    } else if (strcmp(what, "grant") == 0) {
        h->granted = true;
        nsq_grant(&options->grants, h->wanted, UINT64_MAX);
    } else if (strcmp(what, "unknown") == 0) {
        h->unknown = true;
    } else if (strcmp(what, "leave") == 0) {
        h->left = true;
    } else if (strcmp(what, "open") == 0) {
        options->open |= (uint16_t)(1u << c->listener);
    } else {
        return CALL_REFUSED;
    }
    return CALL_DONE;
}

const struct codec nsq_http_codec = {
    .name = "nsq-http",
    .acceptor_bytes = sizeof(struct nsq_https),
    .connection_bytes = sizeof(struct nsq_http),
    .is_name = nsq_is_name,
    .answer = answer,
    .parse = parse,
    .started = started,
    .stopped = stopped,
    .set = set,
    .configure = configure,
    .call = call,
    .opened = opened,
    .ended = ended,
    .crowded = crowded,
    .due = due,
};

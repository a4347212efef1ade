#include <stdio.h>
#include <stdlib.h>

#include "acceptor/protocols/nsq/nsq_consumer.h"
#include "acceptor/protocols/nsq/nsq_heartbeat.h"
#include "acceptor/protocols/nsq/nsq_producers.h"
#include "acceptor/protocols/nsq/nsq_publish.h"
#include "base/time_units.h"

/* The value of a lower-case hexadecimal digit plus one; 0: not such a digit. */
static const uint8_t hex_value[256] = {
    ['0'] = 1, ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9, ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

static bool get_id(const uint8_t *at, uint64_t *id) {
    uint64_t value = 0;
    uint32_t bad = 0;
    for (int i = 0; i < NSQ_ID_BYTES; i++) {
        uint32_t digit = hex_value[at[i]] - 1u;
        bad |= digit;
        value = value << 4 | (digit & 0xf);
    }
    *id = value;
    return bad < 16;
}

/* --- a consumer's commands ---------------------------------------------------------------------------------------- */

static size_t wrong_state(struct acceptor *a, struct connection *c, const struct command *k) {
    return nsq_fatal_about(a, c, k, "E_INVALID cannot ", k->name, false, " in current state");
}

static bool is_consumer(const struct nsq *n) {
    return n->state == NSQ_SUBSCRIBED || n->state == NSQ_CLOSING;
}

/* The worker hears it now, and is there to hear it: if it has died, the message is not in flight any more, which the
 * client will be told when it is back. */
static bool may_push(struct acceptor *a, struct connection *c, uint32_t worker) {
    if (a->links[worker].channel != NULL && !a->links[worker].backlogged) return true;
    connection_list_add(&a->links[worker].stalled, c->number);
    return stalled(c, STALL_WORKER);
}

static bool tell_about(struct acceptor *a, struct connection *c, uint8_t kind, uint64_t id, uint64_t delay_ns) {
    uint32_t worker = nsq_of(c)->worker;
    if (!may_push(a, c, worker)) return false;
    struct message message = {.kind = kind, .conn = c->number, .id = id, .delay_ns = delay_ns};
    peer_send(a, worker, &message, NULL);
    nsq_of(c)->unsettled = true;
    return true;
}

/* Refuses a command about a message that this connection does not have in flight. */
static size_t not_in_flight(struct acceptor *a, struct connection *c, const struct command *k, struct text id) {
    char text[SHORT_TEXT];
    if (!nsq_may_reply_in_turn(a, c)) return 0;
    const char *name = is(k->name, "FIN") ? "FIN" : is(k->name, "REQ") ? "REQ" : "TOUCH";
    int head = snprintf(text, sizeof text, "E_%s_FAILED %s ", name, name);
    memcpy(text + head, id.at, id.bytes);
    size_t bytes = (size_t)head + id.bytes;
    static const char rest[] = " failed ID not in flight";
    memcpy(text + bytes, rest, sizeof rest - 1);
    nsq_reply(a, c, FRAME_ERROR, text, bytes + sizeof rest - 1);
    return k->line_bytes;
}

/* FIN, REQ and TOUCH, once all parameters but the id have been checked. */
static size_t about_message(struct acceptor *a, struct connection *c, const struct command *k, uint8_t kind,
                            struct text id_text, uint64_t delay_ns) {
    uint64_t id;
    if (!get_id(id_text.at, &id)) return not_in_flight(a, c, k, id_text);
    return tell_about(a, c, kind, id, delay_ns) ? k->line_bytes : 0;
}

static size_t fin(struct acceptor *a, struct connection *c, struct command *k) {
    struct text id;
    if (!is_consumer(nsq_of(c))) return wrong_state(a, c, k);
    if (!next_param(k, &id)) return nsq_fatal(a, c, k, "E_INVALID FIN insufficient number of params");
    if (id.bytes != NSQ_ID_BYTES) return nsq_fatal(a, c, k, "E_INVALID invalid message ID");
    return about_message(a, c, k, MSG_FINISH, id, 0);
}

static size_t touch(struct acceptor *a, struct connection *c, struct command *k) {
    struct text id;
    if (!is_consumer(nsq_of(c))) return wrong_state(a, c, k);
    if (!next_param(k, &id)) return nsq_fatal(a, c, k, "E_INVALID TOUCH insufficient number of params");
    if (id.bytes != NSQ_ID_BYTES) return nsq_fatal(a, c, k, "E_INVALID invalid message ID");
    return about_message(a, c, k, MSG_EXTEND, id, 0);
}

static size_t req(struct acceptor *a, struct connection *c, struct command *k) {
    struct text id, timeout;
    uint64_t ms;
    if (!is_consumer(nsq_of(c))) return wrong_state(a, c, k);
    if (!next_param(k, &id) || !next_param(k, &timeout))
        return nsq_fatal(a, c, k, "E_INVALID REQ insufficient number of params");
    if (id.bytes != NSQ_ID_BYTES) return nsq_fatal(a, c, k, "E_INVALID invalid message ID");
    if (!get_decimal(timeout, &ms))
        return nsq_fatal_about(a, c, k, "E_INVALID REQ could not parse timeout ", timeout, false, "");
    int64_t asked_ns = duration_ns(ms);
    uint64_t delay_ns = asked_ns < 0 ? 0 : (uint64_t)asked_ns;
    if (delay_ns > nsq_options(a, c)->max_req_timeout_ns) delay_ns = nsq_options(a, c)->max_req_timeout_ns;
    return about_message(a, c, k, MSG_REQUEUE, id, delay_ns);
}

static size_t rdy(struct acceptor *a, struct connection *c, struct command *k) {
    struct nsq *n = nsq_of(c);
    if (n->state == NSQ_CLOSING) return k->line_bytes;
    if (n->state != NSQ_SUBSCRIBED) return wrong_state(a, c, k);
    struct text text;
    uint64_t count = 1;
    if (next_param(k, &text) && !get_decimal(text, &count))
        return nsq_fatal_about(a, c, k, "E_INVALID RDY could not parse count ", text, false, "");
    if (count > nsq_options(a, c)->max_rdy_count)
        return nsq_fatal_with(a, c, k, "E_INVALID RDY count %lld out of range 0-%llu", (long long)count,
                              (unsigned long long)nsq_options(a, c)->max_rdy_count);
    if (!may_tell(a, c, n->worker)) return 0;
    nsq_set_credit(a, c, count);
    return k->line_bytes;
}

static size_t cls(struct acceptor *a, struct connection *c, struct command *k) {
    struct nsq *n = nsq_of(c);
    if (n->state != NSQ_SUBSCRIBED) return wrong_state(a, c, k);
    if (!nsq_may_reply_in_turn(a, c) || !may_tell(a, c, n->worker)) return 0;
    n->state = NSQ_CLOSING;
    nsq_set_credit(a, c, 0);
    nsq_reply(a, c, FRAME_RESPONSE, "CLOSE_WAIT", sizeof "CLOSE_WAIT" - 1);
    return k->line_bytes;
}

static size_t nop(struct acceptor *a, struct connection *c, struct command *k) {
    (void)a;
    (void)c;
    return k->line_bytes;
}

/* --- Python's commands -------------------------------------------------------------------------------------------- */

/* Hands a command to Python: its line, the line's end and its body in one piece. */
static size_t hand_over(struct acceptor *a, struct connection *c, const struct command *k, size_t body_bytes) {
    size_t line_bytes = (size_t)(k->end - k->line);
    uint8_t *text = malloc(line_bytes + 1 + body_bytes);
    if (text == NULL) {
        engine_oom(a, c);
        return 0;
    }
    memcpy(text, k->line, line_bytes);
    text[line_bytes] = '\n';
    memcpy(text + line_bytes + 1, k->body + SIZE_BYTES, body_bytes);
    reply_by_python(a, c, text, line_bytes + 1 + body_bytes);
    free(text);
    return k->line_bytes + SIZE_BYTES + body_bytes;
}

/* A command with a body that is Python's: IDENTIFY and AUTH. */
static size_t python_body(struct acceptor *a, struct connection *c, const struct command *k, const char *name) {
    if (k->body_bytes < SIZE_BYTES) return 0;
    int32_t size = (int32_t)get_be32(k->body);
    if (size > 0 && (uint32_t)size > nsq_options(a, c)->max_body_size)
        return nsq_fatal_with(a, c, k, "E_BAD_BODY %s body too big %d > %u", name, size,
                              nsq_options(a, c)->max_body_size);
    if (size <= 0) return nsq_fatal_with(a, c, k, "E_BAD_BODY %s invalid body size %d", name, size);
    if (k->body_bytes < SIZE_BYTES + (size_t)size || !may_do_alone(c) || !upcall_may_push(a, c, (size_t)size)) return 0;
    return hand_over(a, c, k, (size_t)size);
}

static size_t identify(struct acceptor *a, struct connection *c, struct command *k) {
    if (nsq_of(c)->state != NSQ_INIT) return wrong_state(a, c, k);
    return python_body(a, c, k, "IDENTIFY");
}

static size_t auth(struct acceptor *a, struct connection *c, struct command *k) {
    if (nsq_of(c)->state != NSQ_INIT) return wrong_state(a, c, k);
    if (k->more) return nsq_fatal(a, c, k, "E_INVALID AUTH invalid number of parameters");
    return python_body(a, c, k, "AUTH");
}

static size_t sub(struct acceptor *a, struct connection *c, struct command *k) {
    if (nsq_of(c)->state != NSQ_INIT) return wrong_state(a, c, k);
    if (nsq_of(c)->heartbeat_ns == 0) return nsq_fatal(a, c, k, "E_INVALID cannot SUB with heartbeats disabled");
    if (!may_do_alone(c)) return 0;
    reply_by_python(a, c, k->line, (size_t)(k->end - k->line));
    return k->line_bytes;
}

/* --- input: each takes what it can and says how much; 0: not enough is there, or the connection stalled ----------- */

static size_t command(struct acceptor *a, struct connection *c, struct command *k) {
    if (is(k->name, "IDENTIFY")) return identify(a, c, k);
    if (nsq_options(a, c)->tls_required && !nsq_of(c)->tls)
        return nsq_fatal_about(a, c, k, "E_INVALID cannot ", k->name, false, " in current state (TLS required)");
    switch (k->name.bytes > 0 ? *k->name.at : 0) {
    case 'F':
        if (is(k->name, "FIN")) return fin(a, c, k);
        break;
    case 'R':
        if (is(k->name, "RDY")) return rdy(a, c, k);
        if (is(k->name, "REQ")) return req(a, c, k);
        break;
    case 'P':
        if (is(k->name, "PUB")) return nsq_pub(a, c, k);
        break;
    case 'M':
        if (is(k->name, "MPUB")) return nsq_mpub(a, c, k);
        break;
    case 'D':
        if (is(k->name, "DPUB")) return nsq_dpub(a, c, k);
        break;
    case 'N':
        if (is(k->name, "NOP")) return nop(a, c, k);
        break;
    case 'T':
        if (is(k->name, "TOUCH")) return touch(a, c, k);
        break;
    case 'S':
        if (is(k->name, "SUB")) return sub(a, c, k);
        break;
    case 'C':
        if (is(k->name, "CLS")) return cls(a, c, k);
        break;
    case 'A':
        if (is(k->name, "AUTH")) return auth(a, c, k);
        break;
    default: break;
    }
    return nsq_fatal_about(a, c, k, "E_INVALID invalid command ", k->name, false, "");
}

enum { FIN_BYTES = 4 + NSQ_ID_BYTES + 1 };

/* Takes a FIN of the usual form without parsing its parts; false if it has another form. */
static bool take_fin(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes, size_t *used) {
    uint64_t id;
    if (bytes < FIN_BYTES || data[FIN_BYTES - 1] != '\n' || memcmp(data, "FIN ", 4) != 0) return false;
    if (!is_consumer(nsq_of(c)) || !get_id(data + 4, &id) || (nsq_options(a, c)->tls_required && !nsq_of(c)->tls))
        return false;
    *used = tell_about(a, c, MSG_FINISH, id, 0) ? FIN_BYTES : 0;
    return true;
}

static size_t take_command(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct command k;
    size_t used;
    if (take_fin(a, c, data, bytes, &used)) return used;
    if (nsq_cut_line(data, bytes, &k)) return command(a, c, &k);
    /* nsqd's reader would be full. */
    return bytes >= NSQ_LINE_BYTES ? nsq_hang_up(a, c, bytes) : 0;
}

static size_t take_magic(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    if (bytes < NSQ_MAGIC_BYTES) return 0;
    if (memcmp(data, "  V2", NSQ_MAGIC_BYTES) != 0) {
        nsq_say(a, c, FRAME_ERROR, "E_BAD_PROTOCOL", sizeof "E_BAD_PROTOCOL" - 1);
        return nsq_hang_up(a, c, bytes);
    }
    nsq_of(c)->state = NSQ_INIT;
    nsq_set_heartbeat(a, c, nsq_options(a, c)->client_timeout_ns / 2);
    return NSQ_MAGIC_BYTES;
}

static size_t parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    size_t at = 0;
    while (at < bytes && c->stall == STALL_NONE && !c->closed && !c->closing && may_go_on(a, c)) {
        size_t used = nsq_of(c)->state == NSQ_NEW ? take_magic(a, c, data + at, bytes - at)
                                                  : take_command(a, c, data + at, bytes - at);
        if (used == 0) break;
        at += used;
    }
    if (at > 0) nsq_of(c)->heard_ns = a->now_ns;
    return at;
}

/* --- replies ------------------------------------------------------------------------------------------------------ */

static void answer(struct acceptor *a, struct connection *c, const struct codec_answer *of) {
    static const uint8_t ok[] = {0, 0, 0, 6, 0, 0, 0, FRAME_RESPONSE, 'O', 'K'};
    if (of->kind == MSG_BARRIER) {
        uint8_t *room = of->body_bytes > 0 ? socket_room(a, c, of->body_bytes) : NULL;
        if (room == NULL) return;
        memcpy(room, of->body, of->body_bytes);
        socket_written(a, c, room + of->body_bytes);
        return;
    }
    if (of->status == STATUS_OK) {
        uint8_t *room = socket_room(a, c, sizeof ok);
        if (room == NULL) return;
        memcpy(room, ok, sizeof ok);
        socket_written(a, c, room + sizeof ok);
        return;
    }
    char text[SHORT_TEXT];
    const char *name = of->kind == MSG_PUBLISH_MANY ? "MPUB" : of->value == WAS_DPUB ? "DPUB" : "PUB";
    const char *why = of->status == STATUS_NO_SPACE     ? "no space"
                      : of->status == STATUS_TOO_MANY   ? "too many topics"
                      : of->status == STATUS_TERMINATED ? "the topic is terminated"
                                                        : "outcome unknown";
    int bytes = snprintf(text, sizeof text, "E_%s_FAILED %s failed %s", name, name, why);
    nsq_say(a, c, FRAME_ERROR, text, (size_t)bytes);
    c->closing = true;
    c->muted = true;
}

/* --- the life of a connection ------------------------------------------------------------------------------------- */

/* nsqd's defaults. */
static const struct nsq_options DEFAULTS = {
    .max_msg_size = 1u << 20,
    .max_body_size = 5u << 20,
    .max_rdy_count = 2500,
    .max_req_timeout_ns = 3600 * SECOND_NS,
    .msg_timeout_ns = 60 * SECOND_NS,
    .client_timeout_ns = 60 * SECOND_NS,
};

static bool started(struct acceptor *a, void *state) {
    (void)a;
    *(struct nsq_options *)state = DEFAULTS;
    nsq_grants_open(&((struct nsq_options *)state)->grants);
    return true;
}

static void stopped(void *state) {
    nsq_grants_close(&((struct nsq_options *)state)->grants);
}

static void opened(struct acceptor *a, struct connection *c) {
    nsq_of(c)->authorized_until_ns = UINT64_MAX;
    nsq_of(c)->opened_ns = a->now_ns;
}

static void closed(struct acceptor *a, struct connection *c) {
    nsq_forget_subscription(a, nsq_of(c));
}

static void freed(struct connection *c) {
    free(nsq_of(c)->subscription);
    free(nsq_of(c)->produced);
}

/* --- what Python says of a connection ----------------------------------------------------------------------------- */

/* "max-msg-size", "max-body-size", "max-rdy-count", "max-req-timeout-ns", "msg-timeout-ns", "client-timeout-ns" (of
 * which half is the heartbeat before IDENTIFY), "auth" (1: Python says who may publish), "tls-required" (1: nothing but
 * IDENTIFY before TLS). */
static bool set(void *state, const char *option, uint64_t value) {
    struct nsq_options *options = state;
    bool is_size = value > 0 && value <= MAX_BODY_BYTES, is_time = value < (uint64_t)1 << LONGEST_TIME_NS_BITS;
    if (strcmp(option, "max-msg-size") == 0 && is_size)
        options->max_msg_size = (uint32_t)value;
    else if (strcmp(option, "max-body-size") == 0 && is_size)
        options->max_body_size = (uint32_t)value;
    else if (strcmp(option, "max-rdy-count") == 0 && value <= INT64_MAX)
        options->max_rdy_count = value;
    else if (strcmp(option, "max-req-timeout-ns") == 0 && is_time)
        options->max_req_timeout_ns = value;
    else if (strcmp(option, "msg-timeout-ns") == 0 && is_time)
        options->msg_timeout_ns = value;
    else if (strcmp(option, "client-timeout-ns") == 0 && is_time)
        options->client_timeout_ns = value;
    else if (strcmp(option, "auth") == 0 && value <= 1)
        options->auth = value != 0;
    else if (strcmp(option, "tls-required") == 0 && value <= 1)
        options->tls_required = value != 0;
    else
        return false;
    return true;
}

/* The command that Python has may be done, and others that publish to this topic until then, without Python being
 * asked.
 */
static void authorize(struct nsq_options *options, struct nsq *n, struct text topic, uint64_t until_ns) {
    n->admitted = true;
    if (topic.bytes == 0 || topic.bytes > NSQ_NAME_BYTES) return;
    if (n->known_as == 0) n->known_as = ++options->known;
    nsq_grant(&options->grants, nsq_granted_to(options, n, topic), until_ns);
}

/* Leaves the entries of what was granted behind, under a number that no connection has any more. */
static void forget_authorized(struct nsq *n) {
    n->publishes_all = false;
    n->known_as = 0;
}

/* Calls: "heartbeat-ns" (0: none), "tls" (1: the connection is encrypted), "authorized-until-ns" (monotonic: all that
 * was authorized ends then), "authorize" (bytes: a topic; value: until when, monotonic), "authorize-all" (until
 * "forget-authorized"). */
static int64_t call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call) {
    struct nsq *n = nsq_of(c);
    if (strcmp(what, "heartbeat-ns") == 0 && call->value < (uint64_t)1 << LONGEST_TIME_NS_BITS)
        nsq_set_heartbeat(a, c, call->value);
    else if (strcmp(what, "tls") == 0 && call->value <= 1)
        n->tls = call->value != 0;
    else if (strcmp(what, "authorized-until-ns") == 0)
        n->authorized_until_ns = call->value;
    else if (strcmp(what, "authorize") == 0)
        authorize(nsq_options(a, c), n, (struct text){call->bytes, call->bytes_count}, call->value);
    else if (strcmp(what, "authorize-all") == 0)
        n->admitted = n->publishes_all = true;
    else if (strcmp(what, "forget-authorized") == 0)
        forget_authorized(n);
    else
        return CALL_REFUSED;
    return CALL_DONE;
}

extern const struct codec nsq_codec;

/* Questions: "producers" (value: from which connection on). */
static int64_t ask(struct acceptor *a, void *state, const char *what, const struct codec_question *question) {
    (void)state;
    return strcmp(what, "producers") == 0 ? nsq_ask_producers(a, &nsq_codec, question) : CALL_REFUSED;
}

const struct codec nsq_codec = {
    .name = "nsq",
    .acceptor_bytes = sizeof(struct nsq_options),
    .connection_bytes = sizeof(struct nsq),
    .python_keeps = true,
    .is_name = nsq_is_name,
    .says_of_topic = nsq_says_of_topic,
    .answer = answer,
    .parse = parse,
    .greeting_bytes = NSQ_MAGIC_BYTES,
    .started = started,
    .stopped = stopped,
    .set = set,
    .call = call,
    .ask = ask,
    .opened = opened,
    .ended = nsq_cut_short,
    .sent = nsq_sent,
    .due = nsq_due,
    .closed = closed,
    .freed = freed,
    .pushed = nsq_pushed,
    .subscribing = nsq_subscribing,
    .subscribed = nsq_subscribed,
    .tell = nsq_tell,
    .lost = nsq_lost,
};

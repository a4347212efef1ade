#include <stdlib.h>
#include <string.h>

#include "acceptor/protocols/beanstalk/beanstalk_access.h"
#include "acceptor/protocols/beanstalk/beanstalk_replies.h"
#include "acceptor/protocols/beanstalk/beanstalk_reserve.h"
#include "acceptor/protocols/beanstalk/beanstalk_tubes.h"
#include "acceptor/protocols/beanstalk/beanstalk_words.h"
#include "base/modulo.h"

enum phase { PHASE_LINE = 0, PHASE_BODY, PHASE_DISCARD, PHASE_SKIP_LINE };

/* The longest line including its end. Of a longer line, this much is discarded at a time. */
enum { LINE_BYTES = 224 };

static const char DEFAULT_TOPIC[] = "default";

#define REPLY(a, c, text) reply_text(a, c, text, sizeof(text) - 1)

static void count(struct acceptor *a, const struct connection *c, enum beanstalk_counter counter) {
    codec_count_add(a, c, counter, 1);
}

static void uncount(struct acceptor *a, const struct connection *c, enum beanstalk_counter counter) {
    codec_count_add(a, c, counter, (uint64_t)-1);
}

static void count_producer(struct acceptor *a, struct connection *c) {
    if (beanstalk_of(c)->producer) return;
    beanstalk_of(c)->producer = true;
    count(a, c, COUNT_PRODUCERS);
}

static void count_consumer(struct acceptor *a, struct connection *c) {
    if (beanstalk_of(c)->consumer) return;
    beanstalk_of(c)->consumer = true;
    count(a, c, COUNT_WORKERS);
}

/* --- handlers: of a command's words; false if the connection stalled before anything was done --------------------- */

static bool refuse(struct acceptor *a, struct connection *c) {
    if (!may_reply(c)) return false;
    REPLY(a, c, "BAD_FORMAT\r\n");
    return true;
}

static bool forbid(struct acceptor *a, struct connection *c) {
    if (!may_reply(c)) return false;
    REPLY(a, c, BEANSTALK_FORBIDDEN);
    return true;
}

static bool put(struct acceptor *a, struct connection *c, struct words w) {
    struct beanstalk *b = beanstalk_of(c);
    uint32_t pri, body_bytes;
    uint64_t delay_ns, ttr_ns;
    if (!get_u32(&w, &pri) || !get_seconds(&w, &delay_ns) || !get_seconds(&w, &ttr_ns) || !get_u32(&w, &body_bytes))
        return refuse(a, c);
    bool fits = body_bytes <= beanstalk_options(a, c)->max_job_bytes;
    if (!beanstalk_knows_put(a, c)) return false;
    if (!at_end(&w) && memchr(w.at, 0, words_bytes(&w)) != NULL) return refuse(a, c);
    if (fits && !at_end(&w)) {
        if (!may_reply(c)) return false;
        count(a, c, COUNT_PUT);
        return refuse(a, c);
    }
    count(a, c, COUNT_PUT);
    b->forbidden = b->may_put == VERDICT_REFUSED;
    if (!fits || b->forbidden) {
        b->phase = PHASE_DISCARD;
        b->discard_bytes = (uint64_t)body_bytes + CRLF_BYTES;
        return true;
    }
    count_producer(a, c);
    b->phase = PHASE_BODY;
    b->put_pri = pri;
    b->put_bytes = body_bytes;
    b->put_delay_ns = delay_ns;
    b->put_ttr_ns = ttr_ns < SECOND_NS ? SECOND_NS : ttr_ns;
    return true;
}

/* Requests, other than reserves, whose reply brings a job's body. */
#define KINDS_FOR_BODIES                                                                                               \
    ((uint64_t)1 << MSG_RESERVE_ID | (uint64_t)1 << MSG_PEEK_ID | (uint64_t)1 << MSG_PEEK_READY |                      \
     (uint64_t)1 << MSG_PEEK_DELAYED | (uint64_t)1 << MSG_PEEK_BURIED)
_Static_assert(MSG_RESERVE_ID < 64 && MSG_PEEK_BURIED < 64, "a bit for each kind");

static bool asks_for_body(uint8_t kind) {
    return kind < 64 && (KINDS_FOR_BODIES >> kind & 1) != 0;
}

/* Whether a request whose reply brings a body may be sent beside those that are under way. */
static bool may_ask_for_body(const struct acceptor *a, struct connection *c) {
    const struct beanstalk *b = beanstalk_of(c);
    uint64_t bodies = c->reserves + b->bodies_asked, body_bytes = beanstalk_options(a, c)->max_job_bytes;
    if (body_bytes < b->largest_body) body_bytes = b->largest_body;
    return bodies == 0 || (bodies + 1) * body_bytes <= BODIES_AHEAD_BYTES || stalled(c, STALL_OUTSTANDING);
}

/* Asks the worker that has the watched tubes, if it is a single one; for several see beanstalk_reserve.h. */
static bool reserve(struct acceptor *a, struct connection *c, uint64_t timeout_ns, enum beanstalk_counter command) {
    struct beanstalk *b = beanstalk_of(c);
    if (b->watched_count == 0) return forbid(a, c);
    /* The reply to a reserve-job, which is one of them, decides which workers must be asked about deadlines. */
    if (a->workers > 1 && b->bodies_asked > 0) return stalled(c, STALL_IDLE);
    if (!may_ask_for_body(a, c)) return false;
    uint64_t workers = b->watched_workers | b->holding_workers;
    if ((workers & (workers - 1)) == 0) {
        if (!may_ask(a, c, first_of(workers))) return false;
        count(a, c, command);
        count_consumer(a, c);
        beanstalk_set_waiting(a, c, true);
        peer_reserve(a, c, first_of(workers), timeout_ns);
        return true;
    }
    if (!may_do_alone(c)) return false;
    for (uint64_t rest = workers; rest != 0; rest &= rest - 1)
        if (!may_ask(a, c, first_of(rest))) return false;
    count(a, c, command);
    count_consumer(a, c);
    gather_begin(a, c, timeout_ns);
    return true;
}

static bool reserve_forever(struct acceptor *a, struct connection *c, struct words w) {
    return at_end(&w) ? reserve(a, c, DURATION_FOREVER, COUNT_RESERVE) : refuse(a, c);
}

/* A negative timeout waits for ever; a word is a timeout of 0; what follows the number is ignored. */
static bool reserve_with_timeout(struct acceptor *a, struct connection *c, struct words w) {
    int32_t seconds;
    if (!decimal_get_int(w.at, w.end, &seconds)) return refuse(a, c);
    uint64_t timeout_ns = seconds >= 0 ? (uint64_t)seconds * SECOND_NS : DURATION_FOREVER;
    return reserve(a, c, timeout_ns, COUNT_RESERVE_WITH_TIMEOUT);
}

static uint32_t worker_of_id(const struct acceptor *a, uint64_t id) {
    return modulo(modulo(id, a->shards), a->workers);
}

enum { NOT_COUNTED = -1 };

/* Sends a request, with a body or without, whose reply is the command's. */
__attribute__((always_inline)) static inline bool ask(struct acceptor *a, struct connection *c, uint32_t worker,
                                                      struct message *request, const struct words *body, int command) {
    bool brings_body = asks_for_body(request->kind);
    if (!may_ask(a, c, worker) || (brings_body && !may_ask_for_body(a, c))) return false;
    if (brings_body) beanstalk_of(c)->bodies_asked++;
    if (command != NOT_COUNTED) count(a, c, (enum beanstalk_counter)command);
    if (body != NULL)
        peer_ask(a, c, worker, request, body->at, (uint32_t)words_bytes(body), 0);
    else
        peer_ask(a, c, worker, request, NULL, 0, request->id);
    return true;
}

/* A command about one message asks the worker that owns it. */
static bool ask_by_id(struct acceptor *a, struct connection *c, struct message *request, int command) {
    return ask(a, c, worker_of_id(a, request->id), request, NULL, command);
}

/* What Python must be asked, where there are users, before a command about one message; 0: nothing. */
static enum beanstalk_question question_about_job(uint8_t kind) {
    switch (kind) {
    case MSG_RESERVE_ID: return ASKS_JOB;
    case MSG_PEEK_ID: return ASKS_READ_JOB;
    case MSG_KICK_ID: return ASKS_MANAGE_JOB;
    default: return ASKS_NOTHING;
    }
}

static bool by_id_alone(struct acceptor *a, struct connection *c, struct words w, uint8_t kind, int command) {
    struct message request = {.kind = kind};
    if (!get_id(&w, &request.id) || !at_end(&w)) return refuse(a, c);
    if (kind == MSG_DELETE && beanstalk_is_guarded(a, c) && !beanstalk_of(c)->consumes_all)
        request.flags = MSG_ONLY_CONSUMED;
    enum beanstalk_question question = question_about_job(kind);
    if (question != ASKS_NOTHING) {
        enum beanstalk_verdict said = beanstalk_may(a, c, question, &request.id, sizeof request.id);
        if (said == VERDICT_NONE) return false;
        if (said == VERDICT_REFUSED) return forbid(a, c);
    }
    return ask_by_id(a, c, &request, command);
}

static bool release(struct acceptor *a, struct connection *c, struct words w) {
    struct message request = {.kind = MSG_RELEASE};
    if (!get_id(&w, &request.id) || !get_u32(&w, &request.pri) || !get_seconds(&w, &request.delay_ns) || !at_end(&w))
        return refuse(a, c);
    return ask_by_id(a, c, &request, COUNT_RELEASE);
}

static bool bury(struct acceptor *a, struct connection *c, struct words w) {
    struct message request = {.kind = MSG_BURY};
    if (!get_id(&w, &request.id) || !get_u32(&w, &request.pri) || !at_end(&w)) return refuse(a, c);
    return ask_by_id(a, c, &request, COUNT_BURY);
}

static uint32_t worker_of_name(const struct acceptor *a, const struct words *name) {
    return bindings_shard(&a->bindings, name->at, words_bytes(name)) % a->workers;
}

/* Asks the worker of the tube that the connection uses, if its user has the right to that tube. */
static bool ask_of_used(struct acceptor *a, struct connection *c, struct message *request,
                        enum beanstalk_question right, enum beanstalk_counter command) {
    const struct binding *used = binding_at(&a->bindings, beanstalk_of(c)->used);
    enum beanstalk_verdict said = beanstalk_may(a, c, right, used->name, used->name_bytes);
    if (said == VERDICT_NONE) return false;
    if (said == VERDICT_REFUSED) return forbid(a, c);
    request->topic = beanstalk_of(c)->used;
    return ask(a, c, used->worker, request, NULL, (int)command);
}

static bool peek(struct acceptor *a, struct connection *c, struct words w, uint8_t kind,
                 enum beanstalk_counter command) {
    struct message request = {.kind = kind};
    return at_end(&w) ? ask_of_used(a, c, &request, ASKS_READ, command) : refuse(a, c);
}

/* The bound is what beanstalkd keeps of strtoul's result: 32 bits. What follows the number is ignored. */
static bool kick(struct acceptor *a, struct connection *c, struct words w) {
    struct message request = {.kind = MSG_KICK};
    uint32_t most;
    if (!get_loose_u32(&w, &most)) return refuse(a, c);
    request.most = most;
    return ask_of_used(a, c, &request, ASKS_MANAGE, COUNT_KICK);
}

static bool stats_tube(struct acceptor *a, struct connection *c, struct words w) {
    if (!beanstalk_is_name(w.at, words_bytes(&w))) return refuse(a, c);
    struct message request = {.kind = MSG_STATS_TOPIC};
    return ask(a, c, worker_of_name(a, &w), &request, &w, COUNT_STATS_TUBE);
}

static bool pause_tube(struct acceptor *a, struct connection *c, struct words w) {
    struct message request = {.kind = MSG_PAUSE};
    struct words name;
    skip_spaces(&w);
    if (!beanstalk_get_name(&w, &name) || !get_seconds(&w, &request.delay_ns) || !at_end(&w)) return refuse(a, c);
    if (!beanstalk_is_name(name.at, words_bytes(&name))) {
        if (!may_reply(c)) return false;
        count(a, c, COUNT_PAUSE_TUBE);
        return refuse(a, c);
    }
    enum beanstalk_verdict said = beanstalk_may(a, c, ASKS_MANAGE, name.at, words_bytes(&name));
    if (said == VERDICT_NONE) return false;
    if (said == VERDICT_REFUSED) return forbid(a, c);
    return ask(a, c, worker_of_name(a, &name), &request, &name, COUNT_PAUSE_TUBE);
}

/* Whether the tubes that a connection uses or watches may be changed now. */
static bool may_rebind(struct acceptor *a, struct connection *c, const struct words *name) {
    return may_reply(c) && may_change(c) && may_tell(a, c, worker_of_name(a, name));
}

/* Answers a command that a worker has just been told of. A client of another acceptor may reach that worker earlier:
 * if there is another, the answer leaves when the worker has heard. */
static void reply_told(struct acceptor *a, struct connection *c, uint32_t worker, const void *text, size_t bytes) {
    if (a->acceptors < 2 || a->links[worker].channel == NULL) {
        reply_text(a, c, text, bytes);
        return;
    }
    struct message barrier = {.kind = MSG_BARRIER};
    peer_ask(a, c, worker, &barrier, NULL, 0, 0);
    if (c->closed) return;
    uint8_t *room = connection_body(c, &a->blocks, connection_slot(c, c->head_slot + c->slot_count - 1), bytes);
    if (room == NULL)
        engine_oom(a, c);
    else
        memcpy(room, text, bytes);
}

static bool use(struct acceptor *a, struct connection *c, struct words w) {
    if (!beanstalk_is_name(w.at, words_bytes(&w))) return refuse(a, c);
    if (!may_rebind(a, c, &w)) return false;
    count(a, c, COUNT_USE);
    uint32_t topic = topic_bind(a, w.at, words_bytes(&w));
    if (topic == 0) {
        REPLY(a, c, "OUT_OF_MEMORY\r\n");
        return true;
    }
    beanstalk_use(a, c, topic, 0);
    uint8_t text[sizeof "USING \r\n" + BEANSTALK_NAME_BYTES] = "USING ";
    size_t bytes = sizeof "USING " - 1;
    memcpy(text + bytes, w.at, words_bytes(&w));
    bytes += words_bytes(&w);
    memcpy(text + bytes, "\r\n", CRLF_BYTES);
    reply_told(a, c, binding_at(&a->bindings, topic)->worker, text, bytes + CRLF_BYTES);
    return true;
}

static void reply_watching(struct acceptor *a, struct connection *c, uint32_t worker) {
    uint8_t text[sizeof "WATCHING \r\n" + DECIMAL_MAX_BYTES] = "WATCHING ";
    uint8_t *end = decimal_put(text + sizeof "WATCHING " - 1, beanstalk_of(c)->watched_count);
    memcpy(end, "\r\n", CRLF_BYTES);
    reply_told(a, c, worker, text, (size_t)(end + CRLF_BYTES - text));
}

/* The place of a name in the watch list; the list's length when it is not there. */
static uint32_t watch_place(const struct acceptor *a, const struct beanstalk *b, const struct words *name) {
    uint32_t topic = bindings_find(&a->bindings, name->at, words_bytes(name));
    return topic != 0 ? beanstalk_watch_place(b, topic) : b->watched_count;
}

static bool watch(struct acceptor *a, struct connection *c, struct words w) {
    struct beanstalk *b = beanstalk_of(c);
    if (!beanstalk_is_name(w.at, words_bytes(&w))) return refuse(a, c);
    if (!may_rebind(a, c, &w)) return false;
    enum beanstalk_verdict said = beanstalk_may(a, c, ASKS_WATCH, w.at, words_bytes(&w));
    if (said == VERDICT_NONE) return false;
    if (said == VERDICT_REFUSED) return forbid(a, c);
    count(a, c, COUNT_WATCH);
    uint32_t worker = worker_of_name(a, &w);
    uint32_t place = watch_place(a, b, &w);
    if (place < b->watched_count) {
        /* The tube may be the implicit one, which the client did not ask to watch. */
        uint32_t topic = b->watched[place];
        peer_tell(a, c, binding_at(&a->bindings, topic)->worker, MSG_WATCH, topic, 0);
        if (topic == b->began_with) b->implicit_watch = false;
    } else {
        const struct beanstalk_options *o = beanstalk_options(a, c);
        bool room = b->watched_count < MAX_WATCHED && o->watches < o->max_watches;
        uint32_t topic = room ? topic_bind(a, w.at, words_bytes(&w)) : 0;
        if (topic == 0) {
            REPLY(a, c, "OUT_OF_MEMORY\r\n");
            return true;
        }
        beanstalk_watch(a, c, topic, 0);
        if (c->closed) return true;
    }
    reply_watching(a, c, worker);
    return true;
}

static bool ignore(struct acceptor *a, struct connection *c, struct words w) {
    struct beanstalk *b = beanstalk_of(c);
    if (!beanstalk_is_name(w.at, words_bytes(&w))) return refuse(a, c);
    if (!may_rebind(a, c, &w)) return false;
    count(a, c, COUNT_IGNORE);
    uint32_t place = watch_place(a, b, &w);
    if (place < b->watched_count && b->watched_count < 2) {
        REPLY(a, c, "NOT_IGNORED\r\n");
        return true;
    }
    uint32_t worker = worker_of_name(a, &w);
    if (place < b->watched_count) beanstalk_ignore(a, c, place);
    reply_watching(a, c, worker);
    return true;
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

/* Handles a command line, without its end. False if the connection stalled. */
static bool command(struct acceptor *a, struct connection *c, const uint8_t *line, size_t bytes) {
    struct words w = {line, line + bytes};
    if (!beanstalk_introduced(a, c)) return false;
    /* The commonest commands, which check every byte themselves and refuse what they do not know. */
    if (BEGINS(&w, "put ")) return put(a, c, w);
    if (BEGINS(&w, "delete ")) return by_id_alone(a, c, w, MSG_DELETE, COUNT_DELETE);
    if (bytes == sizeof "reserve" - 1 && BEGINS(&w, "reserve")) return reserve_forever(a, c, w);
    if (memchr(line, 0, bytes) != NULL) return refuse(a, c);
    bool is_rare = false; /* Python has the command */
    switch (bytes > 0 ? *line : 0) {
    case 'p':
        if (BEGINS(&w, "peek ")) return by_id_alone(a, c, w, MSG_PEEK_ID, COUNT_PEEK);
        if (BEGINS(&w, "peek-ready")) return peek(a, c, w, MSG_PEEK_READY, COUNT_PEEK_READY);
        if (BEGINS(&w, "peek-delayed")) return peek(a, c, w, MSG_PEEK_DELAYED, COUNT_PEEK_DELAYED);
        if (BEGINS(&w, "peek-buried")) return peek(a, c, w, MSG_PEEK_BURIED, COUNT_PEEK_BURIED);
        if (BEGINS(&w, "pause-tube")) return pause_tube(a, c, w);
        break;
    case 'r':
        if (BEGINS(&w, "reserve-with-timeout ")) return reserve_with_timeout(a, c, w);
        if (BEGINS(&w, "reserve-job ")) return by_id_alone(a, c, w, MSG_RESERVE_ID, NOT_COUNTED);
        if (BEGINS(&w, "reserve")) return reserve_forever(a, c, w);
        if (BEGINS(&w, "release ")) return release(a, c, w);
        break;
    case 'b':
        if (BEGINS(&w, "bury ")) return bury(a, c, w);
        break;
    case 't':
        if (BEGINS(&w, "touch ")) return by_id_alone(a, c, w, MSG_TOUCH, COUNT_TOUCH);
        break;
    case 'u':
        if (BEGINS(&w, "use ")) return use(a, c, w);
        break;
    case 'w':
        if (BEGINS(&w, "watch ")) return watch(a, c, w);
        break;
    case 'i':
        if (BEGINS(&w, "ignore ")) return ignore(a, c, w);
        break;
    case 'k':
        if (BEGINS(&w, "kick ")) return kick(a, c, w);
        if (BEGINS(&w, "kick-job ")) return by_id_alone(a, c, w, MSG_KICK_ID, NOT_COUNTED);
        break;
    case 's':
        if (BEGINS(&w, "stats-job ")) return by_id_alone(a, c, w, MSG_STATS_ID, COUNT_STATS_JOB);
        if (BEGINS(&w, "stats-tube ")) return stats_tube(a, c, w);
        is_rare = BEGINS(&w, "stats");
        break;
    case 'l': is_rare = BEGINS(&w, "list-tube"); break;
    case 'q': is_rare = BEGINS(&w, "quit"); break;
    default: break;
    }
    if (!is_rare) return forbid(a, c);
    if (!may_do_alone(c)) return false;
    reply_by_python(a, c, line, bytes);
    return true;
}

/* --- input: each takes what it can and says how much; 0: not enough is there, or the connection stalled ----------- */

/* Whether a line ends within the window: its first carriage return must be followed by a line feed. *bytes: its length.
 * */
static bool find_line(const uint8_t *data, size_t window, size_t *bytes) {
    const uint8_t *cr = memchr(data, '\r', window - 1);
    if (cr == NULL || cr[1] != '\n') return false;
    *bytes = (size_t)(cr - data);
    return true;
}

static size_t take_line(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    size_t window = bytes < LINE_BYTES ? bytes : LINE_BYTES, line;
    if (find_line(data, window, &line)) return command(a, c, data, line) ? line + CRLF_BYTES : 0;
    if (window < LINE_BYTES) return 0;
    beanstalk_of(c)->phase = PHASE_SKIP_LINE;
    return LINE_BYTES;
}

static size_t skip_line(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    size_t window = bytes < LINE_BYTES ? bytes : LINE_BYTES, line;
    if (!find_line(data, window, &line)) return window < LINE_BYTES ? 0 : LINE_BYTES;
    if (!refuse(a, c)) return 0;
    beanstalk_of(c)->phase = PHASE_LINE;
    return line + CRLF_BYTES;
}

static size_t discard(struct acceptor *a, struct connection *c, size_t bytes) {
    struct beanstalk *b = beanstalk_of(c);
    if (bytes < b->discard_bytes) {
        b->discard_bytes -= bytes;
        return bytes;
    }
    if (!may_reply(c)) return 0;
    if (b->forbidden)
        REPLY(a, c, BEANSTALK_FORBIDDEN);
    else
        REPLY(a, c, "JOB_TOO_BIG\r\n");
    b->phase = PHASE_LINE;
    return (size_t)b->discard_bytes;
}

static void publish(struct acceptor *a, struct connection *c, const struct binding *to, const uint8_t *body) {
    const struct beanstalk *b = beanstalk_of(c);
    struct message request = {.kind = MSG_PUBLISH,
                              .topic = b->used,
                              .id = ids_take(a, to, 1),
                              .pri = b->put_pri,
                              .delay_ns = b->put_delay_ns,
                              .ttr_ns = b->put_ttr_ns};
    peer_ask(a, c, to->worker, &request, body, b->put_bytes, request.id);
}

static size_t take_body(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct beanstalk *b = beanstalk_of(c);
    size_t needed = (size_t)b->put_bytes + CRLF_BYTES;
    if (bytes < needed || !may_reply(c)) return 0;
    const struct binding *to = binding_at(&a->bindings, b->used);
    if (memcmp(data + b->put_bytes, "\r\n", CRLF_BYTES) != 0) {
        (void)ids_take(a, to, 1); /* as in beanstalkd, where a job has its id before its body has come */
        REPLY(a, c, "EXPECTED_CRLF\r\n");
    } else if (draining(a)) {
        (void)ids_take(a, to, 1);
        REPLY(a, c, "DRAINING\r\n");
    } else {
        if (b->put_bytes > MAX_PARKED_BODY_BYTES && !may_change(c)) return 0;
        if (!may_bring(a, c, to->worker, b->put_bytes)) return 0;
        publish(a, c, to, data);
    }
    b->phase = PHASE_LINE;
    return needed;
}

static size_t parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    const struct beanstalk *b = beanstalk_of(c);
    size_t at = 0;
    while (at < bytes && c->stall == STALL_NONE && !c->closed && may_go_on(a, c)) {
        size_t used = 0;
        switch (b->phase) {
        case PHASE_LINE: used = take_line(a, c, data + at, bytes - at); break;
        case PHASE_BODY: used = take_body(a, c, data + at, bytes - at); break;
        case PHASE_DISCARD: used = discard(a, c, bytes - at); break;
        default: used = skip_line(a, c, data + at, bytes - at);
        }
        if (used == 0) break;
        at += used;
    }
    return at;
}

/* --- what becomes of a reserve ------------------------------------------------------------------------------------ */

/* Replies tell which workers have messages in flight for the connection. */
static void note_holding(struct beanstalk *b, uint32_t worker, const struct message *reply) {
    if ((reply->flags & MSG_NONE_IN_FLIGHT) != 0) b->holding_workers &= ~bit_of(worker);
}

static void replied(struct acceptor *a, struct connection *c, uint32_t worker, const struct slot *slot,
                    const struct message *reply) {
    struct beanstalk *b = beanstalk_of(c);
    note_holding(b, worker, reply);
    bool is_reserve = reply->kind == MSG_RESERVE || reply->kind == MSG_RESERVE_ID;
    if (is_reserve && reply->status == STATUS_OK) b->holding_workers |= bit_of(worker);
    if (!slot->python && asks_for_body(reply->kind)) {
        b->bodies_asked--;
        if (is_reserve && reply->status == STATUS_OK) count_consumer(a, c);
    }
    if (reply->body_bytes > b->largest_body && !slot->python) b->largest_body = reply->body_bytes;
    if (reply->kind == MSG_RESERVE && c->reserves == 0) beanstalk_set_waiting(a, c, false);
}

static void heard(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply) {
    note_holding(beanstalk_of(c), worker, reply);
    gather_hear(a, c, worker, reply);
}

static void lost(struct acceptor *a, struct connection *c, uint32_t worker) {
    struct beanstalk *b = beanstalk_of(c);
    b->holding_workers &= ~bit_of(worker);
    b->bodies_asked = 0;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        const struct slot *slot = connection_slot(c, c->head_slot + i);
        if (asks_for_body(slot->kind) && !slot->python && !slot->answered) b->bodies_asked++;
    }
    if (b->gather.phase != GATHER_NONE) gather_lost(a, c, worker);
}

static void hung_up(struct acceptor *a, struct connection *c) {
    if (beanstalk_of(c)->gather.phase != GATHER_NONE) gather_cancel(a, c);
}

static void crowded(struct acceptor *a, struct connection *c) {
    beanstalk_answer_failure(a, c, STATUS_NO_SPACE);
}

static bool idles(const struct connection *c) {
    return beanstalk_of(c)->gather.phase == GATHER_WAITING;
}

/* --- the life of a connection ------------------------------------------------------------------------------------- */

/* The tube `default` always exists, as in beanstalkd. */
static bool started(struct acceptor *a, void *state) {
    *(struct beanstalk_options *)state =
        (struct beanstalk_options){.max_job_bytes = BEANSTALK_JOB_BYTES, .max_watches = MAX_ALL_WATCHED};
    return topic_list(a, DEFAULT_TOPIC, sizeof DEFAULT_TOPIC - 1);
}

static void opened(struct acceptor *a, struct connection *c) {
    struct beanstalk *b = beanstalk_of(c);
    b->watched = b->few_watched;
    b->watched_capacity = FEW_WATCHED;
    uint32_t used = topic_bind(a, DEFAULT_TOPIC, sizeof DEFAULT_TOPIC - 1);
    uint32_t watched = used != 0 ? topic_bind(a, DEFAULT_TOPIC, sizeof DEFAULT_TOPIC - 1) : 0;
    if (watched == 0) {
        if (used != 0) topic_unbind(a, used);
        engine_oom(a, c);
        return;
    }
    beanstalk_use(a, c, used, MSG_IMPLICIT);
    beanstalk_watch(a, c, watched, MSG_IMPLICIT);
}

static void closed(struct acceptor *a, struct connection *c) {
    const struct beanstalk *b = beanstalk_of(c);
    gather_forget(a, c);
    beanstalk_let_go_tubes(a, c);
    beanstalk_set_waiting(a, c, false);
    if (b->producer) uncount(a, c, COUNT_PRODUCERS);
    if (b->consumer) uncount(a, c, COUNT_WORKERS);
}

static void freed(struct connection *c) {
    beanstalk_free_tubes(beanstalk_of(c));
}

/* The names in `stats`, without the prefixes cmd- and current-. */
static const char *const counters[COUNT_ALL] = {
    [COUNT_PUT] = "put",
    [COUNT_PEEK] = "peek",
    [COUNT_PEEK_READY] = "peek-ready",
    [COUNT_PEEK_DELAYED] = "peek-delayed",
    [COUNT_PEEK_BURIED] = "peek-buried",
    [COUNT_RESERVE] = "reserve",
    [COUNT_RESERVE_WITH_TIMEOUT] = "reserve-with-timeout",
    [COUNT_DELETE] = "delete",
    [COUNT_RELEASE] = "release",
    [COUNT_USE] = "use",
    [COUNT_WATCH] = "watch",
    [COUNT_IGNORE] = "ignore",
    [COUNT_BURY] = "bury",
    [COUNT_KICK] = "kick",
    [COUNT_TOUCH] = "touch",
    [COUNT_STATS] = "stats",
    [COUNT_STATS_JOB] = "stats-job",
    [COUNT_STATS_TUBE] = "stats-tube",
    [COUNT_LIST_TUBES] = "list-tubes",
    [COUNT_LIST_TUBE_USED] = "list-tube-used",
    [COUNT_LIST_TUBES_WATCHED] = "list-tubes-watched",
    [COUNT_PAUSE_TUBE] = "pause-tube",
    [COUNT_PRODUCERS] = "producers",
    [COUNT_WORKERS] = "workers",
    [COUNT_WAITING] = "waiting",
};

const struct codec beanstalk_codec = {
    .name = "beanstalk",
    .acceptor_bytes = sizeof(struct beanstalk_options),
    .connection_bytes = sizeof(struct beanstalk),
    .counters = counters,
    .counter_count = COUNT_ALL,
    .first_gauge = COUNT_PRODUCERS,
    .is_name = beanstalk_is_name,
    .answer = beanstalk_answer,
    .parse = parse,
    .started = started,
    .set = beanstalk_set,
    .call = beanstalk_call,
    .opened = opened,
    .hung_up = hung_up,
    .crowded = crowded,
    .closed = closed,
    .freed = freed,
    .idles = idles,
    .replied = replied,
    .lost = lost,
    .tell = beanstalk_tell,
    .heard = heard,
    .ask_again = gather_again,
};

/* Scripts of bytes against NSQ's whole path: connections, filters, an acceptor, workers, their logs, crashes.
 *
 * Clients send commands that are mostly sensible, cut where a script says; sizes, names and numbers are wrong at times,
 * ids are those of messages that were delivered. The target plays Python's part: it answers IDENTIFY, AUTH and SUB, or
 * puts that off; it passes filtered bytes on as they are, at once, late or never. Connections of its own change topics
 * and channels and ask for catalogs, a beanstalkd client shares the topics, workers and the acceptor die, disks are
 * full, time passes.
 *
 * What is looked for, beside assertions and what the sanitizers see:
 *
 *   - each client gets whole frames that it may get, replies in the order of its commands, and nothing behind an error
 *     that ends its connection;
 *   - no consumer has more messages in flight than its RDY, nor one before it has subscribed;
 *   - a message is the same wherever it is delivered;
 *   - once all is quiet every command is answered, and nobody who could be given a message waits for one;
 *   - each request of Python's is answered once, and it hears of the end of each connection it knows of;
 *   - workers' counts are true (audit.h), and what one held it holds when it is back.
 *
 * A client whose bytes went wrong is not followed any more: then it is only its frames that are looked at.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "audit.h"
#include "catalog_check.h"
#include "remote.h"
#include "script.h"
#include "world.h"

enum {
    CLIENTS = 5,
    LOCALS = 2,
    TOPICS = 5,
    CHANNELS = 3,
    MAX_MESSAGE = 40000,
    MAX_BODY = 60000,
    MAX_RDY = 50,
    MAX_ERROR = 100000, /* a line, quoted */
    EXPECTED = 1024,
    RECENT = 32,
    NSQ_NAME = 64, /* bytes of a name, at most */
    KNOWN = 64, /* connections that Python knows of */
    PAST = 1 << 14,
    NAME_BYTES = 80,
    NSQ_ID_TEXT = 17,
};

enum { RESPONSE, ERROR, MESSAGE }; /* frames */

/* --- clients: what they were told so far -------------------------------------------------------------------------- */

enum asked {
    A_PUB,
    A_MPUB,
    A_DPUB,
    A_SUB,
    AN_IDENTIFY,
    A_CLS,
    A_MISTAKE,
    A_REMARK /* of a message: answered only if it is refused */
};

struct nsq_client {
    struct remote remote;
    uint32_t conn;
    bool crooked; /* not followed any more */
    bool doomed;  /* it has made a mistake: what it asks for is not answered any more */
    bool over;    /* it has been told so */
    bool subscribing, subscribed, closing;
    bool muffled;  /* what it is told may never come */
    uint32_t mark; /* of the last IDENTIFY */
    struct {
        enum asked what;
        uint32_t mark;
        char about[NSQ_ID_TEXT]; /* of a remark */
    } expected[EXPECTED];
    uint32_t expected_count;
    uint64_t in_flight[MAX_RDY + 1];
    uint32_t in_flight_count;
    uint32_t rdy, highest_rdy; /* the last it has said; the highest that may be in force */
};

static struct nsq_client clients[CLIENTS];
static struct remote tube_client;

/* Messages that were delivered before. */
static struct {
    uint64_t id, sum;
} past[PAST];
static uint64_t recent[RECENT];
static uint32_t recent_count;
static bool unsure; /* what comes may have been sent before something that ended its flight */
static struct {
    bool auth, tls_required, ephemerals;
} options;

static uint64_t sum_of(const uint8_t *bytes, size_t count) {
    uint64_t sum = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < count; i++) sum = (sum ^ bytes[i]) * 0x100000001b3ULL;
    return sum;
}

static void same_as_ever(uint64_t id, uint64_t sum) {
    for (uint64_t place = id * 0x9e3779b97f4a7c15ULL >> 50, n = 0; n < 64; n++) {
        uint64_t at = (place + n) % PAST;
        if (past[at].id && past[at].id != id) continue;
        assert((!past[at].id || past[at].sum == sum) && "an id means one message, whoever gets it");
        past[at].id = id;
        past[at].sum = sum;
        return;
    }
}

static uint32_t be32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool starts(const uint8_t *data, size_t bytes, const char *with) {
    return bytes >= strlen(with) && !memcmp(data, with, strlen(with));
}

static bool is(const uint8_t *data, size_t bytes, const char *text) {
    return bytes == strlen(text) && !memcmp(data, text, bytes);
}

static void drop_expected(struct nsq_client *c) {
    memmove(c->expected, c->expected + 1, --c->expected_count * sizeof *c->expected);
}

/* What comes is about what was asked later: nothing more comes about these. */
static void drop_remarks(struct nsq_client *c) {
    while (c->expected_count && c->expected[0].what == A_REMARK) drop_expected(c);
}

static void take_refusal(struct nsq_client *c, const uint8_t *data, size_t bytes) {
    if (c->crooked) return;
    while (c->expected_count && c->expected[0].what == A_REMARK) {
        bool meant = memmem(data, bytes, c->expected[0].about, strlen(c->expected[0].about)) != NULL;
        drop_expected(c);
        if (meant) return;
    }
    assert(!"a refusal stands in its place among the replies");
}

static void take_response(struct nsq_client *c, const uint8_t *data, size_t bytes) {
    if (is(data, bytes, "_heartbeat_") || c->crooked) return;
    drop_remarks(c);
    assert(c->expected_count && "nobody has asked for a reply");
    enum asked what = c->expected[0].what;
    if (is(data, bytes, "OK")) {
        assert(what == A_PUB || what == A_MPUB || what == A_DPUB || what == A_SUB);
        c->subscribed |= what == A_SUB;
    } else if (is(data, bytes, "CLOSE_WAIT")) {
        assert(what == A_CLS);
    } else {
        char mark[16];
        snprintf(mark, sizeof mark, "%u:", c->expected[0].mark);
        assert(what == AN_IDENTIFY && starts(data, bytes, mark));
    }
    drop_expected(c);
}

static void take_error(struct nsq_client *c, const uint8_t *data, size_t bytes) {
    static const char *const meant[] = {
        [A_PUB] = "E_PUB_FAILED ", [A_MPUB] = "E_MPUB_FAILED ",          [A_DPUB] = "E_DPUB_FAILED ",
        [A_SUB] = "E_SUB_FAILED ", [AN_IDENTIFY] = "E_IDENTIFY_FAILED ", [A_CLS] = "no error",
        [A_MISTAKE] = "E_",
    };
    assert(starts(data, bytes, "E_"));
    if (starts(data, bytes, "E_FIN_FAILED ") || starts(data, bytes, "E_REQ_FAILED ") ||
        starts(data, bytes, "E_TOUCH_FAILED ")) {
        take_refusal(c, data, bytes);
        return;
    }
    c->over = true;
    /* Silent in the middle of a command for too long. */
    bool cut_short = memmem(data, bytes, "failed to read", 14) != NULL;
    if (c->crooked || cut_short) return;
    drop_remarks(c);
    assert(c->expected_count && "nobody has made a mistake");
    enum asked what = c->expected[0].what;
    bool refused = options.auth && what <= A_SUB && starts(data, bytes, "E_UNAUTHORIZED ");
    assert((refused || starts(data, bytes, meant[what])) && "an error is about the command whose turn it is");
}

static void take_message(struct nsq_client *c, const uint8_t *data, size_t bytes) {
    uint64_t id = 0;
    assert(bytes >= 26 && bytes <= 26 + MAX_MESSAGE);
    assert((data[8] || data[9]) && "a message that is delivered has been tried");
    for (int i = 0; i < 16; i++) {
        const char *digit = memchr("0123456789abcdef", data[10 + i], 16);
        assert(digit);
        id = id << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    same_as_ever(id, sum_of(data, 8) ^ sum_of(data + 26, bytes - 26));
    recent[recent_count++ % RECENT] = id;
    if (!c->crooked) assert(c->subscribed && "only a consumer gets messages");
    for (uint32_t i = 0; i < c->in_flight_count; i++)
        if (c->in_flight[i] == id) return;
    if (unsure) return;
    assert(c->in_flight_count < c->highest_rdy && "a consumer gets no more than its RDY");
    c->in_flight[c->in_flight_count++] = id;
}

/* A whole frame off the front of what was received: how long it is, or 0 if there is none yet. */
static size_t take_frame(struct nsq_client *c, const uint8_t *got, size_t bytes) {
    if (bytes < 8) return 0;
    uint32_t size = be32(got), type = be32(got + 4);
    assert(size >= 4 && size <= MAX_ERROR && type <= MESSAGE && "a frame's head");
    if (bytes < size + 4) return 0;
    trace("client %td gets %u: %.*s", c - clients, type, (int)(size - 4 < 60 ? size - 4 : 60), (const char *)got + 8);
    assert(!c->over && "nothing follows the error that ends a connection");
    if (type == RESPONSE) take_response(c, got + 8, size - 4);
    if (type == ERROR) take_error(c, got + 8, size - 4);
    if (type == MESSAGE) take_message(c, got + 8, size - 4);
    return size + 4;
}

static bool receive(struct nsq_client *c) {
    if (!remote_receive(&c->remote)) return false;
    size_t taken = 0, one;
    while ((one = take_frame(c, c->remote.got.at + taken, c->remote.got.count - taken)) != 0) taken += one;
    bytes_drop(&c->remote.got, taken);
    return true;
}

/* What is in flight may end without a word. */
static void forget_flights(void) {
    for (uint32_t i = 0; i < CLIENTS; i++) clients[i].in_flight_count = 0;
    unsure = true;
}

/* --- what Python does --------------------------------------------------------------------------------------------- */

enum passes { AT_ONCE, IN_PIECES, LATE, NEVER };

struct known {
    uint32_t conn;        /* 0: a free place */
    struct bytes command; /* that it thinks about */
    bool subscribing;
    bool filtered;
    enum passes passes;
    uint32_t handshakes;  /* that are still to come: inputs */
    struct bytes in, out; /* on their way */
    bool input;           /* to be answered */
};

static struct known known[KNOWN];
static struct {
    uint32_t conn, missing;
} locals[LOCALS];

static struct known *known_of(uint32_t conn) {
    for (uint32_t i = 0; i < KNOWN; i++)
        if (known[i].conn == conn) return &known[i];
    return NULL;
}

static void forget_known(struct known *k) {
    bytes_free(&k->command);
    bytes_free(&k->in);
    bytes_free(&k->out);
    *k = (struct known){0};
}

static struct nsq_client *client_of(uint32_t conn) {
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (clients[i].conn == conn && clients[i].remote.fd >= 0) return &clients[i];
    return NULL;
}

static size_t frame(uint8_t *out, uint32_t type, const void *data, size_t bytes) {
    const uint8_t head[8] = {0, 0, (uint8_t)((bytes + 4) >> 8), (uint8_t)(bytes + 4), 0, 0, 0, (uint8_t)type};
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, data, bytes);
    return sizeof head + bytes;
}

static void done(uint32_t conn, const void *data, size_t bytes) {
    uint8_t out[256];
    acceptor_reply(world.acceptor, conn, out, frame(out, RESPONSE, data, bytes));
    acceptor_resume(world.acceptor, conn);
}

static void refuse(uint32_t conn, const char *error) {
    uint8_t out[256];
    acceptor_reply(world.acceptor, conn, out, frame(out, ERROR, error, strlen(error)));
    acceptor_close(world.acceptor, conn);
}

static void tell_codec(uint32_t conn, const char *what, uint64_t value) {
    (void)acceptor_call(world.acceptor, conn, what, value, NULL, 0, NULL, 0);
}

/* The client's bodies are "MARK:XN": X says what is to become of it. */
static void identify(struct known *k, const uint8_t *body, size_t bytes) {
    static const uint64_t beats[] = {SECOND / 2, SECOND, 3 * SECOND, 30 * SECOND};
    uint32_t conn = k->conn;
    const uint8_t *colon = memchr(body, ':', bytes);
    char what = colon && colon + 2 < body + bytes ? (char)colon[1] : ' ';
    uint32_t number = what == ' ' ? 0 : (uint32_t)colon[2] & 3;
    if (bytes > 40) bytes = 40;
    if (what == 'x') {
        refuse(conn, "E_IDENTIFY_FAILED IDENTIFY failed");
        return;
    }
    if (what == 't' || options.tls_required) tell_codec(conn, "tls", 1);
    if (what == 'h') tell_codec(conn, "heartbeat-ns", beats[number]);
    if (what != 'f' || k->filtered) {
        done(conn, body, bytes);
        return;
    }
    uint8_t out[64];
    k->filtered = true;
    k->passes = (enum passes)number;
    k->handshakes = colon[2] >> 2 & 1;
    acceptor_filter(world.acceptor, conn);
    acceptor_send(world.acceptor, conn, out, frame(out, RESPONSE, body, bytes));
    if (!k->handshakes) acceptor_resume(world.acceptor, conn);
}

static bool word(const uint8_t **at, const uint8_t *end, const char **out, size_t *bytes) {
    if (*at >= end) return false;
    const uint8_t *space = memchr(*at, ' ', (size_t)(end - *at));
    *out = (const char *)*at;
    *bytes = (size_t)((space ? space : end) - *at);
    *at = space ? space + 1 : end;
    return *bytes > 0;
}

static void subscribe(struct known *k, const uint8_t *at, const uint8_t *end) {
    const char *topic, *channel;
    size_t topic_bytes, channel_bytes;
    uint32_t conn = k->conn;
    if (!word(&at, end, &topic, &topic_bytes) || !word(&at, end, &channel, &channel_bytes) ||
        topic_bytes > NSQ_NAME || channel_bytes > NSQ_NAME || !pick(24)) {
        refuse(conn, "E_SUB_FAILED SUB failed");
        return;
    }
    static const uint64_t times[] = {SECOND / 2, SECOND, 5 * SECOND, 60 * SECOND};
    struct subscribe s = {.timeout_ns = times[pick(4)], .timeout_max_ns = times[pick(4)]};
    s.sample_percent = pick(8) ? 0 : 50;
    s.max_consumers = pick(8) ? 0 : 2;
    s.name_bytes = (uint16_t)channel_bytes;
    s.description_bytes = pick(16) ? 100 : DESCRIPTION_MAX_BYTES;
    if (memmem(channel, channel_bytes, "#ephemeral", 10)) s.flags = SUBSCRIBE_EPHEMERAL;
    static uint8_t body[sizeof s + NSQ_NAME + DESCRIPTION_MAX_BYTES];
    memcpy(body, &s, sizeof s);
    memcpy(body + sizeof s, channel, channel_bytes);
    memset(body + sizeof s + channel_bytes, 'd', s.description_bytes);
    uint32_t number = acceptor_bind(world.acceptor, topic, topic_bytes);
    assert(number);
    struct message request = {.kind = MSG_SUBSCRIBE, .topic = number};
    uint32_t worker = acceptor_worker_of_topic(world.acceptor, number);
    k->subscribing = true;
    if (acceptor_request(world.acceptor, worker, conn, &request, body, sizeof s + channel_bytes + s.description_bytes) <
        0) {
        k->subscribing = false;
        refuse(conn, "E_SUB_FAILED SUB failed exiting");
    }
}

static void authorize(uint32_t conn, const uint8_t *at, const uint8_t *end) {
    static const uint64_t spans[] = {0, SECOND, 100 * SECOND};
    const char *topic;
    size_t bytes;
    if (!word(&at, end, &topic, &bytes) || !pick(24)) {
        refuse(conn, "E_UNAUTHORIZED AUTH failed");
        return;
    }
    if (pick(2)) tell_codec(conn, "authorized-until-ns", world.now + spans[pick(3)]);
    (void)acceptor_call(world.acceptor, conn, "authorize", world.now + spans[pick(3)], topic, bytes, NULL, 0);
    acceptor_resume(world.acceptor, conn);
}

/* Python comes to an end with a command. */
static void think(struct known *k) {
    struct bytes command = k->command;
    if (!command.count) return;
    k->command = (struct bytes){0};
    const uint8_t *end = command.at + command.count, *feed = memchr(command.at, '\n', command.count);
    const uint8_t *line_end = feed ? feed : end, *at = command.at;
    const char *name;
    size_t bytes;
    bool named = word(&at, line_end, &name, &bytes);
    assert(named && "Python is asked about commands that it knows");
    const uint8_t *text = (const uint8_t *)name;
    if (is(text, bytes, "IDENTIFY") || is(text, bytes, "AUTH")) {
        assert(feed && feed + 1 < end && "with a body");
        identify(k, feed + 1, (size_t)(end - feed - 1));
    } else if (is(text, bytes, "SUB")) {
        subscribe(k, at, line_end);
    } else {
        assert(options.auth && (is(text, bytes, "PUB") || is(text, bytes, "MPUB") || is(text, bytes, "DPUB")));
        authorize(k->conn, at, line_end);
    }
    bytes_free(&command);
}

static void heard_command(const struct upcall *u) {
    struct known *k = known_of(u->conn);
    if (!k) k = known_of(0);
    assert(k && "Python is told when a connection is closed");
    assert(!k->command.count && !k->subscribing && "a connection has one command with Python at a time");
    k->conn = u->conn;
    bytes_add(&k->command, u->bytes, u->bytes_count);
    if (pick(3)) think(k);
}

static void heard_answer(const struct upcall *u) {
    static const uint8_t ok[] = "OK";
    assert(u->answer.status <= STATUS_FULL);
    for (uint32_t i = 0; i < LOCALS; i++) {
        if (locals[i].conn != u->conn) continue;
        assert(locals[i].missing && "each request is answered once");
        locals[i].missing--;
        if (u->answer.kind == MSG_CATALOG && u->answer.status == STATUS_OK) catalog_check(u->bytes, u->bytes_count);
        return;
    }
    struct known *k = known_of(u->conn);
    assert(k && k->subscribing && u->answer.kind == MSG_SUBSCRIBE && "each request is answered once");
    k->subscribing = false;
    if (u->answer.status == STATUS_OK)
        done(u->conn, ok, 2);
    else
        refuse(u->conn, "E_SUB_FAILED SUB failed for a reason");
}

/* --- filters ------------------------------------------------------------------------------------------------------ */

static void answer_input(struct known *k) {
    uint32_t conn = k->conn;
    if (!k->input) return;
    k->input = false;
    size_t bytes = k->in.count;
    if (k->handshakes) {
        k->handshakes--;
        if (k->handshakes) {
            acceptor_feed(world.acceptor, conn, "", 0, pick(8) == 0);
            return;
        }
        acceptor_resume(world.acceptor, conn);
    }
    if (k->passes == LATE) bytes = pick((uint32_t)(bytes < 1000 ? bytes : 1000) + 1);
    acceptor_feed(world.acceptor, conn, bytes ? k->in.at : (const uint8_t *)"", bytes, bytes && bytes < k->in.count);
    bytes_drop(&k->in, bytes);
}

static void pass_output(struct known *k, size_t most) {
    size_t bytes = k->out.count < most ? k->out.count : most;
    if (bytes) acceptor_send(world.acceptor, k->conn, k->out.at, bytes);
    bytes_drop(&k->out, bytes);
}

static void heard_input(const struct upcall *u) {
    struct known *k = known_of(u->conn);
    assert(k && k->filtered && !k->input && "one input is answered before there is another");
    bytes_add(&k->in, u->bytes, u->bytes_count);
    k->input = true;
    if (k->passes < LATE || (k->passes == LATE && pick(2))) answer_input(k);
}

static void heard_output(const struct upcall *u) {
    struct known *k = known_of(u->conn);
    assert(k && k->filtered);
    if (k->passes == NEVER) return;
    bytes_add(&k->out, u->bytes, u->bytes_count);
    if (k->passes == LATE && pick(2)) return;
    if (k->passes != AT_ONCE) pass_output(k, pick(100));
    if (k->passes != LATE) pass_output(k, SIZE_MAX);
}

static void heard_closed(const struct upcall *u) {
    for (uint32_t i = 0; i < LOCALS; i++)
        if (locals[i].conn == u->conn) locals[i].conn = 0;
    struct known *k = known_of(u->conn);
    if (k) forget_known(k);
}

static void handle_upcalls(void) {
    struct upcall u;
    while (acceptor_upcall(world.acceptor, &u)) {
        trace("upcall %u of %#x: %.*s", u.kind, u.conn, (int)(u.bytes_count < 60 ? u.bytes_count : 60),
              (const char *)u.bytes);
        switch (u.kind) {
        case UPCALL_COMMAND: heard_command(&u); break;
        case UPCALL_ANSWER: heard_answer(&u); break;
        case UPCALL_INPUT: heard_input(&u); break;
        case UPCALL_OUTPUT: heard_output(&u); break;
        case UPCALL_CLOSED: heard_closed(&u); break;
        default: assert(!"nobody has done anything to cause this upcall");
        }
    }
}

/* --- engines ------------------------------------------------------------------------------------------------------ */

static struct holdings held[WORKERS]; /* by those that are away, ... */
static uint64_t lost_at[WORKERS];     /* ... since when */

static bool turn_acceptor(void) {
    bool alive = acceptor_turn(world.acceptor) > 0;
    handle_upcalls();
    return alive;
}

static bool turn_worker(uint32_t index) {
    bool alive = worker_takes_turn(index);
    if (world.workers[index]) audit_worker(world.workers[index]);
    return alive;
}

static void lose_worker(uint32_t index) {
    if (!world.workers[index]) return;
    trace("worker %u is lost", index);
    turn_worker(index);
    held[index] = holdings_of(world.workers[index]);
    lost_at[index] = world.now;
    worker_stop(index);
    acceptor_peer_gone(world.acceptor, index);
    handle_upcalls();
    forget_flights();
}

static void bring_back_worker(uint32_t index) {
    if (world.workers[index]) return;
    trace("worker %u is back", index);
    worker_start(index);
    audit_worker(world.workers[index]);
    struct holdings after = holdings_of(world.workers[index]);
    /* What was deferred may be due by now. */
    bool alike = !world.disk_was_full && world.now == lost_at[index];
    holdings_survive(&held[index], &after, options.ephemerals ? NO_NAME_LESS : alike ? ALIKE : NO_LESS);
    holdings_free(&held[index]);
    holdings_free(&after);
    worker_join(index);
    forget_flights();
}

/* A client that is followed, of which Python has nothing left to do. */
static bool is_followed(const struct nsq_client *c) {
    return c->remote.fd >= 0 && !c->crooked && !c->muffled;
}

/* What the worker that it consumes from believes its RDY to be. */
static void check_credit(const struct nsq_client *c) {
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct worker *w = world.workers[i];
        uint32_t known_as = clients_find(&w->clients, 0, c->conn);
        uint32_t consumer = known_as ? client_at(&w->clients, known_as)->consumer : 0;
        if (consumer) assert(consumer_at(&w->subscriptions, consumer)->credit == c->rdy && "its last RDY is in force");
    }
}

static void check_quiet(void) {
    bool all_followed = true;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct nsq_client *c = &clients[i];
        all_followed &= c->remote.fd < 0 || is_followed(c);
        if (!is_followed(c)) continue;
        assert(!c->over && "who was told that it is over is cut off");
        drop_remarks(c);
        if (c->expected_count)
            trace("client %td, %#x, waits for %u (%u in all)", c - clients, c->conn, c->expected[0].what,
                  c->expected_count);
        assert(!c->expected_count && "each command is answered in the end");
        c->highest_rdy = c->rdy;
        if (c->subscribed && !c->doomed) check_credit(c);
    }
    for (uint32_t i = 0; i < LOCALS; i++) assert(!locals[i].missing && "each request is answered in the end");
    unsure = false;
    for (uint32_t i = 0; i < KNOWN; i++) all_followed &= !known[i].conn || known[i].passes < LATE;
    if (!all_followed) return;
    assert(!acceptor_busy(world.acceptor));
    for (uint32_t i = 0; i < WORKERS && !world.disk_full; i++) audit_at_rest(world.workers[i]);
}

static void run_until_quiet(void) {
    for (uint32_t i = 0; i < WORKERS; i++) bring_back_worker(i);
    /* A large message takes some turns to pass through a small ring, in which nobody does anything else. */
    for (int turns = 0, quiet = 0; quiet < 12; turns++) {
        assert(turns < UNTIL_QUIET && "the engines keep each other busy for ever");
        bool alive = turn_acceptor();
        for (uint32_t i = 0; i < KNOWN; i++) {
            if (!known[i].conn) continue;
            alive |= known[i].command.count > 0;
            think(&known[i]);
        }
        for (uint32_t i = 0; i < WORKERS; i++) alive |= turn_worker(i);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            alive |= remote_flush(&clients[i].remote, SIZE_MAX);
            alive |= receive(&clients[i]);
        }
        alive |= remote_flush(&tube_client, SIZE_MAX);
        alive |= remote_receive(&tube_client);
        bytes_drop(&tube_client.got, tube_client.got.count);
        quiet = alive ? 0 : quiet + 1;
    }
    check_quiet();
}

/* --- what clients say --------------------------------------------------------------------------------------------- */

static void topic_name(char *out) {
    uint32_t topic = pick(TOPICS);
    snprintf(out, NAME_BYTES, options.ephemerals && topic == 0 ? "e#ephemeral" : "t%u", topic);
}

static void channel_name(char *out) {
    uint32_t channel = pick(CHANNELS);
    snprintf(out, NAME_BYTES, options.ephemerals && channel == 0 ? "c#ephemeral" : "c%u", channel);
}

static void expect_about(struct nsq_client *c, enum asked what, const char *about) {
    trace("client %td asks %u, after %.*s", c - clients, what,
          (int)(c->remote.unsent.count < 100 ? c->remote.unsent.count : 100), (const char *)c->remote.unsent.at);
    if (c->doomed || c->crooked) return;
    if (c->expected_count == EXPECTED) {
        c->crooked = true; /* it has forgotten */
        return;
    }
    c->expected[c->expected_count].mark = c->mark;
    snprintf(c->expected[c->expected_count].about, NSQ_ID_TEXT, "%s", about);
    c->expected[c->expected_count++].what = what;
    c->doomed |= what == A_MISTAKE;
}

static void expect(struct nsq_client *c, enum asked what) {
    expect_about(c, what, "");
}

static void connect_client(struct nsq_client *c) {
    struct remote remote = c->remote;
    *c = (struct nsq_client){.remote = remote};
    c->conn = remote_connect(&c->remote, acceptor_protocol("nsq"));
    trace("client %td is %#x", c - clients, c->conn);
    c->crooked = !pick(32);
    remote_say(&c->remote, c->crooked ? " V2" : "  V2");
}

/* A name, or what is none. True if it is one. */
static bool say_name(struct nsq_client *c, const char *name) {
    static const char *const wrong[] = {"", "/", "$", "#ephemeral", "a#b", "\xff"};
    if (pick(40)) {
        remote_say(&c->remote, "%s", name);
        return true;
    }
    uint32_t which = pick(8);
    if (which < 6) remote_say(&c->remote, "%s", wrong[which]);
    if (which == 6) remote_say(&c->remote, "%065d", 0);
    if (which == 7) c->crooked = true; /* then the next word is taken for it */
    return false;
}

static uint32_t some_size(void) {
    static const uint32_t sizes[] = {1, 2, 10, 30, 300, 3000, 20000, MAX_MESSAGE};
    return sizes[pick(8)];
}

/* In place of a size, so that what follows is something else. */
static uint32_t spoilt(struct nsq_client *c, uint32_t size) {
    static const uint32_t sizes[] = {0, 1, 3, 0x7fffffff, 0x80000000, 0xffffffff, MAX_MESSAGE + 1, MAX_BODY + 1};
    if (pick(48)) return size;
    c->crooked = true;
    return pick(2) ? sizes[pick(8)] : size + pick(7) - 3;
}

static void say_be32(struct nsq_client *c, uint32_t value) {
    const uint8_t bytes[] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
    bytes_add(&c->remote.unsent, bytes, sizeof bytes);
}

static void say_body(struct nsq_client *c, uint32_t size) {
    static uint8_t body[MAX_MESSAGE];
    memset(body, 'a' + (int)pick(26), size);
    bytes_add(&c->remote.unsent, body, size);
}

static void publish(struct nsq_client *c) {
    char topic[NAME_BYTES];
    topic_name(topic);
    bool dpub = !pick(4), right;
    remote_say(&c->remote, dpub ? "DPUB " : "PUB ");
    right = say_name(c, topic);
    if (dpub) {
        static const char *const delays[] = {
            "0", "1", "500", "3000", "10000", "10001", "x", "-1", "18446744073709551616"};
        uint32_t which = pick(12) ? pick(5) : pick(9);
        remote_say(&c->remote, " %s", delays[which]);
        right &= which < 5 || which == 8;
    }
    remote_say(&c->remote, "\n");
    uint32_t size = some_size();
    say_be32(c, spoilt(c, size));
    say_body(c, size);
    expect(c, !right ? A_MISTAKE : dpub ? A_DPUB : A_PUB);
}

static void publish_many(struct nsq_client *c) {
    char topic[NAME_BYTES];
    topic_name(topic);
    remote_say(&c->remote, "MPUB ");
    bool right = say_name(c, topic);
    remote_say(&c->remote, "\n");
    uint32_t count = 1 + pick(20), size = some_size(), all = 4 + count * (4 + size);
    if (all > MAX_BODY) {
        count = 1;
        all = 8 + size;
    }
    say_be32(c, spoilt(c, all));
    say_be32(c, spoilt(c, count));
    for (uint32_t i = 0; i < count; i++) {
        say_be32(c, spoilt(c, size));
        say_body(c, size);
    }
    expect(c, right ? A_MPUB : A_MISTAKE);
}

static void ready(struct nsq_client *c) {
    static const uint32_t counts[] = {0, 1, 2, 3, 10, MAX_RDY, MAX_RDY};
    uint32_t count = counts[pick(7)];
    bool wrong = !pick(48);
    if (wrong) remote_say(&c->remote, pick(2) ? "RDY x\n" : "RDY 51\n");
    if (!wrong && count == 1 && pick(2))
        remote_say(&c->remote, "RDY\r\n");
    else if (!wrong)
        remote_say(&c->remote, "RDY %u\n", count);
    if (c->closing) return;
    if (wrong || !c->subscribing) {
        expect(c, A_MISTAKE);
        return;
    }
    c->rdy = count;
    if (count > c->highest_rdy) c->highest_rdy = count;
}

static void about_message(struct nsq_client *c) {
    static const char *const names[] = {"FIN", "FIN", "FIN", "TOUCH", "REQ"};
    static const char *const delays[] = {" 0", " 1", " 2000", " 99999999999999999999", " 100000", " -1", ""};
    uint32_t what = pick(5), which = pick(RECENT), delay = pick(24) ? pick(5) : pick(7);
    uint64_t id = recent[which];
    if (c->in_flight_count && pick(4)) id = c->in_flight[pick(c->in_flight_count)];
    bool wrong = !c->subscribing;
    char text[NSQ_ID_TEXT] = "0123456789ABCDEF"; /* of nobody's message */
    if (pick(40))
        snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    else if (pick(2))
        snprintf(text, sizeof text, "%llu", (unsigned long long)(id & 0xffff)), wrong = true;
    remote_say(&c->remote, "%s %s", names[what], text);
    if (what == 4) remote_say(&c->remote, "%s", delays[delay]);
    wrong |= what == 4 && delay > 4;
    remote_say(&c->remote, "\n");
    expect_about(c, wrong ? A_MISTAKE : A_REMARK, text);
    for (uint32_t i = 0; what != 3 && i < c->in_flight_count; i++)
        if (c->in_flight[i] == id) c->in_flight[i--] = c->in_flight[--c->in_flight_count];
}

static void say_identify(struct nsq_client *c) {
    char body[32];
    uint32_t what = pick(16), number = pick(8);
    if (what == 15 && pick(4)) what = 0;
    if (what == 14 && c->subscribing) what = 0;
    const char *letter = what == 14 || what == 13 ? "f" : what == 12 ? "h" : what == 15 ? "x" : "t";
    if (*letter == 'f' && c->mark) letter = "t"; /* a filter is put in once */
    int bytes = snprintf(body, sizeof body, "%u:%s%u", ++c->mark, letter, number);
    bool auth = c->mark > 1 && !pick(4);
    remote_say(&c->remote, auth ? "AUTH\n" : "IDENTIFY\n");
    say_be32(c, (uint32_t)bytes);
    bytes_add(&c->remote.unsent, body, (size_t)bytes);
    expect(c, c->subscribing ? A_MISTAKE : AN_IDENTIFY);
    /* Whose bytes are late may wait for ever. */
    c->muffled |= *letter == 'f' && ((number & 3) >= LATE || number >= 4);
}

static void say_sub(struct nsq_client *c) {
    char topic[NAME_BYTES], channel[NAME_BYTES];
    topic_name(topic);
    channel_name(channel);
    remote_say(&c->remote, "SUB %s %s\n", topic, channel);
    expect(c, c->subscribing ? A_MISTAKE : A_SUB);
    c->subscribing = true;
    if (pick(4)) ready(c);
}

static void say_cls(struct nsq_client *c) {
    remote_say(&c->remote, "CLS\n");
    expect(c, c->subscribing && !c->closing ? A_CLS : A_MISTAKE);
    c->closing = true;
    c->rdy = 0;
}

static void garbage(struct nsq_client *c) {
    uint8_t bytes[64];
    size_t count = pick(sizeof bytes);
    for (size_t i = 0; i < count; i++) bytes[i] = byte();
    c->crooked = true;
    bytes_add(&c->remote.unsent, bytes, count);
    if (pick(2)) remote_say(&c->remote, "\n");
}

static void say_nonsense(struct nsq_client *c) {
    switch (pick(5)) {
    case 0: remote_say(&c->remote, "\n"); break;
    case 1: remote_say(&c->remote, "NOPE a b c\n"); break;
    case 2: remote_say(&c->remote, "PUB\n"); break;
    case 3: remote_say(&c->remote, "%0*d\n", (int)(400 + pick(100)), 0); break;
    default:
        for (int i = 0; i < 40; i++) remote_say(&c->remote, "%0*d", 500, 0);
        c->crooked = true; /* more than a line: without a word */
        return;
    }
    expect(c, A_MISTAKE);
}

static void some_command(struct nsq_client *c) {
    bool first = !c->mark && (options.tls_required || !pick(4));
    if (first && pick(64)) {
        say_identify(c);
        return;
    }
    if (options.tls_required && !c->mark) c->crooked = true;
    uint32_t what = pick(32);
    /* As a rule what its state allows. */
    if (!c->subscribing && what >= 12 && what < 28) what = what % 4 ? what % 12 : 12;
    if (c->subscribing && (what == 12 || what == 29) && pick(24)) what = 20;
    switch (what) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 6: publish(c); break;
    case 7:
    case 8:
    case 9: publish_many(c); break;
    case 10:
    case 11: remote_say(&c->remote, pick(2) ? "NOP\n" : "NOP\r\n"); break;
    case 12: say_sub(c); break;
    case 13:
    case 14:
    case 15: ready(c); break;
    case 28:
        if (!pick(8)) say_nonsense(c);
        break;
    case 29: say_identify(c); break;
    case 30:
        if (c->subscribing || !pick(16)) say_cls(c);
        break;
    case 31:
        if (!pick(4)) garbage(c);
        break;
    default: about_message(c); break;
    }
}

/* More than may be on its way to one consumer (WINDOW_BYTES): it comes only if what has left is reported. */
static void flood(struct nsq_client *c) {
    if (options.tls_required || options.auth) return;
    connect_client(c);
    remote_say(&c->remote, "SUB t1 c1\nRDY %u\n", (unsigned)MAX_RDY);
    expect(c, A_SUB);
    c->subscribing = true;
    c->rdy = c->highest_rdy = MAX_RDY;
    for (uint32_t i = 0; i < MAX_RDY; i++) {
        remote_say(&c->remote, "PUB t1\n");
        say_be32(c, MAX_MESSAGE);
        say_body(c, MAX_MESSAGE);
        expect(c, A_PUB);
    }
    run_until_quiet();
}
_Static_assert(MAX_RDY *MAX_MESSAGE > WINDOW_BYTES + WINDOW_BYTES / 2, "a flood does not fit the window");

/* --- connections of no client's, and one of beanstalkd's ---------------------------------------------------------- */

static void local_request(void) {
    uint32_t which = pick(LOCALS);
    if (!locals[which].conn) {
        locals[which].conn = acceptor_local(world.acceptor);
        locals[which].missing = 0;
        assert(locals[which].conn);
    }
    uint8_t body[2000];
    char topic[NAME_BYTES], channel[NAME_BYTES];
    struct message m = {0};
    topic_name(topic);
    channel_name(channel);
    uint32_t shard = acceptor_shard_of_name(world.acceptor, topic, strlen(topic)), worker = shard % WORKERS;
    size_t bytes = 0;
    switch (pick(4)) {
    case 0:
        m = (struct message){.kind = MSG_CATALOG, .pri = pick(2)};
        bytes = pick(2) ? 0 : (size_t)snprintf((char *)body, sizeof body, "%s", topic);
        break;
    case 1: {
        uint32_t number = acceptor_bind(world.acceptor, topic, strlen(topic)), count = 1 + pick(10), size = pick(100);
        m = (struct message){.kind = MSG_PUBLISH_MANY, .topic = number, .pri = count, .ttr_ns = SECOND};
        m.id = acceptor_take_ids(world.acceptor, number, count);
        for (uint32_t i = 0; i < count; i++) {
            const uint8_t head[] = {0, 0, 0, (uint8_t)(pick(32) ? size : pick(256))};
            memcpy(body + bytes, head, sizeof head);
            memset(body + bytes + 4, 'l', size);
            bytes += 4 + size;
        }
        if (!pick(8)) bytes = pick((uint32_t)bytes);
        break;
    }
    default:
        m = (struct message){.kind = MSG_CHANGE, .id = shard, .pri = 1 + pick(5)};
        bytes = (size_t)snprintf((char *)body, sizeof body, pick(3) ? "%s\n%s" : "%s", topic, channel);
        if (!pick(32)) body[pick((uint32_t)bytes)] = byte();
        break;
    }
    trace("local %u asks %u: pri %u, %.*s", which, m.kind, m.pri, m.kind == MSG_PUBLISH_MANY ? 0 : (int)bytes,
          (const char *)body);
    if (m.kind == MSG_CHANGE) forget_flights();
    if (acceptor_request(world.acceptor, worker, locals[which].conn, &m, body, bytes) >= 0) locals[which].missing++;
}

static void tube_command(void) {
    char topic[NAME_BYTES];
    topic_name(topic);
    if (tube_client.fd < 0) (void)remote_connect(&tube_client, acceptor_protocol("beanstalk"));
    unsigned long long id = recent[pick(RECENT)];
    switch (pick(10)) {
    case 0: remote_say(&tube_client, "use %s\r\n", topic); break;
    case 1: remote_say(&tube_client, "watch %s\r\n", topic); break;
    case 2:
    case 3: remote_say(&tube_client, "reserve-with-timeout 0\r\n"); break;
    case 4: remote_say(&tube_client, "delete %llu\r\n", id); break;
    case 5: remote_say(&tube_client, "release %llu 0 %u\r\n", id, pick(3)); break;
    case 6: remote_say(&tube_client, "bury %llu 0\r\n", id); break;
    case 7: remote_disconnect(&tube_client); break;
    default: remote_say(&tube_client, "put 1024 %u 2 3\r\njob\r\n", pick(4) ? 0 : pick(3)); break;
    }
    (void)remote_flush(&tube_client, SIZE_MAX);
}

/* --- a script ----------------------------------------------------------------------------------------------------- */

static void start_acceptor(void) {
    static const struct {
        const char *name;
        uint64_t value;
    } set[] = {
        {"nsq.max-msg-size", MAX_MESSAGE}, {"nsq.max-body-size", MAX_BODY},
        {"nsq.max-rdy-count", MAX_RDY},    {"nsq.max-req-timeout-ns", 10 * SECOND},
        {"nsq.msg-timeout-ns", SECOND},    {"nsq.client-timeout-ns", 10 * SECOND},
        {"beanstalk.max-job-size", 2000},  {"max-outstanding-output", 4096},
    };
    acceptor_start();
    for (uint32_t i = 0; i < sizeof set / sizeof *set; i++) {
        int result = acceptor_set(world.acceptor, set[i].name, set[i].value);
        assert(result == 0);
    }
    (void)acceptor_set(world.acceptor, "nsq.auth", options.auth);
    (void)acceptor_set(world.acceptor, "nsq.tls-required", options.tls_required);
}

static void stop_acceptor(void) {
    acceptor_stop();
    for (uint32_t i = 0; i < CLIENTS; i++) remote_disconnect(&clients[i].remote);
    remote_disconnect(&tube_client);
    for (uint32_t i = 0; i < KNOWN; i++) forget_known(&known[i]);
    memset(locals, 0, sizeof locals);
}

static void crash_acceptor(void) {
    trace("the acceptor is lost");
    stop_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++)
        if (world.workers[i]) worker_peer_gone(world.workers[i], 0);
    if (pick(2)) (void)turn_worker(0);
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++)
        if (world.workers[i]) worker_join(i);
}

static void pass_time(void) {
    static const uint64_t spans[] = {1, SECOND / 1000, SECOND / 4, SECOND, 2 * SECOND, 5 * SECOND};
    world_pass_time(spans[pick(6)]);
    forget_flights();
}

static void some_of_python(void) {
    struct known *k = &known[pick(8)];
    if (!k->conn) return;
    switch (pick(4)) {
    case 0:
        if (k->passes == LATE) answer_input(k);
        break;
    case 1: pass_output(k, pick(300)); break;
    case 2:
        if (!pick(4)) {
            struct nsq_client *c = client_of(k->conn);
            if (c) c->crooked = true;
            acceptor_close(world.acceptor, k->conn);
        }
        break;
    default: think(k); break;
    }
}

static void end_local(void) {
    uint32_t which = pick(LOCALS);
    if (!locals[which].conn) return;
    acceptor_close(world.acceptor, locals[which].conn);
    locals[which].conn = locals[which].missing = 0;
}

static void see_to_segments(void) {
    uint32_t shard = pick(SHARDS), what = pick(4);
    if (!world.workers[shard % WORKERS]) return;
    switch (what) {
    case 0: worker_roll(world.workers[shard % WORKERS], shard); break;
    case 1: shard_drops_dead(shard); break;
    default: shard_moves_live(shard, 1 + pick(4) * 3000); break;
    }
}

static void step(void) {
    struct nsq_client *c = &clients[pick(CLIENTS)];
    if (c->remote.fd < 0) connect_client(c);
    switch (pick(48)) {
    case 0: remote_disconnect(&c->remote); break;
    case 1:
        if (pick(4)) break;
        c->crooked = true;
        (void)shutdown(c->remote.fd, SHUT_WR);
        break;
    case 2:
        switch (pick(12)) {
        case 0: crash_acceptor(); break;
        case 1: flood(c); break;
        default: break;
        }
        break;
    case 3: lose_worker(pick(WORKERS)); break;
    case 4: bring_back_worker(pick(WORKERS)); break;
    case 5:
    case 6:
    case 7:
    case 8: run_until_quiet(); break;
    case 9:
    case 10:
    case 11: (void)turn_acceptor(); break;
    case 12:
    case 13:
    case 14: (void)turn_worker(pick(WORKERS)); break;
    case 15:
    case 16: pass_time(); break;
    case 17:
    case 18: (void)receive(c); break;
    case 19: disk_set_full(world.disk_was_full && pick(4) == 0); break;
    case 20: see_to_segments(); break;
    case 21:
    case 22: some_of_python(); break;
    case 23:
    case 24:
    case 25: local_request(); break;
    case 26: tube_command(); break;
    case 27:
        if (!pick(4)) end_local();
        break;
    case 28:
    case 29:
    case 30: (void)remote_flush(&c->remote, 1 + pick(300)); break;
    case 31: (void)remote_flush(&c->remote, SIZE_MAX); break;
    default:
        for (uint32_t n = pick(5); n < 5; n++) some_command(c);
        if (pick(4)) (void)remote_flush(&c->remote, SIZE_MAX);
        break;
    }
}

void run_script(void) {
    uint8_t kind = byte(), more = byte();
    world_begin((uint64_t)(8 + 16 * (kind & 7)) << 10);
    memset(clients, 0, sizeof clients);
    memset(past, 0, sizeof past);
    memset(recent, 0, sizeof recent);
    recent_count = 0;
    unsure = false;
    options.ephemerals = (kind & 0x18) == 0;
    options.auth = (more & 3) == 0;
    options.tls_required = (more & 0x1c) == 0;
    world.disk_was_full = (more & 0x60) == 0; /* or will be */
    for (uint32_t i = 0; i < CLIENTS; i++) clients[i].remote.fd = -1;
    tube_client.fd = -1;
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_start(i);
        worker_join(i);
    }
    while (script_goes_on()) step();
    disk_set_full(false);
    run_until_quiet();
    for (uint32_t i = 0; i < CLIENTS; i++) remote_disconnect(&clients[i].remote);
    for (uint32_t i = 0; i < KNOWN; i++) {
        known[i].passes = AT_ONCE;
        answer_input(&known[i]);
    }
    run_until_quiet();
    for (uint32_t i = 0; i < KNOWN; i++) assert(!known[i].conn && "Python is told when a connection is closed");
    stop_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_stop(i);
        worker_start(i); /* what is left can be read back */
        audit_worker(world.workers[i]);
        worker_stop(i);
    }
    world_end();
}

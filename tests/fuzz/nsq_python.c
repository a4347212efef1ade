/* Python's part: IDENTIFY, AUTH and SUB, at once or later, and bytes that pass through it on their way. */
#define _GNU_SOURCE
#include "catalog_check.h"
#include "nsq_play.h"

struct known known[KNOWN];
struct local locals[LOCALS];

static struct known *known_of(uint32_t conn) {
    for (uint32_t i = 0; i < KNOWN; i++)
        if (known[i].conn == conn) return &known[i];
    return NULL;
}

void forget_known(struct known *k) {
    bytes_free(&k->command);
    bytes_free(&k->in);
    bytes_free(&k->out);
    *k = (struct known){0};
}

struct nsq_client *client_of(uint32_t conn) {
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
    if (!word(&at, end, &topic, &topic_bytes) || !word(&at, end, &channel, &channel_bytes) || topic_bytes > NSQ_NAME ||
        channel_bytes > NSQ_NAME || !pick(24)) {
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
void think(struct known *k) {
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

void answer_input(struct known *k) {
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

void pass_output(struct known *k, size_t most) {
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

void handle_upcalls(void) {
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

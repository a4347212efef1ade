/* What clients are told: whole frames, replies in the order of their commands, messages that they may have. */
#define _GNU_SOURCE
#include "nsq_play.h"

struct nsq_client clients[CLIENTS];
struct remote tube_client;
struct delivered past[PAST];
uint64_t recent[RECENT];
uint32_t recent_count;
struct play_options options;

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

static void drop_expected(struct nsq_client *c) {
    memmove(c->expected, c->expected + 1, --c->expected_count * sizeof *c->expected);
}

/* What comes is about what was asked later: nothing more comes about these. */
void drop_remarks(struct nsq_client *c) {
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
    if (c->unsure) return;
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

bool receive(struct nsq_client *c) {
    if (!remote_receive(&c->remote)) return false;
    size_t taken = 0, one;
    while ((one = take_frame(c, c->remote.got.at + taken, c->remote.got.count - taken)) != 0) taken += one;
    bytes_drop(&c->remote.got, taken);
    return true;
}

/* What is in flight may end without a word. */
void forget_flights(void) {
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i].in_flight_count = 0;
        clients[i].unsure = true;
    }
}

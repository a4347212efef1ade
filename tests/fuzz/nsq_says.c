/* What clients say: mostly sensible, and wrong at times. */
#include "nsq_play.h"

void topic_name(char *out) {
    uint32_t topic = pick(TOPICS);
    snprintf(out, NAME_BYTES, options.ephemerals && topic == 0 ? "e#ephemeral" : "t%u", topic);
}

void channel_name(char *out) {
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

void connect_client(struct nsq_client *c) {
    struct remote remote = c->remote;
    *c = (struct nsq_client){.remote = remote};
    c->conn = remote_connect(&c->remote, table_protocol("nsq"));
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
    const uint32_t before = c->in_flight_count;
    for (uint32_t i = 0; what != 3 && i < c->in_flight_count; i++)
        if (c->in_flight[i] == id) c->in_flight[i--] = c->in_flight[--c->in_flight_count];
    /* An id known from another channel: that message may be on its way to it, and is over by the time it comes. */
    if (what != 3 && id && c->in_flight_count == before) c->unsure = true;
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

void some_command(struct nsq_client *c) {
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
void flood(struct nsq_client *c) {
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

/* Scripts of bytes against the NATS codec, its tries and the mesh: clients on three acceptors, and a fourth that is
 * made up.
 *
 * An input is a script: each byte chooses what happens next (a client connects, subscribes, publishes, sends garbage,
 * reads nothing, closes; an acceptor takes a turn; time passes; an acceptor dies; the made-up one says something, right
 * or wrong), the bytes after it are its parameters. Everything runs in this process, one turn at a time, so a script
 * does the same each time.
 *
 * What is looked for: assertions, and what the sanitizers see; and, of clients that said nothing wrong, that
 *   - each gets whole lines of known words, and payloads that were published to a subject that its pattern matches
 *   - when nothing is on its way, a message comes to all who want it, once, and to one of each group
 *   - who has subscribed and heard PONG gets what anybody publishes after that; who has published and heard PONG knows
 *     that all have it before their next PONG
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acceptor/protocols/nats/nats_state.h"
#include "nats_play.h"
#include "nats_subjects.h"
#include "remote.h"
#include "script.h"
#include "world.h"

enum {
    CLIENTS = 6,
    SIDS = 24,
    SAID = 4096,
    MAX_PAYLOAD = 5000,
    MAX_PENDING = 40000,
    MAX_LINE = 1000,
};

struct wanted {
    bool there;
    bool used; /* messages of it may still come */
    char pattern[SUBJECT_BYTES], queue[16];
    uint32_t max, delivered;
    uint32_t heard; /* of the message that is looked for */
};

struct nats_client {
    struct remote remote;
    uint32_t acceptor;
    bool crooked; /* has said what it should not: nothing is expected */
    uint32_t account, flags;
    uint32_t pongs;
    uint32_t told_of_nobody; /* 503s */
    struct wanted wanted[SIDS];
};

/* What was published, by number. */
struct said {
    char subject[SUBJECT_BYTES];
    uint32_t account, bytes;
    bool is_traced; /* and for nobody */
};

static struct acceptor *acceptors[ACCEPTORS];
static int wakes[ACCEPTORS];
static struct nats_client clients[CLIENTS];
static struct said said[SAID];
static uint32_t said_count, looked_for;
static bool must_connect, sniffs, is_proxied;

/* --- what Python does --------------------------------------------------------------------------------------------- */

static void handle(const struct upcall *u) {
    static const char pong[] = "PONG\r\nINFO {\"max_payload\":5000} \r\n";
    const char *info = strchr(pong, 'I');
    if (u->kind != UPCALL_COMMAND) {
        assert(u->kind == UPCALL_CLOSED);
        return;
    }
    char text[64] = {0};
    memcpy(text, u->bytes, u->bytes_count < sizeof text - 1 ? u->bytes_count : sizeof text - 1);
    unsigned account = 1, flags = NATS_ECHO;
    bool is_header = !memcmp(text, "PROXY ", 6) || !memcmp(text, "\r\n\r\n", 4);
    if (text[0] == 0 && is_proxied) {
        (void)acceptor_call(world.acceptor, u->conn, "proxied-until-ns", world.now + 8 * SECOND, NULL, 0, NULL, 0);
    } else if ((text[0] == 0 || is_header) && sniffs) {
        (void)acceptor_call(world.acceptor, u->conn, "sniff-until-ns", world.now + SECOND, NULL, 0, NULL, 0);
    } else if (text[0] == 0 || is_header || !memcmp(text, "SNIFF", 5)) {
        acceptor_reply(world.acceptor, u->conn, info, strlen(info));
        flags = NATS_VERBOSE | NATS_PEDANTIC | NATS_ECHO | NATS_MUST_CONNECT;
        if (must_connect) {
            (void)acceptor_call(world.acceptor, u->conn, "flags", flags, NULL, 0, NULL, 0);
            (void)acceptor_call(world.acceptor, u->conn, "must-connect-by-ns", world.now + SECOND, NULL, 0, NULL, 0);
        }
    } else if ((text[0] | 32) == 'c') {
        if (sscanf(text, "%*s %u %u", &account, &flags) != 2 || account < 1 || account > ACCOUNTS) {
            acceptor_reply(world.acceptor, u->conn, "-ERR 'no'\r\n", 11);
            acceptor_close(world.acceptor, u->conn);
            return;
        }
        (void)acceptor_call(world.acceptor, u->conn, "let-go", 0, NULL, 0, NULL, 0);
        (void)acceptor_call(world.acceptor, u->conn, "must-connect-by-ns", 0, NULL, 0, NULL, 0);
        (void)acceptor_call(world.acceptor, u->conn, "account", account, NULL, 0, NULL, 0);
        (void)acceptor_call(world.acceptor, u->conn, "flags", flags & 31, NULL, 0, NULL, 0);
    } else {
        assert((text[0] | 32) == 'p');
        acceptor_reply(world.acceptor, u->conn, pong, strlen(pong));
    }
    acceptor_resume(world.acceptor, u->conn);
}

static bool turn(uint32_t which) {
    struct upcall u;
    world.acceptor = acceptors[which];
    acceptor_set_now(world.acceptor, world.now);
    bool alive = acceptor_turn(world.acceptor) > 0;
    while (acceptor_upcall(world.acceptor, &u)) handle(&u);
    return alive;
}

/* --- what clients hear -------------------------------------------------------------------------------------------- */

static size_t number(const char *text) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    assert(end > text && !*end && "a size is a number");
    return value;
}

static void count_delivered(struct wanted *w) {
    w->delivered++;
    assert((!w->max || w->delivered <= w->max) && "no more than were wanted");
    if (w->max && w->delivered == w->max) w->there = false;
}

static void take_payload(struct nats_client *c, struct wanted *w, const char *subject, const uint8_t *payload,
                         size_t bytes) {
    unsigned which;
    char head[16] = {0};
    memcpy(head, payload, bytes < 15 ? bytes : 15);
    if (sscanf(head, "#%6u", &which) != 1) {
        /* Of a crooked one, or of the acceptor that is made up. */
        if (!c->crooked && w) count_delivered(w);
        return;
    }
    assert(which < said_count && which + SAID >= said_count);
    const struct said *s = &said[which % SAID];
    assert(s->bytes == bytes && !strcmp(s->subject, subject) && "what was published came");
    for (size_t i = 7; i < bytes; i++) assert(payload[i] == 'a' + which % 26 && "whole, and nothing else");
    if (c->crooked || !w) return;
    assert(s->account == c->account && "accounts do not see each other");
    assert(!s->is_traced && "what is only traced is for nobody");
    assert(w->used && subject_matches(w->pattern, subject) && "somebody wanted it");
    w->heard += which == looked_for;
    count_delivered(w);
}

/* MSG subject sid [reply] size, or HMSG with two sizes; false if it is not whole yet. */
static bool take_message(struct nats_client *c, char *line, size_t line_bytes, size_t *whole) {
    char *words[6];
    size_t count = 0;
    bool headers = line[0] == 'H';
    for (char *word = strtok(line, " "); word && count < 6; word = strtok(NULL, " ")) words[count++] = word;
    assert(count == (headers ? 5 : 4) || count == (headers ? 6 : 5));
    size_t bytes = number(words[count - 1]), header = headers ? number(words[count - 2]) : 0;
    assert(bytes <= MAX_PAYLOAD + 1000 && header <= bytes);
    if (c->remote.got.count < line_bytes + bytes + 2) return false;
    const uint8_t *payload = c->remote.got.at + line_bytes;
    assert(!memcmp(payload + bytes, "\r\n", 2) && "a payload ends where its line said");
    assert((!headers || c->crooked || (c->flags & NATS_HEADERS) != 0) && "headers are for who asked for them");
    *whole = line_bytes + bytes + 2;
    bool ours = words[2][0] == 's' && !c->crooked;
    struct wanted *w = ours ? &c->wanted[number(words[2] + 1)] : NULL;
    if (header >= 12 && !memcmp(payload, "NATS/1.0 503", 12)) {
        c->told_of_nobody++;
        assert(c->crooked || (w && w->used && !w->queue[0] && subject_matches(w->pattern, words[1])));
        return true;
    }
    take_payload(c, w, words[1], payload + header, bytes - header);
    return true;
}

static size_t take_line(struct nats_client *c) {
    static const char *const words[] = {"INFO {", "PING", "PONG", "+OK", "-ERR '"};
    const uint8_t *end = memmem(c->remote.got.at, c->remote.got.count, "\r\n", 2);
    if (!end) return 0;
    size_t bytes = (size_t)(end - c->remote.got.at) + 2, whole;
    char *line = strndup((const char *)c->remote.got.at, bytes - 2);
    if (!strncmp(line, "MSG ", 4) || !strncmp(line, "HMSG ", 5)) {
        whole = take_message(c, line, bytes, &whole) ? whole : 0;
        free(line);
        return whole;
    }
    bool known = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) known |= !strncmp(line, words[i], strlen(words[i]));
    assert(known && "a client was sent something that is no line");
    if (!strcmp(line, "PONG")) c->pongs++;
    if (!strcmp(line, "PING") && !c->crooked) remote_say(&c->remote, "PONG\r\n");
    free(line);
    return bytes;
}

static bool receive(struct nats_client *c) {
    if (!remote_receive(&c->remote)) return false;
    for (size_t taken; c->remote.got.count && (taken = take_line(c)) != 0;) bytes_drop(&c->remote.got, taken);
    return true;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

static void link_acceptors(uint32_t one, uint32_t other) {
    int there, back;
    rings_make(&there, &back);
    bool joined = !acceptor_mesh(acceptors[one], other, there, back, wakes[other]) &&
                  !acceptor_mesh(acceptors[other], one, back, there, wakes[one]);
    assert(joined);
    close(there);
    close(back);
}

static void link_made_up(uint32_t to) {
    made_up_join(to, acceptors[to], wakes[to]);
}

static void start(uint32_t which) {
    wakes[which] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    acceptors[which] = acceptor_new(table_protocols(), which, 1, SHARDS, world.board, wakes[which]);
    assert(acceptors[which]);
    acceptor_set_now(acceptors[which], world.now);
    bool set = !acceptor_set(acceptors[which], "nats.max-payload", MAX_PAYLOAD) &&
               !acceptor_set(acceptors[which], "nats.max-pending", MAX_PENDING) &&
               !acceptor_set(acceptors[which], "nats.max-control-line", MAX_LINE);
    assert(set);
    uint32_t nats = table_protocol("nats");
    for (uint32_t i = 0; i < ACCOUNTS; i++) {
        const char *name = account_names[i];
        int64_t number = acceptor_configure(acceptors[which], nats, "account", 0, name, strlen(name));
        assert(number == i + 1);
    }
}

static void stop(uint32_t which) {
    for (uint32_t i = 0; i < CLIENTS; i++)
        if (clients[i].acceptor == which) remote_disconnect(&clients[i].remote);
    made_up_leaves(which, acceptors[which]);
    acceptor_free(acceptors[which]);
    acceptors[which] = NULL;
    close(wakes[which]);
}

static void crash(uint32_t which) {
    trace("acceptor %u dies", which);
    stop(which);
    for (uint32_t i = 0; i < ACCEPTORS; i++)
        if (i != which) acceptor_mesh_gone(acceptors[i], which);
    if (pick(2)) (void)turn((which + 1) % ACCEPTORS);
    start(which);
    for (uint32_t i = 0; i < ACCEPTORS; i++)
        if (i != which) link_acceptors(which, i);
    if (pick(2)) link_made_up(which);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static bool take_turns(void) {
    bool alive = false;
    for (uint32_t i = 0; i < ACCEPTORS; i++) alive |= turn(i) | made_up_hears(i);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        alive |= remote_flush(&clients[i].remote, SIZE_MAX);
        while (receive(&clients[i])) alive = true;
    }
    return alive;
}

/* Nothing is on its way any more. */
static void run_until_quiet(void) {
    for (int turns = 0, quiet = 0; quiet < 4; turns++) {
        assert(turns < UNTIL_QUIET && "the acceptors keep each other busy for ever");
        quiet = take_turns() ? 0 : quiet + 1;
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        for (uint32_t sid = 0; sid < SIDS; sid++)
            if (!clients[i].wanted[sid].there) clients[i].wanted[sid].used = false;
}

/* --- what clients say --------------------------------------------------------------------------------------------- */

static void say_connect(struct nats_client *c) {
    c->account = 1 + pick(8) / 6 + pick(24) / 23;
    c->flags = NATS_ECHO | NATS_HEADERS | NATS_NO_RESPONDERS;
    if (pick(3) == 0) c->flags = byte() & 31;
    if (!(c->flags & NATS_HEADERS)) c->flags &= ~(uint32_t)NATS_NO_RESPONDERS;
    memset(c->wanted, 0, sizeof c->wanted);
    remote_say(&c->remote, "CONNECT %u %u\r\n", c->account, c->flags);
}

static void connect_client(struct nats_client *c) {
    struct remote remote = c->remote;
    *c = (struct nats_client){.remote = remote, .acceptor = pick(ACCEPTORS)};
    world.acceptor = acceptors[c->acceptor];
    (void)remote_connect(&c->remote, table_protocol("nats"));
    if (is_proxied && pick(3) == 0) remote_say(&c->remote, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
    if (is_proxied && pick(9) == 0) bytes_add(&c->remote.unsent, "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0e<addresses-->", 30);
    say_connect(c);
    trace("client %zu on acceptor %u, account %u, flags %u", (size_t)(c - clients), c->acceptor, c->account, c->flags);
}

static void subscribe(struct nats_client *c) {
    char pattern[SUBJECT_BYTES], queue[16] = "";
    subject_pick(pattern, true);
    if (pick(3) == 0) sprintf(queue, "q%u", pick(3));
    uint32_t sid = pick(SIDS);
    struct wanted *w = &c->wanted[sid];
    if (w->used && !w->there) return; /* it would not be known which one a message is for */
    trace("client %zu SUB %s %s s%u", (size_t)(c - clients), pattern, queue, sid);
    remote_say(&c->remote, "SUB %s %s s%u\r\n", pattern, queue, sid);
    if (w->there || !subject_is_valid(pattern)) return;
    *w = (struct wanted){.there = true, .used = true};
    strcpy(w->pattern, pattern);
    strcpy(w->queue, queue);
}

/* How many have come is known only when nothing is on its way. */
static void unsubscribe(struct nats_client *c) {
    run_until_quiet();
    uint32_t sid = pick(SIDS), max = pick(2) ? 0 : pick(6);
    struct wanted *w = &c->wanted[sid];
    if (c->remote.fd < 0) return;
    trace("client %zu UNSUB s%u %u", (size_t)(c - clients), sid, max);
    if (max || pick(2))
        remote_say(&c->remote, "UNSUB s%u %u\r\n", sid, max);
    else
        remote_say(&c->remote, "UNSUB s%u\r\n", sid);
    if (w->there) {
        w->max = max > w->delivered ? max : 0;
        if (!w->max) w->there = false;
    }
    run_until_quiet();
}

static uint32_t publish_to(struct nats_client *c, const char *subject, const char *reply) {
    static const uint32_t sizes[] = {0, 0, 1, 20, 200, 1000, MAX_PAYLOAD - 7 - HEADER_BYTES};
    uint32_t which = said_count++, size = 7 + sizes[pick(sizeof sizes / sizeof *sizes)];
    char payload[MAX_PAYLOAD + 10];
    bool headers = (c->flags & NATS_HEADERS) != 0 && pick(3) == 0;
    struct said *s = &said[which % SAID];
    *s = (struct said){.account = c->account, .bytes = size};
    snprintf(s->subject, sizeof s->subject, "%s", subject);
    memset(payload, 'a' + (int)(which % 26), size);
    char head[16];
    snprintf(head, sizeof head, "%c%06u", c->crooked ? '!' : '#', which % 1000000);
    memcpy(payload, head, 7);
    char header[HEADER_BYTES];
    if (headers) {
        size_t header_bytes = header_pick(header);
        s->is_traced = header_only_traces(header, header_bytes);
        remote_say(&c->remote, "HPUB %s %s %zu %zu\r\n", subject, reply, header_bytes, header_bytes + size);
        bytes_add(&c->remote.unsent, header, header_bytes);
    } else
        remote_say(&c->remote, "PUB %s %s %u\r\n", subject, reply, size);
    bytes_add(&c->remote.unsent, payload, size);
    bytes_add(&c->remote.unsent, "\r\n", 2);
    trace("client %zu PUB %s %s #%u, %u bytes", (size_t)(c - clients), subject, reply, which, size);
    return which;
}

static void some_publish(struct nats_client *c) {
    char subject[SUBJECT_BYTES], reply[SUBJECT_BYTES] = "";
    subject_pick(subject, false);
    if (pick(3) == 0) subject_pick(reply, false);
    (void)publish_to(c, subject, reply);
}

static void garbage(struct nats_client *c) {
    static const char *const lines[] = {
        "PUB a\r\n",
        "PUB a 99999999\r\n",
        "PUB a 5\r\nhello!\r\n",
        "HPUB a 9 3\r\nabc\r\n",
        "SUB\r\n",
        "SUB a b c d\r\n",
        "UNSUB\r\n",
        "UNSUB x 1 2\r\n",
        "pub a 0\r\n\r\n",
        "PUB a b c 0\r\n\r\n",
        "+OK\r\n",
        "-ERR 'you'\r\n",
        "INFO {}\r\n",
        "PING x\r\n",
        "CONNECT {\r\n",
        "CONNECT 2 31\r\n",
        "PUB $NRG.x 0\r\n\r\n",
        "PUB a _R_.x 0\r\n\r\n",
        "SUB x\r y\r\n",
        "\r\n",
        "PUB a.* 0\r\n\r\n",
        "HPUB a 0 0\r\n\r\n",
        "SUB > s0\r\nUNSUB s0 1\r\n",
        "PONG\r\nPONG\r\n",
        "SUB a 1\r\n",
        "PROXY \r\n",
        "\r\n\r\n",
    };
    c->crooked = true;
    trace("client %zu says nonsense", (size_t)(c - clients));
    uint8_t bytes[64];
    switch (pick(6)) {
    case 0: {
        size_t count = pick(sizeof bytes);
        for (size_t i = 0; i < count; i++) bytes[i] = byte();
        bytes_add(&c->remote.unsent, bytes, count);
        if (pick(2)) remote_say(&c->remote, "\r\n");
        break;
    }
    case 1:
        remote_say(&c->remote, "SUB ");
        for (uint32_t n = pick(MAX_LINE); n; n--) bytes_add(&c->remote.unsent, pick(9) ? "*." : "a.", 2);
        remote_say(&c->remote, "> 7\r\n");
        break;
    case 2: bytes_drop(&c->remote.unsent, c->remote.unsent.count ? pick((uint32_t)c->remote.unsent.count) : 0); break;
    default: remote_say(&c->remote, "%s", lines[pick(sizeof lines / sizeof *lines)]); break;
    }
}

static void some_command(struct nats_client *c) {
    switch (pick(12)) {
    case 0:
    case 1:
    case 2:
    case 3: subscribe(c); break;
    case 4: unsubscribe(c); break;
    case 5: remote_say(&c->remote, "PING\r\n"); break;
    default: some_publish(c); break;
    }
}

/* --- what has to be so -------------------------------------------------------------------------------------------- */

static struct nats_client *some_straight(void) {
    struct nats_client *c = &clients[pick(CLIENTS)];
    if (c->remote.fd < 0) connect_client(c);
    return c->crooked ? NULL : c;
}

static void look_for(uint32_t which) {
    looked_for = which;
    for (uint32_t i = 0; i < CLIENTS; i++)
        for (uint32_t sid = 0; sid < SIDS; sid++) clients[i].wanted[sid].heard = 0;
}

static bool may_have(const struct nats_client *c, const struct nats_client *from) {
    return c->remote.fd >= 0 && c->account == from->account && (c != from || (c->flags & NATS_ECHO) != 0);
}

/* How many of a group got it, and whether anybody was to. */
static void check_group(const struct nats_client *from, const char *queue, const char *subject, bool others) {
    uint32_t heard = 0;
    bool any = false;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct nats_client *c = &clients[i];
        for (uint32_t sid = 0; sid < SIDS && !c->crooked; sid++) {
            struct wanted *w = &c->wanted[sid];
            if (!w->used || strcmp(w->queue, queue) || !subject_matches(w->pattern, subject)) continue;
            any |= may_have(c, from);
            heard += w->heard;
        }
    }
    assert(heard <= 1 && "one of a group, and no more");
    assert((heard == 1 || !any || others) && "one of a group");
}

/* Nothing is on its way; one message is, and comes to all who are to have it. */
static void publish_alone(void) {
    char subject[SUBJECT_BYTES], reply[SUBJECT_BYTES] = "";
    struct nats_client *from = some_straight();
    run_until_quiet();
    if (!from || from->remote.fd < 0) return;
    subject_pick(subject, false);
    if (pick(2)) subject_pick(reply, false);
    look_for(said_count);
    uint32_t nobody_before = from->told_of_nobody;
    /* What was wanted when it was said; `used` stays while it is looked at. */
    bool plain = false, own_reply = false, others = made_up_wants[from->account], own_queue = false;
    for (uint32_t i = 0; i < CLIENTS; i++) others |= clients[i].remote.fd >= 0 && clients[i].crooked;
    uint32_t which = publish_to(from, subject, reply);
    bool is_traced = said[which % SAID].is_traced;
    for (uint32_t turns = 0, quiet = 0; quiet < 4; turns++) {
        assert(turns < UNTIL_QUIET);
        quiet = take_turns() ? 0 : quiet + 1;
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct nats_client *c = &clients[i];
        for (uint32_t sid = 0; sid < SIDS && !c->crooked; sid++) {
            struct wanted *w = &c->wanted[sid];
            if (c == from && w->used && !w->queue[0] && reply[0] && subject_matches(w->pattern, reply))
                own_reply = true;
            if (!w->used || !subject_matches(w->pattern, subject)) continue;
            bool may = may_have(c, from);
            if (w->queue[0]) {
                own_queue |= may;
                continue;
            }
            assert((c->remote.fd < 0 || w->heard == (may && !is_traced)) && "all who want it get it, once");
            plain |= may;
        }
    }
    for (uint32_t q = 0; q < 3; q++)
        check_group(from, (const char *const[]){"q0", "q1", "q2"}[q], subject, others || is_traced);
    if (from->remote.fd >= 0 && !others && !is_traced) {
        bool told = (from->flags & NATS_NO_RESPONDERS) != 0 && reply[0] && !plain && !own_queue && own_reply;
        assert(from->told_of_nobody - nobody_before == told && "who asks nobody is told so");
    }
    run_until_quiet();
}

/* Until a PONG more has come, with whatever order of turns; false if the connection ended. */
static bool await_pong(struct nats_client *c) {
    uint32_t before = c->pongs;
    remote_say(&c->remote, "PING\r\n");
    for (int turns = 0; c->pongs == before; turns++) {
        assert(turns < UNTIL_QUIET && "a PING is answered");
        if (c->remote.fd < 0) return false;
        (void)remote_flush(&c->remote, SIZE_MAX);
        (void)turn(pick(ACCEPTORS));
        (void)turn((uint32_t)turns % ACCEPTORS);
        (void)made_up_hears((uint32_t)turns % ACCEPTORS);
        (void)receive(c);
    }
    return true;
}

/* Who has subscribed and heard PONG gets what is published after that; and when the publisher has heard PONG, it is
 * ahead of the subscriber's next one. */
static void keep_promises(void) {
    char subject[SUBJECT_BYTES];
    struct nats_client *to = some_straight(), *from = some_straight();
    subject_pick(subject, false);
    if (!to || !from || to == from || !subject_is_valid(subject)) return;
    run_until_quiet(); /* a connection that is new has said who it is */
    if (to->remote.fd < 0 || from->remote.fd < 0 || to->account != from->account) return;
    struct wanted *w = &to->wanted[SIDS - 1];
    remote_say(&to->remote, "UNSUB s%u\r\n", SIDS - 1);
    w->there = false;
    run_until_quiet();
    if (to->remote.fd < 0 || from->remote.fd < 0) return;
    *w = (struct wanted){.there = true, .used = true};
    strcpy(w->pattern, subject);
    remote_say(&to->remote, "SUB %s s%u\r\n", subject, SIDS - 1);
    trace("client %zu is promised %s by client %zu", (size_t)(to - clients), subject, (size_t)(from - clients));
    if (!await_pong(to)) return;
    look_for(said_count);
    uint32_t which = publish_to(from, subject, "");
    if (!await_pong(from) || !await_pong(to)) return;
    assert(w->heard == !said[which % SAID].is_traced && "PONG was a promise");
}

/* --- a script ----------------------------------------------------------------------------------------------------- */

static void flood(struct nats_client *c) {
    for (uint32_t n = pick(200); n; n--) some_publish(c);
}

static void pass_time(void) {
    static const uint64_t spans[] = {1, SECOND / 1000, SECOND, 3 * SECOND, 11 * SECOND, 130 * SECOND};
    world.now += spans[pick(6)];
}

static void step(void) {
    struct nats_client *c = &clients[pick(CLIENTS)];
    uint32_t which = pick(ACCEPTORS);
    if (c->remote.fd < 0) connect_client(c);
    switch (pick(40)) {
    case 0: remote_disconnect(&c->remote); break;
    case 1:
        if (pick(3) == 0) garbage(c);
        break;
    case 2:
        if (pick(6) == 0) crash(which);
        break;
    case 3:
        c->crooked |= pick(4) == 0;
        if (c->crooked) (void)shutdown(c->remote.fd, SHUT_WR);
        break;
    case 4:
        run_until_quiet();
        if (c->remote.fd < 0) break;
        say_connect(c);
        run_until_quiet();
        break;
    case 5:
    case 6: run_until_quiet(); break;
    case 7:
    case 8:
    case 9: (void)turn(which); break;
    case 10:
    case 11: (void)receive(c); break;
    case 12: pass_time(); break;
    case 13:
        if (pick(4) == 0) flood(c);
        break;
    case 14: (void)made_up_hears(which); break;
    case 15:
    case 16: made_up_says(which); break;
    case 17:
        if (pick(4) == 0) made_up_leaves(which, acceptors[which]);
        if (pick(2) && !made_up_is_joined(which)) link_made_up(which);
        break;
    case 18:
    case 19: (void)remote_flush(&c->remote, 1 + pick(300)); break;
    case 20:
    case 21:
    case 22:
    case 23:
    case 24:
    case 25: publish_alone(); break;
    case 26:
    case 27: keep_promises(); break;
    default:
        for (uint32_t n = pick(5); n < 5 && c->remote.fd >= 0; n++) some_command(c);
        if (pick(4)) (void)remote_flush(&c->remote, SIZE_MAX);
        break;
    }
}

void run_script(void) {
    uint8_t kind = byte();
    world_begin(1 << 16);
    for (uint32_t i = 0; i < CLIENTS; i++) clients[i] = (struct nats_client){.remote.fd = -1};
    made_up_begin();
    said_count = 0;
    must_connect = (kind & 3) == 0;
    sniffs = (kind & 12) == 0;
    is_proxied = (kind & 0xC0) == 0;
    uint32_t acceptors_with_made_up = (kind & 0x30) ? 0 : ACCEPTORS;
    for (uint32_t i = 0; i < ACCEPTORS; i++) start(i);
    for (uint32_t i = 0; i < ACCEPTORS; i++)
        for (uint32_t other = i + 1; other < ACCEPTORS; other++) link_acceptors(i, other);
    for (uint32_t i = 0; i < acceptors_with_made_up; i++) link_made_up(i);
    while (script_goes_on()) step();
    run_until_quiet();
    for (uint32_t i = 0; i < CLIENTS; i++) remote_disconnect(&clients[i].remote);
    run_until_quiet();
    uint64_t left = 0;
    for (uint32_t place = 0; place < NATS_COUNTERS; place++) {
        uint64_t sum;
        const char *name = acceptor_counter(acceptors[0], table_protocol("nats"), place, &sum);
        if (!strcmp(name, "subscriptions")) left = sum;
    }
    assert(left == 0 && "nobody is there, and nothing is kept for anybody");
    for (uint32_t i = 0; i < ACCEPTORS; i++) stop(i);
    world_end();
}

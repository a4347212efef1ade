/* Requests of HTTP to NSQ's API, as an acceptor serves them: bytes that a stranger sends, whole and spoilt, cut
 * anywhere.
 *
 * The functions that read them get each input in memory of its own size, so that the sanitizers see who reads beyond
 * it. Then clients say the same to an acceptor with workers, while workers die, disks are full and time passes. The
 * target plays Python's part: a connection that is handed over is closed, or comes back as it is.
 *
 * What is looked for, beside assertions and what the sanitizers see: what is read lies inside what was given; bodies in
 * chunks come out as they went in; clients get whole answers, one for each request and no more, as long as they made no
 * mistake.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acceptor/protocols/nsq/nsq_http_body.h"
#include "acceptor/protocols/nsq/nsq_http_head.h"
#include "remote.h"
#include "script.h"
#include "world.h"

enum { CLIENTS = 4, MOST = 2048, PENDING = 16, QUIET = 4 };

static bool there_are_users;

/* --- requests ----------------------------------------------------------------------------------------------------- */

struct request {
    uint8_t at[MOST];
    size_t bytes;
};

static void put(struct request *r, const char *text) {
    size_t bytes = strlen(text);
    if (r->bytes + bytes > MOST) return;
    memcpy(r->at + r->bytes, text, bytes);
    r->bytes += bytes;
}

static void put_body(struct request *r, size_t bytes) {
    static const char letters[] = "ab\nc\r\n\0\1\2\3";
    for (; bytes > 0 && r->bytes < MOST; bytes--) r->at[r->bytes++] = (uint8_t)letters[pick(sizeof letters - 1)];
}

static const char *one_of(const char *const *words, uint32_t count) {
    return words[pick(count)];
}
#define ONE_OF(words) one_of(words, sizeof(words) / sizeof *(words))

static void put_chunks(struct request *r, size_t bytes) {
    char line[32];
    while (bytes > 0) {
        size_t size = 1 + pick((uint32_t)bytes);
        snprintf(line, sizeof line, pick(4) ? "%zx\r\n" : "%zX ; a=b\r\n", size);
        put(r, line);
        put_body(r, size);
        put(r, "\r\n");
        bytes -= size;
    }
    put(r, pick(4) ? "0\r\n\r\n" : "0\r\nTrailer: x\r\n\r\n");
}

/* A publish that is right, though perhaps refused. */
static struct request draw(void) {
    static const char *const targets[] = {
        "/pub?topic=a", "/pub?topic=b", "/mpub?topic=a", "/mpub?topic=%62&binary=1", "/pub?defer=10&topic=a",
    };
    /* Where there are users the gateway says what is wrong with these. */
    static const char *const wrong[] = {"/pub?topic=a&x=%7", "/mpub", "/pub"};
    static const char *const more[] = {
        "",
        "",
        "X: y\r\n",
        "Connection: keep-alive\r\n",
        "expect: 100-continue\r\n",
        "Authorization: Bearer a\r\n",
        "authorization: b \r\n",
    };
    struct request r = {.bytes = 0};
    bool in_chunks = pick(4) == 0;
    size_t body = pick(8) ? pick(60) : pick(600);
    char line[64];
    put(&r, "POST ");
    put(&r, !there_are_users && pick(3) == 0 ? ONE_OF(wrong) : ONE_OF(targets));
    put(&r, pick(8) ? " HTTP/1.1\r\nHost: a:1\r\n" : " HTTP/1.1\nhost: a\n");
    put(&r, ONE_OF(more));
    snprintf(line, sizeof line, "Content-Length: %zu\r\n\r\n", body);
    put(&r, in_chunks ? "Transfer-Encoding: chunked\r\n\r\n" : line);
    if (in_chunks)
        put_chunks(&r, body);
    else
        put_body(&r, body);
    return r;
}

static void spoil(struct request *r) {
    for (uint32_t left = 1 + pick(3); left > 0 && r->bytes > 0; left--) {
        size_t at = pick((uint32_t)r->bytes), bytes = 1 + pick(8);
        if (bytes > r->bytes - at) bytes = r->bytes - at;
        switch (pick(3)) {
        case 0: r->at[at] = byte(); break;
        case 1:
            memmove(r->at + at, r->at + at + bytes, r->bytes - at - bytes);
            r->bytes -= bytes;
            break;
        default:
            if (r->bytes + bytes > MOST) break;
            memmove(r->at + at + bytes, r->at + at, r->bytes - at);
            r->bytes += bytes;
        }
    }
}

/* --- what reads them ---------------------------------------------------------------------------------------------- */

static void is_inside(struct text part, struct text whole) {
    assert(part.at >= whole.at && part.at + part.bytes <= whole.at + whole.bytes);
}

static void read_body(struct text body) {
    struct nsq_http_limits limits = {.message_bytes = 1 + pick(64), .body_bytes = 1 + pick(600)};
    struct nsq_http_many binary = nsq_http_look_at_binary(body, limits), lines = nsq_http_look_at_lines(body, limits);
    assert(binary.wrong != NULL || (binary.count > 0 && binary.bytes + SIZE_BYTES <= body.bytes));
    if (lines.wrong != NULL || lines.count == 0) return;
    uint8_t *out = malloc(lines.bytes);
    assert(out != NULL);
    nsq_http_put_lines(body, out);
    free(out);
}

/* However it comes, it is found to be the same. */
static void read_chunks(struct text input) {
    size_t most = pick(600);
    struct nsq_http_chunks whole = {0}, bit_by_bit = {0};
    enum nsq_http_walk found = nsq_http_walk_chunks(&whole, input, most), last = NSQ_HTTP_INCOMPLETE;
    for (size_t bytes = 0; bytes <= input.bytes && last == NSQ_HTTP_INCOMPLETE; bytes += 1 + pick(40)) {
        last = nsq_http_walk_chunks(&bit_by_bit, (struct text){input.at, bytes}, most);
        assert(bit_by_bit.at <= bytes);
    }
    if (last == NSQ_HTTP_INCOMPLETE) last = nsq_http_walk_chunks(&bit_by_bit, input, most);
    assert(last == found && nsq_http_walk_chunks(&whole, input, most) == found);
    if (found != NSQ_HTTP_WHOLE && found != NSQ_HTTP_OVER) return;
    size_t room = found == NSQ_HTTP_OVER ? most + 1 : whole.bytes;
    uint8_t *out = malloc(room + 1);
    assert(out != NULL);
    size_t joined = nsq_http_join_chunks(input, out, room);
    assert(joined == room);
    read_body((struct text){out, joined});
    free(out);
}

static void read_all(const struct request *r) {
    uint8_t *exact = malloc(r->bytes + 1);
    assert(exact != NULL);
    struct text all = {exact + 1, r->bytes};
    memcpy(exact + 1, r->at, r->bytes);
    struct nsq_http_head head;
    struct nsq_http_fields fields;
    if (nsq_http_read_head(all.at, all.bytes, &head) == NSQ_HTTP_PUBLISH) {
        is_inside(head.query, all);
        if (head.authorization.bytes > 0) is_inside(head.authorization, all);
        assert(head.authorization.bytes <= NSQ_HTTP_AUTHORIZATION_BYTES);
        assert(head.bytes <= all.bytes && !(head.in_chunks && head.body_bytes));
        struct text rest = {all.at + head.bytes, all.bytes - head.bytes};
        if (nsq_http_read_query(head.query, &fields)) assert(fields.topic_bytes <= sizeof fields.topic);
        if (head.in_chunks)
            read_chunks(rest);
        else
            read_body(rest);
    }
    (void)nsq_http_read_query(all, &fields);
    read_chunks(all);
    free(exact);
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

static struct http_client {
    struct remote remote;
    uint32_t asked, answered;
    bool crooked; /* what it is told is not counted any more */
} clients[CLIENTS];

static uint32_t protocol;
static uint32_t handed_over[PENDING];
static bool all_are_answered; /* by an acceptor, in the end */

/* A whole answer off the front of what was received: its bytes, or 0. */
static size_t answer_bytes(const uint8_t *got, size_t bytes, bool *is_final) {
    const char *end = memmem(got, bytes, "\r\n\r\n", 4), *length;
    if (end == NULL) {
        assert(bytes < 512 && "a head is never so long");
        return 0;
    }
    size_t head = (size_t)(end + 4 - (const char *)got);
    assert(memcmp(got, "HTTP/1.1 ", 9) == 0 || memcmp(got, "HTTP/1.0 ", 9) == 0);
    *is_final = got[9] != '1';
    if (!*is_final) return head;
    length = memmem(got, head, "\r\nContent-Length: ", 18);
    assert(length != NULL);
    size_t whole = head + (size_t)strtoul(length + 18, NULL, 10);
    return bytes < whole ? 0 : whole;
}

static bool receive(struct http_client *c) {
    bool any = remote_receive(&c->remote), is_final;
    size_t bytes;
    while (c->remote.got.count > 0 && (bytes = answer_bytes(c->remote.got.at, c->remote.got.count, &is_final)) > 0) {
        c->answered += is_final;
        trace("client %d is told: %.*s", (int)(c - clients), (int)bytes, (const char *)c->remote.got.at);
        assert(c->crooked || c->answered <= c->asked);
        /* What comes behind that is not answered. */
        if (memmem(c->remote.got.at, bytes, "\r\nConnection: close\r\n", 21) != NULL) c->crooked = true;
        bytes_drop(&c->remote.got, bytes);
    }
    return any;
}

static void connect_client(struct http_client *c) {
    *c = (struct http_client){.remote = c->remote};
    (void)remote_connect(&c->remote, protocol);
}

/* --- Python's part ------------------------------------------------------------------------------------------------ */

static void hand_over(uint32_t conn, bool returns) {
    const uint8_t *bytes;
    size_t count;
    int fd = acceptor_socket(world.acceptor, conn, &bytes, &count);
    if (fd < 0) return;
    int kept = returns ? dup(fd) : -1;
    uint8_t *copy = malloc(count + 1);
    assert(copy != NULL);
    if (count > 0) memcpy(copy, bytes, count);
    acceptor_forget(world.acceptor, conn);
    uint32_t number = returns ? acceptor_adopt(world.acceptor, kept, protocol) : 0;
    if (number != 0) acceptor_receive(world.acceptor, number, 0, copy, count);
    free(copy);
}

/* Where there are users: who may, who is nobody, and whom the gateway has to answer. */
static void decide(uint32_t conn) {
    static const char *const words[] = {"grant", "grant", "unknown", "open", "leave"};
    (void)acceptor_call(world.acceptor, conn, all_are_answered ? "grant" : ONE_OF(words), 0, NULL, 0, NULL, 0);
    acceptor_resume(world.acceptor, conn);
}

static void python(void) {
    struct upcall u;
    while (acceptor_upcall(world.acceptor, &u)) {
        assert(u.kind == UPCALL_COMMAND || u.kind == UPCALL_CLOSED);
        if (u.kind != UPCALL_COMMAND) continue;
        if (u.bytes_count > 0 && u.bytes[0] == '?') {
            assert(memchr(u.bytes, '\n', u.bytes_count) != NULL);
            decide(u.conn);
            continue;
        }
        if (u.bytes_count > 0) {
            (void)acceptor_call(world.acceptor, u.conn, "admit", 0, NULL, 0, NULL, 0);
            acceptor_resume(world.acceptor, u.conn);
            continue;
        }
        uint32_t place = pick(PENDING);
        if (handed_over[place] != 0) hand_over(handed_over[place], false);
        handed_over[place] = u.conn;
    }
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static bool turn_all(void) {
    bool any = false;
    acceptor_set_now(world.acceptor, world.now);
    (void)acceptor_turn(world.acceptor);
    python();
    for (uint32_t i = 0; i < WORKERS; i++)
        if (world.workers[i] != NULL) any |= worker_takes_turn(i);
    for (uint32_t i = 0; i < CLIENTS; i++) any |= receive(&clients[i]) | remote_flush(&clients[i].remote, SIZE_MAX);
    return any;
}

static void run_until_quiet(void) {
    uint32_t quiet = 0;
    for (uint32_t i = 0; quiet < QUIET; i++) {
        quiet = turn_all() ? 0 : quiet + 1;
        assert(i < UNTIL_QUIET && "it never ends");
    }
}

static void say_something(struct http_client *c) {
    if (c->remote.fd < 0) connect_client(c);
    struct request r = draw();
    bool is_right = pick(4) != 0;
    if (!is_right) spoil(&r);
    read_all(&r);
    if (!is_right || r.bytes + 64 > MOST) c->crooked = true;
    c->asked++;
    trace("client %d asks%s: %.*s", (int)(c - clients), c->crooked ? " (crooked)" : "", (int)r.bytes,
          (const char *)r.at);
    bytes_add(&c->remote.unsent, r.at, r.bytes);
    if (pick(2)) (void)remote_flush(&c->remote, 1 + pick(200));
}

static void worker_comes_or_goes(uint32_t index) {
    if (world.workers[index] == NULL) {
        worker_start(index);
        worker_join(index);
    } else if (pick(4) == 0) {
        worker_stop(index);
        acceptor_peer_gone(world.acceptor, index);
    }
}

/* Or there are some now: for clients that have asked nothing yet. */
static void users_change(void) {
    for (uint32_t i = 0; i < CLIENTS && !there_are_users; i++) remote_disconnect(&clients[i].remote);
    there_are_users = true;
    (void)acceptor_configure(world.acceptor, protocol, "users", 0, NULL, 0);
}

static void step(void) {
    struct http_client *c = &clients[pick(CLIENTS)];
    switch (pick(16)) {
    case 0: remote_disconnect(&c->remote); break;
    case 1:
        c->crooked = true;
        if (c->remote.fd >= 0) (void)shutdown(c->remote.fd, SHUT_WR);
        break;
    case 2: worker_comes_or_goes(pick(WORKERS)); break;
    case 3: disk_set_full(world.disk_was_full && pick(4) == 0); break;
    case 4: {
        uint32_t place = pick(PENDING);
        hand_over(handed_over[place], pick(2) != 0);
        handed_over[place] = 0;
        break;
    }
    case 5: /* little enough that no body is late for it */ world_pass_time(pick(8) ? SECOND / 100 : SECOND); break;
    case 6:
    case 7: run_until_quiet(); break;
    case 8:
    case 9: (void)turn_all(); break;
    case 10: (void)acceptor_configure(world.acceptor, protocol, "prepares", pick(2), NULL, 0); break;
    case 11:
        if (pick(4) == 0) users_change();
        break;
    default: say_something(c); break;
    }
}

void run_script(void) {
    uint8_t kind = byte();
    world_begin((uint64_t)(8 + 16 * (kind & 7)) << 10);
    memset(clients, 0, sizeof clients);
    memset(handed_over, 0, sizeof handed_over);
    all_are_answered = there_are_users = false;
    world.disk_was_full = (kind & 0x60) == 0;
    for (uint32_t i = 0; i < CLIENTS; i++) clients[i].remote.fd = -1;
    acceptor_start();
    protocol = table_protocol("nsq-http");
    int set = acceptor_set(world.acceptor, "nsq-http.max-msg-size", 60);
    set |= acceptor_set(world.acceptor, "nsq-http.max-body-size", 400);
    assert(set == 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_start(i);
        worker_join(i);
    }
    while (script_goes_on()) step();
    disk_set_full(false);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (world.workers[i] == NULL) worker_comes_or_goes(i);
    all_are_answered = true;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < PENDING; i++) {
            uint32_t conn = handed_over[i];
            handed_over[i] = 0;
            hand_over(conn, true);
        }
        run_until_quiet();
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct http_client *c = &clients[i];
        assert((c->crooked || c->remote.fd < 0 || c->answered == c->asked) && "all is answered");
        remote_disconnect(&clients[i].remote);
    }
    run_until_quiet();
    acceptor_stop();
    for (uint32_t i = 0; i < WORKERS; i++) worker_stop(i);
    world_end();
}

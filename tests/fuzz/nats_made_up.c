/* An acceptor that is made up: it is joined to the others by the mesh, and says what an acceptor may say, and what none
 * would. */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "acceptor/protocols/nats/nats_state.h"
#include "nats_play.h"
#include "nats_subjects.h"
#include "ringbuf/board.h"
#include "ringbuf/channel.h"
#include "script.h"
#include "world.h"

/* As in nats_mesh.c. */
enum { MESH_INTEREST = 1, MESH_MESSAGE, MESH_CONFIRM, MESH_CONFIRMED, MESH_ACCOUNT, MESH_TOLD, MESH_LOST };

const char *const account_names[ACCOUNTS] = {"$G", "$SYS", "third"};
bool made_up_wants[ACCOUNTS + 1];
static struct channel *links[ACCEPTORS]; /* its ends */

void made_up_begin(void) {
    memset(made_up_wants, 0, sizeof made_up_wants);
}

bool made_up_hears(uint32_t from) {
    const struct message *m;
    bool any = false;
    if (!links[from]) return false;
    (void)channel_backlogged(links[from]);
    while ((m = channel_receive(links[from])) != NULL) {
        any = true;
        if (m->kind != MESH_CONFIRM) continue;
        struct message confirmed = {.kind = MESH_CONFIRMED, .id = m->id, .conn = m->conn};
        channel_send(links[from], &confirmed, NULL, 0);
    }
    if (any) channel_release(links[from]);
    (void)channel_publish(links[from]);
    return any;
}

static size_t put_u32(uint8_t *to, uint32_t value) {
    memcpy(to, &value, sizeof value);
    return sizeof value;
}

static size_t put_text(uint8_t *to, const char *text) {
    memcpy(to, text, strlen(text));
    return strlen(text);
}

/* Of, or for, a server behind a route that there may be: hardly ever, since then nothing is known of what comes to
 * whom. */
static uint32_t some_route(void) {
    return pick(200) ? 0 : ((const uint32_t[]){1, BOARD_MAX_ACCEPTORS, BOARD_MAX_ACCEPTORS + 1, NATS_OTHERS})[pick(4)];
}

static size_t some_interest(uint8_t *body) {
    char pattern[SUBJECT_BYTES], queue[16] = "";
    subject_pick(pattern, true);
    if (pick(2)) sprintf(queue, "q%u", pick(2));
    uint32_t account = 1 + pick(ACCOUNTS), weight = pick(4);
    if (pick(40) == 0) account = ((const uint32_t[]){0, 7, NATS_MAX_ACCOUNTS, UINT32_MAX})[pick(4)];
    if (account >= 1 && account <= ACCOUNTS) made_up_wants[account] = true;
    size_t at = put_u32(body, account);
    at += put_u32(body + at, weight);
    at += put_u32(body + at, some_route());
    at += put_u32(body + at, ((const uint32_t[]){0, 0, 1, 2, NATS_MOST_ORIGINS, NATS_MOST_ORIGINS + 1})[pick(6)]);
    at += put_u32(body + at, (uint32_t)strlen(pattern) + (pick(40) ? 0 : pick(300)));
    at += put_u32(body + at, (uint32_t)strlen(queue));
    at += put_text(body + at, pattern);
    return at + put_text(body + at, queue);
}

static size_t some_passed(uint8_t *body) {
    char subject[SUBJECT_BYTES], names[2][8], size[8];
    subject_pick(subject, false);
    uint32_t groups = pick(3), payload = pick(40), header = pick(4) ? 0 : pick(payload + 1);
    size_t groups_bytes = 0;
    for (uint32_t i = 0; i < groups; i++) groups_bytes += 4 + (size_t)sprintf(names[i], "q%u", pick(3));
    sprintf(size, "%u", payload);
    char header_size[12] = "";
    if (header) sprintf(header_size, "%u", header);
    uint32_t wrong = pick(16) ? 0 : 1 + pick(8);
    const uint32_t heads[] = {pick(40) ? 1 + pick(ACCOUNTS) : pick(256),
                              pick(4),
                              some_route(),
                              (uint32_t)strlen(subject),
                              0,
                              (uint32_t)strlen(size),
                              (uint32_t)strlen(header_size),
                              groups,
                              (uint32_t)groups_bytes,
                              header,
                              payload};
    size_t at = 16;
    memset(body, 0, at); /* from, tried */
    if (pick(4) == 0) body[4] = (uint8_t)(1 + pick(ACCEPTORS)), body[0] = byte();
    if (pick(4) == 0) body[8] = byte();
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        at += put_u32(body + at, i >= 3 && i == wrong + 2 ? heads[i] + 1 + pick(70) : heads[i]);
    at += put_text(body + at, subject);
    at += put_text(body + at, size);
    at += put_text(body + at, header_size);
    for (uint32_t i = 0; i < groups; i++) {
        at += put_u32(body + at, (uint32_t)strlen(names[i]) + (pick(60) ? 0 : pick(250)));
        at += put_text(body + at, names[i]);
    }
    memset(body + at, '!', payload);
    return at + payload;
}

void made_up_says(uint32_t to) {
    uint8_t body[2048];
    size_t bytes = 0;
    if (!links[to]) return;
    struct message m = {.conn = table_protocol("nats")};
    switch (pick(10)) {
    case 0:
    case 1:
    case 2: m.kind = MESH_INTEREST, bytes = some_interest(body); break;
    case 3:
    case 4:
    case 5: m.kind = MESH_MESSAGE, bytes = some_passed(body); break;
    case 6: m.kind = MESH_CONFIRM, m.id = byte(); break;
    case 7: m.kind = (uint8_t)(MESH_LOST + pick(3)), m.id = some_route(); break;
    case 8:
        m.kind = MESH_ACCOUNT, m.id = 4 + pick(3);
        bytes = (size_t)sprintf((char *)body, "n%u", pick(3));
        break;
    default: m.kind = byte() | 16, m.conn = pick(2) ? m.conn : byte(); break;
    }
    if (bytes && pick(20) == 0) bytes = pick((uint32_t)bytes);
    m.body_bytes = (uint32_t)bytes;
    trace("the made-up acceptor says %u, %zu bytes, to %u", m.kind, bytes, to);
    channel_send(links[to], &m, body, bytes);
    (void)channel_publish(links[to]);
}

void made_up_join(uint32_t to, struct acceptor *acceptor, int wake) {
    int there, back;
    rings_make(&there, &back);
    links[to] = channel_open(there, back, wake, 1 << 20);
    assert(links[to]);
    bool joined = !acceptor_mesh(acceptor, MADE_UP, back, there, -1);
    assert(joined);
    close(there);
    close(back);
    for (uint32_t i = 0; i < ACCOUNTS; i++) {
        size_t bytes = strlen(account_names[i]);
        struct message m = {.kind = MESH_ACCOUNT, .id = i + 1, .conn = table_protocol("nats")};
        m.body_bytes = (uint32_t)bytes;
        channel_send(links[to], &m, account_names[i], bytes);
    }
    struct message told = {.kind = MESH_TOLD, .conn = table_protocol("nats")};
    channel_send(links[to], &told, NULL, 0);
    (void)channel_publish(links[to]);
}

void made_up_leaves(uint32_t to, struct acceptor *acceptor) {
    if (!links[to]) return;
    acceptor_mesh_gone(acceptor, MADE_UP);
    channel_close(links[to]);
    links[to] = NULL;
}

bool made_up_is_joined(uint32_t to) {
    return links[to] != NULL;
}

/* Answers from one account to requests that were made in another. Each request gets a subject of its own for answers,
 * at the acceptor where it was made: _R_.SERVER.SLOTTOKEN. The slot holds where an answer goes on to. When all slots
 * are in use the oldest is reused. */
#include <stdlib.h>

#include "acceptor/protocols/nats/nats_shares.h"
#include "base/hex.h"

enum { PREFIX_BYTES = 4 + 16 + 1, TOKEN_BYTES = 32 };

struct waiting {
    uint64_t token; /* 0: free */
    uint64_t until_ns;
    uint64_t lifetime_ns;
    uint32_t account;
    uint32_t next_free;
    uint16_t reply_bytes;
    bool once;
    char reply[NATS_ANSWER_REPLY_BYTES];
};

struct nats_answers {
    uint8_t prefix[PREFIX_BYTES];
    uint32_t used; /* slots used so far; number 0 is not used */
    uint32_t first_free, hand;
    struct waiting slots[NATS_ANSWERS];
};

static uint64_t random_number(struct nats_server *server) {
    return nats_random(server) << 32 ^ nats_random(server);
}

static bool open_answers(struct nats_server *server) {
    struct nats_answers *answers = calloc(1, sizeof *answers);
    if (answers == NULL) return false;
    memcpy(answers->prefix, "_R_.", 4);
    hex_put(answers->prefix + 4, random_number(server));
    answers->prefix[PREFIX_BYTES - 1] = '.';
    answers->used = 1;
    server->answers = answers;
    return true;
}

/* Subscribes the acceptor itself to the account's answers. */
bool nats_answers_open(struct acceptor *a, struct nats_server *server, uint32_t number) {
    struct nats_account *account = &server->accounts[number];
    if (account->answers != NULL) return true;
    if (!nats_journey_open(server)) return false;
    if (server->answers == NULL && !open_answers(server)) return false;
    struct nats_subscription *s = calloc(1, sizeof *s);
    uint8_t pattern[PREFIX_BYTES + 1];
    memcpy(pattern, server->answers->prefix, PREFIX_BYTES);
    pattern[PREFIX_BYTES] = '*';
    bool first;
    if (s != NULL) s->entry.weight = 1;
    if (s == NULL || !subjects_add(account->subjects, &s->entry, pattern, sizeof pattern, NULL, 0, &first)) {
        free(s);
        return false;
    }
    account->answers = s;
    nats_tell(a, server, number, (struct text){pattern, sizeof pattern}, (struct text){NULL, 0}, 1);
    return true;
}

void nats_answers_close(struct nats_server *server) {
    for (uint32_t i = 1; i < server->account_count; i++) {
        struct nats_account *account = &server->accounts[i];
        if (account->answers != NULL) subjects_remove(account->subjects, &account->answers->entry);
        free(account->answers);
    }
    free(server->answers);
}

static uint32_t take_slot(struct nats_answers *answers) {
    uint32_t slot = answers->first_free;
    if (slot != 0)
        answers->first_free = answers->slots[slot].next_free;
    else if (answers->used < NATS_ANSWERS)
        slot = answers->used++;
    else
        slot = answers->hand = answers->hand % (NATS_ANSWERS - 1) + 1;
    return slot;
}

struct text nats_answer_expect(struct acceptor *a, struct nats_server *server, uint32_t account, struct text reply,
                               bool once, uint64_t lifetime_ns, uint8_t *room) {
    struct nats_answers *answers = server->answers;
    if (reply.bytes > NATS_ANSWER_REPLY_BYTES) return (struct text){NULL, 0};
    uint32_t slot = take_slot(answers);
    struct waiting *w = &answers->slots[slot];
    w->token = random_number(server) | 1;
    w->until_ns = a->now_ns + lifetime_ns;
    w->lifetime_ns = lifetime_ns;
    w->account = account;
    w->once = once;
    w->reply_bytes = (uint16_t)reply.bytes;
    memcpy(w->reply, reply.at, reply.bytes);
    memcpy(room, answers->prefix, PREFIX_BYTES);
    hex_put(room + PREFIX_BYTES, slot);
    hex_put(room + PREFIX_BYTES + 16, w->token);
    return (struct text){room, PREFIX_BYTES + TOKEN_BYTES};
}

static bool get_hex(const uint8_t *at, uint64_t *value) {
    *value = 0;
    for (size_t i = 0; i < 16; i++) {
        const char *digits = "0123456789abcdef", *digit = at[i] != 0 ? strchr(digits, at[i]) : NULL;
        if (digit == NULL) return false;
        *value = *value << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

static struct waiting *waiting_for(struct nats_answers *answers, struct text subject, uint64_t *slot) {
    uint64_t token;
    if (answers == NULL || subject.bytes != PREFIX_BYTES + TOKEN_BYTES) return NULL;
    if (memcmp(subject.at, answers->prefix, PREFIX_BYTES) != 0) return NULL;
    if (!get_hex(subject.at + PREFIX_BYTES, slot) || !get_hex(subject.at + PREFIX_BYTES + 16, &token)) return NULL;
    if (*slot == 0 || *slot >= answers->used || answers->slots[*slot].token != token) return NULL;
    return &answers->slots[*slot];
}

bool nats_answer_take(struct acceptor *a, struct nats_server *server, struct nats_message *m, struct nats_room *room,
                      uint32_t *account) {
    uint64_t slot;
    struct waiting *w = waiting_for(server->answers, m->subject, &slot);
    uint8_t *reply = w != NULL ? nats_room_for(room, NATS_ANSWER_REPLY_BYTES) : NULL;
    if (reply == NULL) return false;
    bool is_over = a->now_ns > w->until_ns;
    memcpy(reply, w->reply, w->reply_bytes);
    m->subject = (struct text){reply, w->reply_bytes};
    m->reply = (struct text){NULL, 0};
    *account = w->account;
    w->until_ns = a->now_ns + w->lifetime_ns;
    /* An empty answer is the last of several. */
    if (w->once || is_over || m->payload_bytes == 0) {
        w->token = 0;
        w->next_free = server->answers->first_free;
        server->answers->first_free = (uint32_t)slot;
    }
    return !is_over;
}

/* Answers from one account to requests that were made in another. Each request gets a subject of its own for answers,
 * at the acceptor where it was made: _R_.SERVER.SLOTTOKEN. The slot holds where an answer goes on to. A request that
 * nobody answers keeps its slot until another is in want of one. If the request is measured (nats_latency.h), SLOT
 * holds the measurement's number, too, and the subject goes on with .SERVER.T. */
#include "acceptor/protocols/nats/nats_answers.h"

#include <assert.h>
#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_interest.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "base/hex.h"

enum { ID_BYTES = 16, PREFIX_BYTES = 4 + ID_BYTES + 1, TOKEN_BYTES = 32, MEASURED_BYTES = 1 + ID_BYTES + 2 };
enum { ANSWER_BYTES = PREFIX_BYTES + TOKEN_BYTES, NUMBER_SHIFT = 32 };
enum { LOOKED_AT = 16 }; /* slots in use, for one to be given up */
_Static_assert(ANSWER_BYTES + MEASURED_BYTES <= NATS_ANSWER_BYTES, "there is room for it");

struct waiting {
    uint64_t token; /* 0: free */
    uint64_t until_ns;
    uint64_t lifetime_ns;
    struct nats_account_ref account;
    uint32_t next_free;
    uint16_t reply_bytes;
    bool single;
    char reply[NATS_ANSWER_REPLY_BYTES];
};

struct nats_answers {
    uint64_t id;
    uint8_t prefix[PREFIX_BYTES];
    uint32_t used; /* slots used so far; number 0 is not used */
    uint32_t first_free;
    struct waiting slots[NATS_ANSWERS];
};

static uint64_t random_number(struct nats_server *server) {
    return nats_random(server) << 32 ^ nats_random(server);
}

static bool open_answers(struct nats_server *server) {
    struct nats_answers *answers = calloc(1, sizeof *answers);
    if (answers == NULL) return false;
    memcpy(answers->prefix, "_R_.", 4);
    answers->id = random_number(server) & INT64_MAX;
    hex_put(answers->prefix + 4, answers->id);
    answers->prefix[PREFIX_BYTES - 1] = '.';
    answers->used = 1;
    server->answers = answers;
    return true;
}

/* Subscribes the acceptor itself to the account's answers. */
bool nats_answers_open(struct acceptor *a, struct nats_server *server, uint32_t number) {
    struct nats_account *account = &server->accounts[number];
    if (account->answers != NULL) return true;
    if (server->answers == NULL && !open_answers(server)) return false;
    struct nats_subscription *s = calloc(1, sizeof *s);
    uint8_t pattern[PREFIX_BYTES + 1];
    memcpy(pattern, server->answers->prefix, PREFIX_BYTES);
    pattern[PREFIX_BYTES] = '>';
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

void nats_answers_end(struct acceptor *a, struct nats_server *server, uint32_t number) {
    struct nats_subscription *s = server->accounts[number].answers;
    if (s == NULL) return;
    uint8_t pattern[PREFIX_BYTES + 1];
    memcpy(pattern, server->answers->prefix, PREFIX_BYTES);
    pattern[PREFIX_BYTES] = '>';
    subjects_remove(server->accounts[number].subjects, &s->entry);
    server->accounts[number].answers = NULL;
    free(s);
    nats_tell(a, server, number, (struct text){pattern, sizeof pattern}, (struct text){NULL, 0}, 0);
}

void nats_answers_close(struct nats_server *server) {
    for (uint32_t i = 1; i < server->account_count; i++) {
        struct nats_account *account = &server->accounts[i];
        if (account->answers != NULL) subjects_remove(account->subjects, &account->answers->entry);
        free(account->answers);
    }
    free(server->answers);
}

static struct nats_account *account_of(struct nats_server *server, const struct waiting *w) {
    uint32_t number = nats_account_referred(server, w->account);
    return number != 0 ? &server->accounts[number] : NULL;
}

static void take_from_account(struct nats_server *server, const struct waiting *w) {
    struct nats_account *account = account_of(server, w);
    if (account != NULL) account->expected--;
}

/* One whose time is over, if any of some random ones is; or else the first to be, of the account that has most. So
 * requests that are never answered take no slot from another account that has few. */
static uint32_t take_used_slot(const struct acceptor *a, struct nats_server *server) {
    struct nats_answers *answers = server->answers;
    uint32_t found = 0, most = 0;
    for (uint32_t i = 0; i < LOOKED_AT; i++) {
        uint32_t slot = (uint32_t)(nats_random(server) % (NATS_ANSWERS - 1)) + 1;
        const struct waiting *w = &answers->slots[slot];
        const struct nats_account *account = account_of(server, w);
        if (a->now_ns > w->until_ns || account == NULL) {
            found = slot;
            break;
        }
        if (account->expected < most) continue;
        if (account->expected == most && w->until_ns >= answers->slots[found].until_ns) continue;
        found = slot;
        most = account->expected;
    }
    take_from_account(server, &answers->slots[found]);
    return found;
}

static uint32_t take_slot(const struct acceptor *a, struct nats_server *server) {
    struct nats_answers *answers = server->answers;
    uint32_t slot = answers->first_free;
    if (slot != 0)
        answers->first_free = answers->slots[slot].next_free;
    else if (answers->used < NATS_ANSWERS)
        slot = answers->used++;
    else
        slot = take_used_slot(a, server);
    return slot;
}

struct text nats_answer_expect(struct acceptor *a, struct nats_server *server, struct nats_expected *expected,
                               uint8_t *room) {
    struct nats_answers *answers = server->answers;
    const struct text reply = expected->reply;
    if (reply.bytes > NATS_ANSWER_REPLY_BYTES) return (struct text){NULL, 0};
    expected->slot = take_slot(a, server);
    expected->token = random_number(server) | 1;
    struct waiting *w = &answers->slots[expected->slot];
    w->token = expected->token;
    w->until_ns = a->now_ns + expected->lifetime_ns;
    w->lifetime_ns = expected->lifetime_ns;
    w->account = nats_account_refer(server, expected->account);
    server->accounts[expected->account].expected++;
    w->single = expected->single;
    w->reply_bytes = (uint16_t)reply.bytes;
    memcpy(w->reply, reply.at, reply.bytes);
    memcpy(room, answers->prefix, PREFIX_BYTES);
    hex_put(room + PREFIX_BYTES, expected->slot | (uint64_t)expected->measured << NUMBER_SHIFT);
    hex_put(room + PREFIX_BYTES + 16, w->token);
    if (expected->measured == 0) return (struct text){room, ANSWER_BYTES};
    memcpy(room + ANSWER_BYTES, answers->prefix + 3, 1 + ID_BYTES);
    memcpy(room + ANSWER_BYTES + 1 + ID_BYTES, ".T", 2);
    return (struct text){room, ANSWER_BYTES + MEASURED_BYTES};
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

/* Reads a subject for answers; false if it is none of ours. */
static bool read_subject(const struct nats_server *server, struct text subject, uint64_t *slot, uint64_t *token,
                         uint32_t *measured) {
    if (server->answers == NULL) return false;
    if (subject.bytes != ANSWER_BYTES && subject.bytes != ANSWER_BYTES + MEASURED_BYTES) return false;
    if (memcmp(subject.at, server->answers->prefix, PREFIX_BYTES) != 0) return false;
    if (!get_hex(subject.at + PREFIX_BYTES, slot) || !get_hex(subject.at + PREFIX_BYTES + 16, token)) return false;
    *measured = (uint32_t)(*slot >> NUMBER_SHIFT);
    *slot &= UINT32_MAX;
    return true;
}

static struct waiting *waiting_in(struct nats_answers *answers, uint64_t slot, uint64_t token) {
    /* A free slot has token 0, and anybody can send that. */
    if (answers == NULL || token == 0 || slot == 0 || slot >= answers->used) return NULL;
    return answers->slots[slot].token == token ? &answers->slots[slot] : NULL;
}

static void free_slot(struct nats_server *server, struct waiting *w) {
    struct nats_answers *answers = server->answers;
    assert(w->token != 0);
    take_from_account(server, w);
    w->token = 0;
    w->next_free = answers->first_free;
    answers->first_free = (uint32_t)(w - answers->slots);
}

bool nats_answer_take(struct acceptor *a, struct nats_server *server, struct nats_message *m, struct nats_room *room,
                      struct nats_answered *answered) {
    uint64_t slot;
    if (!read_subject(server, m->subject, &slot, &answered->token, &answered->measured)) return false;
    struct waiting *w = waiting_in(server->answers, slot, answered->token);
    uint8_t *reply = w != NULL ? nats_room_for(room, NATS_ANSWER_REPLY_BYTES) : NULL;
    if (reply == NULL) return false;
    answered->account = nats_account_referred(server, w->account);
    bool is_over = a->now_ns > w->until_ns || answered->account == 0;
    memcpy(reply, w->reply, w->reply_bytes);
    m->subject = (struct text){reply, w->reply_bytes};
    m->reply = (struct text){NULL, 0};
    w->until_ns = a->now_ns + w->lifetime_ns;
    /* An empty answer is the last of several. */
    if (w->single || is_over || m->payload_bytes == 0) free_slot(server, w);
    return !is_over;
}

/* --- measured requests -------------------------------------------------------------------------------------------- */

struct text nats_answer_reply(const struct nats_server *server, uint32_t slot, uint64_t token, uint32_t *account) {
    const struct waiting *w = waiting_in(server->answers, slot, token);
    *account = w != NULL ? nats_account_referred(server, w->account) : 0;
    if (*account == 0) return (struct text){NULL, 0};
    return (struct text){(const uint8_t *)w->reply, w->reply_bytes};
}

void nats_answer_forget(struct nats_server *server, uint32_t slot, uint64_t token) {
    struct waiting *w = waiting_in(server->answers, slot, token);
    if (w != NULL) free_slot(server, w);
}

bool nats_answer_number(const struct nats_server *server, struct text subject, uint32_t *measured, uint64_t *token) {
    uint64_t slot;
    return read_subject(server, subject, &slot, token, measured);
}

int64_t nats_answers_id(struct nats_server *server) {
    bool are_open = server->answers != NULL || open_answers(server);
    return are_open ? (int64_t)server->answers->id : CALL_REFUSED;
}

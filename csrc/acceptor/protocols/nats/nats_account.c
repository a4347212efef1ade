/* Accounts by their names: a hash table of their numbers, with open addressing. Accounts are never removed: clients
 * cannot make any, and their number is limited. */
#include "acceptor/protocols/nats/nats_account.h"

#include <stdlib.h>

#include "acceptor/members.h"

enum { FIRST_ACCOUNTS = 8 };

/* The slot of that name's number, or the empty one where it belongs. */
static uint32_t *slot_of(const struct nats_server *server, struct text name) {
    uint32_t at = (uint32_t)siphash(server->key, name.at, name.bytes) & server->account_mask;
    for (;; at = (at + 1) & server->account_mask) {
        uint32_t *slot = &server->account_names[at];
        const struct nats_account *account = &server->accounts[*slot];
        if (*slot == 0 || (account->name_bytes == name.bytes && memcmp(account->name, name.at, name.bytes) == 0))
            return slot;
    }
}

static bool grow(struct nats_server *server) {
    uint32_t slots = server->account_names != NULL ? (server->account_mask + 1) * 2 : FIRST_ACCOUNTS * 2;
    uint32_t *names = calloc(slots, sizeof *names);
    struct nats_account *accounts = realloc(server->accounts, slots / 2 * sizeof *accounts);
    if (accounts != NULL) server->accounts = accounts;
    if (names == NULL || accounts == NULL) {
        free(names);
        return false;
    }
    if (server->account_count == 0) {
        memset(&accounts[0], 0, sizeof accounts[0]);
        server->account_count = 1;
    }
    free(server->account_names);
    server->account_names = names;
    server->account_mask = slots - 1;
    for (uint32_t i = 1; i < server->account_count; i++)
        *slot_of(server, (struct text){(const uint8_t *)accounts[i].name, accounts[i].name_bytes}) = i;
    return true;
}

uint32_t nats_account_named(const struct nats_server *server, struct text name) {
    return server->account_names != NULL ? *slot_of(server, name) : 0;
}

/* The connection of a pool that carries an account, by FNV-1a: all servers must agree on it. */
static uint32_t place_in_pool(struct text name) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < name.bytes; i++) hash = (hash ^ name.at[i]) * 16777619u;
    return hash;
}

uint32_t nats_open_account(struct nats_server *server, struct text name) {
    uint32_t found = nats_account_named(server, name);
    if (found != 0) return found;
    if (name.bytes == 0 || name.bytes > NATS_MAX_ACCOUNT_BYTES || server->account_count == NATS_MAX_ACCOUNTS) return 0;
    bool full = server->account_names == NULL || server->account_count >= (server->account_mask + 1) / 2;
    if (full && !grow(server)) return 0;
    struct nats_account made = {.subjects = subjects_new(server->key), .name = malloc(name.bytes), .place = UINT32_MAX};
    if (made.subjects == NULL || made.name == NULL) {
        subjects_free(made.subjects);
        free(made.name);
        return 0;
    }
    memcpy(made.name, name.at, name.bytes);
    made.name_bytes = (uint32_t)name.bytes;
    made.name_hash = place_in_pool(name);
    uint32_t number = server->account_count++;
    *slot_of(server, name) = number;
    server->accounts[number] = made;
    return number;
}

void nats_accounts_close(struct nats_server *server) {
    for (uint32_t i = 1; i < server->account_count; i++) {
        subjects_free(server->accounts[i].subjects);
        subjects_free(server->accounts[i].remote);
        free(server->accounts[i].name);
        free(server->accounts[i].trace_dest);
    }
    free(server->accounts);
    free(server->account_names);
}

bool nats_join(struct acceptor *a, struct connection *c, uint64_t most) {
    struct nats_account *account = nats_account_of(a, c);
    nats_leave(a, c);
    if (nats_is(c, NATS_OF_SERVER)) return true;
    if (account->place == UINT32_MAX) account->place = members_place(a, account->name, account->name_bytes);
    bool joined = account->place < BOARD_MEMBERSHIPS ? members_join(a, account->place, most) : account->members < most;
    if (joined) account->members++;
    nats_of(c)->is_member = joined;
    return joined;
}

void nats_leave(struct acceptor *a, struct connection *c) {
    struct nats_account *account = nats_account_of(a, c);
    if (!nats_of(c)->is_member) return;
    nats_of(c)->is_member = false;
    account->members--;
    if (account->place < BOARD_MEMBERSHIPS) members_leave(a, account->place);
}

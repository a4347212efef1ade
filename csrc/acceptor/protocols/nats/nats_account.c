/* Accounts by their names: a hash table of their numbers, with open addressing. */
#include "acceptor/protocols/nats/nats_account.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_account_use.h"

enum { FIRST_ACCOUNTS = 8 };

static struct text name_of(const struct nats_account *account) {
    return (struct text){(const uint8_t *)account->name, account->name_bytes};
}

static uint32_t first_slot(const struct nats_server *server, struct text name) {
    return (uint32_t)siphash(server->key, name.at, name.bytes) & server->account_mask;
}

/* The slot of that name's number, or the empty one where it belongs. */
static uint32_t *slot_of(const struct nats_server *server, struct text name) {
    uint32_t at = first_slot(server, name);
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
        if (accounts[i].name != NULL) *slot_of(server, name_of(&accounts[i])) = i;
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

/* A number that was free; 0: there is none, nor memory for one. */
static uint32_t take_number(struct nats_server *server) {
    uint32_t number = server->free_account;
    if (number != 0) {
        server->free_account = server->accounts[number].next;
        server->free_accounts--;
        return number;
    }
    if (server->account_count == NATS_MAX_ACCOUNTS) return 0;
    bool full = server->account_names == NULL || server->account_count >= (server->account_mask + 1) / 2;
    if (full && !grow(server)) return 0;
    memset(&server->accounts[server->account_count], 0, sizeof *server->accounts);
    return server->account_count++;
}

static void free_number(struct nats_server *server, uint32_t number, uint32_t life) {
    server->accounts[number] = (struct nats_account){.life = life, .next = server->free_account};
    server->free_account = number;
    server->free_accounts++;
}

uint32_t nats_open_account(struct acceptor *a, struct nats_server *server, struct text name) {
    uint32_t found = nats_account_named(server, name);
    if (found != 0) return found;
    if (name.bytes == 0 || name.bytes > NATS_MAX_ACCOUNT_BYTES) return 0;
    uint32_t number = take_number(server);
    if (number == 0) return 0;
    struct nats_account made = {.subjects = subjects_new(server->key), .name = malloc(name.bytes)};
    if (made.subjects == NULL || made.name == NULL) {
        subjects_free(made.subjects);
        free(made.name);
        free_number(server, number, server->accounts[number].life);
        return 0;
    }
    memcpy(made.name, name.at, name.bytes);
    made.name_bytes = (uint32_t)name.bytes;
    made.name_hash = place_in_pool(name);
    made.membership = membership_of(name.at, name.bytes);
    made.life = server->accounts[number].life;
    *slot_of(server, name) = number;
    server->accounts[number] = made;
    nats_account_look(a, server, number);
    return number;
}

uint32_t nats_account_count(const struct nats_server *server) {
    return server->account_count - server->free_accounts;
}

/* Empties a slot, and moves those behind it that would not be found any more. */
static void empty(struct nats_server *server, uint32_t *slot) {
    uint32_t mask = server->account_mask, free_at = (uint32_t)(slot - server->account_names);
    for (uint32_t at = (free_at + 1) & mask; server->account_names[at] != 0; at = (at + 1) & mask) {
        uint32_t first = first_slot(server, name_of(&server->accounts[server->account_names[at]]));
        if (((at - first) & mask) < ((at - free_at) & mask)) continue;
        server->account_names[free_at] = server->account_names[at];
        free_at = at;
    }
    server->account_names[free_at] = 0;
}

void nats_account_free(struct acceptor *a, struct nats_server *server, uint32_t number) {
    struct nats_account *account = &server->accounts[number];
    members_forget(a, &account->membership);
    empty(server, slot_of(server, name_of(account)));
    subjects_free(account->subjects);
    subjects_free(account->remote);
    free(account->name);
    free(account->trace_dest);
    free_number(server, number, account->life + 1);
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
    return nats_of(c)->is_member = members_join(a, &account->membership, most);
}

void nats_leave(struct acceptor *a, struct connection *c) {
    struct nats_account *account = nats_account_of(a, c);
    if (!nats_of(c)->is_member) return;
    nats_of(c)->is_member = false;
    members_leave(a, &account->membership);
}

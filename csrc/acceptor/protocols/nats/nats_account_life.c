/* When an account goes. It stays while something keeps it: Python, which may use its number; connections in it, imports
 * that lead to it, and messages that are still being handed out; what it shares; what other servers want in it; routes
 * of its own; and other acceptors that have told us their number of it.
 *
 * Acceptors tell each other the number of an account before anything else in it, and that it is free when nothing of
 * their own keeps the account. Each keeps it until all others have said so, which they do whether or not it is named to
 * them: so two acceptors do not keep an account for each other. The ring keeps the order, so a number that is used
 * again is never taken for the account that had it before.
 */
#include "acceptor/protocols/nats/nats_account_life.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_answers.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"

enum { LOOKED_AT_ONCE = 256 };

static bool is_unused(const struct nats_account *account) {
    const size_t own = account->answers != NULL ? 1 : 0;
    return !account->kept && account->holders == 0 && account->shares == NULL && account->routes == NATS_POOLED &&
           (account->remote == NULL || subjects_count(account->remote) == 0) &&
           subjects_count(account->subjects) == own;
}

static void let_go(struct acceptor *a, struct nats_server *server, uint32_t number) {
    const struct nats_account *account = &server->accounts[number];
    nats_answers_end(a, server, number);
    if (account->named) nats_mesh_unname(a, server, number);
    if (account->namers == 0 && !account->listed) nats_account_free(a, server, number);
}

void nats_accounts_go_on(struct acceptor *a, struct nats_server *server) {
    for (size_t left = LOOKED_AT_ONCE; left > 0 && server->unused_account != 0; left--) {
        uint32_t number = server->unused_account;
        struct nats_account *account = &server->accounts[number];
        server->unused_account = account->next;
        account->listed = false;
        if (is_unused(account)) let_go(a, server, number);
    }
    if (server->unused_account != 0) codec_left(a, server->protocol);
}

/* Who uses an account, and which may be unused: those are looked at in a later turn (nats_account_life.c). */
#include "acceptor/protocols/nats/nats_account_use.h"

#include "acceptor/protocols/nats/nats_account_state.h"

void nats_account_look(struct acceptor *a, struct nats_server *server, uint32_t number) {
    struct nats_account *account = &server->accounts[number];
    if (account->kept || account->listed) return;
    account->listed = true;
    account->next = server->unused_account;
    server->unused_account = number;
    codec_left(a, server->protocol);
}

void nats_account_hold(struct nats_server *server, uint32_t number) {
    server->accounts[number].holders++;
}

void nats_account_drop(struct acceptor *a, struct nats_server *server, uint32_t number) {
    if (--server->accounts[number].holders == 0) nats_account_look(a, server, number);
}

void nats_account_keep(struct acceptor *a, struct nats_server *server, uint32_t number, bool kept) {
    server->accounts[number].kept = kept;
    if (!kept) nats_account_look(a, server, number);
}

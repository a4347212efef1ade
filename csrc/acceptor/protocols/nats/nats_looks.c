#include "acceptor/protocols/nats/nats_looks.h"

#include <stdlib.h>

#include "acceptor/listeners.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_remote.h"
#include "acceptor/protocols/nats/nats_route_interest.h"

/* Streams looked at in a turn: a few milliseconds. */
enum { LOOKED_IN_TURN = 2048 };

static struct text wanted_of(const struct nats_look *look) {
    return (struct text){look->texts, look->wanted_bytes};
}

static struct text queue_of(const struct nats_look *look) {
    return (struct text){look->texts + look->wanted_bytes, look->queue_bytes};
}

/* Not what leaf nodes and hubs want, as those wait for nothing. */
static bool may_wait(const struct nats_server *server, const struct nats_account *account, struct text wanted,
                     struct nats_wanting by, bool is_parting) {
    return by.kind == NATS_ACCEPTORS && (!is_parting || server->route_count == 0) && account->importing != NULL &&
           subjects_pattern_count(account->importing) > LOOKED_IN_TURN && subject_has_wildcard(wanted.at, wanted.bytes);
}

void nats_look(struct acceptor *a, struct nats_server *server, uint32_t account, struct text wanted, struct text queue,
               struct nats_wanting by, uint64_t weight) {
    const bool is_parting = queue.bytes > 0 && weight == 0;
    bool waits = may_wait(server, &server->accounts[account], wanted, by, is_parting);
    struct nats_look *look = waits ? malloc(sizeof *look + wanted.bytes + queue.bytes) : NULL;
    if (look == NULL) {
        nats_shadows_look(a, server, account, wanted, queue, by, weight);
        return;
    }
    *look = (struct nats_look){.number = ++server->looks.made, .account = account};
    look->wanted_bytes = (uint32_t)wanted.bytes;
    look->queue_bytes = (uint32_t)queue.bytes;
    look->parting = is_parting;
    server->looks.parting += is_parting;
    nats_put(nats_put(look->texts, wanted.at, wanted.bytes), queue.at, queue.bytes);
    *(server->looks.first == NULL ? &server->looks.first : &server->looks.last->next) = look;
    server->looks.last = look;
    codec_left(a, server->protocol);
}

void nats_look_hear(struct acceptor *a, struct nats_server *server, const struct nats_remote *r, uint32_t weight) {
    const struct subject_pattern *p = r->entry.pattern;
    const struct subject_group *g = r->entry.group;
    if (server->accounts[r->account].importing == NULL || !nats_is_wanting(r)) return;
    const struct text subject = {(const uint8_t *)p->text, p->bytes};
    const struct text queue =
        g != NULL ? (struct text){(const uint8_t *)g->name->text, g->name->bytes} : (struct text){0};
    const struct nats_wanting by = nats_wanting_of(r);
    uint64_t others = nats_weight_wanting(server, r->account, subject, queue, by, r);
    nats_look(a, server, r->account, subject, queue, by, others + weight);
}

void nats_look_for(struct nats_server *server, struct connection *c) {
    server->looks.last->waiting = c->number;
    nats_of(c)->flags |= NATS_LOOKING | NATS_UNCONFIRMED;
}

void nats_look_leaving(struct nats_server *server, struct connection *c) {
    server->looks.last->leaving = c;
    nats_of(c)->flags |= NATS_PARTING;
}

/* --- confirmations ------------------------------------------------------------------------------------------------ */

bool nats_look_confirms_later(struct nats_server *server, uint32_t other, uint64_t number) {
    struct nats_peer *peer = &server->peers[other];
    if (server->looks.first == NULL) return false;
    if (peer->confirm_at == 0) {
        peer->confirm_at = server->looks.made;
        peer->confirm = number;
    } else {
        peer->confirm_next = number; /* and all before it */
    }
    return true;
}

/* What was asked meanwhile waits for the looks that there are now. */
static void confirm(struct acceptor *a, struct nats_server *server, uint64_t done) {
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1) {
        uint32_t other = first_of(rest);
        struct nats_peer *peer = &server->peers[other];
        if (peer->confirm_at == 0 || peer->confirm_at > done) continue;
        nats_mesh_send_number(a, server, other, MESH_CONFIRMED, peer->confirm);
        peer->confirm = peer->confirm_next;
        peer->confirm_at = peer->confirm_next != 0 ? server->looks.made : 0;
        peer->confirm_next = 0;
        if (peer->confirm_at > 0 && peer->confirm_at <= done) {
            nats_mesh_send_number(a, server, other, MESH_CONFIRMED, peer->confirm);
            peer->confirm_at = 0;
        }
    }
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

static void end_first(struct acceptor *a, struct nats_server *server) {
    struct nats_look *look = server->looks.first;
    struct connection *c = look->waiting != 0 ? connection_find(a, look->waiting) : NULL;
    server->looks.first = look->next;
    if (look->next == NULL) server->looks.last = NULL;
    server->looks.parting -= look->parting;
    if (look->leaving != NULL) nats_of(look->leaving)->flags &= ~(uint32_t)NATS_PARTING;
    if (c != NULL) {
        nats_of(c)->flags &= ~(uint32_t)NATS_LOOKING;
        if (c->stall == STALL_MESH) socket_wake(a, c);
    }
    confirm(a, server, look->number);
    free(look);
}

void nats_looks_go_on(struct acceptor *a, struct nats_server *server) {
    const struct nats_wanting by = {.kind = NATS_ACCEPTORS};
    size_t left = LOOKED_IN_TURN;
    if (server->looks.first == NULL) return;
    while (server->looks.first != NULL && left > 0) {
        struct nats_look *look = server->looks.first;
        if (server->accounts[look->account].importing == NULL) {
            end_first(a, server);
            continue;
        }
        const struct text wanted = wanted_of(look), queue = queue_of(look);
        uint64_t weight = nats_weight_wanting(server, look->account, wanted, queue, by, NULL);
        if (nats_shadows_look_some(a, server, look->account, wanted, queue, weight, &look->cursor, &left))
            end_first(a, server);
    }
    if (server->looks.first != NULL)
        codec_left(a, server->protocol);
    else
        listeners_update(a); /* it may have begun to serve */
}

void nats_looks_close(struct nats_server *server) {
    for (struct nats_look *look = server->looks.first, *next; look != NULL; look = next) {
        next = look->next;
        free(look);
    }
}

/* What others want, and what others are told of that; see nats_mesh.c. */
#include "acceptor/protocols/nats/nats_interest.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_looks.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_route_interest.h"
#include "acceptor/protocols/nats/nats_route_state.h"

void nats_tell(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject, struct text queue,
               uint32_t weight) {
    const struct nats_mesh_interest i = {account, weight, 0, 0, (uint32_t)subject.bytes, (uint32_t)queue.bytes};
    if (server->route_count > 0) nats_tell_routes(a, server, account, subject, queue, weight);
    nats_mesh_tell(a, server, &i, subject, queue);
}

/* --- what others want --------------------------------------------------------------------------------------------- */

static struct nats_remote *find_remote(const struct nats_server *server, const struct nats_account *account,
                                       uint32_t other, uint32_t origin, struct text subject, struct text queue) {
    struct subject_entries *entries = subjects_entries(account->remote, subject, queue);
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++) {
        struct nats_remote *r = (struct nats_remote *)(void *)subject_entries_items(entries)[i];
        if (r->other == other && r->origin == origin && !nats_has_left(server, r)) return r;
    }
    return NULL;
}

static size_t bytes_of(const struct nats_remote *r) {
    return sizeof *r + sizeof *r->entry.pattern + r->entry.pattern->bytes;
}

/* The interest of all other servers together has a limit: see nats_route.c. */
static void count_interest(struct nats_server *server, const struct nats_remote *r, bool more) {
    uint64_t bytes = r->entry.pattern->bytes + (r->entry.group != NULL ? r->entry.group->name->bytes : 0);
    if (!nats_is_route(r->other)) return;
    if ((nats_kind_of(r) & NATS_OUTSIDE) != 0) server->leaf_interest += more ? 1 : UINT64_MAX;
    server->interest += more ? 1 : UINT64_MAX;
    server->interest_bytes += more ? bytes : -bytes;
}

void nats_forget_remote(struct nats_server *server, struct nats_remote *r) {
    struct nats_other *other = &server->others[r->other];
    bool has_left = nats_has_left(server, r);
    struct nats_remotes *list = has_left ? &server->left : &other->wanted;
    count_interest(server, r, false);
    if (!has_left) other->count--;
    *(r->previous != NULL ? &r->previous->next : &list->first) = r->next;
    *(r->next != NULL ? &r->next->previous : &list->last) = r->previous;
    subjects_remove(server->accounts[r->account].remote, &r->entry);
    nats_origin_drop(&server->origins, r->origin);
    free(r);
}

void nats_drop_remote(struct acceptor *a, struct nats_server *server, struct nats_remote *r) {
    const uint32_t account = r->account;
    blocks_heap_given(&a->blocks, bytes_of(r));
    nats_forget_remote(server, r);
    if (subjects_count(server->accounts[account].remote) == 0) nats_account_look(a, server, account);
}

/* Aborts when memory is short: without this interest, clients of the other acceptor would miss messages. */
static struct nats_remote *add_remote(struct nats_server *server, uint32_t other, uint32_t origin, uint32_t number,
                                      struct text subject, struct text queue, uint32_t weight) {
    struct nats_account *account = &server->accounts[number];
    struct nats_remotes *list = &server->others[other].wanted;
    struct nats_remote *r = calloc(1, sizeof *r);
    bool first;
    if (r == NULL) abort();
    r->entry.weight = weight;
    r->account = (uint16_t)number;
    r->other = (uint16_t)other;
    r->origin = origin;
    nats_origin_keep(&server->origins, origin);
    r->epoch = server->others[other].epoch;
    if (!subjects_add(account->remote, &r->entry, subject.at, subject.bytes, queue.at, queue.bytes, &first)) abort();
    count_interest(server, r, true);
    server->others[other].count++;
    r->next = list->first;
    *(r->next != NULL ? &r->next->previous : &list->last) = r;
    list->first = r;
    return r;
}

/* Tells interest to the others: a route's to acceptors and leaf nodes, an acceptor's to servers and leaf nodes, and a
 * leaf node's to all of these. */
static void pass_interest(struct acceptor *a, struct nats_server *server, const struct nats_remote *r,
                          struct text subject, struct text queue, uint32_t weight) {
    const struct nats_mesh_interest i = {r->account,           weight, r->other, r->origin, (uint32_t)subject.bytes,
                                         (uint32_t)queue.bytes};
    nats_tell_routes_of(a, server, r, weight);
    nats_look_hear(a, server, r, weight);
    if (nats_is_route(r->other) && nats_link_of(server, r->other)->connection != NULL)
        nats_mesh_tell(a, server, &i, subject, queue);
}

void nats_hear_interest(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t origin,
                        uint32_t number, struct text subject, struct text queue, uint32_t weight) {
    struct nats_account *account = &server->accounts[number];
    if (account->remote == NULL && (account->remote = subjects_new(server->key)) == NULL) abort();
    struct nats_remote *r = find_remote(server, account, other, origin, subject, queue);
    if (r == NULL && weight == 0) return;
    if (r != NULL && weight > 0) {
        if (r->entry.weight == weight) return;
        subjects_weigh(&r->entry, weight);
    } else if (r == NULL) {
        r = add_remote(server, other, origin, number, subject, queue, weight);
        blocks_heap_taken(&a->blocks, bytes_of(r));
    }
    pass_interest(a, server, r, subject, queue, weight);
    if (weight == 0) nats_drop_remote(a, server, r);
}

/* Removes such interest, and tells the others. */
static void unhear(struct acceptor *a, struct nats_server *server, struct nats_remote *r) {
    const struct subject_pattern *p = r->entry.pattern;
    const struct subject_group *g = r->entry.group;
    struct text subject = {(const uint8_t *)p->text, p->bytes}, queue = {0};
    if (g != NULL) queue = (struct text){(const uint8_t *)g->name->text, g->name->bytes};
    pass_interest(a, server, r, subject, queue, 0);
    nats_drop_remote(a, server, r);
}

void nats_route_forget(struct acceptor *a, struct nats_server *server, const struct connection *c, uint32_t account) {
    uint32_t other = route_of(c)->other;
    for (struct nats_remote *wanted = server->others[other].wanted.first, *next; other != 0 && wanted != NULL;
         wanted = next) {
        next = wanted->next;
        if (wanted->account == account) unhear(a, server, wanted);
    }
}

void nats_route_forget_forbidden(struct acceptor *a, struct nats_server *server, const struct connection *c) {
    const struct nats_route *r = route_of(c);
    if (r->other == 0 || c->closed) return;
    for (struct nats_remote *wanted = server->others[r->other].wanted.first, *next; wanted != NULL; wanted = next) {
        next = wanted->next;
        const struct subject_pattern *p = wanted->entry.pattern;
        struct text subject = {(const uint8_t *)p->text, p->bytes};
        bool may = r->permissions == NULL ||
                   nats_may_subscribe(&server->permissions, r->permissions, subject, (struct text){0});
        if (!may) unhear(a, server, wanted);
    }
}

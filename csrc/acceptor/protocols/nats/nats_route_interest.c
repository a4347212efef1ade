/* Which interest other servers are told, for all acceptors together. They are told of a pattern when the first
 * subscriber wants it and when the last is gone, and of a group whenever its number of members changes.
 *
 * Servers of the cluster are told each cluster of leaf nodes separately, and leaf nodes that belong to none; or, if
 * they do not support that, as if these were clients. What leaf nodes want of an importing account is of no cluster,
 * since they do not know it as a message of this one. A leaf node is told of all interest except that of its own
 * cluster. A hub is told of clients here and leaf nodes only: other servers of the cluster have hubs of their own, and
 * hubs do not hear of each other. */
#include "acceptor/protocols/nats/nats_route_interest.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_route_send.h"
#include "acceptor/protocols/nats/nats_shadows_state.h"
#include "acceptor/protocols/nats/nats_shares_state.h"
#include "base/subject_groups.h"

/* --- accounts ----------------------------------------------------------------------------------------------------- */

/* Whether a connection carries an account: as its dedicated route, or by its place in the pool. */
static bool carries(const struct nats_server *server, const struct connection *c, uint32_t number) {
    const struct nats_route *r = route_of(c);
    const struct nats_account *account = &server->accounts[number];
    if (account->name_bytes == 0) return false;
    if (r->account != 0) return r->account == number;
    if ((r->flags & ROUTE_NO_POOL) != 0) return true;
    /* Its place in a pool of our size, however many connections the other server wants. */
    return account->routes == NATS_POOLED && r->pool_size > 0 && account->name_hash % r->pool_size == r->pool_index;
}

/* --- how often something is wanted -------------------------------------------------------------------------------- */

static uint64_t weight_here(const struct nats_account *account, struct text subject, struct text queue) {
    const struct subject_pattern *p = subjects_find(account->subjects, subject.at, subject.bytes);
    if (p == NULL) return 0;
    if (queue.bytes == 0) return p->alone.count;
    const struct subject_group *g = subject_group_find(subjects_groups(account->subjects), p, queue.at, queue.bytes);
    return g != NULL ? g->weight : 0;
}

/* A bound subject counts as one subscriber, whatever the number of acceptors. */
static uint64_t weight_bound(const struct nats_bound *bound, struct text subject, struct text queue) {
    if (bound->subjects == NULL || queue.bytes != bound->queue_bytes) return 0;
    if (queue.bytes > 0 && memcmp(queue.at, bound->queue, queue.bytes) != 0) return 0;
    return subjects_find(bound->subjects, subject.at, subject.bytes) != NULL;
}

static uint64_t weight_kept(const struct nats_server *server, uint32_t account, struct text subject,
                            struct text queue) {
    return account == NATS_GLOBAL_ACCOUNT ? weight_bound(&server->bound, subject, queue) : 0;
}

/* Subjects that are services of other accounts, or mapped, count as wanted for leaf nodes and hubs, which send only
 * what is wanted. */
static uint64_t weight_shared(const struct nats_account *account, struct text subject, struct text queue) {
    const struct subjects *mappings = nats_shares_mappings(account->shares);
    if (queue.bytes > 0) return 0;
    return nats_shares_have_service(account->shares, subject) ||
           (mappings != NULL && subjects_find(mappings, subject.at, subject.bytes) != NULL);
}

static bool is_to_leaf(const struct connection *c) {
    return (route_of(c)->flags & ROUTE_LEAF) != 0;
}

static bool is_to_hub(const struct connection *c) {
    return (route_of(c)->flags & ROUTE_HUB) != 0;
}

/* Whether interest of this cluster of leaf nodes is told separately over a connection, by the cluster's name. */
static bool is_apart(const struct nats_server *server, const struct connection *c, uint32_t origin) {
    return (route_of(c)->flags & ROUTE_ORIGINS) != 0 && nats_origin_name(&server->origins, origin).bytes > 0;
}

/* Whether another's interest is told over a connection as interest of this server. */
static bool is_told_over(const struct nats_server *server, const struct connection *c, const struct nats_remote *r) {
    uint32_t kind = nats_kind_of(r);
    bool is_near = (kind & (NATS_ACCEPTORS | NATS_LEAF_NODES)) != 0;
    if ((route_of(c)->flags & ROUTE_LEAVES) != 0) return kind == NATS_ACCEPTORS;
    if (!is_to_leaf(c)) return is_near && !is_apart(server, c, r->origin);
    if (is_to_hub(c)) return is_near;
    return (kind & NATS_OUTSIDE) == 0 || r->origin != nats_link_of(server, route_of(c)->other)->origin;
}

/* The weight of others' interest that is told over a connection. */
static uint64_t weight_there(const struct nats_server *server, const struct nats_account *account, struct text subject,
                             struct text queue, const struct connection *c) {
    struct subject_entries *entries = subjects_entries(account->remote, subject, queue);
    if (entries == NULL) return 0;
    struct subject_entry **items = subject_entries_items(entries);
    uint64_t weight = 0;
    for (uint32_t i = 0; i < entries->count; i++) {
        const struct nats_remote *r = (const struct nats_remote *)(const void *)items[i];
        if (is_told_over(server, c, r) && !nats_has_left(server, r)) weight += items[i]->weight;
    }
    return weight;
}

/* The weights of all others, by kind, for all connections at once. Those of each cluster of leaf nodes or hubs are in
 * server->origin_weights. */
struct weights {
    uint64_t acceptors, servers, hubs;
    uint64_t leaves, nameless; /* of the leaves: those without a cluster's name */
    uint64_t same;             /* ... those of the cluster of `except` */
};

static void weigh_origin(struct nats_server *server, uint32_t origin, uint64_t weight) {
    if (server->origin_stamps[origin] != server->origin_stamp) server->origin_weights[origin] = 0;
    server->origin_stamps[origin] = server->origin_stamp;
    server->origin_weights[origin] += weight;
}

static struct weights weigh_others(struct nats_server *server, const struct nats_account *account, struct text subject,
                                   struct text queue, const struct nats_remote *except) {
    struct weights w = {0};
    struct subject_entries *entries = subjects_entries(account->remote, subject, queue);
    server->origin_stamp++;
    struct subject_entry **items = entries != NULL ? subject_entries_items(entries) : NULL;
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++) {
        const struct nats_remote *r = (const struct nats_remote *)(const void *)items[i];
        uint64_t weight = items[i]->weight;
        if (r == except || nats_has_left(server, r)) continue;
        if (r->origin != 0) weigh_origin(server, r->origin, weight);
        switch (nats_kind_of(r)) {
        case NATS_ACCEPTORS: w.acceptors += weight; break;
        case NATS_HUB_SERVERS: w.hubs += weight; break;
        case NATS_LEAF_NODES:
            w.leaves += weight;
            if (nats_origin_name(&server->origins, r->origin).bytes == 0) w.nameless += weight;
            if (except != NULL && r->origin == except->origin) w.same += weight;
            break;
        default: w.servers += weight; break;
        }
    }
    return w;
}

uint64_t nats_weight_wanting(const struct nats_server *server, uint32_t number, struct text subject, struct text queue,
                             struct nats_wanting by, const struct nats_remote *except) {
    uint64_t weight = nats_weight_beside(server, number, subject, queue, by, except);
    return by.kind == NATS_ACCEPTORS ? weight + weight_here(&server->accounts[number], subject, queue) : weight;
}

uint64_t nats_weight_beside(const struct nats_server *server, uint32_t number, struct text subject, struct text queue,
                            struct nats_wanting by, const struct nats_remote *except) {
    struct subject_entries *entries = subjects_entries(server->accounts[number].remote, subject, queue);
    uint64_t weight = 0;
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++) {
        const struct nats_remote *r = (const struct nats_remote *)(const void *)subject_entries_items(entries)[i];
        if (r == except || nats_has_left(server, r) || nats_kind_of(r) != by.kind) continue;
        if (by.origin == 0 || r->origin == by.origin) weight += r->entry.weight;
    }
    return weight;
}

/* --- telling ------------------------------------------------------------------------------------------------------ */

/* Interest that has changed. */
struct interest_change {
    struct acceptor *a;
    struct nats_server *server;
    uint32_t account;
    struct text subject, queue;
    uint64_t weight;                     /* the new weight of the one whose interest has changed */
    uint64_t here;                       /* of clients and bindings here, unless theirs has changed */
    struct nats_shadows_weights shadows; /* of accounts that import its streams; 0 if theirs has changed */
    uint32_t by;                         /* whose has changed: enum nats_kind; 0: of this acceptor */
    uint32_t origin;                     /* cluster of that leaf node or hub, here or elsewhere; 0: none */
    struct weights w;                    /* of all others */
};

/* Tells one connection. A pattern that others want too was told before. But while the initial telling is under way it
 * may not have been, and may be skipped later, because tell() tells it only in the first stage that has it. Telling it
 * twice does no harm. */
static void tell_one(const struct interest_change *k, struct connection *c, uint32_t origin, uint64_t others) {
    struct nats_interest said = {k->account, origin, k->subject, k->queue, k->weight};
    if (k->queue.bytes > 0)
        said.weight += others;
    else if (others > 0 && (k->weight == 0 || route_of(c)->telling == NULL))
        return;
    nats_route_say_interest(k->a, k->server, c, &said);
}

static void tell_server(const struct interest_change *k, struct connection *c) {
    bool is_by_leaf = k->by == NATS_LEAF_NODES;
    uint64_t clients = k->here + k->shadows.clients + k->w.acceptors;
    bool are_apart = (route_of(c)->flags & ROUTE_ORIGINS) != 0;
    uint64_t leaves = k->shadows.leaves + (are_apart ? k->w.nameless : k->w.leaves);
    if (is_by_leaf && is_apart(k->server, c, k->origin))
        tell_one(k, c, k->origin, k->w.same);
    else if ((route_of(c)->flags & ROUTE_LEAVES) == 0)
        tell_one(k, c, 0, clients + leaves);
    else if (is_by_leaf)
        tell_one(k, c, NATS_NO_CLUSTER, leaves);
    else
        tell_one(k, c, 0, clients);
}

static bool is_by_others(const struct interest_change *k) {
    return (k->by & (NATS_SERVERS | NATS_SERVERS_LEAVES | NATS_HUB_SERVERS)) != 0;
}

static void tell_servers(const struct interest_change *k) {
    for (uint32_t n = 0; n < NATS_ROUTES && !is_by_others(k); n++) {
        struct connection *c = k->server->links[n].connection;
        if (c != NULL && carries(k->server, c, k->account)) tell_server(k, c);
    }
}

/* `kinds`: leaf nodes, hubs, or both. */
static void tell_leaves(const struct interest_change *k, uint32_t kinds) {
    const struct nats_server *server = k->server;
    uint64_t for_hubs = k->here + k->shadows.clients + k->shadows.leaves + k->w.acceptors + k->w.leaves;
    if (server->leaf_count > 0) for_hubs += weight_shared(&server->accounts[k->account], k->subject, k->queue);
    uint64_t all = for_hubs + k->shadows.hubs + k->w.servers + k->w.hubs;
    /* Hubs are always told loop subjects: a loop may lead through a hub, or a server that has one. */
    bool is_for_hubs = (kinds & NATS_HUB_SERVERS) != 0 && (!is_by_others(k) || nats_is_loop(k->subject));
    for (uint32_t n = NATS_ROUTES; server->leaf_count > 0 && n < NATS_LINKS; n++) {
        const struct nats_route_link *link = &server->links[n];
        if (link->connection == NULL || !carries(server, link->connection, k->account)) continue;
        if ((k->by & NATS_OUTSIDE) != 0 && k->origin == link->origin) continue;
        if (is_to_hub(link->connection)) {
            if (is_for_hubs) tell_one(k, link->connection, 0, for_hubs);
            continue;
        }
        if ((kinds & NATS_LEAF_NODES) == 0) continue;
        bool has = server->origin_stamps[link->origin] == server->origin_stamp;
        tell_one(k, link->connection, 0, all - (has ? server->origin_weights[link->origin] : 0));
    }
}

/* Tells servers and leaf nodes. It counts towards the turn like messages, as there may be very many leaf nodes. */
static void tell_both(struct interest_change *k, const struct nats_remote *except) {
    k->a->handed += k->server->route_count;
    k->shadows = nats_shadows_weigh(k->server->accounts[k->account].shadows, k->subject, k->queue);
    k->w = weigh_others(k->server, &k->server->accounts[k->account], k->subject, k->queue, except);
    tell_servers(k);
    tell_leaves(k, NATS_LEAF_NODES | NATS_HUB_SERVERS);
}

void nats_tell_routes(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                      struct text queue, uint32_t weight) {
    struct interest_change k = {.a = a, .server = server, .account = account, .subject = subject, .queue = queue};
    k.weight = weight;
    k.here = weight_kept(server, account, subject, queue);
    tell_both(&k, NULL);
}

static bool has_changed(struct text queue, uint64_t before, uint64_t now) {
    return queue.bytes == 0 ? (before > 0) != (now > 0) : before != now;
}

void nats_tell_shadows(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                       struct text queue, struct nats_shadows_weights before) {
    struct nats_shadows_weights now = nats_shadows_weigh(server->accounts[account].shadows, subject, queue);
    struct interest_change k = {.a = a, .server = server, .account = account, .subject = subject, .queue = queue};
    bool by_clients = has_changed(queue, before.clients, now.clients);
    bool by_leaves = has_changed(queue, before.leaves, now.leaves);
    bool is_near = has_changed(queue, before.clients + before.leaves, now.clients + now.leaves);
    bool is_any = has_changed(queue, before.clients + before.leaves + before.hubs, now.clients + now.leaves + now.hubs);
    if (server->route_count == 0 || (!by_clients && !by_leaves && !is_any)) return;
    a->handed += server->route_count;
    k.here = weight_here(&server->accounts[account], subject, queue) + weight_kept(server, account, subject, queue);
    k.w = weigh_others(server, &server->accounts[account], subject, queue, NULL);
    k.weight = now.clients;
    k.shadows.leaves = now.leaves;
    if (by_clients) tell_servers(&k);
    k.by = NATS_LEAF_NODES;
    k.weight = now.leaves;
    k.shadows = (struct nats_shadows_weights){.clients = now.clients};
    if (by_leaves) tell_servers(&k);
    k.by = 0;
    k.weight = now.clients + now.leaves;
    k.shadows = (struct nats_shadows_weights){0};
    if (is_near) tell_leaves(&k, NATS_HUB_SERVERS);
    k.weight += now.hubs;
    if (is_any) tell_leaves(&k, NATS_LEAF_NODES);
}

void nats_tell_routes_of(struct acceptor *a, struct nats_server *server, const struct nats_remote *r, uint32_t weight) {
    if (server->route_count == 0) return;
    const struct subject_pattern *p = r->entry.pattern;
    const struct subject_group *g = r->entry.group;
    struct interest_change k = {.a = a, .server = server, .account = r->account, .weight = weight};
    k.subject = (struct text){(const uint8_t *)p->text, p->bytes};
    if (g != NULL) k.queue = (struct text){(const uint8_t *)g->name->text, g->name->bytes};
    k.by = nats_kind_of(r);
    if ((k.by & (NATS_SERVERS | NATS_SERVERS_LEAVES)) != 0 && server->leaf_count == 0) return;
    k.origin = r->origin;
    k.here = weight_here(&server->accounts[r->account], k.subject, k.queue) +
             weight_kept(server, r->account, k.subject, k.queue);
    tell_both(&k, r);
}

/* --- bound subjects ----------------------------------------------------------------------------------------------- */

struct rebinding {
    struct acceptor *a;
    struct nats_server *server;
    const struct nats_bound *before;
};

static struct text queue_of(const struct nats_bound *bound) {
    return (struct text){bound->queue, bound->queue_bytes};
}

/* Tells that a bound subject is wanted or no longer; tell_one() does nothing if clients want it too. */
static void tell_changed(const struct rebinding *r, const struct subject_pattern *p, struct text queue) {
    const struct nats_account *account = &r->server->accounts[NATS_GLOBAL_ACCOUNT];
    struct text subject = {(const uint8_t *)p->text, p->bytes};
    uint64_t before = weight_bound(r->before, subject, queue), now = weight_bound(&r->server->bound, subject, queue);
    struct interest_change k = {.a = r->a, .server = r->server, .account = NATS_GLOBAL_ACCOUNT, .weight = now};
    if (before == now) return;
    k.subject = subject;
    k.queue = queue;
    k.here = weight_here(account, subject, queue);
    tell_both(&k, NULL);
}

static void tell_bound(void *context, struct subject_pattern *p) {
    const struct rebinding *r = context;
    tell_changed(r, p, queue_of(&r->server->bound));
}

/* Skips subjects that are still bound, which tell_bound() has told. */
static void tell_unbound(void *context, struct subject_pattern *p) {
    const struct rebinding *r = context;
    struct text subject = {(const uint8_t *)p->text, p->bytes};
    if (weight_bound(&r->server->bound, subject, queue_of(r->before)) == 0) tell_changed(r, p, queue_of(r->before));
}

void nats_tell_routes_bound(struct acceptor *a, struct nats_server *server, const struct nats_bound *before) {
    struct rebinding r = {a, server, before};
    if (server->bound.subjects != NULL) subjects_each(server->bound.subjects, tell_bound, &r);
    if (before->subjects != NULL) subjects_each(before->subjects, tell_unbound, &r);
}

/* --- telling a newly connected server ----------------------------------------------------------------------------- */

/* Patterns told in one turn, and unsent bytes above which no more is told: clients must not wait long while servers are
 * told, even if many have connected at once. */
enum { TOLD_AT_ONCE = 4096, TOLD_AHEAD_BYTES = 1 << 20 };

struct nats_telling {
    struct acceptor *a;
    struct nats_server *server;
    struct connection *c;
    uint32_t account, end;
    enum { OF_CLIENTS_HERE, OF_OTHERS, OF_SHADOWS, OF_BINDINGS, OF_IMPORTS, OF_MAPPINGS, OF_NOBODY } what;
    struct subjects_cursor cursor;
    size_t left;                           /* patterns that may be looked at in this turn */
    bool changes;                          /* permissions have changed: tells only differences */
    struct nats_permissions *before, *now; /* permissions; NULL: all is allowed */
};

void nats_telling_free(struct nats_telling *t) {
    if (t == NULL) return;
    if (t->changes) nats_permissions_drop(t->before);
    free(t);
}

static bool may_be_told(const struct nats_telling *t, struct nats_permissions *set, struct text subject) {
    return set == NULL || nats_may_publish(&t->server->permissions, set, subject);
}

/* Tells a difference. Interest that is no longer allowed is withdrawn, with the old permissions. */
static void tell_otherwise(const struct nats_telling *t, struct nats_interest said) {
    bool could = may_be_told(t, t->before, said.subject), can = may_be_told(t, t->now, said.subject);
    if (could == can) return;
    route_of(t->c)->permissions = can ? t->now : t->before;
    if (!can) said.weight = 0;
    nats_route_say_interest(t->a, t->server, t->c, &said);
    route_of(t->c)->permissions = t->now;
}

static void say(struct nats_telling *t, struct nats_interest said) {
    if (said.weight > 0 && t->changes)
        tell_otherwise(t, said);
    else if (said.weight > 0)
        nats_route_say_interest(t->a, t->server, t->c, &said);
    if (connection_unsent(t->c) > TOLD_AHEAD_BYTES && t->left < TOLD_AT_ONCE) t->left = 0;
}

/* Tells interest of each cluster of leaf nodes here, to a server that distinguishes clusters. */
static void tell_origins(struct nats_telling *t, struct text subject, struct text queue) {
    struct nats_server *server = t->server;
    struct subject_entries *entries = subjects_entries(server->accounts[t->account].remote, subject, queue);
    (void)weigh_others(server, &server->accounts[t->account], subject, queue, NULL);
    struct subject_entry **items = entries != NULL ? subject_entries_items(entries) : NULL;
    for (uint32_t i = 0; entries != NULL && i < entries->count && !t->c->closed; i++) {
        const struct nats_remote *r = (const struct nats_remote *)(const void *)items[i];
        bool is_told = nats_kind_of(r) == NATS_LEAF_NODES && !nats_has_left(server, r) &&
                       is_apart(server, t->c, r->origin) && server->origin_stamps[r->origin] == server->origin_stamp;
        if (!is_told) continue;
        server->origin_stamps[r->origin] = 0;
        say(t, (struct nats_interest){t->account, r->origin, subject, queue, server->origin_weights[r->origin]});
    }
}

/* Tells interest of leaf nodes that belong to no cluster, to a server that is told that separately. */
static void tell_leaves_apart(struct nats_telling *t, struct text subject, struct text queue) {
    const struct nats_account *account = &t->server->accounts[t->account];
    uint64_t nameless = weigh_others(t->server, account, subject, queue, NULL).nameless;
    uint64_t shadows = nats_shadows_weigh(account->shadows, subject, queue).leaves;
    bool is_first = t->what == OF_OTHERS ? nameless > 0 : nameless == 0;
    if (is_first) say(t, (struct nats_interest){t->account, NATS_NO_CLUSTER, subject, queue, nameless + shadows});
}

/* Tells interest once, with the weight of all: in the first stage (t->what) that has it. */
static void tell(struct nats_telling *t, struct text subject, struct text queue) {
    const struct nats_account *account = &t->server->accounts[t->account];
    bool are_leaves_apart = (route_of(t->c)->flags & ROUTE_LEAVES) != 0;
    if (t->what == OF_OTHERS && (route_of(t->c)->flags & ROUTE_ORIGINS) != 0) tell_origins(t, subject, queue);
    if ((t->what == OF_OTHERS || t->what == OF_SHADOWS) && are_leaves_apart) tell_leaves_apart(t, subject, queue);
    if (t->c->closed) return;
    uint64_t here = weight_here(account, subject, queue);
    uint64_t there = weight_there(t->server, account, subject, queue, t->c);
    uint64_t kept = weight_kept(t->server, t->account, subject, queue);
    struct nats_shadows_weights wanted = nats_shadows_weigh(account->shadows, subject, queue);
    uint64_t shadows = wanted.clients + (are_leaves_apart ? 0 : wanted.leaves) +
                       (is_to_leaf(t->c) && !is_to_hub(t->c) ? wanted.hubs : 0);
    if (t->what != OF_CLIENTS_HERE && here > 0) return;
    if (t->what >= OF_SHADOWS && there > 0) return;
    if (t->what >= OF_BINDINGS && shadows > 0) return;
    if (t->what >= OF_IMPORTS && kept > 0) return;
    uint64_t weight = here + there + shadows + kept;
    if (is_to_leaf(t->c)) weight += weight_shared(account, subject, queue);
    say(t, (struct nats_interest){t->account, 0, subject, queue, weight});
}

static void tell_pattern(void *context, struct subject_pattern *p) {
    struct nats_telling *t = context;
    struct text subject = {(const uint8_t *)p->text, p->bytes};
    if (t->c->closed) return;
    if (p->alone.count > 0) tell(t, subject, (struct text){0});
    for (const struct subject_group *g = p->groups; g != NULL; g = g->next)
        tell(t, subject, (struct text){(const uint8_t *)g->name->text, g->name->bytes});
}

static void tell_binding(void *context, struct subject_pattern *p) {
    struct nats_telling *t = context;
    if (!t->c->closed) tell(t, (struct text){(const uint8_t *)p->text, p->bytes}, queue_of(&t->server->bound));
}

static void tell_shared(void *context, struct subject_pattern *p) {
    struct nats_telling *t = context;
    if (!t->c->closed) tell(t, (struct text){(const uint8_t *)p->text, p->bytes}, (struct text){0});
}

/* Returns the subjects of the current stage; NULL: there are none to tell. */
static struct subjects *subjects_told(const struct nats_telling *t) {
    const struct nats_account *account = &t->server->accounts[t->account];
    if (account->subjects == NULL || !carries(t->server, t->c, t->account)) return NULL;
    switch (t->what) {
    case OF_CLIENTS_HERE: return account->subjects;
    case OF_OTHERS:
        return t->a->mesh_there != 0 || t->server->leaf_interest > 0 || is_to_leaf(t->c) ? account->remote : NULL;
    case OF_SHADOWS: return account->shadows != NULL ? account->shadows->subjects : NULL;
    case OF_BINDINGS: return t->account == NATS_GLOBAL_ACCOUNT ? t->server->bound.subjects : NULL;
    case OF_IMPORTS: return is_to_leaf(t->c) ? nats_shares_imports(account->shares) : NULL;
    case OF_MAPPINGS: return is_to_leaf(t->c) ? nats_shares_mappings(account->shares) : NULL;
    case OF_NOBODY: break;
    }
    return NULL;
}

/* Tells up to t->left patterns. True when all has been told. */
static bool tell_some(struct nats_telling *t) {
    while (t->account < t->end && t->account < t->server->account_count) {
        struct subjects *subjects = subjects_told(t);
        void (*each)(void *, struct subject_pattern *) = t->what == OF_BINDINGS  ? tell_binding
                                                         : t->what >= OF_IMPORTS ? tell_shared
                                                                                 : tell_pattern;
        if (t->c->closed) return true;
        if (t->left == 0) return false;
        if (subjects == NULL)
            t->left--;
        else if (!subjects_each_from(subjects, &t->cursor, &t->left, each, t))
            return false;
        t->cursor = (struct subjects_cursor){0};
        if (++t->what != OF_NOBODY) continue;
        t->what = OF_CLIENTS_HERE;
        t->account++;
    }
    return true;
}

static void tell_as_much_as(struct acceptor *a, struct connection *c, size_t most) {
    struct nats_route *r = route_of(c);
    struct nats_telling *t = r->telling;
    t->left = most;
    bool is_end = tell_some(t);
    if (most == TOLD_AT_ONCE) a->handed += most - t->left;
    if (!is_end) {
        codec_left(a, c->protocol);
        return;
    }
    r->telling = NULL;
    nats_telling_free(t);
}

void nats_tell_route_on(struct acceptor *a, struct connection *c) {
    const struct nats_telling *t = route_of(c)->telling;
    if (t == NULL || c->closed || connection_unsent(c) > TOLD_AHEAD_BYTES) return;
    tell_as_much_as(a, c, a->handed < HANDED_PER_TURN ? TOLD_AT_ONCE : 0);
}

/* Begins a telling. If the same one is under way, it starts again; any other is completed at once, which is rare. */
static void begin_to_tell(struct acceptor *a, struct connection *c, struct nats_telling telling) {
    struct nats_route *r = route_of(c);
    bool is_all = !telling.changes && telling.end == UINT32_MAX;
    if (r->telling != NULL && (r->telling->changes || !is_all)) tell_as_much_as(a, c, SIZE_MAX);
    nats_telling_free(r->telling);
    r->telling = NULL;
    if ((r->telling = malloc(sizeof telling)) == NULL) {
        if (telling.changes) nats_permissions_drop(telling.before);
        engine_oom(a, c);
        return;
    }
    *r->telling = telling;
    tell_as_much_as(a, c, a->handed < HANDED_PER_TURN ? TOLD_AT_ONCE : 0);
}

void nats_tell_route(struct acceptor *a, struct nats_server *server, struct connection *c) {
    if (is_to_leaf(c)) {
        nats_tell_route_of(a, server, c, route_of(c)->account);
        return;
    }
    begin_to_tell(a, c, (struct nats_telling){.a = a, .server = server, .c = c, .account = 1, .end = UINT32_MAX});
}

void nats_tell_route_of(struct acceptor *a, struct nats_server *server, struct connection *c, uint32_t account) {
    begin_to_tell(a, c,
                  (struct nats_telling){.a = a, .server = server, .c = c, .account = account, .end = account + 1});
}

void nats_route_permit(struct acceptor *a, struct nats_server *server, struct connection *c,
                       struct nats_permissions *now) {
    struct nats_route *r = route_of(c);
    struct nats_permissions *before = r->permissions;
    if (r->other == 0) {
        r->permissions = now;
        nats_permissions_drop(before);
        return;
    }
    if (r->telling != NULL) tell_as_much_as(a, c, SIZE_MAX);
    r->permissions = now;
    struct nats_telling telling = {.a = a, .server = server, .c = c, .account = 1, .end = UINT32_MAX};
    telling.changes = true;
    telling.before = before;
    telling.now = now;
    begin_to_tell(a, c, telling);
}

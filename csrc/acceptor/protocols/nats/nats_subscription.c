/* A connection's subscriptions. Each is an entry of its account's subjects, and is found by its sid in a table of the
 * connection. */
#include "acceptor/protocols/nats/nats_subscription.h"

#include <assert.h>
#include <stdlib.h>

#include "acceptor/protocols/nats/nats_interest.h"
#include "acceptor/protocols/nats/nats_latency.h"
#include "acceptor/protocols/nats/nats_logged.h"
#include "acceptor/protocols/nats/nats_looks.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_route_interest.h"
#include "base/linear_hashing.h"
#include "base/map.h"
#include "base/subject_groups.h"

/* To look at so many denied subjects costs as much as to look at one recipient. */
enum { FIRST_SIDS = 4, MANY_SIDS = 1 << 12, DENIED_AS_ONE = 4, RETIRED_AT_ONCE = 512 };

static uint32_t hash_of(const struct acceptor *a, const struct connection *c, struct text sid) {
    return (uint32_t)siphash(nats_server_of(a, c)->key, sid.at, sid.bytes);
}

/* Not kept, as there may be millions: it is wanted again when a bucket is split, and when its subscription goes. */
static uint32_t sid_hash(const struct acceptor *a, const struct connection *c, const struct nats_subscription *s) {
    return hash_of(a, c, (struct text){(const uint8_t *)s->sid, s->sid_bytes});
}

/* The chain of a sid. */
static struct nats_subscription **chain_of(const struct nats *n, uint32_t hash) {
    return &n->sids[linear_bucket(n->sid_buckets, linear_mask(n->sid_buckets), hash)];
}

struct nats_subscription *nats_find(const struct acceptor *a, const struct connection *c, struct text sid) {
    const struct nats *n = nats_of(c);
    if (n->sids == NULL) return NULL;
    uint32_t hash = hash_of(a, c, sid);
    struct nats_subscription *s = *chain_of(n, hash);
    while (s != NULL && (s->sid_bytes != sid.bytes || memcmp(s->sid, sid.at, sid.bytes) != 0)) s = s->next_sid;
    return s;
}

static void put_sid(const struct acceptor *a, struct connection *c, struct nats_subscription *s) {
    struct nats_subscription **chain = chain_of(nats_of(c), sid_hash(a, c, s));
    s->next_sid = *chain;
    *chain = s;
}

/* Makes room for one more. There may be millions, so up to two share a bucket. */
static bool grow(const struct acceptor *a, struct connection *c) {
    struct nats *n = nats_of(c);
    if (n->sids != NULL && n->sid_count / 2 < n->sid_buckets) return true;
    bool is_full = n->sids == NULL || (n->sid_buckets >= FIRST_SIDS && linear_is_full(n->sid_buckets));
    size_t buckets = n->sids == NULL ? FIRST_SIDS : (size_t)n->sid_buckets * 2;
    struct nats_subscription **larger = is_full ? realloc(n->sids, buckets * sizeof *larger) : n->sids;
    if (larger == NULL) return n->sids != NULL;
    if (n->sids == NULL) larger[0] = NULL;
    size_t split = n->sids != NULL ? linear_split(n->sid_buckets) : 0;
    struct nats_subscription *moved = larger[split];
    n->sids = larger;
    larger[split] = larger[n->sid_buckets++] = NULL;
    for (struct nats_subscription *next; moved != NULL; moved = next) {
        next = moved->next_sid;
        put_sid(a, c, moved);
    }
    return true;
}

static void forget_sid(const struct acceptor *a, const struct nats_subscription *s) {
    struct nats *n = nats_of(s->connection);
    struct nats_subscription **at = chain_of(n, sid_hash(a, s->connection, s));
    while (*at != s) at = &(*at)->next_sid;
    *at = s->next_sid;
    if (--n->sid_count > 0 || n->sid_buckets < MANY_SIDS) return;
    free(n->sids);
    n->sids = NULL;
    n->sid_buckets = 0;
}

/* Returns how many members of its group may be chosen, or how many plain subscriptions its pattern has. */
static uint32_t members_of(const struct nats_subscription *s) {
    return s->entry.group != NULL ? (uint32_t)s->entry.group->weight : s->entry.pattern->alone.count;
}

static bool is_retired(const struct nats_subscription *s) {
    return s->entry.weight == 0;
}

/* Whether anybody is told what clients here want in the account: others, or accounts whose streams it imports. */
static bool has_listeners(const struct acceptor *a, const struct connection *c) {
    return nats_has_others(a, nats_server_of(a, c)) || nats_account_of(a, c)->importing != NULL;
}

static struct text subject_of(const struct nats_subscription *s) {
    return (struct text){(const uint8_t *)s->entry.pattern->text, s->entry.pattern->bytes};
}

static struct text queue_of(const struct nats_subscription *s) {
    const struct subject_group *g = s->entry.group;
    return g != NULL ? (struct text){(const uint8_t *)g->name->text, g->name->bytes} : (struct text){0};
}

static void tell(struct acceptor *a, const struct nats_subscription *s, uint32_t weight) {
    struct nats_server *server = nats_server_of(a, s->connection);
    uint32_t account = nats_of(s->connection)->account;
    const struct text subject = subject_of(s), queue = queue_of(s);
    if (nats_has_others(a, server) && !is_retired(s)) nats_tell(a, server, account, subject, queue, weight);
    if (server->accounts[account].importing == NULL) return;
    struct nats_wanting by = {.kind = NATS_ACCEPTORS};
    uint64_t others = nats_weight_beside(server, account, subject, queue, by, NULL);
    nats_look(a, server, account, subject, queue, by, others + weight);
}

/* Queue "_sys_" is reserved, as in nats-server. */
static bool may_subscribe(struct acceptor *a, struct connection *c, struct text subject, struct text queue) {
    struct nats *n = nats_of(c);
    struct nats_server *server = nats_server_of(a, c);
    if (queue.bytes == 5 && memcmp(queue.at, "_sys_", 5) == 0) return false;
    if (n->permissions == NULL) return true;
    if (!nats_may_subscribe(&server->permissions, n->permissions, subject, queue)) return false;
    if (nats_is_denied_some(n->permissions, subject, queue)) n->flags |= NATS_DENIED_SOME;
    a->handed += nats_denied_count(n->permissions) / DENIED_AS_ONE;
    return true;
}

struct nats_subscription *nats_next_forbidden(struct acceptor *a, struct connection *c, uint32_t *place) {
    const struct nats *n = nats_of(c);
    for (; *place < n->sid_buckets; ++*place) {
        for (struct nats_subscription *s = n->sids[*place]; s != NULL; s = s->next_sid) {
            if (!may_subscribe(a, c, subject_of(s), queue_of(s))) return s;
        }
    }
    return NULL;
}

/* What a subscription takes of the heap: itself, and its pattern if no other has that. */
static size_t bytes_of(const struct nats_subscription *s) {
    const struct subject_pattern *p = s->entry.pattern;
    const bool is_only = p->alone.count + (p->groups != NULL ? subject_groups(p) : 0) == 1;
    return sizeof *s + s->sid_bytes + (is_only ? sizeof *p + p->bytes : 0);
}

static uint32_t tokens_of(struct text subject) {
    uint32_t tokens = 1;
    for (size_t i = 0; i < subject.bytes; i++) tokens += subject.at[i] == '.';
    return tokens;
}

enum nats_subscribed nats_subscribe(struct acceptor *a, struct connection *c, struct text subject, struct text queue,
                                    struct text sid) {
    struct nats *n = nats_of(c);
    struct nats_server *server = nats_server_of(a, c);
    if (!may_subscribe(a, c, subject, queue)) return NATS_NOT_ALLOWED;
    if (server->max_tokens > 0 && tokens_of(subject) > server->max_tokens) return NATS_TOO_MANY_TOKENS;
    if (n->max_subscriptions > 0 && n->sid_count >= n->max_subscriptions) return NATS_TOO_MANY;
    if (server->subscriptions == NATS_MAX_ALL_SUBSCRIPTIONS) return NATS_TOO_MANY;
    if (nats_find(a, c, sid) != NULL) return NATS_SID_IN_USE;
    if (!subject_pattern_is_valid(subject.at, subject.bytes)) return NATS_INVALID_SUBJECT;
    if (!grow(a, c)) return NATS_NO_MEMORY;
    struct nats_subscription *s = calloc(1, offsetof(struct nats_subscription, sid) + sid.bytes);
    if (s == NULL) return NATS_NO_MEMORY;
    s->entry.weight = 1;
    s->connection = c;
    s->sid_bytes = (uint16_t)sid.bytes;
    memcpy(s->sid, sid.at, sid.bytes);
    bool first;
    struct nats_account *account = nats_account_of(a, c);
    struct subjects *subjects = account->subjects;
    if (!subjects_add(subjects, &s->entry, subject.at, subject.bytes, queue.at, queue.bytes, &first)) {
        free(s);
        return NATS_NO_MEMORY;
    }
    put_sid(a, c, s);
    n->sid_count++;
    blocks_heap_taken(&a->blocks, bytes_of(s));
    n->active_ns = a->now_ns;
    account->inserts++;
    server->subscriptions++;
    codec_count_add(a, c, NATS_SUBSCRIPTIONS, 1);
    if (has_listeners(a, c)) {
        const uint64_t looks = server->looks.made;
        /* What others have subscribed to before may still be looked for. */
        if (s->entry.group != NULL || first || server->looks.first != NULL) tell(a, s, members_of(s));
        if (server->looks.made != looks) nats_look_for(server, c);
        n->told = server->told;
    }
    return NATS_SUBSCRIBED;
}

/* Removes a subscription from the subjects. Others are told before its pattern is removed. */
static void withdraw(struct acceptor *a, struct nats_subscription *s) {
    struct connection *c = s->connection;
    if (has_listeners(a, c)) {
        uint32_t left = members_of(s) - s->entry.weight;
        if (s->entry.group != NULL || left == 0) tell(a, s, left);
        nats_of(c)->told = nats_server_of(a, c)->told;
    }
    blocks_heap_given(&a->blocks, bytes_of(s));
    subjects_remove(nats_account_of(a, c)->subjects, &s->entry);
    nats_account_of(a, c)->removes++;
    nats_server_of(a, c)->subscriptions--;
    codec_count_add(a, c, NATS_SUBSCRIPTIONS, (uint64_t)-1);
}

void nats_unsubscribe(struct acceptor *a, struct nats_subscription *s) {
    struct connection *c = s->connection;
    struct nats_server *server = nats_server_of(a, c);
    struct text pattern = {server->subjects_made[0], s->entry.pattern->bytes};
    bool is_measuring = nats_is_measuring(server);
    assert(!server->delivering);
    if (nats_is(c, NATS_LOGGED)) nats_log_removed(a, s);
    if (is_measuring) memcpy(server->subjects_made[0], s->entry.pattern->text, pattern.bytes);
    withdraw(a, s);
    forget_sid(a, s);
    free(s);
    if (is_measuring) nats_latency_unsubscribed(a, server, c, pattern);
}

bool nats_retire_some(struct acceptor *a, const struct connection *c, uint32_t *place) {
    struct nats_server *server = nats_server_of(a, c);
    const struct nats *n = nats_of(c);
    const uint32_t end = n->sid_buckets - *place > RETIRED_AT_ONCE ? *place + RETIRED_AT_ONCE : n->sid_buckets;
    if (!nats_has_others(a, server) || *place >= n->sid_buckets) return true;
    for (; *place < end; ++*place) {
        for (struct nats_subscription *s = n->sids[*place]; s != NULL; s = s->next_sid) {
            if (s->entry.group == NULL || is_retired(s)) continue;
            nats_tell(a, server, n->account, subject_of(s), queue_of(s), members_of(s) - 1);
            subjects_weigh(&s->entry, 0);
        }
    }
    return end == n->sid_buckets;
}

/* Starts at the end of the table and shortens it, so that a later call goes on with the rest. */
bool nats_let_go_some(struct acceptor *a, struct connection *c, size_t *left) {
    struct nats *n = nats_of(c);
    const struct nats_look_list *looks = &nats_server_of(a, c)->looks;
    while (n->sid_buckets > 0) {
        if (*left == 0) return false;
        --*left;
        if (nats_is(c, NATS_PARTING)) return false;
        struct nats_subscription **chain = &n->sids[n->sid_buckets - 1], *s = *chain;
        if (s == NULL) {
            n->sid_buckets--;
            continue;
        }
        *chain = s->next_sid;
        const uint64_t handed = a->handed, made = looks->made;
        withdraw(a, s);
        if (looks->made != made && c->closed) nats_look_leaving(nats_server_of(a, c), c);
        const size_t looked = a->handed - handed; /* at streams that the account imports */
        *left -= looked < *left ? looked : *left;
        free(s);
        n->sid_count--;
    }
    free(n->sids);
    n->sids = NULL;
    if (nats_is_measuring(nats_server_of(a, c)))
        nats_latency_unsubscribed(a, nats_server_of(a, c), c, (struct text){NULL, 0});
    return true;
}

void nats_let_go(struct acceptor *a, struct connection *c) {
    size_t all = SIZE_MAX;
    nats_let_go_some(a, c, &all);
}

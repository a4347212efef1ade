/* Figures of connections for monitoring. An answer is a row of records, as many as fit; Python asks for the next ones
 * from where the last answer ended. Counting for this must not slow messages down. */
#include "acceptor/protocols/nats/nats_figures.h"

#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_bound.h"
#include "acceptor/protocols/nats/nats_route_state.h"
#include "base/subject_groups.h"

/* Why it ended, or will: 0 if the client has closed it. */
static uint8_t reason_of(const struct connection *c) {
    uint8_t reason = nats_of(c)->reason;
    if (reason != 0) return reason;
    return c->unreadable ? NATS_READ_ERROR : c->unwritable ? NATS_WRITE_ERROR : 0;
}

static struct nats_figures figures_of(const struct acceptor *a, const struct connection *c) {
    const struct nats *n = nats_of(c);
    return (struct nats_figures){
        .conn = c->number,
        .account = n->account,
        .subscriptions = n->sid_count,
        .reason = reason_of(c),
        .in_messages = n->in_messages,
        .in_bytes = n->in_bytes,
        .out_messages = n->out_messages,
        .out_bytes = n->out_bytes,
        .pending_bytes = connection_unsent(c),
        .rtt_ns = n->rtt_ns,
        .idle_ns = a->now_ns - n->active_ns,
        .opened_ns = n->opened_ns,
        .client_id = n->client_id,
    };
}

static int64_t put_figures(const struct acceptor *a, uint32_t protocol, const struct codec_question *q) {
    size_t at = 0;
    for (uint64_t i = q->value; i < a->highest_index && at + sizeof(struct nats_figures) <= q->out_limit; i++) {
        const struct connection *c = a->table[i];
        if (c == NULL || c->protocol != protocol || c->closed || nats_is(c, NATS_OF_SERVER)) continue;
        struct nats_figures figures = figures_of(a, c);
        memcpy(q->out + at, &figures, sizeof figures);
        at += sizeof figures;
    }
    return (int64_t)at;
}

/* Writes subject, queue and sid if there is room for all of them. */
static bool put_texts(struct nats_subscription_figures figures, const struct text *texts, size_t count, uint8_t *out,
                      size_t limit, size_t *at) {
    size_t bytes = sizeof figures;
    for (size_t i = 0; i < count; i++) bytes += texts[i].bytes;
    if (limit - *at < bytes) return false;
    figures.subject_bytes = (uint32_t)texts[0].bytes;
    figures.queue_bytes = (uint32_t)texts[1].bytes;
    figures.sid_bytes = (uint32_t)(bytes - sizeof figures - texts[0].bytes - texts[1].bytes);
    uint8_t *to = out + *at;
    memcpy(to, &figures, sizeof figures);
    to += sizeof figures;
    for (size_t i = 0; i < count; to += texts[i++].bytes)
        if (texts[i].bytes > 0) memcpy(to, texts[i].at, texts[i].bytes);
    *at += bytes;
    return true;
}

static struct text subject_of(const struct subject_entry *e) {
    return (struct text){(const uint8_t *)e->pattern->text, e->pattern->bytes};
}

static struct text queue_of(const struct subject_entry *e) {
    if (e->group == NULL) return (struct text){0};
    return (struct text){(const uint8_t *)e->group->name->text, e->group->name->bytes};
}

static bool put_subscription(const struct nats_subscription *s, uint32_t place, uint8_t *out, size_t limit,
                             size_t *at) {
    const struct nats_subscription_figures figures = {
        .delivered = nats_delivered(s), .max = nats_limit(s), .place = place};
    const struct text texts[] = {subject_of(&s->entry), queue_of(&s->entry), {(const uint8_t *)s->sid, s->sid_bytes}};
    return put_texts(figures, texts, 3, out, limit, at);
}

static size_t put_subscriptions(const struct nats *n, uint32_t from, uint8_t *out, size_t limit) {
    size_t at = 0;
    for (uint32_t i = from; i < n->sid_buckets; i++) {
        const size_t before = at;
        for (const struct nats_subscription *s = n->sids[i]; s != NULL; s = s->next_sid)
            if (!put_subscription(s, i, out, limit, &at)) return before > 0 ? before : at;
    }
    return at;
}

/* Writes one interest of a server. Its sid is as with nats-server: R, the account unless the route has a single one,
 * subject and queue; of a leaf node subject and queue. */
static bool put_wanted(const struct nats_server *server, bool is_named, const struct nats_remote *wanted,
                       uint32_t place, uint8_t *out, size_t limit, size_t *at) {
    static const uint8_t mark[] = "R ";
    const struct nats_account *account = &server->accounts[wanted->account];
    struct text subject = subject_of(&wanted->entry), queue = queue_of(&wanted->entry), space = {mark + 1, 1};
    struct text name = {(const uint8_t *)account->name, account->name_bytes}, none = {0};
    bool is_queue = queue.bytes > 0, is_leaf = nats_is_leaf(wanted->other);
    const struct text texts[] = {subject,
                                 queue,
                                 {mark, is_leaf ? 0 : 2},
                                 is_named ? name : none,
                                 is_named ? space : none,
                                 subject,
                                 is_queue ? space : none,
                                 queue};
    const struct nats_subscription_figures figures = {.delivered = wanted->messages, .place = place};
    return put_texts(figures, texts, sizeof texts / sizeof *texts, out, limit, at);
}

enum { NAMED_BIT = 32 }; /* of a question: the account is to be named too */

/* Writes what a route wants, by its number, whichever acceptor has it. The oldest comes last. */
static size_t put_all_wanted(const struct nats_server *server, uint64_t asked, uint32_t from, uint8_t *out,
                             size_t limit) {
    size_t at = 0;
    uint32_t place = 0, other = (uint32_t)asked;
    bool is_named = (asked >> NAMED_BIT & 1) != 0;
    const struct nats_remote *wanted = other < NATS_OTHERS ? server->others[other].wanted.first : NULL;
    for (; wanted != NULL; wanted = wanted->next, place++)
        if (place >= from && !put_wanted(server, is_named, wanted, place, out, limit, &at)) break;
    return at;
}

/* Writes figures of accounts, starting at a number, or of one named account. */
static int64_t put_accounts(const struct nats_server *server, const struct codec_question *q) {
    size_t at = 0;
    uint64_t first = q->value, end = server->account_count;
    if (q->bytes_count > 0) {
        first = nats_account_named(server, (struct text){q->bytes, q->bytes_count});
        end = first > 0 ? first + 1 : first;
    }
    for (uint64_t i = first; i < end; i++) {
        const struct nats_account *account = &server->accounts[i];
        if (account->subjects == NULL) continue;
        struct nats_account_figures figures = {
            .number = i,
            .taken_messages = account->taken_messages,
            .taken_bytes = account->taken_bytes,
            .given_messages = account->given_messages,
            .given_bytes = account->given_bytes,
            .slow_consumers = account->slow_consumers,
            .subscriptions = subjects_count(account->subjects),
            .inserts = account->inserts,
            .removes = account->removes,
            .looked = subjects_looked(account->subjects),
            .hits = subjects_hits(account->subjects),
            .members = account->membership.members,
            .name_bytes = account->name_bytes,
        };
        if (at + sizeof figures + account->name_bytes > q->out_limit) break;
        memcpy(q->out + at, &figures, sizeof figures);
        memcpy(q->out + at + sizeof figures, account->name, account->name_bytes);
        at += sizeof figures + account->name_bytes;
    }
    return (int64_t)at;
}

enum { LOOKED_AT_ONCE = 1 << 15, PLACE_SHIFT = 32 };

/* Writes figures of caches of matches, starting at an account and a place in it, or of one named account. */
static int64_t put_kept(const struct nats_server *server, const struct codec_question *q) {
    uint64_t account = (uint32_t)q->value, end = server->account_count;
    uint32_t place = (uint32_t)(q->value >> PLACE_SHIFT);
    struct subjects_kept kept = {0};
    size_t left = LOOKED_AT_ONCE;
    if (q->bytes_count > 0) {
        account = nats_account_named(server, (struct text){q->bytes, q->bytes_count});
        end = account > 0 ? account + 1 : 0;
    }
    for (; account < end && left > 0; account++, place = 0) {
        struct subjects *subjects = server->accounts[account].subjects;
        if (subjects != NULL && !subjects_kept(subjects, &place, &left, &kept)) break;
        if (left > 0) left--;
    }
    struct nats_kept_figures figures = {account < end ? account : 0, place, kept.subjects, kept.fanout,
                                        kept.max_fanout};
    if (q->out_limit < sizeof figures) return CALL_REFUSED;
    memcpy(q->out, &figures, sizeof figures);
    return sizeof figures;
}

int64_t nats_ask(struct acceptor *a, void *state, const char *what, const struct codec_question *q) {
    struct nats_server *server = state;
    if (strcmp(what, "bind-topics") == 0) return nats_bind_topics(a, server, q->bytes, q->bytes_count);
    if (strcmp(what, "figures") == 0) return put_figures(a, server->protocol, q);
    if (strcmp(what, "accounts") == 0) return put_accounts(server, q);
    if (strcmp(what, "kept") == 0) return put_kept(server, q);
    uint32_t from = 0;
    if (q->bytes_count != sizeof from) return CALL_REFUSED;
    memcpy(&from, q->bytes, sizeof from);
    if (strcmp(what, "wanted") == 0) return (int64_t)put_all_wanted(server, q->value, from, q->out, q->out_limit);
    if (strcmp(what, "subscriptions") != 0) return CALL_REFUSED;
    const struct connection *c = connection_find(a, (uint32_t)q->value);
    if (c == NULL || c->protocol != server->protocol) return 0;
    return (int64_t)put_subscriptions(nats_of(c), from, q->out, q->out_limit);
}

size_t nats_last_words(struct acceptor *a, struct connection *c, const uint8_t **words) {
    uint8_t *out = nats_server_of(a, c)->last_words;
    struct nats_figures figures = figures_of(a, c);
    memcpy(out, &figures, sizeof figures);
    *words = out;
    return sizeof figures +
           put_subscriptions(nats_of(c), 0, out + sizeof figures, NATS_LAST_WORDS_BYTES - sizeof figures);
}

struct nats_figures nats_route_figures(const struct acceptor *a, const struct connection *c) {
    const struct nats_route *r = route_of(c);
    return (struct nats_figures){
        .conn = c->number,
        .account = r->account,
        .subscriptions = r->other != 0 ? route_server(a, c)->others[r->other].count : 0,
        .reason = r->reason,
        .in_messages = r->counted[ROUTE_IN_MESSAGES],
        .in_bytes = r->counted[ROUTE_IN_BYTES],
        .out_messages = r->counted[ROUTE_OUT_MESSAGES],
        .out_bytes = r->counted[ROUTE_OUT_BYTES],
        .pending_bytes = connection_unsent(c),
        .rtt_ns = r->rtt_ns,
        .idle_ns = a->now_ns - r->active_ns,
        .opened_ns = r->opened_ns,
    };
}

size_t nats_leaf_last_words(struct acceptor *a, struct connection *c, const uint8_t **words) {
    const struct nats_server *server = route_server(a, c);
    uint32_t other = route_of(c)->other;
    const char *damage = compression_damage(c);
    struct nats_figures figures = nats_route_figures(a, c);
    uint8_t *out = route_server(a, c)->last_words, *behind = out + sizeof figures;
    const size_t limit = NATS_LAST_WORDS_BYTES - sizeof figures;
    size_t bytes = 0;
    if (damage != NULL) {
        figures.reason = NATS_DAMAGED;
        bytes = strlen(damage);
        assert(bytes <= limit);
        memcpy(behind, damage, bytes);
    } else if (other != 0) {
        bytes = put_all_wanted(server, other, 0, behind, limit);
    }
    memcpy(out, &figures, sizeof figures);
    *words = out;
    return sizeof figures + bytes;
}

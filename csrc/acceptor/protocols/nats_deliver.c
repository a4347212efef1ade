/* From one publisher to all who are interested: the line in front of a message is made once, and copied with the message
 * into each output. A large payload is held once for all. */
#include <assert.h>
#include <stdlib.h>

#include "acceptor/protocols/nats_route.h"
#include "acceptor/protocols/nats_shares.h"
#include "acceptor/protocols/nats_topics.h"
#include "base/decimal.h"

/* What stands before and behind a subscription's sid; for a client that wants headers and for one that does not. */
struct line {
    struct text end; /* " [reply ]sizes\r\n" */
    const char *verb;
    size_t verb_bytes;
    const uint8_t *payload;
    size_t payload_bytes;
};

/* One handing-out. */
struct delivery {
    struct acceptor *a;
    struct nats_server *server;
    struct connection *from; /* NULL: no client of ours */
    const struct nats_message *message;
    struct line whole, without;  /* headers and all; what a client has that does not know headers */
    struct shared_bytes *shared; /* the payload and what ends it; NULL: it is copied */
    uint64_t delivered, bytes;
    struct nats_account *account;
    bool answers; /* to what another account asked */
    bool kept;    /* here, and so by no other server of the group that shares that */
};

/* xorshift64*: any will do, to be fair among members. */
uint64_t nats_random(struct nats_server *server) {
    uint64_t x = server->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    server->random = x;
    return x * 0x2545f4914f6cdd1dULL >> 16;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *out, const void *text, size_t bytes) {
    memcpy(out, text, bytes);
    return out + bytes;
}

static uint8_t *begin_end(uint8_t *out, const struct nats_message *m) {
    *out++ = ' ';
    if (m->reply.bytes == 0) return out;
    out = put(out, m->reply.at, m->reply.bytes);
    *out++ = ' ';
    return out;
}

static struct line line_of(uint8_t *room, const struct nats_message *m) {
    uint8_t *out = begin_end(room, m);
    bool headers = m->header_bytes > 0;
    if (headers) {
        out = put(out, m->header_size.at, m->header_size.bytes);
        *out++ = ' ';
    }
    out = put(out, m->size.at, m->size.bytes);
    out = put(out, "\r\n", 2);
    return (struct line){.end = {room, (size_t)(out - room)},
                         .verb = headers ? "HMSG " : "MSG ",
                         .verb_bytes = headers ? 5 : 4,
                         .payload = m->payload,
                         .payload_bytes = m->payload_bytes};
}

static struct line line_without_headers(uint8_t *room, const struct nats_message *m) {
    uint8_t *out = decimal_put(begin_end(room, m), m->payload_bytes - m->header_bytes);
    out = put(out, "\r\n", 2);
    return (struct line){.end = {room, (size_t)(out - room)},
                         .verb = "MSG ",
                         .verb_bytes = 4,
                         .payload = m->payload + m->header_bytes,
                         .payload_bytes = m->payload_bytes - m->header_bytes};
}

/* --- to one ------------------------------------------------------------------------------------------------------- */

/* It has had its last message: out of the list when nobody goes through it. Where memory is short it stays, and has none. */
static void expire(struct nats_server *server, struct nats_subscription *s) {
    if (server->expired_count == server->expired_capacity) {
        uint32_t capacity = server->expired_capacity > 0 ? 2 * server->expired_capacity : 16;
        struct nats_subscription **larger = realloc(server->expired, capacity * sizeof *larger);
        if (larger == NULL) return;
        server->expired = larger;
        server->expired_capacity = capacity;
    }
    server->expired[server->expired_count++] = s;
}

static void cut_off(struct delivery *d, struct connection *c) {
    codec_count_add(d->a, c, NATS_SLOW_CONSUMERS, 1);
    nats_of(c)->reason = NATS_SLOW_PENDING_BYTES;
    nats_account_of(d->a, c)->slow_consumers++;
    socket_close(d->a, c);
}

static bool is_denied(struct delivery *d, const struct nats_subscription *s) {
    const struct subject_group *g = s->entry.group;
    struct text queue = {NULL, 0};
    if (g != NULL) queue = (struct text){(const uint8_t *)g->name, g->name_bytes};
    return !nats_may_have(&d->server->permissions, nats_of(s->connection)->permissions, d->message->subject, queue);
}

/* It may answer, and be it for once. */
static void expect_reply(struct delivery *d, struct connection *c) {
    struct text reply = d->message->reply;
    if (reply.bytes > 0 && !nats_may_publish(&d->server->permissions, nats_of(c)->permissions, reply))
        nats_reply_expect(d->a, c, reply);
}

static void deliver_to(struct delivery *d, struct nats_subscription *s) {
    struct connection *c = s->connection;
    if (c == NULL) {
        d->answers = true;
        return;
    }
    struct nats *n = nats_of(c);
    if (c->closed || c->closing || (c == d->from && !nats_is(c, NATS_ECHO))) return;
    if (s->max > 0 && s->delivered >= s->max) return;
    if (nats_is(c, NATS_DENIED_SOME) && is_denied(d, s)) return;
    const struct line *line = nats_is(c, NATS_HEADERS) ? &d->whole : &d->without;
    struct text subject = d->message->subject;
    size_t bytes = line->verb_bytes + subject.bytes + 1 + s->sid_bytes + line->end.bytes;
    uint8_t *out = socket_room(d->a, c, d->shared == NULL ? bytes + line->payload_bytes + CRLF_BYTES : bytes);
    if (out == NULL) return;
    out = put(out, line->verb, line->verb_bytes);
    out = put(out, subject.at, subject.bytes);
    *out++ = ' ';
    out = put(out, s->sid, s->sid_bytes);
    out = put(out, line->end.at, line->end.bytes);
    if (d->shared == NULL) {
        out = put(out, line->payload, line->payload_bytes);
        socket_written(d->a, c, put(out, "\r\n", CRLF_BYTES));
    } else {
        socket_written(d->a, c, out);
        socket_share(d->a, c, d->shared, d->whole.payload_bytes - line->payload_bytes);
        if (c->closed) return;
    }
    d->delivered++;
    d->bytes += line->payload_bytes;
    n->out_messages++;
    n->out_bytes += line->payload_bytes;
    if (++s->delivered == s->max) expire(d->server, s);
    if (n->permissions != NULL) expect_reply(d, c);
    if (c->choked && n->stalled_ns == 0) {
        n->stalled_ns = d->a->now_ns;
        nats_schedule(d->a, c);
    }
    if (connection_unsent(c) > d->server->max_pending) cut_off(d, c);
}

static struct nats_subscription *subscription_of(struct subject_entry *entry) {
    return (struct nats_subscription *)(void *)entry;
}

/* --- to all ------------------------------------------------------------------------------------------------------- */

static void deliver_alone(struct delivery *d, struct subject_pattern *pattern) {
    struct subject_entry **items = subject_entries_items(&pattern->alone);
    for (uint32_t i = 0; i < pattern->alone.count; i++) deliver_to(d, subscription_of(items[i]));
}

static uint64_t weight_of(struct subject_pattern *const *patterns, size_t from, size_t count, struct text name) {
    uint64_t weight = 0;
    for (size_t i = from; i < count; i++) {
        const struct subject_group *g = subject_find_group(patterns[i], name.at, name.bytes);
        if (g != NULL) weight += g->weight;
    }
    return weight;
}

/* To one member here. Whoever is chosen and cannot be given it (it is closed, or the publisher, who wants no echo) is passed
 * over for another. */
static bool deliver_to_member(struct delivery *d, struct subject_pattern *const *patterns, size_t at, size_t count,
                              const struct subject_group *group, uint64_t weight) {
    uint64_t before = d->delivered, random = nats_random(d->server);
    for (uint64_t tries = weight; tries > 0 && d->delivered == before; tries--, random++) {
        struct subject_entry *entry = subject_group_pick(patterns, at, count, group, random);
        if (entry != NULL) deliver_to(d, subscription_of(entry));
    }
    return d->delivered != before;
}

/* --- to other acceptors ------------------------------------------------------------------------------------------- */

/* What matches there, of one message. */
struct abroad {
    uint32_t account;
    bool any;       /* a group there has the message, or will */
    uint32_t flags; /* of what is passed on */
    struct subject_pattern *const *patterns;
    size_t count;
    struct nats_alone alone;
    struct nats_chosen chosen;
};

static uint32_t other_of(const struct subject_entry *entry) {
    return ((const struct nats_remote *)(const void *)entry)->other;
}

/* Of those before `end`. */
static void look_abroad(struct delivery *d, struct nats_account *account, struct abroad *abroad, uint32_t end) {
    const struct text *subject = &d->message->subject;
    uint64_t stamp = ++d->server->stamp;
    abroad->count =
        subjects_match(account->remote, d->server->remote_walk, subject->at, subject->bytes, &abroad->patterns);
    for (size_t i = 0; i < abroad->count; i++) {
        struct subject_entry **items = subject_entries_items(&abroad->patterns[i]->alone);
        for (uint32_t n = 0; n < abroad->patterns[i]->alone.count; n++) {
            uint32_t other = other_of(items[n]);
            if (other >= end || d->server->stamps[other] == stamp) continue;
            d->server->stamps[other] = stamp;
            abroad->alone.other[abroad->alone.count++] = (uint16_t)other;
        }
    }
}

static void begin_abroad(struct abroad *abroad, uint32_t account, uint32_t flags) {
    abroad->account = account;
    abroad->flags = flags;
    abroad->any = false;
    abroad->count = abroad->alone.count = 0;
    abroad->chosen.count = abroad->chosen.bytes = 0;
}

/* When there is no room for more groups, what has been chosen for acceptors is sent: those who stand alone there get the
 * message with the last. A server has one message, whatever it is for: there is no more then. */
static bool make_room(struct delivery *d, struct abroad *abroad, size_t bytes) {
    static const struct nats_alone nobody = {.count = 0};
    struct nats_chosen *chosen = &abroad->chosen;
    if (chosen->count < NATS_GROUPS && chosen->bytes + bytes <= NATS_GROUPS_BYTES) return true;
    for (size_t i = 0; i < chosen->count; i++)
        if (nats_is_route(chosen->other[i])) return false;
    nats_pass_on(d->a, d->server, abroad->account, d->message, abroad->flags, &nobody, chosen);
    chosen->count = chosen->bytes = 0;
    return true;
}

static void choose(struct delivery *d, struct abroad *abroad, const struct subject_entry *entry, struct text name) {
    struct nats_chosen *chosen = &abroad->chosen;
    size_t bytes = nats_group_bytes(name.bytes);
    if (entry == NULL || !make_room(d, abroad, bytes)) return;
    chosen->other[chosen->count] = other_of(entry);
    chosen->name[chosen->count++] = name;
    chosen->bytes += bytes;
    abroad->any = true;
}

/* One of the others with members, in proportion; it chooses one of them. */
static void choose_abroad(struct delivery *d, struct abroad *abroad, size_t at, const struct subject_group *group) {
    const struct subject_entry *entry =
        subject_group_pick(abroad->patterns, at, abroad->count, group, nats_random(d->server));
    choose(d, abroad, entry, (struct text){(const uint8_t *)group->name, group->name_bytes});
}

static void choose_by_name(struct delivery *d, struct abroad *abroad, struct text name) {
    for (size_t i = 0; i < abroad->count; i++) {
        const struct subject_group *g = subject_find_group(abroad->patterns[i], name.at, name.bytes);
        if (g == NULL) continue;
        choose_abroad(d, abroad, i, g);
        return;
    }
}

/* Of the servers that keep such messages, one has this one already. */
static bool is_keepers(const struct delivery *d, const struct subject_group *group) {
    return d->kept && group->name_bytes == d->server->bound.queue_bytes &&
           memcmp(group->name, d->server->bound.queue, group->name_bytes) == 0;
}

/* Groups that have members here, and perhaps abroad: all members count, wherever they are. */
static void deliver_groups(struct delivery *d, struct subject_pattern *const *patterns, size_t at, size_t count,
                           struct abroad *abroad) {
    for (struct subject_group *g = patterns[at]->groups; g != NULL; g = g->next) {
        if ((at > 0 && subject_group_seen(patterns, at, g)) || is_keepers(d, g)) continue;
        struct text name = {(const uint8_t *)g->name, g->name_bytes};
        uint64_t here = weight_of(patterns, at, count, name);
        uint64_t there = abroad->count > 0 ? weight_of(abroad->patterns, 0, abroad->count, name) : 0;
        bool is_here = there == 0 || nats_random(d->server) % (here + there) < here;
        if (is_here && deliver_to_member(d, patterns, at, count, g, here)) continue;
        if (there > 0) choose_by_name(d, abroad, name);
    }
}

static bool is_any_here(struct subject_pattern *const *patterns, size_t count, const struct subject_group *group) {
    for (size_t i = 0; i < count; i++)
        if (subject_find_group(patterns[i], group->name, group->name_bytes) != NULL) return true;
    return false;
}

static void choose_groups_abroad(struct delivery *d, struct abroad *abroad, struct subject_pattern *const *patterns,
                                 size_t count) {
    for (size_t i = 0; i < abroad->count; i++) {
        for (struct subject_group *g = abroad->patterns[i]->groups; g != NULL; g = g->next) {
            if ((i > 0 && subject_group_seen(abroad->patterns, i, g)) || is_keepers(d, g)) continue;
            if (!is_any_here(patterns, count, g)) choose_abroad(d, abroad, i, g);
        }
    }
}

/* --- a message ---------------------------------------------------------------------------------------------------- */

/* What could not be done while lists were gone through. */
static void settle(struct acceptor *a, struct nats_server *server) {
    server->delivering = false;
    for (uint32_t i = 0; i < server->expired_count; i++) nats_unsubscribe(a, server->expired[i]);
    server->expired_count = 0;
    while (server->orphaned != NULL) {
        struct connection *c = server->orphaned;
        server->orphaned = nats_of(c)->next_orphaned;
        nats_let_go(a, c);
    }
}

/* The lines are made where there is somebody to have them. */
static void make_lines(struct delivery *d, uint8_t (*ends)[NATS_LINE_END_BYTES]) {
    const struct nats_message *message = d->message;
    d->whole = line_of(ends[0], message);
    d->without = message->header_bytes > 0 ? line_without_headers(ends[1], message) : d->whole;
    size_t bytes = message->payload_bytes;
    if (bytes < SHARE_BYTES) return;
    d->shared = shared_new(&d->a->blocks, bytes + CRLF_BYTES);
    if (d->shared != NULL) put(put(d->shared->at, message->payload, bytes), "\r\n", CRLF_BYTES);
}

static void made_all(struct delivery *d) {
    if (d->delivered > 0) {
        uint64_t *counters = d->a->count->counters[d->server->protocol - 1];
        board_add(&counters[NATS_OUT_MESSAGES], d->delivered);
        board_add(&counters[NATS_OUT_BYTES], d->bytes);
        d->account->given_messages += d->delivered;
        d->account->given_bytes += d->bytes;
    }
    if (d->shared != NULL) shared_drop(&d->a->blocks, d->shared);
    settle(d->a, d->server);
}

static bool hand_out(struct delivery *d, struct nats_account *account, struct abroad *abroad) {
    struct text subject = d->message->subject;
    struct subject_pattern *const *patterns;
    uint8_t ends[2][NATS_LINE_END_BYTES];
    size_t count = subjects_match(account->subjects, d->server->walk, subject.at, subject.bytes, &patterns);
    if (account->remote != NULL) look_abroad(d, account, abroad, NATS_OTHERS);
    if (count > 0) make_lines(d, ends);
    d->server->delivering = true;
    for (size_t i = 0; i < count; i++) {
        deliver_alone(d, patterns[i]);
        if (patterns[i]->groups != NULL) deliver_groups(d, patterns, i, count, abroad);
    }
    if (abroad->count > 0) choose_groups_abroad(d, abroad, patterns, count);
    return d->delivered > 0 || abroad->alone.count > 0 || abroad->any;
}

static void pass_on(struct delivery *d, struct abroad *abroad) {
    if (abroad->alone.count > 0 || abroad->chosen.count > 0)
        nats_pass_on(d->a, d->server, abroad->account, d->message, abroad->flags, &abroad->alone, &abroad->chosen);
}

bool nats_deliver_in(struct acceptor *a, struct nats_server *server, uint32_t number, struct connection *from,
                     struct connection *asker, const struct nats_message *message, uint32_t depth) {
    struct delivery d = {
        .a = a, .server = server, .from = from, .message = message, .account = &server->accounts[number]};
    d.kept = from != NULL && nats_is_shared(server, number, message->subject);
    struct abroad abroad;
    begin_abroad(&abroad, number, 0);
    bool any = hand_out(&d, &server->accounts[number], &abroad);
    pass_on(&d, &abroad);
    /* Who hears PONG after this may count on it that all who were to have the message have it before their next PONG. */
    if (asker != NULL && a->mesh_there != 0 && (abroad.alone.count > 0 || abroad.any))
        nats_of(asker)->told = ++server->told;
    made_all(&d);
    if (d.answers && nats_answer(a, server, message, depth + 1)) any = true;
    if (server->accounts[number].shares != NULL && nats_hand_on(a, server, number, asker, message, depth)) any = true;
    return any;
}

bool nats_deliver(struct acceptor *a, struct connection *from, const struct nats_message *message) {
    return nats_deliver_in(a, nats_server_of(a, from), nats_of(from)->account, from, from, message, 0);
}

void nats_deliver_as_server(struct acceptor *a, struct nats_server *server, uint32_t account,
                            const struct nats_message *message) {
    struct delivery d = {.a = a, .server = server, .message = message, .account = &server->accounts[account]};
    d.kept = nats_is_shared(server, account, message->subject);
    struct abroad abroad;
    begin_abroad(&abroad, account, 0);
    hand_out(&d, &server->accounts[account], &abroad);
    pass_on(&d, &abroad);
    if (a->mesh_there != 0 && (abroad.alone.count > 0 || abroad.any)) server->told++;
    made_all(&d);
}

/* The groups of that name among patterns, from the first that has one. */
static bool deliver_to_named(struct delivery *d, struct subject_pattern *const *patterns, size_t count,
                             struct text name) {
    for (size_t i = 0; i < count; i++) {
        const struct subject_group *g = subject_find_group(patterns[i], name.at, name.bytes);
        if (g != NULL) return deliver_to_member(d, patterns, i, count, g, weight_of(patterns, i, count, name));
    }
    return false;
}

size_t nats_deliver_here(struct acceptor *a, struct nats_server *server, uint32_t number,
                         const struct nats_message *message, bool alone, struct text *groups, size_t count) {
    struct nats_account *account = &server->accounts[number];
    uint8_t ends[2][NATS_LINE_END_BYTES];
    /* What nobody else had a member for comes back to where it was published: who wants no echo has none. */
    bool is_own = message->from >> 32 == (uint64_t)a->index + 1;
    struct connection *from = is_own ? connection_find(a, (uint32_t)message->from) : NULL;
    struct delivery d = {.a = a, .server = server, .from = from, .message = message, .account = account};
    struct subject_pattern *const *patterns;
    size_t matching =
        subjects_match(account->subjects, server->walk, message->subject.at, message->subject.bytes, &patterns);
    if (matching > 0) make_lines(&d, ends);
    server->delivering = true;
    for (size_t i = 0; alone && i < matching; i++) deliver_alone(&d, patterns[i]);
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (!deliver_to_named(&d, patterns, matching, groups[i])) groups[left++] = groups[i];
    made_all(&d);
    if (d.answers) nats_answer(a, server, message, 0);
    return left;
}

/* --- from a route ------------------------------------------------------------------------------------------------- */

static bool may_choose(uint32_t other, uint32_t end, uint64_t tried) {
    return other < end && (other >= BOARD_MAX_ACCEPTORS || (tried & bit_of(other)) == 0);
}

static uint64_t other_weight(struct subject_entries *entries, uint32_t end, uint64_t tried) {
    struct subject_entry **items = subject_entries_items(entries);
    uint64_t weight = 0;
    for (uint32_t i = 0; i < entries->count; i++)
        if (may_choose(other_of(items[i]), end, tried)) weight += items[i]->weight;
    return weight;
}

static uint64_t others_weight(struct subject_pattern *const *patterns, size_t count, struct text name, uint32_t end,
                              uint64_t tried) {
    uint64_t weight = 0;
    for (size_t i = 0; i < count; i++) {
        struct subject_group *g = subject_find_group(patterns[i], name.at, name.bytes);
        if (g != NULL) weight += other_weight(&g->entries, end, tried);
    }
    return weight;
}

struct subject_entry *nats_pick_other(struct nats_server *server, struct subject_pattern *const *patterns, size_t count,
                                      struct text name, uint32_t end, uint64_t tried) {
    uint64_t weight = others_weight(patterns, count, name, end, tried);
    if (weight == 0) return NULL;
    uint64_t left = nats_random(server) % weight;
    for (size_t i = 0; i < count; i++) {
        struct subject_group *g = subject_find_group(patterns[i], name.at, name.bytes);
        if (g == NULL) continue;
        struct subject_entry **items = subject_entries_items(&g->entries);
        for (uint32_t n = 0; n < g->entries.count; n++) {
            if (!may_choose(other_of(items[n]), end, tried)) continue;
            if (left < items[n]->weight) return items[n];
            left -= items[n]->weight;
        }
    }
    return NULL;
}

/* To one member of a group on this server, wherever that is. */
static void deliver_named(struct delivery *d, struct subject_pattern *const *patterns, size_t count, struct text name,
                          struct abroad *abroad) {
    uint64_t here = weight_of(patterns, 0, count, name);
    uint64_t there =
        abroad->count > 0 ? others_weight(abroad->patterns, abroad->count, name, BOARD_MAX_ACCEPTORS, 0) : 0;
    bool is_here = here > 0 && (there == 0 || nats_random(d->server) % (here + there) < here);
    if (is_here && deliver_to_named(d, patterns, count, name)) return;
    if (there > 0)
        choose(d, abroad, nats_pick_other(d->server, abroad->patterns, abroad->count, name, BOARD_MAX_ACCEPTORS, 0),
               name);
}

void nats_deliver_routed(struct acceptor *a, struct nats_server *server, uint32_t number,
                         const struct nats_message *message, const struct text *groups, size_t count) {
    struct nats_account *account = &server->accounts[number];
    uint8_t ends[2][NATS_LINE_END_BYTES];
    struct delivery d = {.a = a, .server = server, .message = message, .account = account};
    struct subject_pattern *const *patterns;
    struct abroad abroad;
    begin_abroad(&abroad, number, PASSED_FROM_ROUTE);
    size_t matching =
        subjects_match(account->subjects, server->walk, message->subject.at, message->subject.bytes, &patterns);
    /* With one acceptor all others are behind routes. */
    if (account->remote != NULL && a->mesh_there != 0) look_abroad(&d, account, &abroad, BOARD_MAX_ACCEPTORS);
    if (matching > 0) make_lines(&d, ends);
    server->delivering = true;
    for (size_t i = 0; i < matching; i++) deliver_alone(&d, patterns[i]);
    for (size_t i = 0; i < count; i++) deliver_named(&d, patterns, matching, groups[i], &abroad);
    pass_on(&d, &abroad);
    made_all(&d);
    if (d.answers) nats_answer(a, server, message, 0);
}

/* --- one's own ---------------------------------------------------------------------------------------------------- */

static struct nats_subscription *own_among_all(const struct connection *c, struct subject_pattern *pattern) {
    struct subject_entry **items = subject_entries_items(&pattern->alone);
    for (uint32_t i = 0; i < pattern->alone.count; i++)
        if (subscription_of(items[i])->connection == c) return subscription_of(items[i]);
    return NULL;
}

static struct nats_subscription *own_of_pattern(const struct nats *n, const struct subject_pattern *pattern) {
    for (uint32_t i = 0; n->sids != NULL && i <= n->sid_mask; i++) {
        struct nats_subscription *s = n->sids[i];
        if (s != NULL && s->entry.pattern == pattern && s->entry.group == NULL) return s;
    }
    return NULL;
}

/* A pattern may have very many subscribers, or the connection very many subscriptions; seldom both. */
struct nats_subscription *nats_own_subscription(struct acceptor *a, struct connection *c, struct text subject) {
    const struct nats *n = nats_of(c);
    struct subject_pattern *const *patterns;
    size_t count = subjects_match(nats_account_of(a, c)->subjects, nats_server_of(a, c)->walk, subject.at,
                                  subject.bytes, &patterns);
    struct nats_subscription *found = NULL;
    for (size_t i = 0; i < count && found == NULL; i++)
        found =
            patterns[i]->alone.count <= n->sid_mask ? own_among_all(c, patterns[i]) : own_of_pattern(n, patterns[i]);
    return found;
}

/* From one publisher to all who are interested, wherever they are. */
#include "acceptor/protocols/nats/nats_give.h"
#include "acceptor/protocols/nats/nats_route.h"
#include "acceptor/protocols/nats/nats_shares.h"
#include "acceptor/protocols/nats/nats_topics.h"

/* xorshift64*: any will do, to be fair among members. */
uint64_t nats_random(struct nats_server *server) {
    uint64_t x = server->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    server->random = x;
    return x * 0x2545f4914f6cdd1dULL >> 16;
}

/* --- to all ------------------------------------------------------------------------------------------------------- */

static void deliver_alone(struct nats_delivery *d, struct subject_pattern *pattern) {
    struct subject_entry **items = subject_entries_items(&pattern->alone);
    for (uint32_t i = 0; i < pattern->alone.count; i++) nats_give(d, nats_subscription_of(items[i]));
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
static bool deliver_to_member(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t at, size_t count,
                              const struct subject_group *group, uint64_t weight) {
    uint64_t before = d->delivered, random = nats_random(d->server);
    for (uint64_t tries = weight; tries > 0 && d->delivered == before; tries--, random++) {
        struct subject_entry *entry = subject_group_pick(patterns, at, count, group, random);
        if (entry != NULL) nats_give(d, nats_subscription_of(entry));
    }
    return d->delivered != before;
}

/* ... of a group that only one pattern has. */
static void deliver_to_any(struct nats_delivery *d, struct subject_pattern *const *patterns, struct subject_group *g) {
    uint64_t before = d->delivered;
    if (g->weight == g->entries.count) {
        uint32_t chosen = (uint32_t)(nats_random(d->server) & UINT32_MAX) % g->entries.count;
        nats_give(d, nats_subscription_of(subject_entries_items(&g->entries)[chosen]));
    }
    if (d->delivered == before) deliver_to_member(d, patterns, 0, 1, g, g->weight);
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

static const struct nats_candidates anybody = {.end = NATS_OTHERS}, acceptors = {.end = BOARD_MAX_ACCEPTORS};

static struct nats_remote *remote_of(struct subject_entry *entry) {
    return (struct nats_remote *)(void *)entry;
}

static bool may_choose(const struct nats_server *server, struct subject_entry *entry, struct nats_candidates among) {
    const struct nats_remote *r = remote_of(entry);
    if (r->other >= among.end || nats_has_left(server, r)) return false;
    if (among.stamp > 0 && server->stamps[r->other] == among.stamp) return false;
    return nats_is_route(r->other) || (among.tried & bit_of(r->other)) == 0;
}

static uint64_t other_weight(const struct nats_server *server, struct subject_entries *entries,
                             struct nats_candidates among) {
    struct subject_entry **items = subject_entries_items(entries);
    uint64_t weight = 0;
    for (uint32_t i = 0; i < entries->count; i++)
        if (may_choose(server, items[i], among)) weight += items[i]->weight;
    return weight;
}

static uint64_t others_weight(const struct nats_server *server, struct subject_pattern *const *patterns, size_t count,
                              struct text name, struct nats_candidates among) {
    uint64_t weight = 0;
    for (size_t i = 0; i < count; i++) {
        struct subject_group *g = subject_find_group(patterns[i], name.at, name.bytes);
        if (g != NULL) weight += other_weight(server, &g->entries, among);
    }
    return weight;
}

/* Who has left weighs nothing any more. */
static uint64_t weight_abroad(const struct nats_server *server, const struct abroad *abroad, struct text name) {
    if (server->left.first != NULL) return others_weight(server, abroad->patterns, abroad->count, name, anybody);
    return weight_of(abroad->patterns, 0, abroad->count, name);
}

/* Of those before `end`. */
static void look_abroad(struct nats_delivery *d, struct nats_account *account, struct abroad *abroad, uint32_t end) {
    const struct text *subject = &d->message->subject;
    uint64_t stamp = ++d->server->stamp;
    abroad->count =
        subjects_match(account->remote, d->server->remote_walk, subject->at, subject->bytes, &abroad->patterns);
    for (size_t i = 0; i < abroad->count; i++) {
        struct subject_entry **items = subject_entries_items(&abroad->patterns[i]->alone);
        for (uint32_t n = 0; n < abroad->patterns[i]->alone.count; n++) {
            struct nats_remote *r = remote_of(items[n]);
            uint32_t other = r->other;
            if (other >= end || d->server->stamps[other] == stamp || nats_has_left(d->server, r)) continue;
            d->server->stamps[other] = stamp;
            r->messages++;
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
static bool make_room(struct nats_delivery *d, struct abroad *abroad, size_t bytes) {
    static const struct nats_alone nobody = {.count = 0};
    struct nats_chosen *chosen = &abroad->chosen;
    if (chosen->count < NATS_GROUPS && chosen->bytes + bytes <= NATS_GROUPS_BYTES) return true;
    for (size_t i = 0; i < chosen->count; i++)
        if (nats_is_route(chosen->other[i])) return false;
    nats_pass_on(d->a, d->server, abroad->account, d->message, abroad->flags, &nobody, chosen);
    chosen->count = chosen->bytes = 0;
    return true;
}

static void choose(struct nats_delivery *d, struct abroad *abroad, struct subject_entry *entry, struct text name) {
    struct nats_chosen *chosen = &abroad->chosen;
    size_t bytes = nats_group_bytes(name.bytes);
    if (entry == NULL || !make_room(d, abroad, bytes)) return;
    struct nats_remote *r = remote_of(entry);
    if (d->server->stamps[r->other] != d->server->stamp) r->messages++;
    d->server->stamps[r->other] = d->server->stamp;
    chosen->other[chosen->count] = r->other;
    chosen->name[chosen->count++] = name;
    chosen->bytes += bytes;
    abroad->any = true;
}

/* One of the others with members, in proportion; it chooses one of them. */
static void choose_abroad(struct nats_delivery *d, struct abroad *abroad, size_t at,
                          const struct subject_group *group) {
    struct text name = {(const uint8_t *)group->name, group->name_bytes};
    struct subject_entry *entry;
    if (d->server->left.first != NULL)
        entry = nats_pick_other(d->server, abroad->patterns, abroad->count, name, anybody);
    else
        entry = subject_group_pick(abroad->patterns, at, abroad->count, group, nats_random(d->server));
    choose(d, abroad, entry, name);
}

static void choose_by_name(struct nats_delivery *d, struct abroad *abroad, struct text name) {
    for (size_t i = 0; i < abroad->count; i++) {
        const struct subject_group *g = subject_find_group(abroad->patterns[i], name.at, name.bytes);
        if (g == NULL) continue;
        choose_abroad(d, abroad, i, g);
        return;
    }
}

/* Of the servers that keep such messages, one has this one already. */
static bool is_keepers(const struct nats_delivery *d, const struct subject_group *group) {
    return d->kept && group->name_bytes == d->server->bound.queue_bytes &&
           memcmp(group->name, d->server->bound.queue, group->name_bytes) == 0;
}

/* Groups that have members here, and perhaps abroad: all members count, wherever they are. */
static void deliver_groups(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t at, size_t count,
                           struct abroad *abroad) {
    bool is_only = count == 1, are_abroad = abroad != NULL && abroad->count > 0;
    for (struct subject_group *g = patterns[at]->groups; g != NULL; g = g->next) {
        if ((at > 0 && subject_group_seen(patterns, at, g)) || is_keepers(d, g)) continue;
        struct text name = {(const uint8_t *)g->name, g->name_bytes};
        uint64_t here = is_only ? g->weight : weight_of(patterns, at, count, name);
        uint64_t there = are_abroad ? weight_abroad(d->server, abroad, name) : 0;
        if (is_only && there == 0) {
            deliver_to_any(d, patterns, g);
            continue;
        }
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

static void choose_groups_abroad(struct nats_delivery *d, struct abroad *abroad,
                                 struct subject_pattern *const *patterns, size_t count) {
    for (size_t i = 0; i < abroad->count; i++) {
        for (struct subject_group *g = abroad->patterns[i]->groups; g != NULL; g = g->next) {
            if ((i > 0 && subject_group_seen(abroad->patterns, i, g)) || is_keepers(d, g)) continue;
            if (!is_any_here(patterns, count, g)) choose_abroad(d, abroad, i, g);
        }
    }
}

/* --- a message ---------------------------------------------------------------------------------------------------- */

/* To all who want it here, and into `abroad`, if that is not NULL, who else does. */
static bool hand_out(struct nats_delivery *d, struct abroad *abroad) {
    struct text subject = d->message->subject;
    struct subject_pattern *const *patterns;
    size_t count = subjects_match(d->account->subjects, d->server->walk, subject.at, subject.bytes, &patterns);
    if (abroad != NULL) look_abroad(d, d->account, abroad, NATS_OTHERS);
    if (count > 0) nats_begin(d);
    d->server->delivering = true;
    for (size_t i = 0; i < count; i++) {
        deliver_alone(d, patterns[i]);
        if (patterns[i]->groups != NULL) deliver_groups(d, patterns, i, count, abroad);
    }
    if (abroad == NULL) return d->delivered > 0;
    if (abroad->count > 0) choose_groups_abroad(d, abroad, patterns, count);
    return d->delivered > 0 || abroad->alone.count > 0 || abroad->any;
}

static void pass_on(struct nats_delivery *d, struct abroad *abroad) {
    if (abroad->alone.count > 0 || abroad->chosen.count > 0)
        nats_pass_on(d->a, d->server, abroad->account, d->message, abroad->flags, &abroad->alone, &abroad->chosen);
}

/* ... where others may want it too. */
static bool hand_out_abroad(struct nats_delivery *d, uint32_t number, struct connection *asker) {
    struct abroad abroad;
    begin_abroad(&abroad, number, 0);
    bool any = hand_out(d, &abroad);
    pass_on(d, &abroad);
    if (d->a->mesh_there == 0 || (abroad.alone.count == 0 && !abroad.any)) return any;
    /* Who hears PONG after this may count on it that all who were to have the message have it before their next PONG. */
    d->server->told++;
    if (asker != NULL) nats_of(asker)->told = d->server->told;
    return any;
}

void nats_deliver_pattern(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t at, size_t count) {
    deliver_alone(d, patterns[at]);
    if (patterns[at]->groups != NULL) deliver_groups(d, patterns, at, count, NULL);
}

static bool deliver(struct nats_delivery *d, uint32_t number, struct connection *asker) {
    bool any = d->account->remote == NULL ? hand_out(d, NULL) : hand_out_abroad(d, number, asker);
    nats_made(d);
    return any;
}

bool nats_deliver_in(struct acceptor *a, struct nats_server *server, uint32_t number, struct connection *from,
                     struct connection *asker, const struct nats_message *message, bool *answers) {
    struct nats_delivery d = nats_delivery_of(a, server, &server->accounts[number]);
    d.message = message;
    d.from = from;
    d.kept = from != NULL && nats_is_shared(server, number, message->subject);
    bool any = deliver(&d, number, asker);
    *answers = d.answers;
    return any;
}

bool nats_deliver(struct acceptor *a, struct connection *from, const struct nats_message *message) {
    struct nats_server *server = nats_server_of(a, from);
    uint32_t account = nats_of(from)->account;
    bool answers, imports = server->accounts[account].shares != NULL;
    bool any = nats_deliver_in(a, server, account, from, from, message, &answers);
    if (!answers && !imports) return any;
    return nats_go_on(a, server, account, from, message, answers, imports) || any;
}

void nats_deliver_as_server(struct acceptor *a, struct nats_server *server, uint32_t account,
                            const struct nats_message *message) {
    struct nats_delivery d = nats_delivery_of(a, server, &server->accounts[account]);
    d.message = message;
    d.kept = nats_is_shared(server, account, message->subject);
    deliver(&d, account, NULL);
}

/* The groups of that name among patterns, from the first that has one. */
static bool deliver_to_named(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t count,
                             struct text name) {
    for (size_t i = 0; i < count; i++) {
        const struct subject_group *g = subject_find_group(patterns[i], name.at, name.bytes);
        if (g != NULL) return deliver_to_member(d, patterns, i, count, g, weight_of(patterns, i, count, name));
    }
    return false;
}

/* What a stream of another server sends its consumer's clients they see under the subject that it was published to, which
 * stands behind the reply: $JS.ACK.stream.consumer and five numbers, @, the subject. */
static const struct nats_message *shown_of(const struct nats_message *m, struct nats_message *room) {
    static const char ACK[] = "$JS.ACK.";
    enum { ACK_BYTES = sizeof ACK - 1, ACK_DOTS = 8 };
    const struct text reply = m->reply;
    if (reply.bytes < ACK_BYTES || memcmp(reply.at, ACK, ACK_BYTES) != 0) return m;
    size_t end = 0;
    for (unsigned dots = 0; end < reply.bytes && (dots < ACK_DOTS || reply.at[end] != '@'); end++)
        dots += reply.at[end] == '.';
    if (end + 1 >= reply.bytes) return m;
    *room = *m;
    room->subject = (struct text){reply.at + end + 1, reply.bytes - end - 1};
    room->reply.bytes = end;
    room->joined = false;
    return room;
}

size_t nats_deliver_here(struct acceptor *a, struct nats_server *server, uint32_t number,
                         const struct nats_message *message, bool alone, struct text *groups, size_t count) {
    struct nats_account *account = &server->accounts[number];
    struct nats_delivery d = nats_delivery_of(a, server, account);
    struct nats_message room;
    d.message = shown_of(message, &room);
    /* What nobody else had a member for comes back to where it was published: who wants no echo has none. */
    if (message->from >> 32 == (uint64_t)a->index + 1) d.from = connection_find(a, (uint32_t)message->from);
    struct subject_pattern *const *patterns;
    size_t matching =
        subjects_match(account->subjects, server->walk, message->subject.at, message->subject.bytes, &patterns);
    if (matching > 0) nats_begin(&d);
    server->delivering = true;
    for (size_t i = 0; alone && i < matching; i++) deliver_alone(&d, patterns[i]);
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (!deliver_to_named(&d, patterns, matching, groups[i])) groups[left++] = groups[i];
    nats_made(&d);
    if (d.answers) nats_go_on(a, server, number, NULL, message, true, false);
    return left;
}

/* --- from a route ------------------------------------------------------------------------------------------------- */

struct subject_entry *nats_pick_other(struct nats_server *server, struct subject_pattern *const *patterns, size_t count,
                                      struct text name, struct nats_candidates among) {
    uint64_t weight = others_weight(server, patterns, count, name, among);
    if (weight == 0) return NULL;
    uint64_t left = nats_random(server) % weight;
    for (size_t i = 0; i < count; i++) {
        struct subject_group *g = subject_find_group(patterns[i], name.at, name.bytes);
        if (g == NULL) continue;
        struct subject_entry **items = subject_entries_items(&g->entries);
        for (uint32_t n = 0; n < g->entries.count; n++) {
            if (!may_choose(server, items[n], among)) continue;
            if (left < items[n]->weight) return items[n];
            left -= items[n]->weight;
        }
    }
    return NULL;
}

/* To one member of a group on this server, wherever that is. */
static void deliver_named(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t count,
                          struct text name, struct abroad *abroad) {
    uint64_t here = weight_of(patterns, 0, count, name);
    uint64_t there = abroad->count > 0 ? others_weight(d->server, abroad->patterns, abroad->count, name, acceptors) : 0;
    bool is_here = here > 0 && (there == 0 || nats_random(d->server) % (here + there) < here);
    if (is_here && deliver_to_named(d, patterns, count, name)) return;
    if (there > 0)
        choose(d, abroad, nats_pick_other(d->server, abroad->patterns, abroad->count, name, acceptors), name);
}

void nats_deliver_routed(struct acceptor *a, struct nats_server *server, uint32_t number,
                         const struct nats_message *message, const struct text *groups, size_t count) {
    struct nats_account *account = &server->accounts[number];
    struct nats_delivery d = nats_delivery_of(a, server, account);
    d.message = message;
    struct subject_pattern *const *patterns;
    struct abroad abroad;
    begin_abroad(&abroad, number, PASSED_FROM_ROUTE);
    size_t matching =
        subjects_match(account->subjects, server->walk, message->subject.at, message->subject.bytes, &patterns);
    /* With one acceptor all others are behind routes. */
    if (account->remote != NULL && a->mesh_there != 0) look_abroad(&d, account, &abroad, BOARD_MAX_ACCEPTORS);
    struct nats_message room;
    d.message = shown_of(message, &room);
    if (matching > 0) nats_begin(&d);
    server->delivering = true;
    for (size_t i = 0; i < matching; i++) deliver_alone(&d, patterns[i]);
    for (size_t i = 0; i < count; i++) deliver_named(&d, patterns, matching, groups[i], &abroad);
    d.message = message;
    pass_on(&d, &abroad);
    nats_made(&d);
    if (d.answers) nats_go_on(a, server, number, NULL, message, true, false);
}

/* --- one's own ---------------------------------------------------------------------------------------------------- */

static struct nats_subscription *own_among_all(const struct connection *c, struct subject_pattern *pattern) {
    struct subject_entry **items = subject_entries_items(&pattern->alone);
    for (uint32_t i = 0; i < pattern->alone.count; i++)
        if (nats_subscription_of(items[i])->connection == c) return nats_subscription_of(items[i]);
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

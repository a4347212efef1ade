/* Delivery: from one publisher to all that want the message, wherever they are. */
#include "acceptor/protocols/nats/nats_deliver.h"

#include "acceptor/protocols/nats/nats_bound.h"
#include "acceptor/protocols/nats/nats_fanout.h"
#include "acceptor/protocols/nats/nats_give.h"
#include "acceptor/protocols/nats/nats_halves.h"
#include "acceptor/protocols/nats/nats_pass.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_shadows.h"
#include "acceptor/protocols/nats/nats_traced.h"
#include "base/subject_groups.h"
/* --- to all ------------------------------------------------------------------------------------------------------- */

/* Kept out of the way of messages that are not traced, which are nearly all. */
static __attribute__((noinline, cold)) void give_all_traced(struct nats_delivery *d, struct subject_entry **items,
                                                            uint32_t count) {
    for (uint32_t i = 0; i < count; i++) nats_give_traced(d, nats_subscription_of(items[i]));
}

static inline void give(struct nats_delivery *d, struct subject_entry **items, uint32_t count) {
    if (__builtin_expect(d->server->trace != NULL, 0))
        give_all_traced(d, items, count);
    else
        for (uint32_t i = 0; i < count; i++) nats_give(d, nats_subscription_of(items[i]));
}

static inline void give_to(struct nats_delivery *d, struct subject_entry *entry) {
    if (__builtin_expect(d->server->trace != NULL, 0))
        nats_give_traced(d, nats_subscription_of(entry));
    else
        nats_give(d, nats_subscription_of(entry));
}

static inline __attribute__((always_inline)) void deliver_alone(struct nats_delivery *d,
                                                                struct subject_pattern *pattern) {
    if (__builtin_expect(pattern->alone.count > NATS_FEW, 0)) {
        nats_give_many(d, pattern);
        return;
    }
    give(d, subject_entries_items(&pattern->alone), pattern->alone.count);
    d->looked += pattern->alone.count;
}

static struct subject_groups *groups_here(const struct nats_delivery *d) {
    return subjects_groups(d->account->subjects);
}

static struct text text_of(const struct subject_name *name) {
    return (struct text){(const uint8_t *)name->text, name->bytes};
}

/* Gives the message to the first of the members `from` to `end` that may have it, counted over all groups from `g`. */
static bool give_one(struct nats_delivery *d, struct subject_group *g, uint64_t from, uint64_t end) {
    uint64_t before = d->delivered, passed = 0;
    for (; g != NULL && passed < end; g = g->same) {
        struct subject_entry **items = subject_entries_items(&g->entries);
        uint64_t skipped = from > passed ? from - passed : 0, left = end - passed;
        for (uint64_t i = skipped; i < g->entries.count && i < left; i++) {
            give_to(d, items[i]);
            d->looked++;
            if (d->delivered != before) return true;
        }
        passed += g->entries.count;
    }
    return false;
}

/* Delivers to a random member here. A member that cannot have the message (it is closed, or is the publisher without
 * echo) is passed over for another. Members that others are not to choose any more can have it. */
static bool deliver_to_member(struct nats_delivery *d, struct subject_group *first) {
    uint64_t members = 0;
    for (const struct subject_group *g = first; g != NULL; g = g->same) members += g->entries.count;
    uint64_t chosen = nats_random(d->server) % members;
    return give_one(d, first, chosen, members) || give_one(d, first, 0, chosen);
}

/* The same for a group that only one pattern has. */
static void deliver_to_any(struct nats_delivery *d, struct subject_group *g) {
    uint64_t before = d->delivered;
    uint32_t chosen = (uint32_t)(nats_random(d->server) & UINT32_MAX) % g->entries.count;
    give_to(d, subject_entries_items(&g->entries)[chosen]);
    if (d->delivered != before) return;
    g->same = NULL;
    deliver_to_member(d, g);
}

/* --- to other acceptors ------------------------------------------------------------------------------------------- */

/* The matching interest of others, for one message. */
struct abroad {
    uint32_t account;
    bool any;       /* a group elsewhere has got the message, or will */
    uint32_t flags; /* flags for the message passed on */
    struct subject_pattern *const *patterns;
    size_t count, groups;
    struct nats_alone alone;
    struct nats_chosen *chosen;
};

/* A leaf node or hub gets a message for a group only if nobody else has members. */
static const struct nats_candidates anybody = {.kinds = NATS_ANY_KIND}, ours = {.kinds = NATS_ACCEPTORS | NATS_SERVERS},
                                    outside = {.kinds = NATS_OUTSIDE};

static struct nats_remote *remote_of(struct subject_entry *entry) {
    return (struct nats_remote *)(void *)entry;
}

static bool may_choose(const struct nats_server *server, struct subject_entry *entry, struct nats_candidates among) {
    const struct nats_remote *r = remote_of(entry);
    if (!nats_is_among(server, r, among)) return false;
    if (among.stamp > 0 && server->stamps[r->other] == among.stamp) return false;
    return nats_is_route(r->other) || (among.tried & bit_of(r->other)) == 0;
}

static uint64_t other_weight(const struct nats_server *server, struct subject_group *g, struct nats_candidates among) {
    struct subject_entry **items = subject_entries_items(&g->entries);
    uint64_t weight = 0;
    for (uint32_t i = 0; i < g->entries.count; i++)
        if (may_choose(server, items[i], among)) weight += items[i]->weight;
    return weight;
}

static uint64_t others_weight(const struct nats_server *server, const struct subject_name *name,
                              struct nats_candidates among) {
    uint64_t weight = 0;
    for (struct subject_group *g = name->found; g != NULL; g = g->same) weight += other_weight(server, g, among);
    return weight;
}

/* Picks one with members at random, in proportion to their number; NULL: none. */
static struct subject_entry *pick_among(struct nats_server *server, const struct subject_name *name,
                                        struct nats_candidates among) {
    uint64_t weight = others_weight(server, name, among);
    if (weight == 0) return NULL;
    uint64_t left = nats_random(server) % weight;
    for (struct subject_group *g = name->found; g != NULL; g = g->same) {
        struct subject_entry **items = subject_entries_items(&g->entries);
        for (uint32_t i = 0; i < g->entries.count; i++) {
            if (!may_choose(server, items[i], among)) continue;
            if (left < items[i]->weight) return items[i];
            left -= items[i]->weight;
        }
    }
    return NULL;
}

/* Whether weights have to be added up one by one, as some others may have left and count nothing, or are outside the
 * cluster and count only if none inside does. */
static bool are_to_be_looked_at(const struct nats_server *server) {
    return server->left.first != NULL || server->leaf_interest > 0;
}

static uint64_t weight_abroad(const struct nats_server *server, const struct subject_name *name) {
    return are_to_be_looked_at(server) ? others_weight(server, name, ours) : name->weight;
}

/* Servers and leaf nodes count towards a turn's limit like clients; other acceptors are bounded by their rings. */
static void look_abroad(struct nats_delivery *d, struct nats_account *account, struct abroad *abroad,
                        struct nats_candidates among) {
    const struct text *subject = &d->message->subject;
    uint64_t stamp = ++d->server->stamp, each = 1 + d->message->payload_bytes / HANDED_BYTES;
    abroad->count =
        subjects_match(account->remote, d->server->remote_walk, subject->at, subject->bytes, &abroad->patterns);
    for (size_t i = 0; i < abroad->count; i++) {
        struct subject_entry **items = subject_entries_items(&abroad->patterns[i]->alone);
        abroad->groups += subject_groups(abroad->patterns[i]);
        for (uint32_t n = 0; n < abroad->patterns[i]->alone.count; n++) {
            struct nats_remote *r = remote_of(items[n]);
            uint32_t other = r->other;
            if (d->server->stamps[other] == stamp || !nats_is_among(d->server, r, among)) continue;
            d->server->stamps[other] = stamp;
            r->messages++;
            if (nats_is_route(other)) d->looked += each;
            abroad->alone.other[abroad->alone.count++] = (uint16_t)other;
        }
    }
    d->looked += abroad->groups;
}

static void begin_abroad(const struct nats_server *server, struct abroad *abroad, uint32_t account, uint32_t flags) {
    abroad->account = account;
    abroad->flags = flags;
    abroad->any = false;
    abroad->count = abroad->groups = abroad->alone.count = 0;
    abroad->chosen = &server->scratch->chosen;
    abroad->chosen->count = abroad->chosen->bytes = 0;
}

/* Makes room for another chosen group, by sending what was chosen for acceptors; their plain subscribers get the last
 * part. False if a server was chosen, because a server is sent a message only once. */
static bool make_room(struct nats_delivery *d, struct abroad *abroad, size_t bytes) {
    static const struct nats_alone nobody = {.count = 0};
    struct nats_chosen *chosen = abroad->chosen;
    if (chosen->count < NATS_GROUPS && chosen->bytes + bytes <= NATS_GROUPS_BYTES) return true;
    for (size_t i = 0; i < chosen->count; i++)
        if (nats_is_route(chosen->other[i])) return false;
    nats_pass_on(d->a, d->server, abroad->account, d->message, abroad->flags, &nobody, chosen);
    chosen->count = chosen->bytes = 0;
    return true;
}

static void choose(struct nats_delivery *d, struct abroad *abroad, struct subject_entry *entry, struct text name) {
    struct nats_chosen *chosen = abroad->chosen;
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

/* Chooses one of the others with members, in proportion; that one picks the member. */
static void choose_abroad(struct nats_delivery *d, struct abroad *abroad, const struct subject_name *name) {
    struct subject_entry *entry;
    if (!are_to_be_looked_at(d->server))
        entry = subject_name_pick(name, nats_random(d->server) % name->weight);
    else if ((entry = pick_among(d->server, name, ours)) == NULL)
        entry = pick_among(d->server, name, outside);
    choose(d, abroad, entry, text_of(name));
}

/* Whether the group is the topics-queue and one of its servers has logged the message already. */
static bool is_keepers(const struct nats_delivery *d, const struct subject_group *group) {
    return d->kept && group->name->bytes == d->server->bound.queue_bytes &&
           memcmp(group->name->text, d->server->bound.queue, group->name->bytes) == 0;
}

/* Delivers to a group with members here and perhaps elsewhere; all members count alike. */
static void deliver_group(struct nats_delivery *d, const struct subject_name *name, struct abroad *abroad) {
    const struct subject_name *others = NULL;
    if (abroad != NULL && abroad->groups > 0) others = subject_groups_like(subjects_groups(d->account->remote), name);
    uint64_t here = name->weight, there = others != NULL ? weight_abroad(d->server, others) : 0;
    bool is_here = there == 0 || nats_random(d->server) % (here + there) < here;
    if (is_here && deliver_to_member(d, name->found)) return;
    if (there > 0 || (others != NULL && d->server->leaf_interest > 0)) choose_abroad(d, abroad, others);
}

static void deliver_groups_of(struct nats_delivery *d, const struct subject_pattern *pattern) {
    for (struct subject_group *g = pattern->groups; g != NULL; g = g->next)
        if (!is_keepers(d, g)) deliver_to_any(d, g);
}

/* Delivers to one member of each group with members here, however many patterns it has. Some pattern has groups. */
static inline __attribute__((always_inline)) void
deliver_groups(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t count, struct abroad *abroad) {
    size_t having = 0, last = 0;
    for (size_t i = 0; i < count; i++) {
        if (patterns[i]->groups == NULL) continue;
        having++;
        last = i;
        d->looked += subject_groups(patterns[i]);
    }
    bool are_abroad = abroad != NULL && abroad->groups > 0;
    if (having == 1 && !are_abroad) {
        deliver_groups_of(d, patterns[last]);
        return;
    }
    subject_groups_gather(groups_here(d), patterns, count);
    if (are_abroad) subject_groups_gather(subjects_groups(d->account->remote), abroad->patterns, abroad->count);
    for (size_t i = 0; i < count; i++)
        for (struct subject_group *g = patterns[i]->groups; g != NULL; g = g->next)
            if (subject_group_leads(g) && !is_keepers(d, g)) deliver_group(d, g->name, abroad);
}

/* Chooses for the groups without members here. */
static void choose_groups_abroad(struct nats_delivery *d, struct abroad *abroad,
                                 struct subject_pattern *const *patterns, size_t count) {
    const struct subject_groups *here = groups_here(d);
    subject_groups_gather(groups_here(d), patterns, count);
    subject_groups_gather(subjects_groups(d->account->remote), abroad->patterns, abroad->count);
    for (size_t i = 0; i < abroad->count; i++) {
        for (struct subject_group *g = abroad->patterns[i]->groups; g != NULL; g = g->next) {
            if (!subject_group_leads(g) || is_keepers(d, g)) continue;
            if (subject_groups_like(here, g->name) == NULL) choose_abroad(d, abroad, g->name);
        }
    }
}

/* --- a message ---------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void deliver_matching(struct nats_delivery *d,
                                                                   struct subject_pattern *const *patterns,
                                                                   size_t count, struct abroad *abroad) {
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        deliver_alone(d, patterns[i]);
        any |= patterns[i]->groups != NULL;
    }
    if (any) deliver_groups(d, patterns, count, abroad);
}

/* Delivers to all that want the message here, and notes in `abroad`, unless NULL, who else wants it. */
static bool hand_out(struct nats_delivery *d, struct abroad *abroad) {
    struct text subject = d->message->subject;
    struct subject_pattern *const *patterns;
    size_t count = subjects_match(d->account->subjects, d->server->walk, subject.at, subject.bytes, &patterns);
    if (abroad != NULL) look_abroad(d, d->account, abroad, anybody);
    if (count > 0) nats_begin(d);
    d->server->delivering = true;
    deliver_matching(d, patterns, count, abroad);
    if (abroad == NULL) return d->delivered > 0;
    if (abroad->groups > 0) choose_groups_abroad(d, abroad, patterns, count);
    return d->delivered > 0 || abroad->alone.count > 0 || abroad->any;
}

static void pass_on(struct nats_delivery *d, struct abroad *abroad) {
    if (abroad->alone.count > 0 || abroad->chosen->count > 0)
        nats_pass_on(d->a, d->server, abroad->account, d->message, abroad->flags, &abroad->alone, abroad->chosen);
}

/* The publisher's next PONG has to wait until what was passed on has reached all other acceptors. */
static void hold_pong(const struct nats_delivery *d, const struct abroad *abroad, struct connection *asker) {
    if (d->a->mesh_there == 0 || (abroad->alone.count == 0 && !abroad->any)) return;
    d->server->told++;
    if (asker != NULL) nats_of(asker)->told = d->server->told;
}

/* The same when others may want it too. */
static bool hand_out_abroad(struct nats_delivery *d, uint32_t number, struct connection *asker) {
    struct abroad abroad;
    begin_abroad(d->server, &abroad, number, 0);
    bool any = hand_out(d, &abroad);
    pass_on(d, &abroad);
    hold_pong(d, &abroad, asker);
    return any;
}

void nats_deliver_matching(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t count) {
    deliver_matching(d, patterns, count, NULL);
}

static bool deliver(struct nats_delivery *d, uint32_t number, struct connection *asker) {
    bool any = d->account->remote == NULL ? hand_out(d, NULL) : hand_out_abroad(d, number, asker);
    nats_made(d);
    return any;
}

static bool deliver_looking(struct nats_delivery *d, uint32_t number, struct connection *asker);

/* Notes which groups of importing accounts want the message. */
static void look_at_shadows(struct nats_delivery *d) {
    if (d->account->shadows == NULL) return;
    d->shadow_count = nats_shadows_match(d->server, d->account, d->message->subject, &d->shadows);
}

bool nats_deliver_in(struct acceptor *a, struct nats_server *server, uint32_t number, struct connection *from,
                     struct connection *asker, const struct nats_message *message, bool *answers) {
    struct nats_delivery d = nats_delivery_of(a, server, &server->accounts[number]);
    d.message = message;
    d.from = from;
    d.kept = from != NULL && nats_is_shared(server, number, message->subject);
    look_at_shadows(&d);
    bool any =
        d.shadow_count > 0 || message->hub != 0 ? deliver_looking(&d, number, asker) : deliver(&d, number, asker);
    *answers = d.answers;
    return any;
}

void nats_deliver_as_server(struct acceptor *a, struct nats_server *server, uint32_t account,
                            const struct nats_message *message) {
    struct nats_delivery d = nats_delivery_of(a, server, &server->accounts[account]);
    d.message = message;
    d.kept = nats_is_shared(server, account, message->subject);
    deliver(&d, account, NULL);
}

/* Delivers to one member here of a gathered group. */
static bool deliver_to_named(struct nats_delivery *d, struct text name) {
    const struct subject_name *found = subject_groups_named(groups_here(d), name.at, name.bytes);
    return found != NULL && deliver_to_member(d, found->found);
}

/* Returns the message as clients see it. A JetStream of another server puts the subject that a message was published to
 * at the end of the reply: $JS.ACK.stream.consumer and five numbers, @, the subject. */
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

size_t nats_deliver_from_acceptor(struct acceptor *a, struct nats_server *server, uint32_t number,
                                  const struct nats_message *message, bool alone, struct text *groups, size_t count,
                                  bool *answers) {
    struct nats_account *account = &server->accounts[number];
    struct nats_delivery d = nats_delivery_of(a, server, account);
    struct nats_message room;
    d.message = shown_of(message, &room);
    /* The message has come back to where it was published, as no other had members: a publisher without echo must not
     * get it. */
    if (message->from >> 32 == (uint64_t)a->index + 1) d.from = connection_find(a, (uint32_t)message->from);
    struct subject_pattern *const *patterns;
    size_t matching =
        subjects_match(account->subjects, server->walk, message->subject.at, message->subject.bytes, &patterns);
    if (matching > 0) nats_begin(&d);
    server->delivering = true;
    for (size_t i = 0; alone && i < matching; i++) deliver_alone(&d, patterns[i]);
    size_t left = 0;
    if (count > 0) subject_groups_gather_named(groups_here(&d), patterns, matching, groups, count);
    for (size_t i = 0; i < count; i++)
        if (!deliver_to_named(&d, groups[i])) groups[left++] = groups[i];
    if (server->latencies != NULL && d.delivered > 0) nats_half_begin(a, server, number, message->reply);
    nats_made(&d);
    *answers = d.answers;
    return left;
}

/* --- from a route ------------------------------------------------------------------------------------------------- */

struct subject_entry *nats_pick_other(struct nats_server *server, const struct nats_account *account,
                                      struct subject_pattern *const *patterns, size_t count, struct text name,
                                      struct nats_candidates among) {
    struct subject_groups *groups = subjects_groups(account->remote);
    subject_groups_gather_named(groups, patterns, count, &name, 1);
    const struct subject_name *found = subject_groups_named(groups, name.at, name.bytes);
    return found != NULL ? pick_among(server, found, among) : NULL;
}

static const struct subject_name *shadows_named(const struct nats_delivery *d, struct text name) {
    if (d->shadow_count == 0) return NULL;
    return subject_groups_named(nats_shadows_groups(d->account), name.at, name.bytes);
}

/* Delivers to a member outside of this cluster: of this account, or of one that imports the message. */
static void deliver_outside(struct nats_delivery *d, struct text name, const struct subject_name *there,
                            const struct subject_name *shadows, struct abroad *abroad, struct nats_candidates all) {
    struct nats_candidates among = all, importing = {.kinds = all.kinds & NATS_OUTSIDE, .hub = d->hub};
    among.kinds &= NATS_OUTSIDE;
    uint64_t own = there != NULL && d->server->leaf_interest > 0 ? others_weight(d->server, there, among) : 0;
    uint64_t imported = shadows != NULL ? nats_shadows_members(d->server, d->account, shadows, importing) : 0;
    if (imported > 0 && nats_random(d->server) % (own + imported) >= own)
        nats_shadows_award(d->server, d->account, shadows, importing);
    else if (own > 0)
        choose(d, abroad, pick_among(d->server, there, among), name);
}

/* Delivers to one member of a group: in this cluster, as far as `all` allows, or else outside of it. Members in
 * accounts that import the message count as members of this account. */
static void deliver_named(struct nats_delivery *d, struct text name, struct abroad *abroad,
                          struct nats_candidates all) {
    struct nats_candidates among = all;
    among.kinds &= ~(uint32_t)NATS_OUTSIDE;
    const struct subject_name *here = subject_groups_named(groups_here(d), name.at, name.bytes), *there = NULL;
    const struct subject_name *shadows = shadows_named(d, name);
    if (abroad->groups > 0) there = subject_groups_named(subjects_groups(d->account->remote), name.at, name.bytes);
    static const struct nats_candidates clients = {.kinds = NATS_ACCEPTORS};
    uint64_t weight_here = here != NULL ? here->weight : 0;
    uint64_t weight_there = there != NULL ? others_weight(d->server, there, among) : 0,
             sum = weight_here + weight_there;
    uint64_t imported = shadows != NULL ? nats_shadows_members(d->server, d->account, shadows, clients) : 0;
    if (imported > 0 && nats_random(d->server) % (sum + imported) >= sum) {
        nats_shadows_award(d->server, d->account, shadows, clients);
        return;
    }
    bool is_here = here != NULL && (weight_there == 0 || nats_random(d->server) % sum < weight_here);
    if (is_here && deliver_to_member(d, here->found)) return;
    if (weight_there > 0)
        choose(d, abroad, pick_among(d->server, there, among), name);
    else if (imported > 0)
        nats_shadows_award(d->server, d->account, shadows, clients);
    else
        deliver_outside(d, name, there, shadows, abroad, all);
}

static bool is_keepers_name(const struct nats_server *server, struct text name) {
    return name.bytes == server->bound.queue_bytes && memcmp(name.at, server->bound.queue, name.bytes) == 0;
}

/* Gathers the named groups that match, here and elsewhere. */
static void gather_named(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t matching,
                         const struct text *groups, size_t count, const struct abroad *abroad) {
    subject_groups_gather_named(groups_here(d), patterns, matching, groups, count);
    if (abroad->groups > 0)
        subject_groups_gather_named(subjects_groups(d->account->remote), abroad->patterns, abroad->count, groups,
                                    count);
    if (d->shadow_count > 0)
        subject_groups_gather_named(nats_shadows_groups(d->account), d->shadows, d->shadow_count, groups, count);
}

/* Groups that are to have a message, by their names. */
struct named {
    const struct text *names;
    size_t count;
    bool all; /* all that match, and not these */
};

/* The groups of a table that are gathered, but not in the others. Returns how many names there are then. */
static size_t add_names(const struct nats_delivery *d, struct subject_pattern *const *patterns, size_t matching,
                        const struct subject_groups *before, const struct subject_groups *too, struct text *names,
                        size_t count) {
    for (size_t i = 0; i < matching; i++) {
        for (struct subject_group *g = patterns[i]->groups; g != NULL; g = g->next) {
            bool is_new = subject_group_leads(g) && !is_keepers(d, g) &&
                          (before == NULL || subject_groups_like(before, g->name) == NULL) &&
                          (too == NULL || subject_groups_like(too, g->name) == NULL);
            if (is_new) names[count++] = text_of(g->name);
        }
    }
    return count;
}

/* Names all groups that match: of clients here, of others, and of importing accounts. */
static struct named name_all(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t matching,
                             const struct abroad *abroad) {
    size_t most = subject_groups_gather(groups_here(d), patterns, matching);
    const struct subject_groups *here = groups_here(d), *there = NULL;
    if (abroad->groups > 0) {
        there = subjects_groups(d->account->remote);
        most += subject_groups_gather(subjects_groups(d->account->remote), abroad->patterns, abroad->count);
    }
    if (d->shadow_count > 0)
        most += subject_groups_gather(nats_shadows_groups(d->account), d->shadows, d->shadow_count);
    struct text *names = nats_shadows_names(d->server, most);
    if (names == NULL) return (struct named){0};
    size_t count = add_names(d, patterns, matching, NULL, NULL, names, 0);
    if (there != NULL) count = add_names(d, abroad->patterns, abroad->count, here, NULL, names, count);
    return (struct named){.names = names,
                          .count = add_names(d, d->shadows, d->shadow_count, here, there, names, count)};
}

static bool is_keepers_of(const struct nats_delivery *d, struct text name) {
    return d->kept && is_keepers_name(d->server, name);
}

/* Delivers to all plain subscribers, and to one member of each of the groups, here and among `all`. */
static bool deliver_to(struct nats_delivery *d, struct abroad *abroad, struct nats_candidates all,
                       struct named groups) {
    const struct nats_message *message = d->message;
    struct subject_pattern *const *patterns;
    struct nats_message room;
    size_t matching =
        subjects_match(d->account->subjects, d->server->walk, message->subject.at, message->subject.bytes, &patterns);
    /* With a single acceptor all others are routes or leaf nodes. */
    bool may_be_abroad = (all.kinds & NATS_SERVERS) != 0 || d->a->mesh_there != 0 || d->server->leaf_interest > 0;
    if (d->account->remote != NULL && may_be_abroad) look_abroad(d, d->account, abroad, all);
    d->message = shown_of(message, &room);
    if (matching > 0) nats_begin(d);
    d->server->delivering = true;
    for (size_t i = 0; i < matching; i++) deliver_alone(d, patterns[i]);
    if (groups.all)
        groups = name_all(d, patterns, matching, abroad);
    else if (groups.count > 0)
        gather_named(d, patterns, matching, groups.names, groups.count, abroad);
    for (size_t i = 0; i < groups.count; i++)
        if (!is_keepers_of(d, groups.names[i])) deliver_named(d, groups.names[i], abroad, all);
    d->message = message;
    pass_on(d, abroad);
    return d->delivered > 0 || abroad->alone.count > 0 || abroad->any;
}

static bool deliver_looking(struct nats_delivery *d, uint32_t number, struct connection *asker) {
    struct abroad abroad;
    begin_abroad(d->server, &abroad, number, 0);
    struct nats_candidates all = {.kinds = NATS_ANY_KIND, .hub = d->message->hub};
    d->hub = d->message->hub;
    bool any = deliver_to(d, &abroad, all, (struct named){.all = true});
    hold_pong(d, &abroad, asker);
    nats_made(d);
    return any;
}

bool nats_deliver_imported(struct acceptor *a, struct nats_server *server, uint32_t number,
                           const struct nats_share *import, bool from_server, struct connection *asker,
                           const struct nats_message *message, bool *answers) {
    struct nats_delivery d = nats_delivery_of(a, server, &server->accounts[number]);
    struct nats_candidates all = {.kinds = NATS_ACCEPTORS | NATS_LEAF_NODES | (from_server ? 0 : NATS_HUB_SERVERS),
                                  .hub = message->hub};
    struct abroad abroad;
    struct named groups = {0};
    groups.count = nats_shadows_awarded(server, import, &groups.names);
    d.message = message;
    begin_abroad(server, &abroad, number, PASSED_FROM_ROUTE);
    bool any = deliver_to(&d, &abroad, all, groups);
    hold_pong(&d, &abroad, asker);
    nats_made(&d);
    *answers = d.answers;
    return any;
}

/* Returns which others may get a message that came from one of them. A hub's goes to acceptors, leaf nodes and other
 * hubs. A server's does not go to hubs, since that server has hubs of its own, unless it answers a request of a hub. */
static struct nats_candidates audience_of(uint32_t from, const struct nats_message *m) {
    static const char REPLY[] = "_R_.";
    enum { HERE = NATS_ACCEPTORS | NATS_LEAF_NODES, AND_HUBS = HERE | NATS_HUB_SERVERS };
    bool is_reply = m->subject.bytes >= sizeof REPLY - 1 && memcmp(m->subject.at, REPLY, sizeof REPLY - 1) == 0;
    uint32_t kinds = nats_is_hub(from) || is_reply ? AND_HUBS : HERE;
    if (nats_is_leaf(from) && !nats_is_hub(from)) kinds = NATS_ANY_KIND;
    return (struct nats_candidates){.kinds = kinds, .origin = m->origin};
}

void nats_deliver_from_route(struct acceptor *a, struct nats_server *server, uint32_t number,
                             const struct nats_routed *how, const struct nats_message *message, bool *answers) {
    struct nats_delivery d = nats_delivery_of(a, server, &server->accounts[number]);
    struct abroad abroad;
    d.message = message;
    d.kept = how->kept;
    look_at_shadows(&d);
    begin_abroad(server, &abroad, number, PASSED_FROM_ROUTE);
    d.hub = nats_is_hub(how->from) ? message->origin : 0;
    deliver_to(&d, &abroad, audience_of(how->from, message), (struct named){.names = how->groups, .count = how->count});
    if (server->latencies != NULL && d.delivered > 0) nats_half_begin(a, server, number, message->reply);
    nats_made(&d);
    *answers = d.answers;
}

/* --- one's own ---------------------------------------------------------------------------------------------------- */

static struct nats_subscription *own_among_all(const struct connection *c, struct subject_pattern *pattern) {
    struct subject_entry **items = subject_entries_items(&pattern->alone);
    for (uint32_t i = 0; i < pattern->alone.count; i++)
        if (nats_subscription_of(items[i])->connection == c) return nats_subscription_of(items[i]);
    return NULL;
}

static struct nats_subscription *own_of_pattern(const struct nats *n, const struct subject_pattern *pattern) {
    for (uint32_t i = 0; i < n->sid_buckets; i++)
        for (struct nats_subscription *s = n->sids[i]; s != NULL; s = s->next_sid)
            if (s->entry.pattern == pattern && s->entry.group == NULL) return s;
    return NULL;
}

/* A pattern may have very many subscribers, or the connection very many subscriptions, but seldom both: walks the
 * shorter. */
struct nats_subscription *nats_own_subscription(struct acceptor *a, struct connection *c, struct text subject) {
    const struct nats *n = nats_of(c);
    struct subject_pattern *const *patterns;
    size_t count = subjects_match(nats_account_of(a, c)->subjects, nats_server_of(a, c)->walk, subject.at,
                                  subject.bytes, &patterns);
    struct nats_subscription *found = NULL;
    for (size_t i = 0; i < count && found == NULL; i++)
        found =
            patterns[i]->alone.count <= n->sid_count ? own_among_all(c, patterns[i]) : own_of_pattern(n, patterns[i]);
    return found;
}

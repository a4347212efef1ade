#include "acceptor/protocols/nats/nats_shadows.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_remote.h"
#include "acceptor/protocols/nats/nats_route_interest.h"
#include "acceptor/protocols/nats/nats_shares_state.h"
#include "acceptor/protocols/nats/nats_transform.h"

struct award {
    const struct nats_share *share; /* NULL: it was taken */
    size_t at, bytes;               /* the group's name, in `texts` */
};

struct nats_awards {
    struct subject_walk *walk, *streams_walk;
    struct award *items;
    size_t count, room;
    uint8_t *texts; /* copies, since a group may go before its message is imported */
    size_t texts_bytes, texts_room;
    struct text *names;
    size_t names_room;
    uint8_t made[NATS_MAX_CONTROL_LINE]; /* a shadow's pattern */
};

bool nats_shadows_open(struct nats_server *server) {
    if (server->awards != NULL) return true;
    struct nats_awards *awards = calloc(1, sizeof *awards);
    if (awards == NULL) return false;
    awards->walk = subject_walk_new();
    awards->streams_walk = subject_walk_new();
    if (awards->walk == NULL || awards->streams_walk == NULL) {
        subject_walk_free(awards->walk);
        subject_walk_free(awards->streams_walk);
        free(awards);
        return false;
    }
    server->awards = awards;
    return true;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static bool is_outside(struct nats_wanting by) {
    return (by.kind & NATS_OUTSIDE) != 0;
}

static struct nats_shadow *find(const struct nats_shadows *shadows, const struct nats_share *share, struct text subject,
                                struct text queue, struct text wanted, struct nats_wanting by) {
    struct subject_entries *entries = subjects_entries(shadows->subjects, subject, queue);
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++) {
        struct nats_shadow *s = nats_shadow_of(subject_entries_items(entries)[i]);
        if (s->share != share || s->by.kind != by.kind || s->by.origin != by.origin) continue;
        if (s->bytes == wanted.bytes && memcmp(s->wanted, wanted.at, s->bytes) == 0) return s;
    }
    return NULL;
}

static void add(struct nats_server *server, struct nats_shadows *shadows, const struct nats_share *share,
                struct text subject, struct text queue, struct text wanted, struct nats_wanting by, uint32_t weight) {
    struct nats_shadow *s = calloc(1, sizeof *s + wanted.bytes);
    bool first;
    if (shadows->subjects == NULL) shadows->subjects = subjects_new(server->key);
    if (s == NULL || shadows->subjects == NULL) abort();
    s->entry.weight = s->told = weight;
    s->share = share;
    s->by = by;
    shadows->outside += is_outside(by);
    nats_origin_keep(&server->origins, by.origin);
    s->bytes = (uint32_t)wanted.bytes;
    memcpy(s->wanted, wanted.at, wanted.bytes);
    if (!subjects_add(shadows->subjects, &s->entry, subject.at, subject.bytes, queue.at, queue.bytes, &first)) abort();
    s->next = shadows->first;
    if (s->next != NULL) s->next->previous = s;
    shadows->first = s;
}

static void remove_shadow(struct nats_server *server, struct nats_shadows *shadows, struct nats_shadow *s) {
    shadows->outside -= is_outside(s->by);
    nats_origin_drop(&server->origins, s->by.origin);
    subjects_remove(shadows->subjects, &s->entry);
    *(s->previous != NULL ? &s->previous->next : &shadows->first) = s->next;
    if (s->next != NULL) s->next->previous = s->previous;
    free(s);
}

void nats_shadows_unlink(struct nats_server *server, struct nats_shadows *shadows) {
    for (struct nats_stream *s = shadows != NULL ? shadows->streams : NULL; s != NULL; s = s->next) {
        struct nats_account *importer = &server->accounts[s->importer];
        if (s->entry.pattern == NULL) continue;
        subjects_remove(importer->importing, &s->entry);
        if (subjects_count(importer->importing) > 0) continue;
        subjects_free(importer->importing);
        importer->importing = NULL;
    }
}

void nats_shadows_free(struct nats_server *server, struct nats_shadows *shadows) {
    if (shadows == NULL) return;
    while (shadows->first != NULL) remove_shadow(server, shadows, shadows->first);
    nats_shadows_unlink(server, shadows);
    for (struct nats_stream *s = shadows->streams, *next; s != NULL; s = next) {
        next = s->next;
        free(s);
    }
    subjects_free(shadows->subjects);
    free(shadows);
}

void nats_shadows_close(struct nats_server *server) {
    struct nats_awards *awards = server->awards;
    for (uint32_t i = 1; i < server->account_count; i++) nats_shadows_free(server, server->accounts[i].shadows);
    if (awards == NULL) return;
    subject_walk_free(awards->walk);
    subject_walk_free(awards->streams_walk);
    free(awards->items);
    free(awards->texts);
    free(awards->names);
    free(awards);
}

/* The exporter's pattern of what a pattern of the importer gets of a stream; empty if it gets nothing. */
static struct text pattern_of(const struct nats_server *server, const struct nats_stream *s, struct text wanted) {
    uint8_t *room = server->awards->made;
    return (struct text){room, nats_transform_back(s->to, s->pattern, wanted, room, NATS_MAX_CONTROL_LINE)};
}

/* Sets how often the importer of a stream wants a pattern; false if it has not changed. */
static bool set(struct nats_server *server, const struct nats_stream *stream, struct text subject, struct text wanted,
                struct text queue, struct nats_wanting by, uint64_t weight) {
    struct nats_shadows *shadows = server->accounts[stream->exporter].shadows;
    struct nats_shadow *s = find(shadows, stream->share, subject, queue, wanted, by);
    uint32_t now = weight < UINT32_MAX ? (uint32_t)weight : UINT32_MAX;
    if (s != NULL && now > 0) subjects_weigh(&s->entry, now);
    if (s != NULL ? s->told == now : now == 0) return false;
    if (s == NULL)
        add(server, shadows, stream->share, subject, queue, wanted, by, now);
    else if (now > 0)
        s->told = now;
    else
        remove_shadow(server, shadows, s);
    return true;
}

/* Answers to requests from other accounts are this server's own. */
static bool is_answers(struct text subject) {
    return subject.bytes > 4 && memcmp(subject.at, "_R_.", 4) == 0;
}

typedef void for_streams(void *context, struct subject_pattern *streams);

static const struct nats_stream *stream_in(struct subject_pattern *streams, uint32_t i) {
    return (const struct nats_stream *)(const void *)subject_entries_items(&streams->alone)[i];
}

/* Calls `each` with the streams that an account imports of which a pattern may want something. Many accounts import
 * very many, each under a subject without wildcards. */
static void each_wanted(struct nats_server *server, const struct nats_account *account, struct text wanted,
                        for_streams *each, void *context) {
    struct subject_pattern *const *found;
    if (account->importing == NULL || is_answers(wanted)) return;
    if (subject_has_wildcard(wanted.at, wanted.bytes)) {
        subjects_each(account->importing, each, context);
        return;
    }
    size_t count = subjects_match(account->importing, server->awards->streams_walk, wanted.at, wanted.bytes, &found);
    for (size_t i = 0; i < count; i++) each(context, found[i]);
}

/* What a shadow that is made or removed costs, in the units of HANDED_PER_TURN: about a microsecond. */
enum { SHADOW_HANDED = 16 };

struct looking {
    struct acceptor *a;
    struct nats_server *server;
    struct text wanted, queue;
    struct nats_wanting by;
    uint64_t weight;
};

static void look_at(void *context, struct subject_pattern *streams) {
    const struct looking *l = context;
    struct nats_server *server = l->server;
    for (uint32_t i = 0; i < streams->alone.count; i++) {
        const struct nats_stream *stream = stream_in(streams, i);
        const struct nats_shadows *shadows = server->accounts[stream->exporter].shadows;
        const struct text subject = pattern_of(server, stream, l->wanted);
        l->a->handed++;
        if (subject.bytes == 0) continue;
        struct nats_shadows_weights before = nats_shadows_weigh(shadows, subject, l->queue);
        if (!set(server, stream, subject, l->wanted, l->queue, l->by, l->weight)) continue;
        l->a->handed += SHADOW_HANDED;
        nats_tell_shadows(l->a, server, stream->exporter, subject, l->queue, before);
    }
}

void nats_shadows_look(struct acceptor *a, struct nats_server *server, uint32_t account, struct text wanted,
                       struct text queue, struct nats_wanting by, uint64_t weight) {
    struct looking l = {a, server, wanted, queue, by, weight};
    each_wanted(server, &server->accounts[account], wanted, look_at, &l);
}

bool nats_shadows_look_some(struct acceptor *a, struct nats_server *server, uint32_t account, struct text wanted,
                            struct text queue, uint64_t weight, struct subjects_cursor *cursor, size_t *left) {
    struct looking l = {a, server, wanted, queue, {.kind = NATS_ACCEPTORS}, weight};
    return subjects_each_from(server->accounts[account].importing, cursor, left, look_at, &l);
}

static struct text text_of(const struct subject_pattern *p) {
    return (struct text){(const uint8_t *)p->text, p->bytes};
}

static struct text queue_of(const struct subject_group *g) {
    return g != NULL ? (struct text){(const uint8_t *)g->name->text, g->name->bytes} : (struct text){0};
}

/* --- making anew -------------------------------------------------------------------------------------------------- */

struct making {
    struct nats_server *server;
    uint32_t exporter, importer;
    struct text wanted, queue;
};

static void make_one(const struct making *m, const struct nats_stream *stream) {
    const struct text wanted = m->wanted, queue = m->queue, subject = pattern_of(m->server, stream, wanted);
    if (subject.bytes == 0) return;
    const struct nats_account *importer = &m->server->accounts[m->importer];
    struct nats_wanting by = {.kind = NATS_ACCEPTORS};
    set(m->server, stream, subject, wanted, queue, by,
        nats_weight_wanting(m->server, m->importer, wanted, queue, by, NULL));
    if (importer->remote == NULL || m->server->leaf_interest == 0) return;
    struct subject_entries *others = subjects_entries(importer->remote, wanted, queue);
    uint32_t seen = NATS_ACCEPTORS;
    for (uint32_t i = 0; others != NULL && i < others->count; i++) {
        const struct nats_remote *r = (const struct nats_remote *)(const void *)subject_entries_items(others)[i];
        by = nats_wanting_of(r);
        if (!nats_is_wanting(r) || (by.kind & seen) != 0) continue;
        if (by.kind != NATS_HUB_SERVERS) seen |= by.kind; /* all of them are weighed at once, however many */
        set(m->server, stream, subject, wanted, queue, by,
            nats_weight_wanting(m->server, m->importer, wanted, queue, by, NULL));
    }
}

static void make_each(void *context, struct subject_pattern *streams) {
    const struct making *m = context;
    for (uint32_t i = 0; i < streams->alone.count; i++)
        if (stream_in(streams, i)->exporter == m->exporter) make_one(m, stream_in(streams, i));
}

static void make_for(struct making *m, struct text wanted, struct text queue) {
    m->wanted = wanted;
    m->queue = queue;
    each_wanted(m->server, &m->server->accounts[m->importer], wanted, make_each, m);
}

static void make_of(void *context, struct subject_pattern *p) {
    if (p->alone.count > 0) make_for(context, text_of(p), (struct text){0});
    for (const struct subject_group *g = p->groups; g != NULL; g = g->next) make_for(context, text_of(p), queue_of(g));
}

void nats_shadows_make(struct nats_server *server, uint32_t exporter, uint32_t importer) {
    struct making m = {.server = server, .exporter = exporter, .importer = importer};
    const struct nats_account *account = &server->accounts[importer];
    subjects_each(account->subjects, make_of, &m);
    if (account->remote != NULL) subjects_each(account->remote, make_of, &m);
}

struct comparing {
    struct acceptor *a;
    struct nats_server *server;
    uint32_t account;
    const struct nats_shadows *before, *now;
    bool gone; /* tells only what is not wanted now */
};

static void compare(const struct comparing *c, struct text subject, struct text queue) {
    struct nats_shadows_weights now = nats_shadows_weigh(c->now, subject, queue);
    if (c->gone && now.clients + now.leaves + now.hubs > 0) return;
    nats_tell_shadows(c->a, c->server, c->account, subject, queue, nats_shadows_weigh(c->before, subject, queue));
}

static void compare_of(void *context, struct subject_pattern *p) {
    if (p->alone.count > 0) compare(context, text_of(p), (struct text){0});
    for (const struct subject_group *g = p->groups; g != NULL; g = g->next) compare(context, text_of(p), queue_of(g));
}

void nats_shadows_tell(struct acceptor *a, struct nats_server *server, uint32_t account,
                       const struct nats_shadows *before) {
    const struct nats_shadows *now = server->accounts[account].shadows;
    struct comparing c = {a, server, account, before, now, false};
    if (server->route_count == 0) return;
    if (now != NULL && now->subjects != NULL) subjects_each(now->subjects, compare_of, &c);
    c.gone = true;
    if (before != NULL && before->subjects != NULL) subjects_each(before->subjects, compare_of, &c);
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

struct subject_groups *nats_shadows_groups(const struct nats_account *account) {
    return subjects_groups(account->shadows->subjects);
}

/* A group that has no member any more, though no look has come here yet, must not be chosen. */
static void weigh_group(const struct nats_server *server, struct subject_group *g) {
    const struct text queue = queue_of(g);
    for (uint32_t i = 0; i < g->entries.count; i++) {
        struct subject_entry *entry = subject_entries_items(&g->entries)[i];
        const struct nats_shadow *s = nats_shadow_of(entry);
        const struct text wanted = {(const uint8_t *)s->wanted, s->bytes};
        if (s->by.kind != NATS_ACCEPTORS || entry->weight == 0) continue;
        if (nats_weight_wanting(server, s->share->account, wanted, queue, s->by, NULL) == 0) subjects_weigh(entry, 0);
    }
}

size_t nats_shadows_match(struct nats_server *server, const struct nats_account *account, struct text subject,
                          struct subject_pattern *const **patterns) {
    if (account->shadows->subjects == NULL) return 0;
    size_t count =
        subjects_match(account->shadows->subjects, server->awards->walk, subject.at, subject.bytes, patterns);
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        struct subject_group *g = (*patterns)[i]->groups;
        any = any || g != NULL;
        for (; g != NULL && server->looks.parting > 0; g = g->next) weigh_group(server, g);
    }
    return any ? count : 0;
}

/* Room for `wanted` of them; false when memory is short. */
static bool make_room(void **items, size_t *room, size_t wanted, size_t each) {
    if (wanted <= *room) return true;
    size_t more = wanted > 2 * *room ? wanted : 2 * *room;
    void *larger = realloc(*items, more * each);
    if (larger == NULL) return false;
    *items = larger;
    *room = more;
    return true;
}

static bool may_be_awarded(const struct nats_server *server, struct subject_entry *entry,
                           struct nats_candidates among) {
    const struct nats_wanting by = nats_shadow_of(entry)->by;
    if ((by.kind & among.kinds) == 0) return false;
    return by.origin == 0 || among.hub == 0 || nats_origins_differ(&server->origins, by.origin, among.hub);
}

/* The entry that holds the `nth` unit of what `among` may have of a name's weight; NULL and the whole weight in *nth if
 * there are not so many. */
static struct subject_entry *count_members(const struct nats_server *server, const struct subject_name *name,
                                           struct nats_candidates among, uint64_t *nth) {
    uint64_t passed = 0;
    for (struct subject_group *g = name->found; g != NULL; g = g->same) {
        for (uint32_t i = 0; i < g->entries.count; i++) {
            struct subject_entry *entry = subject_entries_items(&g->entries)[i];
            if (!may_be_awarded(server, entry, among)) continue;
            passed += entry->weight;
            if (passed > *nth) return entry;
        }
    }
    *nth = passed;
    return NULL;
}

uint64_t nats_shadows_members(const struct nats_server *server, const struct nats_account *account,
                              const struct subject_name *name, struct nats_candidates among) {
    if (account->shadows->outside == 0) return (among.kinds & NATS_ACCEPTORS) != 0 ? name->weight : 0;
    uint64_t count = UINT64_MAX;
    (void)count_members(server, name, among, &count);
    return count;
}

void nats_shadows_award(struct nats_server *server, const struct nats_account *account, const struct subject_name *name,
                        struct nats_candidates among) {
    struct nats_awards *w = server->awards;
    uint64_t nth = nats_random(server) % nats_shadows_members(server, account, name, among);
    struct subject_entry *chosen =
        account->shadows->outside == 0 ? subject_name_pick(name, nth) : count_members(server, name, among, &nth);
    if (!make_room((void **)&w->items, &w->room, w->count + 1, sizeof *w->items)) return;
    if (!make_room((void **)&w->texts, &w->texts_room, w->texts_bytes + name->bytes, 1)) return;
    memcpy(w->texts + w->texts_bytes, name->text, name->bytes);
    w->items[w->count++] = (struct award){nats_shadow_of(chosen)->share, w->texts_bytes, name->bytes};
    w->texts_bytes += name->bytes;
}

struct text *nats_shadows_names(struct nats_server *server, size_t count) {
    struct nats_awards *w = server->awards;
    return make_room((void **)&w->names, &w->names_room, count, sizeof *w->names) ? w->names : NULL;
}

size_t nats_shadows_awarded(struct nats_server *server, const struct nats_share *share, const struct text **names) {
    struct nats_awards *w = server->awards;
    struct text *found = w->count > 0 ? nats_shadows_names(server, w->count) : NULL;
    size_t count = 0;
    for (size_t i = 0; found != NULL && i < w->count; i++) {
        if (w->items[i].share != share) continue;
        found[count++] = (struct text){w->texts + w->items[i].at, w->items[i].bytes};
        w->items[i].share = NULL;
    }
    *names = found;
    return count;
}

void nats_shadows_arrived(struct nats_server *server) {
    if (server->awards == NULL) return;
    server->awards->count = server->awards->texts_bytes = 0;
}

#include "acceptor/protocols/nats/nats_shadows.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_remote.h"
#include "acceptor/protocols/nats/nats_route_interest.h"
#include "acceptor/protocols/nats/nats_transform.h"

/* One pattern of an importing account. Its weight is how often that is wanted there. */
struct nats_shadow {
    struct subject_entry entry; /* first */
    struct nats_shadow *next, *previous;
    const struct nats_share *share;
    size_t bytes;
    char wanted[]; /* the pattern in the importing account */
};

struct award {
    const struct nats_share *share; /* NULL: it was taken */
    size_t at, bytes;               /* the group's name, in `texts` */
};

struct nats_awards {
    struct subject_walk *walk;
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
    if (awards != NULL) awards->walk = subject_walk_new();
    if (awards == NULL || awards->walk == NULL) {
        free(awards);
        return false;
    }
    server->awards = awards;
    return true;
}

/* --- making ------------------------------------------------------------------------------------------------------- */

static struct nats_shadow *shadow_of(struct subject_entry *entry) {
    return (struct nats_shadow *)(void *)entry;
}

static struct nats_shadow *find(const struct nats_shadows *shadows, const struct nats_share *share, struct text subject,
                                struct text queue, struct text wanted) {
    struct subject_entries *entries = subjects_entries(shadows->subjects, subject, queue);
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++) {
        struct nats_shadow *s = shadow_of(subject_entries_items(entries)[i]);
        if (s->share == share && s->bytes == wanted.bytes && memcmp(s->wanted, wanted.at, s->bytes) == 0) return s;
    }
    return NULL;
}

static void add(struct nats_server *server, struct nats_shadows *shadows, const struct nats_share *share,
                struct text subject, struct text queue, struct text wanted, uint32_t weight) {
    struct nats_shadow *s = calloc(1, sizeof *s + wanted.bytes);
    bool first;
    if (shadows->subjects == NULL) shadows->subjects = subjects_new(server->key);
    if (s == NULL || shadows->subjects == NULL) abort();
    s->entry.weight = weight;
    s->share = share;
    s->bytes = wanted.bytes;
    memcpy(s->wanted, wanted.at, wanted.bytes);
    if (!subjects_add(shadows->subjects, &s->entry, subject.at, subject.bytes, queue.at, queue.bytes, &first)) abort();
    s->next = shadows->first;
    if (s->next != NULL) s->next->previous = s;
    shadows->first = s;
}

static void remove_shadow(struct nats_shadows *shadows, struct nats_shadow *s) {
    subjects_remove(shadows->subjects, &s->entry);
    *(s->previous != NULL ? &s->previous->next : &shadows->first) = s->next;
    if (s->next != NULL) s->next->previous = s->previous;
    free(s);
}

static void unlink_stream(struct nats_server *server, const struct nats_stream *s) {
    struct nats_stream **at = &server->accounts[s->importer].importing;
    while (*at != NULL && *at != s) at = &(*at)->next_importing;
    if (*at != NULL) *at = s->next_importing;
}

void nats_shadows_free(struct nats_server *server, struct nats_shadows *shadows) {
    if (shadows == NULL) return;
    while (shadows->first != NULL) remove_shadow(shadows, shadows->first);
    for (struct nats_stream *s = shadows->streams, *next; s != NULL; s = next) {
        next = s->next;
        unlink_stream(server, s);
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
                struct text queue, uint64_t weight) {
    struct nats_shadows *shadows = server->accounts[stream->exporter].shadows;
    struct nats_shadow *s = find(shadows, stream->share, subject, queue, wanted);
    uint32_t now = weight < UINT32_MAX ? (uint32_t)weight : UINT32_MAX;
    if (s != NULL ? s->entry.weight == now : now == 0) return false;
    if (s == NULL)
        add(server, shadows, stream->share, subject, queue, wanted, now);
    else if (now > 0)
        subjects_weigh(&s->entry, now);
    else
        remove_shadow(shadows, s);
    return true;
}

/* Answers to requests from other accounts are this server's own. */
static bool is_answers(struct text subject) {
    return subject.bytes > 4 && memcmp(subject.at, "_R_.", 4) == 0;
}

static void tell(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                 struct text queue, uint64_t before, uint64_t now) {
    if (server->route_count == 0 || (queue.bytes == 0 ? (before > 0) == (now > 0) : before == now)) return;
    nats_tell_servers(a, server, account, subject, queue, now);
}

void nats_shadows_look(struct acceptor *a, struct nats_server *server, uint32_t account, struct text wanted,
                       struct text queue, uint64_t weight) {
    const struct nats_stream *stream = is_answers(wanted) ? NULL : server->accounts[account].importing;
    for (; stream != NULL; stream = stream->next_importing) {
        const struct nats_shadows *shadows = server->accounts[stream->exporter].shadows;
        const struct text subject = pattern_of(server, stream, wanted);
        if (subject.bytes == 0) continue;
        uint64_t before = nats_shadows_weight(shadows, subject, queue);
        if (set(server, stream, subject, wanted, queue, weight))
            tell(a, server, stream->exporter, subject, queue, before, nats_shadows_weight(shadows, subject, queue));
    }
}

static struct text text_of(const struct subject_pattern *p) {
    return (struct text){(const uint8_t *)p->text, p->bytes};
}

static struct text queue_of(const struct subject_group *g) {
    return g != NULL ? (struct text){(const uint8_t *)g->name->text, g->name->bytes} : (struct text){0};
}

void nats_shadows_hear(struct acceptor *a, struct nats_server *server, const struct nats_remote *r, uint32_t weight) {
    struct text subject = text_of(r->entry.pattern), queue = queue_of(r->entry.group);
    bool is_near = (nats_kind_of(r) & (NATS_ACCEPTORS | NATS_LEAF_NODES)) != 0;
    if (server->accounts[r->account].importing == NULL || !is_near) return;
    nats_shadows_look(a, server, r->account, subject, queue,
                      nats_weight_near(server, r->account, subject, queue, r) + weight);
}

/* --- making anew -------------------------------------------------------------------------------------------------- */

struct making {
    struct nats_server *server;
    const struct nats_stream *stream;
};

static void make_one(const struct making *m, struct text wanted, struct text queue) {
    const struct text subject = is_answers(wanted) ? (struct text){0} : pattern_of(m->server, m->stream, wanted);
    if (subject.bytes == 0) return;
    uint64_t weight = nats_weight_near(m->server, m->stream->importer, wanted, queue, NULL);
    set(m->server, m->stream, subject, wanted, queue, weight);
}

static void make_of(void *context, struct subject_pattern *p) {
    if (p->alone.count > 0) make_one(context, text_of(p), (struct text){0});
    for (const struct subject_group *g = p->groups; g != NULL; g = g->next) make_one(context, text_of(p), queue_of(g));
}

void nats_shadows_make(struct nats_server *server, const struct nats_stream *stream) {
    struct making m = {server, stream};
    const struct nats_account *importer = &server->accounts[stream->importer];
    subjects_each(importer->subjects, make_of, &m);
    if (importer->remote != NULL) subjects_each(importer->remote, make_of, &m);
}

struct comparing {
    struct acceptor *a;
    struct nats_server *server;
    uint32_t account;
    const struct nats_shadows *before, *now;
    bool gone; /* tells only what is not wanted now */
};

static void compare(const struct comparing *c, struct text subject, struct text queue) {
    uint64_t before = nats_shadows_weight(c->before, subject, queue), now = nats_shadows_weight(c->now, subject, queue);
    if (!c->gone || now == 0) tell(c->a, c->server, c->account, subject, queue, before, now);
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

size_t nats_shadows_match(struct nats_server *server, const struct nats_account *account, struct text subject,
                          struct subject_pattern *const **patterns) {
    if (account->shadows->subjects == NULL) return 0;
    size_t count =
        subjects_match(account->shadows->subjects, server->awards->walk, subject.at, subject.bytes, patterns);
    for (size_t i = 0; i < count; i++)
        if ((*patterns)[i]->groups != NULL) return count;
    return 0;
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

void nats_shadows_award(struct nats_server *server, const struct subject_name *name) {
    struct nats_awards *w = server->awards;
    struct subject_entry *chosen = subject_name_pick(name, nats_random(server) % name->weight);
    if (!make_room((void **)&w->items, &w->room, w->count + 1, sizeof *w->items)) return;
    if (!make_room((void **)&w->texts, &w->texts_room, w->texts_bytes + name->bytes, 1)) return;
    memcpy(w->texts + w->texts_bytes, name->text, name->bytes);
    w->items[w->count++] = (struct award){shadow_of(chosen)->share, w->texts_bytes, name->bytes};
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

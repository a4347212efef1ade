#include "acceptor/protocols/nats/nats_shares.h"

#include <stdlib.h>

#include "acceptor/protocols/go_quote.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_answers.h"
#include "acceptor/protocols/nats/nats_asker.h"
#include "acceptor/protocols/nats/nats_latency.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "acceptor/protocols/nats/nats_transform.h"
#include "base/decimal.h"

enum { FREED_AT_ONCE = 1024 };

struct nats_destination {
    struct nats_destination *next;
    struct nats_transform *to;
    uint64_t below;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static void free_share(struct acceptor *a, struct nats_server *server, struct nats_share *s) {
    if (a != NULL && s->account != 0) nats_account_drop(a, server, s->account);
    for (struct nats_destination *d = s->destinations, *next; d != NULL; d = next) {
        next = d->next;
        nats_transform_free(d->to);
        free(d);
    }
    nats_latency_drop(s->latency);
    free(s);
}

/* Frees the first of them, or what is left without any. Returns what is to be freed next. `a` NULL: the acceptor
 * ends. */
static struct nats_shares *free_some(struct acceptor *a, struct nats_server *server, struct nats_shares *shares) {
    struct nats_share *s = shares->first;
    if (s != NULL) {
        shares->first = s->next;
        if (s->entry.pattern != NULL) subjects_remove(s->kind == 'm' ? shares->mappings : shares->imports, &s->entry);
        free_share(a, server, s);
        return shares;
    }
    struct nats_shares *next = shares->next;
    subjects_free(shares->mappings);
    subjects_free(shares->imports);
    free(shares);
    return next;
}

static void let_go(struct acceptor *a, struct nats_server *server, struct nats_shares *shares) {
    if (shares == NULL) return;
    shares->next = server->old_shares;
    server->old_shares = shares;
    codec_left(a, server->protocol);
}

void nats_shares_go_on(struct acceptor *a, struct nats_server *server) {
    for (size_t left = FREED_AT_ONCE; left > 0 && server->old_shares != NULL; left--)
        server->old_shares = free_some(a, server, server->old_shares);
    if (server->old_shares != NULL) codec_left(a, server->protocol);
}

static void free_all(struct nats_server *server, struct nats_shares *shares) {
    while (shares != NULL) shares = free_some(NULL, server, shares);
}

void nats_shares_close(struct nats_server *server) {
    for (uint32_t i = 1; i < server->account_count; i++) free_all(server, server->accounts[i].shares);
    free_all(server, server->making);
    free_all(server, server->old_shares);
}

static struct text next_word(const uint8_t **at, const uint8_t *end) {
    while (*at < end && **at == ' ') ++*at;
    const uint8_t *begin = *at;
    while (*at < end && **at != ' ') ++*at;
    return (struct text){begin, (size_t)(*at - begin)};
}

static bool next_number(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    struct text word = next_word(at, end);
    const uint8_t *digits = word.at;
    return decimal_get(&digits, word.at + word.bytes, INT64_MAX, value) && digits == word.at + word.bytes;
}

static bool add_destination(struct nats_share *s, uint64_t below, const uint8_t *at, const uint8_t *end) {
    while (at < end && *at == ' ') at++;
    struct nats_destination *d = calloc(1, sizeof *d);
    if (d == NULL) return false;
    d->below = below;
    d->to = nats_transform_new(at, (size_t)(end - at));
    struct nats_destination **last = &s->destinations;
    while (*last != NULL) last = &(*last)->next;
    *last = d;
    return d->to != NULL;
}

static bool place(struct nats_shares *shares, struct siphash_key key, struct nats_share *s, struct text pattern) {
    struct subjects **in = s->kind == 'm' ? &shares->mappings : &shares->imports;
    bool first;
    if (!subject_pattern_is_valid(pattern.at, pattern.bytes)) return false;
    if (*in == NULL && (*in = subjects_new(key)) == NULL) return false;
    return subjects_add(*in, &s->entry, pattern.at, pattern.bytes, NULL, 0, &first);
}

static bool read_latency(struct nats_share *s, const uint8_t **at, const uint8_t *end) {
    uint64_t percent;
    const uint8_t *begin = *at;
    struct text word = next_word(at, end);
    if (word.bytes == 1 && word.at[0] == '-') return true;
    *at = begin;
    if (!next_number(at, end, &percent)) return false;
    s->latency = nats_latency_new(percent, next_word(at, end));
    return s->latency != NULL;
}

/* Parses the rest of a line behind its first word. */
static bool read_import(struct nats_server *server, struct nats_share *s, const uint8_t **at, const uint8_t *end) {
    uint64_t account, single = 0, shared = 0, traced = 0;
    if (!next_number(at, end, &account) || account == 0 || account >= server->account_count) return false;
    if (server->accounts[account].subjects == NULL) return false;
    s->account = (uint32_t)account;
    nats_account_hold(server, s->account);
    if (!next_number(at, end, &traced)) return false;
    s->traced = traced != 0;
    if (s->kind == 't') return true;
    bool good = next_number(at, end, &single) && next_number(at, end, &s->lifetime_ns) && next_number(at, end, &shared);
    s->single = single != 0;
    s->shared = shared != 0;
    return good && read_latency(s, at, end);
}

static bool read_line(struct nats_server *server, struct nats_shares *shares, const uint8_t *at, const uint8_t *end) {
    struct text word = next_word(&at, end);
    uint64_t below;
    if (word.bytes != 1 || strchr("dmtv", word.at[0]) == NULL) return false;
    if (word.at[0] == 'd')
        return shares->last != NULL && next_number(&at, end, &below) && add_destination(shares->last, below, at, end);
    struct nats_share *s = calloc(1, sizeof *s);
    if (s == NULL) return false;
    s->entry.weight = 1;
    s->kind = word.at[0];
    s->order = shares->count++;
    if (shares->last != NULL)
        shares->last->next = s;
    else
        shares->first = s;
    shares->last = s;
    if (s->kind != 'm' && !read_import(server, s, &at, end)) return false;
    struct text pattern = next_word(&at, end);
    return place(shares, server->key, s, pattern) && (s->kind == 'm' || add_destination(s, 100, at, end));
}

static void forget_making(struct acceptor *a, struct nats_server *server) {
    let_go(a, server, server->making);
    server->making = NULL;
}

bool nats_shares_add(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                     size_t bytes) {
    if (account == 0 || account >= server->account_count || server->accounts[account].subjects == NULL) return false;
    if (server->making_for != account) forget_making(a, server);
    server->making_for = account;
    if (bytes > 0 && server->making == NULL) server->making = calloc(1, sizeof *server->making);
    struct nats_shares *shares = server->making;
    if (bytes > 0 && shares == NULL) return false;
    for (size_t at = 0; at < bytes;) {
        const uint8_t *newline = memchr(text + at, '\n', bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - text) : bytes;
        bool good = read_line(server, shares, text + at, text + end);
        if (good && shares->last->kind == 'v') good = nats_answers_open(a, server, shares->last->account);
        if (good && shares->last->latency != NULL) good = nats_latency_open(server);
        if (!good) {
            forget_making(a, server);
            return false;
        }
        at = end + 1;
    }
    return true;
}

bool nats_shares_make(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                      size_t bytes) {
    if (!nats_shares_add(a, server, account, text, bytes)) return false;
    let_go(a, server, server->accounts[account].shares);
    server->accounts[account].shares = server->making;
    server->making = NULL;
    if (server->accounts[account].shares == NULL) nats_account_look(a, server, account);
    return true;
}

/* --- mapping ------------------------------------------------------------------------------------------------------ */

static const struct nats_share *share_of(struct subject_entry *entry) {
    return (const struct nats_share *)(const void *)entry;
}

/* Of the mappings that match, the one written first. */
static const struct nats_share *mapping_of(struct nats_server *server, const struct nats_shares *shares,
                                           struct text subject) {
    const struct nats_share *found = NULL;
    struct subject_pattern *const *patterns;
    if (shares->mappings == NULL) return NULL;
    size_t count = subjects_match(shares->mappings, server->walk, subject.at, subject.bytes, &patterns);
    for (size_t i = 0; i < count; i++) {
        const struct nats_share *s = share_of(subject_entries_items(&patterns[i]->alone)[0]);
        if (found == NULL || s->order < found->order) found = s;
    }
    return found;
}

struct text nats_map(struct nats_server *server, const struct nats_shares *shares, struct text subject, uint8_t *room) {
    const struct nats_share *s = mapping_of(server, shares, subject);
    if (s == NULL) return subject;
    uint64_t random = nats_random(server), chosen = random % 100;
    for (const struct nats_destination *d = s->destinations; d != NULL; d = d->next) {
        if (chosen >= d->below) continue;
        size_t bytes = nats_transform_apply(d->to, subject, random / 100, room, NATS_MAX_CONTROL_LINE);
        return (struct text){room, bytes};
    }
    return (struct text){room, 0};
}

/* --- imports ------------------------------------------------------------------------------------------------------ */

static const char INFO[] = "Nats-Request-Info:";

/* Room for the header that names the requestor. */
static size_t info_bytes(const struct nats_server *server, const struct nats_asker *asker) {
    return NATS_FIRST_LINE_BYTES + sizeof INFO + 1 + nats_asker_bytes(server, asker);
}

/* Writes a request with a header that names the requestor. */
static uint8_t *put_asked(const struct nats_server *server, const struct nats_asker *asker, bool shared,
                          struct nats_message *m, uint8_t *out) {
    uint8_t *payload = out;
    out = nats_put(nats_put_headers(m, INFO, out), INFO, sizeof INFO - 1);
    *out++ = ' ';
    out = nats_put(nats_put_asker(server, asker, shared, out), "\r\n\r\n", 4);
    return nats_put_body_behind(m, payload, out);
}

/* The subject under which a message is imported; empty when there is none. */
static struct text import_subject(struct nats_server *server, const struct nats_share *s, struct text subject) {
    uint8_t *room = server->subjects_made[0];
    struct text made = {room, nats_transform_apply(s->destinations->to, subject, 0, room, NATS_MAX_CONTROL_LINE)};
    const struct nats_shares *there = server->accounts[s->account].shares;
    if (made.bytes == 0 || s->kind == 't' || there == NULL) return made;
    return nats_map(server, there, made, server->subjects_made[1]);
}

/* Begins to measure a request, if it is to be. */
static uint32_t begin_to_measure(struct acceptor *a, struct nats_server *server, const struct nats_share *s,
                                 const struct connection *asker, const struct nats_message *m) {
    const struct nats_measured request = {.latency = s->latency,
                                          .asker = asker,
                                          .exporter = s->account,
                                          .shared = s->shared,
                                          .lifetime_ns = s->lifetime_ns,
                                          .message = m};
    return nats_latency_begin(a, server, &request);
}

/* Expects the answers of a request, which perhaps is measured. Returns the subject for them; empty when that fails. */
static struct text expect(struct acceptor *a, struct nats_server *server, struct nats_expected *expected,
                          uint8_t *room) {
    const struct text subject = nats_answer_expect(a, server, expected, room);
    if (expected->measured != 0 && subject.bytes > 0)
        nats_latency_await(server, expected->measured, expected->slot, expected->token);
    else if (expected->measured != 0)
        nats_latency_cancel(server, expected->measured);
    return subject;
}

bool nats_share_apply(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_asker *asker,
                      const struct nats_share *s, struct nats_message *m, struct nats_room *room, uint32_t *measured) {
    struct text subject = import_subject(server, s, m->subject);
    bool is_asked = s->kind == 'v' && asker->connection != NULL;
    size_t most = subject.bytes + NATS_ANSWER_BYTES;
    *measured = 0;
    if (subject.bytes == 0) return false;
    if (is_asked) most += m->payload_bytes + info_bytes(server, asker) + 2 * DECIMAL_MAX_BYTES;
    uint8_t *out = nats_room_for(room, most);
    if (out == NULL) return false;
    m->subject = (struct text){out, subject.bytes};
    out = nats_put(out, subject.at, subject.bytes);
    if (s->kind == 't') return true;
    if (s->latency != NULL) *measured = begin_to_measure(a, server, s, asker->connection, m);
    struct nats_expected expected = {.account = account,
                                     .reply = m->reply,
                                     .single = s->single,
                                     .lifetime_ns = s->lifetime_ns,
                                     .measured = *measured};
    if (m->reply.bytes > 0) m->reply = expect(a, server, &expected, out);
    if (is_asked) put_asked(server, asker, s->shared, m, out + NATS_ANSWER_BYTES);
    return true;
}

static bool is_wanted(const struct nats_share *share, enum nats_imports wanted) {
    return wanted == NATS_IMPORTS_ALL || nats_share_is_stream(share) == (wanted == NATS_IMPORTS_STREAMS);
}

uint16_t nats_imports_of(struct nats_server *server, uint32_t account, struct text subject, enum nats_imports wanted,
                         const struct nats_share **imports) {
    const struct nats_shares *shares = server->accounts[account].shares;
    struct subject_pattern *const *patterns;
    uint16_t found = 0;
    if (shares == NULL || shares->imports == NULL) return 0;
    size_t count = subjects_match(shares->imports, server->walk, subject.at, subject.bytes, &patterns);
    for (size_t i = 0; i < count; i++) {
        struct subject_entry **items = subject_entries_items(&patterns[i]->alone);
        for (uint32_t n = 0; n < patterns[i]->alone.count && found < NATS_MAX_IMPORTED; n++)
            if (is_wanted(share_of(items[n]), wanted)) imports[found++] = share_of(items[n]);
    }
    return found;
}

const struct nats_share *nats_shares_first(const struct nats_shares *shares) {
    return shares != NULL ? shares->first : NULL;
}

const struct nats_share *nats_share_next(const struct nats_share *share) {
    return share->next;
}

const struct nats_share *nats_share_stream(const struct nats_share *share) {
    while (share != NULL && share->kind != 't') share = share->next;
    return share;
}

struct nats_stream nats_stream_of(const struct nats_share *s) {
    struct text pattern = {(const uint8_t *)s->entry.pattern->text, s->entry.pattern->bytes};
    return (struct nats_stream){.share = s, .to = s->destinations->to, .pattern = pattern, .importer = s->account};
}

uint32_t nats_share_account(const struct nats_share *share) {
    return share->account;
}

bool nats_share_is_traced(const struct nats_share *share) {
    return share->traced;
}

bool nats_share_is_stream(const struct nats_share *share) {
    return share->kind == 't';
}

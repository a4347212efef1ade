#include "acceptor/protocols/nats_shares.h"

#include <stdlib.h>

#include "acceptor/protocols/go_quote.h"
#include "acceptor/protocols/nats_transform.h"
#include "base/decimal.h"

struct destination {
    struct destination *next;
    struct nats_transform *to;
    uint64_t below;
};

struct share {
    struct subject_entry entry; /* first */
    struct share *next;
    struct destination *destinations; /* of an import there is one */
    uint32_t account;                 /* that imports it, or has the service */
    uint32_t order;
    uint8_t kind; /* 'm', 't', 'v' */
    bool once, shared;
    uint64_t lifetime_ns;
};

struct nats_shares {
    struct subjects *mappings, *imports; /* NULL: there are none */
    struct share *first, *last;
    uint32_t count;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static void free_share(struct share *s) {
    for (struct destination *d = s->destinations, *next; d != NULL; d = next) {
        next = d->next;
        nats_transform_free(d->to);
        free(d);
    }
    free(s);
}

void nats_shares_free(struct nats_shares *shares) {
    if (shares == NULL) return;
    for (struct share *s = shares->first, *next; s != NULL; s = next) {
        next = s->next;
        if (s->entry.pattern != NULL) subjects_remove(s->kind == 'm' ? shares->mappings : shares->imports, &s->entry);
        free_share(s);
    }
    subjects_free(shares->mappings);
    subjects_free(shares->imports);
    free(shares);
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

static bool add_destination(struct share *s, uint64_t below, const uint8_t *at, const uint8_t *end) {
    while (at < end && *at == ' ') at++;
    struct destination *d = calloc(1, sizeof *d);
    if (d == NULL) return false;
    d->below = below;
    d->to = nats_transform_new(at, (size_t)(end - at));
    struct destination **last = &s->destinations;
    while (*last != NULL) last = &(*last)->next;
    *last = d;
    return d->to != NULL;
}

static bool place(struct nats_shares *shares, struct siphash_key key, struct share *s, struct text pattern) {
    struct subjects **in = s->kind == 'm' ? &shares->mappings : &shares->imports;
    bool first;
    if (!subject_pattern_is_valid(pattern.at, pattern.bytes)) return false;
    if (*in == NULL && (*in = subjects_new(key)) == NULL) return false;
    return subjects_add(*in, &s->entry, pattern.at, pattern.bytes, NULL, 0, &first);
}

/* Of a line, what stands behind its first word. */
static bool read_import(const struct nats_server *server, struct share *s, const uint8_t **at, const uint8_t *end) {
    uint64_t account, once = 0, shared = 0;
    if (!next_number(at, end, &account) || account == 0 || account >= server->account_count) return false;
    s->account = (uint32_t)account;
    if (s->kind == 't') return true;
    bool good = next_number(at, end, &once) && next_number(at, end, &s->lifetime_ns) && next_number(at, end, &shared);
    s->once = once != 0;
    s->shared = shared != 0;
    return good;
}

static bool read_line(const struct nats_server *server, struct nats_shares *shares, const uint8_t *at,
                      const uint8_t *end) {
    struct text word = next_word(&at, end);
    uint64_t below;
    if (word.bytes != 1 || strchr("dmtv", word.at[0]) == NULL) return false;
    if (word.at[0] == 'd')
        return shares->last != NULL && next_number(&at, end, &below) && add_destination(shares->last, below, at, end);
    struct share *s = calloc(1, sizeof *s);
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

bool nats_shares_make(struct acceptor *a, struct nats_server *server, uint32_t account, const uint8_t *text,
                      size_t bytes) {
    if (account == 0 || account >= server->account_count) return false;
    struct nats_shares *shares = bytes > 0 ? calloc(1, sizeof *shares) : NULL;
    if (bytes > 0 && shares == NULL) return false;
    for (size_t at = 0; at < bytes;) {
        const uint8_t *newline = memchr(text + at, '\n', bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - text) : bytes;
        bool good = read_line(server, shares, text + at, text + end);
        if (good && shares->last->kind == 'v') good = nats_answers_open(a, server, shares->last->account);
        if (!good) {
            nats_shares_free(shares);
            return false;
        }
        at = end + 1;
    }
    nats_shares_free(server->accounts[account].shares);
    server->accounts[account].shares = shares;
    return true;
}

/* --- mapping ------------------------------------------------------------------------------------------------------ */

static const struct share *share_of(struct subject_entry *entry) {
    return (const struct share *)(const void *)entry;
}

/* The first that was written of those that match. */
static const struct share *mapping_of(struct nats_server *server, const struct nats_shares *shares,
                                      struct text subject) {
    const struct share *found = NULL;
    struct subject_pattern *const *patterns;
    if (shares->mappings == NULL) return NULL;
    size_t count = subjects_match(shares->mappings, server->walk, subject.at, subject.bytes, &patterns);
    for (size_t i = 0; i < count; i++) {
        const struct share *s = share_of(subject_entries_items(&patterns[i]->alone)[0]);
        if (found == NULL || s->order < found->order) found = s;
    }
    return found;
}

struct text nats_map(struct nats_server *server, const struct nats_shares *shares, struct text subject, uint8_t *room) {
    const struct share *s = mapping_of(server, shares, subject);
    if (s == NULL) return subject;
    uint64_t random = nats_random(server), chosen = random % 100;
    for (const struct destination *d = s->destinations; d != NULL; d = d->next) {
        if (chosen >= d->below) continue;
        size_t bytes = nats_transform_apply(d->to, subject, random / 100, room, NATS_MAX_CONTROL_LINE);
        return (struct text){room, bytes};
    }
    return (struct text){room, 0};
}

/* --- handing on --------------------------------------------------------------------------------------------------- */

static const char INFO[] = "Nats-Request-Info: ", FIRST_LINE[] = "NATS/1.0\r\n";

static uint8_t *put(uint8_t *out, const void *text, size_t bytes) {
    memcpy(out, text, bytes);
    return out + bytes;
}

static uint8_t *put_name(uint8_t *out, const char *key, const struct nats_account *account) {
    out = put(out, key, strlen(key));
    return go_quote(out, (const uint8_t *)account->name, account->name_bytes);
}

/* Who asks. */
struct asker {
    const struct connection *connection;
    const struct nats_account *service; /* whose service asks in its stead; NULL: it asks itself */
    bool shared;                        /* all may be said of it */
};

/* {"acc":"NAME","svc":"NAME","rtt":N}, or more: Python has prepared what stands around the time. */
static uint8_t *put_info(const struct nats_server *server, const struct asker *asker, uint8_t *out) {
    const struct nats *n = nats_of(asker->connection);
    const uint8_t *info = n->info, *end = info + n->info_bytes, *middle = NULL;
    if (asker->shared && info != NULL) middle = memchr(info, '\n', n->info_bytes);
    if (middle != NULL)
        out = put(out, info, (size_t)(middle - info));
    else
        out = put_name(out, "{\"acc\":", &server->accounts[n->account]);
    if (asker->service != NULL) out = put_name(out, ",\"svc\":", asker->service);
    if (n->rtt_ns > 0) out = decimal_put(put(out, ",\"rtt\":", 7), n->rtt_ns);
    return middle != NULL ? put(out, middle + 1, (size_t)(end - middle - 1)) : put(out, "}", 1);
}

/* The headers as they were, without a line of that name. */
static uint8_t *put_headers(const struct nats_message *m, uint8_t *out) {
    const uint8_t *at = m->payload, *end = m->payload + m->header_bytes - 2;
    if (m->header_bytes < sizeof FIRST_LINE + 1) return put(out, FIRST_LINE, sizeof FIRST_LINE - 1);
    while (at < end) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
        const uint8_t *next = newline != NULL ? newline + 1 : end;
        bool is_info = (size_t)(next - at) >= sizeof INFO - 2 && memcmp(at, INFO, sizeof INFO - 2) == 0;
        if (!is_info) out = put(out, at, (size_t)(next - at));
        at = next;
    }
    return out;
}

static uint8_t *scratch_of(struct nats_server *server, uint32_t depth, size_t bytes) {
    uint32_t i = depth % 2;
    if (bytes <= server->scratch[i].bytes) return server->scratch[i].at;
    uint8_t *larger = realloc(server->scratch[i].at, bytes);
    if (larger == NULL) return NULL;
    server->scratch[i].at = larger;
    server->scratch[i].bytes = bytes;
    return larger;
}

/* A request, with a header that says who asks; `sizes` has room for two numbers. False when memory is short. */
static bool with_info(struct nats_server *server, const struct asker *asker, uint32_t depth, struct nats_message *m,
                      uint8_t (*sizes)[24]) {
    size_t most = m->payload_bytes + sizeof FIRST_LINE + sizeof INFO + nats_of(asker->connection)->info_bytes +
                  2 * QUOTED_BYTES(NATS_MAX_ACCOUNT_BYTES) + 64;
    uint8_t *room = scratch_of(server, depth, most), *out;
    if (room == NULL) return false;
    out = put(put_headers(m, room), INFO, sizeof INFO - 1);
    out = put(put_info(server, asker, out), "\r\n\r\n", 4);
    size_t header_bytes = (size_t)(out - room);
    out = put(out, m->payload + m->header_bytes, m->payload_bytes - m->header_bytes);
    m->payload = room;
    m->payload_bytes = (size_t)(out - room);
    m->header_bytes = header_bytes;
    m->header_size = (struct text){sizes[0], (size_t)(decimal_put(sizes[0], m->header_bytes) - sizes[0])};
    m->size = (struct text){sizes[1], (size_t)(decimal_put(sizes[1], m->payload_bytes) - sizes[1])};
    return true;
}

static bool hand_to(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *asker,
                    const struct nats_message *message, const struct share *s, uint32_t depth) {
    uint8_t subject[NATS_MAX_CONTROL_LINE], mapped[NATS_MAX_CONTROL_LINE], reply[NATS_ANSWER_BYTES], sizes[2][24];
    struct nats_message m = *message;
    m.subject.bytes = nats_transform_apply(s->destinations->to, message->subject, 0, subject, sizeof subject);
    m.subject.at = subject;
    if (m.subject.bytes == 0) return false;
    if (s->kind == 't') return nats_deliver_in(a, server, s->account, NULL, asker, &m, NATS_MAX_CHAIN);
    const struct nats_shares *there = server->accounts[s->account].shares;
    if (there != NULL) m.subject = nats_map(server, there, m.subject, mapped);
    if (m.reply.bytes > 0) m.reply = nats_answer_expect(a, server, account, m.reply, s->once, s->lifetime_ns, reply);
    const struct asker who = {asker, depth > 0 ? &server->accounts[account] : NULL, s->shared};
    if (asker != NULL && !with_info(server, &who, depth, &m, sizes)) return false;
    return nats_deliver_in(a, server, s->account, NULL, asker, &m, depth + 1);
}

bool nats_hand_on(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *asker,
                  const struct nats_message *message, uint32_t depth) {
    const struct nats_shares *shares = server->accounts[account].shares;
    const struct share *found[NATS_MAX_IMPORTED];
    struct subject_pattern *const *patterns;
    size_t matching = 0;
    bool any = false;
    if (shares == NULL || shares->imports == NULL || depth >= NATS_MAX_CHAIN) return false;
    size_t count =
        subjects_match(shares->imports, server->walk, message->subject.at, message->subject.bytes, &patterns);
    for (size_t i = 0; i < count; i++) {
        struct subject_entry **items = subject_entries_items(&patterns[i]->alone);
        for (uint32_t n = 0; n < patterns[i]->alone.count && matching < NATS_MAX_IMPORTED; n++)
            found[matching++] = share_of(items[n]);
    }
    for (size_t i = 0; i < matching; i++)
        if (hand_to(a, server, account, asker, message, found[i], depth)) any = true;
    return any;
}

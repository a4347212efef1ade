#include "acceptor/protocols/nats/nats_permissions.h"

#include <assert.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "base/subject_groups.h"

enum nats_asked { ASKED_PUBLISH = 1, ASKED_HAVE };

/* A set of patterns, and its entries. */
struct patterns {
    struct subjects *subjects; /* NULL: there are none */
    struct subject_entry *entries;
    uint32_t count, capacity;
    bool has_queues;
};

struct nats_permissions {
    uint64_t id;
    uint32_t references;
    bool publish_is_limited; /* publishing is limited to allowed subjects, even if there are none */
    bool replies;
    uint64_t max_replies, reply_lifetime_ns;
    struct patterns publish_allow, publish_deny, subscribe_allow, subscribe_deny;
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static void patterns_close(struct patterns *p) {
    for (uint32_t i = 0; i < p->count; i++) subjects_remove(p->subjects, &p->entries[i]);
    subjects_free(p->subjects);
    free(p->entries);
}

static void set_free(struct nats_permissions *set) {
    patterns_close(&set->publish_allow);
    patterns_close(&set->publish_deny);
    patterns_close(&set->subscribe_allow);
    patterns_close(&set->subscribe_deny);
    free(set);
}

static bool patterns_add(struct patterns *p, struct siphash_key key, struct text pattern, struct text queue) {
    bool first;
    if (p->subjects == NULL && (p->subjects = subjects_new_small(key)) == NULL) return false;
    assert(p->count < p->capacity);
    p->entries[p->count].weight = 1;
    if (!subjects_add(p->subjects, &p->entries[p->count], pattern.at, pattern.bytes, queue.at, queue.bytes, &first))
        return false;
    p->count++;
    if (queue.bytes > 0) p->has_queues = true;
    return true;
}

static struct text next_word(const uint8_t **at, const uint8_t *end) {
    while (*at < end && **at == ' ') ++*at;
    const uint8_t *begin = *at;
    while (*at < end && **at != ' ' && **at != '\n') ++*at;
    return (struct text){begin, (size_t)(*at - begin)};
}

static bool is(struct text word, const char *name) {
    return word.bytes == strlen(name) && memcmp(word.at, name, word.bytes) == 0;
}

static struct patterns *patterns_for(struct nats_permissions *set, struct text word) {
    if (is(word, "pa")) return &set->publish_allow;
    if (is(word, "pd")) return &set->publish_deny;
    if (is(word, "sa")) return &set->subscribe_allow;
    return is(word, "sd") ? &set->subscribe_deny : NULL;
}

static bool get_number(struct text text, uint64_t *value) {
    const uint8_t *at = text.at, *end = text.at + text.bytes;
    return decimal_get(&at, end, UINT64_MAX, value) && at == end;
}

static bool take_line(struct nats_permissions *set, struct siphash_key key, const uint8_t *at, const uint8_t *end) {
    struct text word = next_word(&at, end), first = next_word(&at, end), second = next_word(&at, end);
    struct patterns *patterns = patterns_for(set, word);
    if (patterns != NULL) {
        if (!subject_pattern_is_valid(first.at, first.bytes)) return false;
        return patterns_add(patterns, key, first, second);
    }
    if (is(word, "p")) return set->publish_is_limited = true;
    set->replies = is(word, "r");
    return set->replies && get_number(first, &set->max_replies) && get_number(second, &set->reply_lifetime_ns);
}

static const uint8_t *line_end(const uint8_t *at, const uint8_t *end) {
    const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
    return newline != NULL ? newline : end;
}

/* Entries must not move once they belong to a pattern, so they are counted first. */
static bool count_entries(struct nats_permissions *set, const uint8_t *at, const uint8_t *end) {
    struct patterns *all[] = {&set->publish_allow, &set->publish_deny, &set->subscribe_allow, &set->subscribe_deny};
    for (; at < end; at = line_end(at, end) + 1) {
        const uint8_t *word_at = at;
        struct patterns *patterns = patterns_for(set, next_word(&word_at, end));
        if (patterns != NULL) patterns->capacity++;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->capacity == 0) continue;
        all[i]->entries = calloc(all[i]->capacity, sizeof *all[i]->entries);
        if (all[i]->entries == NULL) return false;
    }
    return true;
}

static struct nats_permissions *set_of(struct nats_permission_sets *all, const uint8_t *at, size_t bytes) {
    const uint8_t *end = at + bytes;
    struct nats_permissions *set = calloc(1, sizeof *set);
    if (set == NULL) return NULL;
    set->id = ++all->made;
    set->references = 1;
    bool good = count_entries(set, at, end);
    for (; good && at < end; at = line_end(at, end) + 1) good = take_line(set, all->key, at, line_end(at, end));
    if (set->publish_allow.count > 0) set->publish_is_limited = true;
    if (good) return set;
    set_free(set);
    return NULL;
}

static bool grow(struct nats_permission_sets *all, uint32_t number) {
    if (all->walk == NULL && (all->walk = subject_walk_new()) == NULL) return false;
    if (all->permitted == NULL && (all->permitted = calloc(NATS_PERMITTED, sizeof *all->permitted)) == NULL)
        return false;
    if (number < all->count) return true;
    uint32_t count = all->count > 0 ? all->count * 2 : 16;
    while (count <= number) count *= 2;
    struct nats_permissions **larger = realloc(all->sets, count * sizeof(struct nats_permissions *));
    if (larger == NULL) return false;
    for (uint32_t i = all->count; i < count; i++) larger[i] = NULL;
    all->sets = larger;
    all->count = count;
    return true;
}

bool nats_permissions_make(struct nats_permission_sets *all, uint64_t number, const uint8_t *text, size_t bytes) {
    if (number == 0 || number >= NATS_MAX_PERMISSION_SETS || !grow(all, (uint32_t)number)) return false;
    struct nats_permissions *set = NULL;
    if (bytes > 0 && (set = set_of(all, text, bytes)) == NULL) return false;
    nats_permissions_drop(all->sets[number]);
    all->sets[number] = set;
    return true;
}

void nats_permissions_close(struct nats_permission_sets *all) {
    for (uint32_t i = 0; i < all->count; i++) nats_permissions_drop(all->sets[i]);
    free(all->sets);
    free(all->permitted);
    subject_walk_free(all->walk);
}

struct nats_permissions *nats_permissions_take(const struct nats_permission_sets *all, uint64_t number) {
    struct nats_permissions *set = number < all->count ? all->sets[number] : NULL;
    if (set != NULL) set->references++;
    return set;
}

void nats_permissions_drop(struct nats_permissions *set) {
    if (set != NULL && --set->references == 0) set_free(set);
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

/* Which patterns match: one without a queue, any with a queue, one with that queue. */
struct matched {
    bool alone, queued, queue;
};

/* A queue's name in a permission may contain wildcards, or be equal as it is. */
static bool queue_matches(const struct subject_group *g, struct text queue) {
    if (g->name->bytes == queue.bytes && memcmp(g->name->text, queue.at, queue.bytes) == 0) return true;
    return subject_has_wildcard(g->name->text, g->name->bytes) &&
           subject_covers(g->name->text, g->name->bytes, queue.at, queue.bytes);
}

static struct matched match(const struct nats_permission_sets *all, const struct patterns *p, struct text subject,
                            struct text queue) {
    struct matched found = {false, false, false};
    struct subject_pattern *const *patterns;
    if (p->subjects == NULL) return found;
    size_t count = subjects_match(p->subjects, all->walk, subject.at, subject.bytes, &patterns);
    for (size_t i = 0; i < count; i++) {
        if (patterns[i]->alone.count > 0) found.alone = true;
        for (const struct subject_group *g = patterns[i]->groups; g != NULL; g = g->next) {
            found.queued = true;
            if (queue.bytes > 0 && queue_matches(g, queue)) found.queue = true;
        }
    }
    return found;
}

static bool may_publish(const struct nats_permission_sets *all, const struct nats_permissions *set,
                        struct text subject) {
    const struct text none = {NULL, 0};
    if (set->publish_is_limited && !match(all, &set->publish_allow, subject, none).alone) return false;
    return !match(all, &set->publish_deny, subject, none).alone;
}

bool nats_may_subscribe(struct nats_permission_sets *all, const struct nats_permissions *set, struct text subject,
                        struct text queue) {
    if (set->subscribe_allow.count > 0) {
        struct matched found = match(all, &set->subscribe_allow, subject, queue);
        if (!(queue.bytes > 0 && found.queued ? found.queue : found.alone)) return false;
    }
    struct matched found = match(all, &set->subscribe_deny, subject, queue);
    return !found.alone && !found.queue;
}

bool nats_is_denied_some(const struct nats_permissions *set, struct text pattern, struct text queue) {
    if (queue.bytes == 0 && !subject_has_wildcard(pattern.at, pattern.bytes)) return false;
    const struct patterns *p = &set->subscribe_deny;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct subject_pattern *denied = p->entries[i].pattern;
        if (subject_overlaps(denied->text, denied->bytes, pattern.at, pattern.bytes)) return true;
    }
    return false;
}

uint32_t nats_denied_count(const struct nats_permissions *set) {
    return set->subscribe_deny.count;
}

/* --- what is kept ------------------------------------------------------------------------------------------------- */

static struct nats_permitted *place_of(const struct nats_permission_sets *all, uint64_t hash, enum nats_asked asked,
                                       uint64_t set) {
    uint64_t mixed = (hash ^ set * 0x9e3779b97f4a7c15ULL) + (uint64_t)asked;
    return &all->permitted[(mixed >> 20) & (NATS_PERMITTED - 1)];
}

static bool is_kept(const struct nats_permitted *k, uint64_t hash, enum nats_asked asked, uint64_t set,
                    struct text subject) {
    return k->hash == hash && k->set == set && k->asked == asked && k->bytes == subject.bytes &&
           memcmp(k->subject, subject.at, subject.bytes) == 0;
}

static void keep(struct nats_permitted *k, uint64_t hash, enum nats_asked asked, uint64_t set, struct text subject,
                 bool allowed) {
    k->hash = hash;
    k->set = set;
    k->asked = (uint8_t)asked;
    k->bytes = (uint8_t)subject.bytes;
    k->allowed = allowed;
    memcpy(k->subject, subject.at, subject.bytes);
}

bool nats_may_publish(struct nats_permission_sets *all, struct nats_permissions *set, struct text subject) {
    if (!set->publish_is_limited && set->publish_deny.count == 0) return true;
    if (subject.bytes > NATS_PERMITTED_SUBJECT_BYTES) return may_publish(all, set, subject);
    uint64_t hash = siphash(all->key, subject.at, subject.bytes);
    struct nats_permitted *k = place_of(all, hash, ASKED_PUBLISH, set->id);
    if (!is_kept(k, hash, ASKED_PUBLISH, set->id, subject))
        keep(k, hash, ASKED_PUBLISH, set->id, subject, may_publish(all, set, subject));
    return k->allowed;
}

bool nats_may_have(struct nats_permission_sets *all, struct nats_permissions *set, struct text subject,
                   struct text queue) {
    const struct patterns *p = &set->subscribe_deny;
    if (p->count == 0) return true;
    if (subject.bytes > NATS_PERMITTED_SUBJECT_BYTES || (queue.bytes > 0 && p->has_queues)) {
        struct matched found = match(all, p, subject, queue);
        return !found.alone && !found.queue;
    }
    uint64_t hash = siphash(all->key, subject.at, subject.bytes);
    struct nats_permitted *k = place_of(all, hash, ASKED_HAVE, set->id);
    if (!is_kept(k, hash, ASKED_HAVE, set->id, subject))
        keep(k, hash, ASKED_HAVE, set->id, subject, !match(all, p, subject, (struct text){NULL, 0}).alone);
    return k->allowed;
}

bool nats_replies_of(const struct nats_permissions *set, uint64_t *max, uint64_t *lifetime_ns) {
    *max = set->max_replies;
    *lifetime_ns = set->reply_lifetime_ns;
    return set->replies;
}

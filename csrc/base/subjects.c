#define _GNU_SOURCE
#include "base/subjects.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/linear_hashing.h"
#include "base/siphash.h"
#include "base/subject_cache.h"
#include "base/subject_groups.h"
#include "base/subject_tail.h"
#include "base/subject_text.h"

enum { FIRST_BUCKETS = 64, MANY_BUCKETS = 1 << 12, FIRST_ENTRIES = 4 };

/* A node is found by its parent and its token. It lives as long as a pattern ends at it or below it. */
struct subject_node {
    struct subject_node *parent;
    struct subject_node *next_hash;
    struct subject_node *any;    /* child for "*" */
    struct subject_pattern *own; /* the pattern that ends at this node */
    struct subject_pattern *all; /* the pattern that ends with ">" behind this node */
    uint64_t hash;
    uint32_t children; /* counting the one for "*" */
    uint32_t bytes;
    char token[];
};

struct buckets {
    void **heads;
    size_t buckets, mask; /* of `heads`, when there are any: see linear_hashing.h */
    size_t count;
};

struct subjects {
    struct subject_groups groups; /* its hash key serves all tables here */
    struct buckets literals;      /* subject_pattern, by text */
    struct buckets nodes;         /* subject_node, by parent and token */
    struct subject_node *root;
    uint64_t entries, patterns, wildcards;
    struct subject_tail *tails;
    struct subject_cache cache;
    bool is_small; /* nothing is cached */
};

struct subject_walk {
    uint64_t *looked; /* where parts that were looked at are counted; NULL: nowhere */
    struct subject_pattern *found_few[CACHED_PATTERNS + 1];
    struct subject_pattern **found; /* grown when patterns are added */
    size_t found_capacity;
    struct {
        struct subject_node *node;
        uint32_t at;
    } stack[SUBJECT_MAX_TOKENS + 2];
    struct {
        uint32_t begin, bytes;
        uint64_t hash;
    } tokens[SUBJECT_MAX_TOKENS + 1];
};

/* --- hash tables of nodes and of patterns without wildcards ------------------------------------------------------- */

/* Never 0. */
static uint64_t hash_of_token(const struct subjects *s, const char *token, size_t bytes) {
    uint64_t hash = siphash(s->groups.key, token, bytes);
    return hash != 0 ? hash : 1;
}

/* A node's bucket depends on its parent too, by its address. */
static size_t node_bucket(const struct buckets *b, const struct subject_node *parent, uint64_t token_hash) {
    uint64_t mixed = (token_hash ^ (uint64_t)(uintptr_t)parent * 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;
    return linear_bucket(b->buckets, b->mask, mixed >> 32);
}

static size_t literal_bucket(const struct buckets *b, uint64_t hash) {
    return linear_bucket(b->buckets, b->mask, hash);
}

/* Adds a bucket. Returns the chain that is to be spread over it and the one that has had it until now. */
static void *add_bucket(struct buckets *b) {
    if (linear_is_full(b->buckets)) {
        void **larger = realloc(b->heads, 2 * b->buckets * sizeof *larger);
        if (!larger) return NULL;
        b->heads = larger;
    }
    size_t split = linear_split(b->buckets);
    void *chain = b->heads[split];
    b->heads[split] = NULL;
    b->heads[b->buckets++] = NULL;
    b->mask = linear_mask(b->buckets);
    return chain;
}

static bool first_buckets(struct buckets *b) {
    b->heads = calloc(FIRST_BUCKETS, sizeof *b->heads);
    b->buckets = FIRST_BUCKETS;
    b->mask = FIRST_BUCKETS - 1;
    return b->heads != NULL;
}

/* Makes room for one more; false when memory is short. There may be millions, so up to two share a bucket. */
static bool grow_literals(struct buckets *b) {
    if (!b->heads) return first_buckets(b);
    if (b->count / 2 < b->buckets) return true;
    for (struct subject_pattern *p = add_bucket(b), *next; p; p = next) {
        void **head = &b->heads[literal_bucket(b, p->hash)];
        next = p->next_hash;
        p->next_hash = *head;
        *head = p;
    }
    return true;
}

static bool grow_nodes(struct buckets *b) {
    if (!b->heads) return first_buckets(b);
    if (b->count < b->buckets) return true;
    for (struct subject_node *n = add_bucket(b), *next; n; n = next) {
        void **head = &b->heads[node_bucket(b, n->parent, n->hash)];
        next = n->next_hash;
        n->next_hash = *head;
        *head = n;
    }
    return true;
}

/* An empty table that was large gives its memory back. */
static void shrink(struct buckets *b) {
    if (b->count > 0 || !b->heads || b->mask < MANY_BUCKETS) return;
    free(b->heads);
    *b = (struct buckets){0};
}

static struct subject_pattern *find_literal(const struct subjects *s, uint64_t hash, const char *text, size_t bytes) {
    if (!s->literals.heads) return NULL;
    struct subject_pattern *p = s->literals.heads[literal_bucket(&s->literals, hash)];
    while (p && (p->hash != hash || p->bytes != bytes || memcmp(p->text, text, bytes) != 0)) p = p->next_hash;
    return p;
}

static struct subject_node *find_child(const struct subjects *s, const struct subject_node *parent, uint64_t hash,
                                       const char *token, size_t bytes) {
    if (!s->nodes.heads) return NULL;
    struct subject_node *n = s->nodes.heads[node_bucket(&s->nodes, parent, hash)];
    while (n && (n->parent != parent || n->hash != hash || n->bytes != bytes || memcmp(n->token, token, bytes) != 0))
        n = n->next_hash;
    return n;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static struct subject_node *new_node(struct subject_node *parent, const char *token, size_t bytes, uint64_t hash) {
    struct subject_node *n = calloc(1, sizeof *n + bytes);
    if (!n) return NULL;
    n->parent = parent;
    n->hash = hash;
    n->bytes = (uint32_t)bytes;
    memcpy(n->token, token, bytes);
    return n;
}

static struct subject_node *child_for(struct subjects *s, struct subject_node *parent, const char *token,
                                      size_t bytes) {
    uint64_t hash = hash_of_token(s, token, bytes);
    struct subject_node *n = find_child(s, parent, hash, token, bytes);
    if (n || !grow_nodes(&s->nodes)) return n;
    n = new_node(parent, token, bytes, hash);
    if (!n) return NULL;
    void **head = &s->nodes.heads[node_bucket(&s->nodes, parent, hash)];
    n->next_hash = *head;
    *head = n;
    s->nodes.count++;
    parent->children++;
    if (is_any(token, bytes)) parent->any = n;
    return n;
}

/* Removes this node and its ancestors as far as they have neither patterns nor children. */
static void prune(struct subjects *s, struct subject_node *n) {
    while (n->parent && !n->children && !n->own && !n->all) {
        struct subject_node *parent = n->parent;
        struct subject_node **at = (struct subject_node **)&s->nodes.heads[node_bucket(&s->nodes, parent, n->hash)];
        while (*at != n) at = &(*at)->next_hash;
        *at = n->next_hash;
        s->nodes.count--;
        if (parent->any == n) parent->any = NULL;
        parent->children--;
        free(n);
        n = parent;
    }
}

/* --- patterns ----------------------------------------------------------------------------------------------------- */

static struct subject_pattern *new_pattern(const char *text, size_t bytes, uint64_t hash) {
    struct subject_pattern *p = calloc(1, offsetof(struct subject_pattern, text) + bytes);
    if (!p) return NULL;
    p->hash = hash;
    p->bytes = (uint32_t)bytes;
    memcpy(p->text, text, bytes);
    return p;
}

static struct subject_pattern *literal_for(struct subjects *s, const char *text, size_t bytes) {
    uint64_t hash = hash_of_token(s, text, bytes);
    struct subject_pattern *p = find_literal(s, hash, text, bytes);
    if (p || !grow_literals(&s->literals)) return p;
    p = new_pattern(text, bytes, hash);
    if (!p) return NULL;
    void **head = &s->literals.heads[literal_bucket(&s->literals, hash)];
    p->next_hash = *head;
    *head = p;
    s->literals.count++;
    s->patterns++;
    subject_cache_forget(&s->cache, text, bytes);
    return p;
}

/* Where a node holds a pattern: as the one that ends there, or as the one that ends with ">" behind it. */
static struct subject_pattern **slot_of(struct subject_node *n, const char *text, size_t bytes) {
    bool all = is_all(text + bytes - 1, 1) && (bytes == 1 || text[bytes - 2] == '.');
    return all ? &n->all : &n->own;
}

static struct subject_pattern *wildcard_for(struct subjects *s, const char *text, size_t bytes) {
    struct subject_node *n = s->root;
    for (size_t at = 0; n && at < bytes;) {
        size_t end = token_end(text, at, bytes);
        if (is_all(text + at, end - at) && end == bytes) break;
        struct subject_node *child = child_for(s, n, text + at, end - at);
        if (!child) {
            prune(s, n);
            return NULL;
        }
        n = child;
        at = end + 1;
    }
    struct subject_pattern **slot = slot_of(n, text, bytes);
    if (*slot) return *slot;
    *slot = new_pattern(text, bytes, 0);
    if (!*slot) {
        prune(s, n);
        return NULL;
    }
    (*slot)->node = n;
    subject_cache_forget_all(&s->cache);
    s->wildcards++;
    s->patterns++;
    return *slot;
}

static bool is_unused(const struct subject_pattern *p) {
    return p->alone.count == 0 && p->groups == NULL;
}

static void forget_pattern(struct subjects *s, struct subject_pattern *p) {
    if (p->hash == 0) {
        struct subject_node *n = p->node;
        *slot_of(n, p->text, p->bytes) = NULL;
        prune(s, n);
        subject_cache_forget_all(&s->cache);
        s->wildcards--;
    } else {
        struct subject_pattern **at =
            (struct subject_pattern **)&s->literals.heads[literal_bucket(&s->literals, p->hash)];
        while (*at != p) at = &(*at)->next_hash;
        *at = p->next_hash;
        s->literals.count--;
        subject_cache_forget(&s->cache, p->text, p->bytes);
    }
    assert(p->alone.capacity == 0);
    free(p);
    if (--s->patterns > 0) return;
    subject_cache_shrink(&s->cache);
    shrink(&s->literals);
    shrink(&s->nodes);
}

/* --- groups and entries ------------------------------------------------------------------------------------------- */

static bool append(struct subject_entries *to, struct subject_entry *entry) {
    if (to->count == (to->capacity ? to->capacity : 1)) {
        uint32_t capacity = to->capacity ? to->capacity * 2 : FIRST_ENTRIES;
        struct subject_entry **larger = realloc(to->capacity ? to->items : NULL, sizeof *larger * capacity);
        if (!larger) return false;
        if (!to->capacity) larger[0] = to->one;
        to->items = larger;
        to->capacity = capacity;
    }
    entry->place = to->count;
    subject_entries_items(to)[to->count++] = entry;
    return true;
}

/* The last entry takes its place, or the place of another that tails move there. */
static void take_out(struct subjects *s, struct subject_entries *from, const struct subject_entry *entry) {
    struct subject_entry **items = subject_entries_items(from);
    uint32_t gap = entry->place;
    assert(items[gap] == entry);
    if (s->tails) gap = subject_tails_close_gap(s->tails, from, gap);
    if (gap != --from->count) {
        items[gap] = items[from->count];
        items[gap]->place = gap;
    }
    if (from->capacity && from->count <= 1) {
        from->one = from->count ? items[0] : NULL;
        free(items);
        from->capacity = 0;
    } else if (from->capacity && from->count <= from->capacity / 4) {
        struct subject_entry **smaller = realloc(items, sizeof *smaller * (from->capacity / 2));
        if (!smaller) return;
        from->items = smaller;
        from->capacity /= 2;
    }
}

bool subjects_add(struct subjects *s, struct subject_entry *entry, const void *pattern, size_t bytes, const void *queue,
                  size_t queue_bytes, bool *first) {
    assert(entry->weight > 0 && subject_pattern_is_valid(pattern, bytes));
    bool wild = subject_has_wildcard(pattern, bytes);
    struct subject_pattern *p = wild ? wildcard_for(s, pattern, bytes) : literal_for(s, pattern, bytes);
    if (!p) return false;
    struct subject_group *g = queue_bytes > 0 ? subject_group_make(&s->groups, p, queue, queue_bytes) : NULL;
    bool failed = queue_bytes > 0 && !g;
    struct subject_entries *to = g ? &g->entries : &p->alone;
    if (failed || !append(to, entry)) {
        if (g && g->entries.count == 0) subject_group_forget(&s->groups, g);
        if (is_unused(p)) forget_pattern(s, p);
        return false;
    }
    entry->pattern = p;
    entry->group = g;
    if (g) g->weight += entry->weight;
    s->entries++;
    *first = to->count == 1;
    return true;
}

bool subjects_remove(struct subjects *s, struct subject_entry *entry) {
    struct subject_pattern *p = entry->pattern;
    struct subject_group *g = entry->group;
    assert(p);
    struct subject_entries *from = g ? &g->entries : &p->alone;
    take_out(s, from, entry);
    bool last = from->count == 0;
    if (g) g->weight -= entry->weight;
    if (g && last) subject_group_forget(&s->groups, g);
    if (is_unused(p)) forget_pattern(s, p);
    entry->pattern = NULL;
    entry->group = NULL;
    s->entries--;
    return last;
}

void subjects_weigh(struct subject_entry *entry, uint32_t weight) {
    assert(entry->pattern);
    if (entry->group) entry->group->weight += (uint64_t)weight - entry->weight;
    entry->weight = weight;
}

/* --- matching ----------------------------------------------------------------------------------------------------- */

/* Cuts a subject into tokens. Returns how many; 0 if one is empty or there are too many. */
static uint32_t cut(struct subject_walk *walk, const char *text, size_t bytes) {
    uint32_t count = 0, begin = 0;
    if (bytes == 0 || bytes > SUBJECT_MAX_BYTES) return 0;
    for (uint32_t at = 0; at <= bytes; at++) {
        if (at < bytes && text[at] != '.') continue;
        if (at == begin || count > SUBJECT_MAX_TOKENS) return 0;
        walk->tokens[count].begin = begin;
        walk->tokens[count].bytes = at - begin;
        walk->tokens[count++].hash = 0;
        begin = at + 1;
    }
    return count;
}

/* A token is hashed when first needed: most tokens that ">" matches never are. */
static uint64_t token_hash(const struct subjects *s, struct subject_walk *walk, const char *text, uint32_t at) {
    if (walk->tokens[at].hash == 0)
        walk->tokens[at].hash = hash_of_token(s, text + walk->tokens[at].begin, walk->tokens[at].bytes);
    return walk->tokens[at].hash;
}

/* Each pattern of the trie that matches, once: a pattern ends at one node only. The stack is never deeper than the
 * subject has tokens, since a node that is taken off puts two on at most, one deeper. */
static size_t walk_trie(const struct subjects *s, struct subject_walk *walk, const char *text, uint32_t tokens,
                        size_t found) {
    uint32_t depth = 0;
    uint64_t looked = 0;
    walk->stack[depth].node = s->root;
    walk->stack[depth++].at = 0;
    while (depth > 0) {
        looked++;
        struct subject_node *n = walk->stack[--depth].node;
        uint32_t at = walk->stack[depth].at;
        if (at == tokens) {
            if (n->own) walk->found[found++] = n->own;
            continue;
        }
        if (n->all) walk->found[found++] = n->all;
        if (n->any) {
            walk->stack[depth].node = n->any;
            walk->stack[depth++].at = at + 1;
        }
        if (n->children == (n->any != NULL)) continue;
        struct subject_node *child =
            find_child(s, n, token_hash(s, walk, text, at), text + walk->tokens[at].begin, walk->tokens[at].bytes);
        if (child && child != n->any) {
            walk->stack[depth].node = child;
            walk->stack[depth++].at = at + 1;
        }
    }
    if (looked > SUBJECT_FEW_PARTS && walk->looked) *walk->looked += looked - SUBJECT_FEW_PARTS;
    return found;
}

/* Makes room for all patterns there are: a match cannot have more. */
static bool grow_found(struct subject_walk *walk, uint64_t patterns) {
    if (patterns <= walk->found_capacity) return true;
    size_t capacity = walk->found_capacity;
    while (capacity < patterns) capacity *= 2;
    struct subject_pattern **larger = malloc(sizeof *larger * capacity);
    if (!larger) return false;
    if (walk->found != walk->found_few) free(walk->found);
    walk->found = larger;
    walk->found_capacity = capacity;
    return true;
}

/* Puts all matching patterns into walk->found. Returns how many. */
static size_t match_all(const struct subjects *s, struct subject_walk *walk, const char *text, size_t bytes) {
    uint32_t tokens = cut(walk, text, bytes);
    size_t found = 0;
    if (tokens == 0) return 0;
    struct subject_pattern *literal =
        s->literals.count > 0 ? find_literal(s, hash_of_token(s, text, bytes), text, bytes) : NULL;
    if (literal) walk->found[found++] = literal;
    return s->wildcards > 0 ? walk_trie(s, walk, text, tokens, found) : found;
}

size_t subjects_match(struct subjects *s, struct subject_walk *walk, const void *subject, size_t bytes,
                      struct subject_pattern *const **out) {
    const char *text = subject;
    struct cached_match *slot = NULL;
    if (!s->is_small && bytes <= CACHED_SUBJECT_BYTES && s->patterns > 0)
        slot = subject_cache_look(&s->cache, text, bytes);
    if (slot && subject_cache_has(&s->cache, slot, text, bytes)) {
        *out = slot->patterns;
        return slot->count;
    }
    *out = walk->found;
    if (s->patterns == 0 || !grow_found(walk, s->wildcards + 1)) return 0;
    *out = walk->found;
    size_t found = match_all(s, walk, text, bytes);
    if (slot && found <= CACHED_PATTERNS) subject_cache_keep(&s->cache, slot, text, bytes, walk->found, found);
    return found;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

typedef void each_pattern(void *context, struct subject_pattern *pattern);

static size_t each_literal(struct subject_pattern *p, each_pattern *each, void *context) {
    size_t count = 0;
    for (; p; p = p->next_hash, count++) each(context, p);
    return count;
}

static size_t each_of_nodes(struct subject_node *n, each_pattern *each, void *context) {
    size_t count = 0;
    for (; n; n = n->next_hash, count++) {
        if (n->own) each(context, n->own);
        if (n->all) each(context, n->all);
    }
    return count;
}

static uint64_t reversed(uint64_t x) {
    x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
    x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
    return __builtin_bswap64(x);
}

/* The bucket after this one, in bit-reversed order: what a bucket is split into when there are twice as many has
 * been seen, or is still to come, as the bucket was. 0 behind the last. */
static uint64_t next_bucket(uint64_t at, size_t mask) {
    return reversed(reversed(at | ~(uint64_t)mask) + 1);
}

bool subjects_each_from(struct subjects *s, struct subjects_cursor *cursor, size_t *left, each_pattern *each,
                        void *context) {
    enum { ROOT, LITERALS, NODES, END };
    while (cursor->part != END && *left > 0) {
        bool literals = cursor->part == LITERALS;
        const struct buckets *b = literals ? &s->literals : &s->nodes;
        size_t looked = 1;
        if (cursor->part == ROOT) {
            if (s->root->all) each(context, s->root->all);
        } else if (b->heads) {
            /* What is still to be split off has been seen with the bucket before. */
            size_t at = cursor->at & b->mask;
            void *head = at < b->buckets ? b->heads[at] : NULL;
            looked += literals ? each_literal(head, each, context) : each_of_nodes(head, each, context);
            cursor->at = next_bucket(cursor->at, b->mask);
        }
        if (cursor->at == 0) cursor->part++;
        *left -= looked < *left ? looked : *left;
    }
    return cursor->part == END;
}

void subjects_each(struct subjects *s, each_pattern *each, void *context) {
    struct subjects_cursor cursor = {0};
    size_t left = SIZE_MAX;
    subjects_each_from(s, &cursor, &left, each, context);
}

struct subject_pattern *subjects_find(const struct subjects *s, const void *pattern, size_t bytes) {
    const char *text = pattern;
    if (!subject_has_wildcard(text, bytes)) return find_literal(s, hash_of_token(s, text, bytes), text, bytes);
    struct subject_node *n = s->root;
    for (size_t at = 0; n && at < bytes;) {
        size_t end = token_end(text, at, bytes);
        if (is_all(text + at, end - at) && end == bytes) break;
        n = find_child(s, n, hash_of_token(s, text + at, end - at), text + at, end - at);
        at = end + 1;
    }
    return n ? *slot_of(n, text, bytes) : NULL;
}

struct subject_groups *subjects_groups(struct subjects *s) {
    return &s->groups;
}

struct subject_entries *subjects_entries(struct subjects *s, struct text pattern, struct text group) {
    struct subject_pattern *p = s != NULL ? subjects_find(s, pattern.at, pattern.bytes) : NULL;
    if (p == NULL || group.bytes == 0) return p != NULL ? &p->alone : NULL;
    struct subject_group *g = subject_group_find(subjects_groups(s), p, group.at, group.bytes);
    return g != NULL ? &g->entries : NULL;
}

void subjects_tail_begin(struct subjects *s, struct subject_tail *tail, struct subject_pattern *p, uint32_t begin) {
    assert(begin <= p->alone.count);
    *tail = (struct subject_tail){s->tails, &p->alone, begin, p->alone.count};
    s->tails = tail;
}

void subjects_tail_end(struct subjects *s, const struct subject_tail *tail) {
    struct subject_tail **at = &s->tails;
    while (*at != tail) at = &(*at)->next;
    *at = tail->next;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

struct subject_walk *subject_walk_new(void) {
    struct subject_walk *walk = calloc(1, sizeof *walk);
    if (!walk) return NULL;
    walk->found = walk->found_few;
    walk->found_capacity = CACHED_PATTERNS + 1;
    return walk;
}

void subject_walk_count(struct subject_walk *walk, uint64_t *looked) {
    walk->looked = looked;
}

void subject_walk_free(struct subject_walk *walk) {
    if (!walk) return;
    if (walk->found != walk->found_few) free(walk->found);
    free(walk);
}

struct subjects *subjects_new(struct siphash_key key) {
    struct subjects *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->groups.key = key;
    subject_cache_open(&s->cache);
    s->root = new_node(NULL, "", 0, 0);
    if (s->root) return s;
    free(s);
    return NULL;
}

struct subjects *subjects_new_small(struct siphash_key key) {
    struct subjects *s = subjects_new(key);
    if (s) s->is_small = true;
    return s;
}

void subjects_free(struct subjects *s) {
    if (!s) return;
    assert(s->entries == 0 && s->patterns == 0 && s->tails == NULL);
    free(s->root);
    free(s->literals.heads);
    free(s->nodes.heads);
    subject_cache_close(&s->cache);
    subject_groups_free(&s->groups);
    free(s);
}

uint64_t subjects_count(const struct subjects *s) {
    return s->entries;
}

uint64_t subjects_pattern_count(const struct subjects *s) {
    return s->patterns;
}

uint64_t subjects_looked(const struct subjects *s) {
    return s->cache.looked;
}

uint64_t subjects_hits(const struct subjects *s) {
    return s->cache.hits;
}

/* Takes what it looks at off `left`. */
static uint64_t fanout_of(struct subjects *s, const struct cached_match *k, size_t *left) {
    uint64_t alone = 0;
    size_t groups = 1;
    for (uint32_t i = 0; i < k->count; i++) {
        alone += k->patterns[i]->alone.count;
        groups += subject_groups(k->patterns[i]);
    }
    *left -= groups < *left ? groups : *left;
    return alone + subject_groups_count(&s->groups, k->patterns, k->count);
}

bool subjects_kept(struct subjects *s, uint32_t *place, size_t *left, struct subjects_kept *out) {
    const struct cached_match *k;
    while ((k = subject_cache_next(&s->cache, place, left)) != NULL) {
        uint64_t fanout = fanout_of(s, k, left);
        if (fanout > out->max_fanout) out->max_fanout = fanout;
        out->fanout += fanout;
        out->subjects++;
    }
    return !s->cache.slots || *place == CACHED_MOST;
}

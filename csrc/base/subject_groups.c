#include "base/subject_groups.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_HEADS = 16 };

/* --- tables ------------------------------------------------------------------------------------------------------- */

/* The address identifies a pattern as well as a number would. */
static uint64_t hash_of_member(const struct subject_pattern *pattern, const struct subject_name *name) {
    uint64_t mixed = (uint64_t)(uintptr_t)pattern * 0x9e3779b97f4a7c15ULL ^ name->hash;
    return mixed * 0xff51afd7ed558ccdULL >> 32;
}

_Static_assert(offsetof(struct subject_name, link) == 0 && offsetof(struct subject_group, link) == 0, "they are cast");

static uint64_t hash_of_name(const struct subject_link *link) {
    return ((const struct subject_name *)link)->hash;
}

static uint64_t hash_of_group(const struct subject_link *link) {
    const struct subject_group *g = (const struct subject_group *)link;
    return hash_of_member(g->pattern, g->name);
}

static void link_in(struct subject_links *links, uint64_t hash, struct subject_link *link) {
    struct subject_link **head = &links->heads[hash & links->mask];
    link->next = *head;
    *head = link;
    links->count++;
}

static void link_out(struct subject_links *links, uint64_t hash, const struct subject_link *link) {
    struct subject_link **at = &links->heads[hash & links->mask];
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    links->count--;
}

static bool grow(struct subject_links *links, uint64_t (*hash_of)(const struct subject_link *link)) {
    if (links->heads != NULL && links->count <= links->mask) return true;
    size_t heads = links->heads != NULL ? (links->mask + 1) * 2 : FIRST_HEADS;
    struct subject_links larger = {calloc(heads, sizeof(struct subject_link *)), heads - 1, 0};
    if (larger.heads == NULL) return links->heads != NULL;
    for (size_t i = 0; links->heads != NULL && i <= links->mask; i++) {
        for (struct subject_link *link = links->heads[i], *next; link != NULL; link = next) {
            next = link->next;
            link_in(&larger, hash_of(link), link);
        }
    }
    free(links->heads);
    *links = larger;
    return true;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static struct subject_name *find_name(const struct subject_groups *all, uint64_t hash, const void *text, size_t bytes) {
    if (all->names.heads == NULL) return NULL;
    struct subject_link *link = all->names.heads[hash & all->names.mask];
    for (; link != NULL; link = link->next) {
        struct subject_name *n = (struct subject_name *)link;
        if (n->hash == hash && n->bytes == bytes && memcmp(n->text, text, bytes) == 0) return n;
    }
    return NULL;
}

static struct subject_name *name_for(struct subject_groups *all, const void *text, size_t bytes) {
    uint64_t hash = siphash(all->key, text, bytes);
    struct subject_name *n = find_name(all, hash, text, bytes);
    if (n != NULL || !grow(&all->names, hash_of_name)) return n;
    n = calloc(1, sizeof *n + bytes);
    if (n == NULL) return NULL;
    n->hash = hash;
    n->bytes = (uint32_t)bytes;
    memcpy(n->text, text, bytes);
    link_in(&all->names, hash, &n->link);
    return n;
}

static void drop_if_unused(struct subject_groups *all, struct subject_name *name) {
    if (name->groups > 0) return;
    link_out(&all->names, name->hash, &name->link);
    free(name);
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

static struct subject_group *find_member(const struct subject_groups *all, const struct subject_pattern *pattern,
                                         const struct subject_name *name) {
    if (all->members.heads == NULL) return NULL;
    struct subject_link *link = all->members.heads[hash_of_member(pattern, name) & all->members.mask];
    for (; link != NULL; link = link->next) {
        struct subject_group *g = (struct subject_group *)link;
        if (g->pattern == pattern && g->name == name) return g;
    }
    return NULL;
}

struct subject_group *subject_group_find(const struct subject_groups *all, const struct subject_pattern *pattern,
                                         const void *name, size_t bytes) {
    if (pattern->groups == NULL) return NULL;
    const struct subject_name *n = find_name(all, siphash(all->key, name, bytes), name, bytes);
    return n != NULL ? find_member(all, pattern, n) : NULL;
}

static void list(struct subject_pattern *pattern, struct subject_group *g) {
    g->count = subject_groups(pattern) + 1;
    g->next = pattern->groups;
    if (g->next != NULL) g->next->previous = g;
    pattern->groups = g;
}

static void unlist(struct subject_pattern *pattern, const struct subject_group *g) {
    uint32_t left = subject_groups(pattern) - 1;
    if (g->next != NULL) g->next->previous = g->previous;
    if (g->previous != NULL)
        g->previous->next = g->next;
    else
        pattern->groups = g->next;
    if (pattern->groups != NULL) pattern->groups->count = left;
}

struct subject_group *subject_group_make(struct subject_groups *all, struct subject_pattern *pattern, const void *name,
                                         size_t bytes) {
    struct subject_name *n = name_for(all, name, bytes);
    if (n == NULL) return NULL;
    struct subject_group *g = n->groups > 0 ? find_member(all, pattern, n) : NULL;
    if (g != NULL) return g;
    g = grow(&all->members, hash_of_group) ? calloc(1, sizeof *g) : NULL;
    if (g == NULL) {
        drop_if_unused(all, n);
        return NULL;
    }
    g->pattern = pattern;
    g->name = n;
    n->groups++;
    list(pattern, g);
    link_in(&all->members, hash_of_group(&g->link), &g->link);
    return g;
}

void subject_group_forget(struct subject_groups *all, struct subject_group *g) {
    assert(g->entries.count == 0 && g->entries.capacity == 0);
    link_out(&all->members, hash_of_group(&g->link), &g->link);
    unlist(g->pattern, g);
    g->name->groups--;
    drop_if_unused(all, g->name);
    free(g);
}

void subject_groups_free(struct subject_groups *all) {
    assert(all->members.count == 0 && all->names.count == 0);
    free(all->members.heads);
    free(all->names.heads);
}

/* --- gathering ---------------------------------------------------------------------------------------------------- */

/* Adds a group to its name's list; true if it is the first there. The first stays first, later ones go in behind it. */
static bool gather(struct subject_groups *all, struct subject_group *g) {
    struct subject_name *n = g->name;
    bool is_first = n->gathered != all->gathered;
    if (is_first) {
        n->gathered = all->gathered;
        n->found = g;
        n->weight = 0;
        g->same = NULL;
    } else {
        g->same = n->found->same;
        n->found->same = g;
    }
    n->weight += g->weight;
    return is_first;
}

size_t subject_groups_gather(struct subject_groups *all, struct subject_pattern *const *patterns, size_t count) {
    size_t names = 0;
    all->gathered++;
    for (size_t i = 0; i < count; i++)
        for (struct subject_group *g = patterns[i]->groups; g != NULL; g = g->next) names += gather(all, g);
    return names;
}

size_t subject_groups_count(struct subject_groups *all, struct subject_pattern *const *patterns, size_t count) {
    size_t having = 0, groups = 0;
    for (size_t i = 0; i < count; i++) {
        having += patterns[i]->groups != NULL;
        groups += subject_groups(patterns[i]);
    }
    return having > 1 ? subject_groups_gather(all, patterns, count) : groups;
}

/* Looks each name up, or goes through all groups, whichever is less work. */
void subject_groups_gather_named(struct subject_groups *all, struct subject_pattern *const *patterns, size_t count,
                                 const struct text *names, size_t names_count) {
    size_t groups = 0;
    assert(names_count > 0);
    for (size_t i = 0; i < count; i++) groups += subject_groups(patterns[i]);
    if (groups / names_count <= count) {
        subject_groups_gather(all, patterns, count);
        return;
    }
    all->gathered++;
    for (size_t n = 0; n < names_count; n++) {
        uint64_t hash = siphash(all->key, names[n].at, names[n].bytes);
        const struct subject_name *name = find_name(all, hash, names[n].at, names[n].bytes);
        if (name == NULL || name->gathered == all->gathered) continue;
        for (size_t i = 0; i < count; i++) {
            struct subject_group *g = find_member(all, patterns[i], name);
            if (g != NULL) gather(all, g);
        }
    }
}

static struct subject_name *if_gathered(const struct subject_groups *all, struct subject_name *name) {
    return name != NULL && name->gathered == all->gathered ? name : NULL;
}

struct subject_name *subject_groups_named(const struct subject_groups *all, const void *name, size_t bytes) {
    return if_gathered(all, find_name(all, siphash(all->key, name, bytes), name, bytes));
}

struct subject_name *subject_groups_like(const struct subject_groups *all, const struct subject_name *name) {
    return if_gathered(all, find_name(all, name->hash, name->text, name->bytes));
}

/* --- picking ------------------------------------------------------------------------------------------------------ */

static struct subject_entry *pick_in(struct subject_group *g, uint64_t nth) {
    struct subject_entry **items = subject_entries_items(&g->entries);
    if (g->weight == g->entries.count) return items[nth];
    for (uint32_t i = 0; i < g->entries.count; i++) {
        if (nth < items[i]->weight) return items[i];
        nth -= items[i]->weight;
    }
    return NULL;
}

struct subject_entry *subject_name_pick(const struct subject_name *name, uint64_t nth) {
    for (struct subject_group *g = name->found; g != NULL; g = g->same) {
        if (nth < g->weight) return pick_in(g, nth);
        nth -= g->weight;
    }
    return NULL;
}

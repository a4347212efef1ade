/* Queue groups by their names.
 *
 * Each pattern has its own groups, but for a message all groups of one name count as a single group, whatever pattern
 * each belongs to. So each name is stored once, and every group refers to its name. "Gathering" goes once through the
 * groups of the patterns that match a subject, and links the groups of each name together. Its cost is the number of
 * groups, and it allocates nothing. The result holds until a group is made or removed, or until the next gathering.
 *
 * Owns the groups and the names; patterns hold lists of their groups.
 */
#ifndef MQ_SUBJECT_GROUPS_H
#define MQ_SUBJECT_GROUPS_H

#include "base/siphash.h"
#include "base/subject.h"
#include "base/text.h"

struct subject_name {
    struct subject_link link; /* must be first */
    uint64_t hash;
    uint64_t gathered;           /* number of the gathering that found it last */
    struct subject_group *found; /* the first group found then; the others follow by `same` */
    uint64_t weight;             /* of all groups found then */
    uint32_t groups;             /* number of groups with this name */
    uint32_t bytes;
    char text[];
};

/* For whoever reads a name from elsewhere: where its text begins. */
#define SUBJECT_NAME_OFFSET offsetof(struct subject_name, text)

struct subject_links {
    struct subject_link **heads;
    size_t mask; /* of `heads`, when there are any */
    size_t count;
};

struct subject_groups {
    struct siphash_key key;
    struct subject_links names;   /* by text */
    struct subject_links members; /* groups, by pattern and name */
    uint64_t gathered;            /* number of the last gathering */
};

/* The pattern's group of this name, made if need be; NULL when memory is short. */
struct subject_group *subject_group_make(struct subject_groups *groups, struct subject_pattern *pattern,
                                         const void *name, size_t bytes);
/* Removes a group that has no entries. */
void subject_group_forget(struct subject_groups *groups, struct subject_group *group);
/* The pattern's group of this name, or NULL. */
struct subject_group *subject_group_find(const struct subject_groups *groups, const struct subject_pattern *pattern,
                                         const void *name, size_t bytes);
/* All groups must have been removed. */
void subject_groups_free(struct subject_groups *groups);

/* How many different names the groups of these patterns have. With one pattern nothing needs to be gathered. */
size_t subject_groups_count(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count);
/* Gathers all groups of some different patterns by name. Returns the number of names. */
size_t subject_groups_gather(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count);
/* The same, for these names at least. */
void subject_groups_gather_named(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count,
                                 const struct text *names, size_t names_count);
/* A name of the last gathering; NULL: none of its groups has that name. */
struct subject_name *subject_groups_named(const struct subject_groups *groups, const void *name, size_t bytes);
/* The same, by a name of another table with the same hash key. */
struct subject_name *subject_groups_like(const struct subject_groups *groups, const struct subject_name *name);

/* Whether a group of the last gathering is the first of its name. */
static inline bool subject_group_leads(const struct subject_group *group) {
    return group->name->found == group;
}

/* The entry that holds the `nth` unit of a name's weight, counted over all its gathered groups. */
struct subject_entry *subject_name_pick(const struct subject_name *name, uint64_t nth);

#endif

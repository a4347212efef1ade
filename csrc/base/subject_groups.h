/* Groups by their names.
 *
 * A group stands under a pattern; but one name is one group over all patterns that a subject matches. So a name is there once,
 * whatever the number of patterns, and a group knows it: who has patterns that match goes through their groups once, and each
 * name comes to know which of them are its. That is gathering. It takes what there is to go through and allocates nothing;
 * what was gathered is so until a group comes or goes, or something else is gathered.
 *
 * Owns groups and names; patterns hold lists of theirs.
 */
#ifndef MQ_SUBJECT_GROUPS_H
#define MQ_SUBJECT_GROUPS_H

#include "base/subjects.h"
#include "base/text.h"

struct subject_name {
    struct subject_name *next_hash; /* first */
    uint64_t hash;
    uint64_t gathered;           /* when it was last */
    struct subject_group *found; /* the first of its groups then, the others by `same` */
    uint64_t weight;             /* of them all */
    uint32_t groups;             /* that have this name */
    uint32_t bytes;
    char text[];
};

/* For whoever reads a name from elsewhere: where its text begins. */
#define SUBJECT_NAME_OFFSET offsetof(struct subject_name, text)

struct subject_links {
    void **heads;
    size_t mask; /* of `heads`, when there are any */
    size_t count;
};

struct subject_groups {
    struct siphash_key key;
    struct subject_links names;   /* by text */
    struct subject_links members; /* groups, by pattern and name */
    uint64_t gathered;            /* how often that has been done */
};

/* The group of a pattern that has this name, which is made if it is not there; NULL when memory is short. */
struct subject_group *subject_group_make(struct subject_groups *groups, struct subject_pattern *pattern,
                                         const void *name, size_t bytes);
/* One without entries. */
void subject_group_forget(struct subject_groups *groups, struct subject_group *group);
/* NULL if it is not there. */
struct subject_group *subject_group_find(const struct subject_groups *groups, const struct subject_pattern *pattern,
                                         const void *name, size_t bytes);
/* There must be no groups any more. */
void subject_groups_free(struct subject_groups *groups);

/* How many names the groups of these patterns have. Of one pattern no group is visited: nothing is gathered. */
size_t subject_groups_count(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count);
/* Of some patterns, each there once, all groups by their names. How many names. */
size_t subject_groups_gather(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count);
/* ... of these names at least. */
void subject_groups_gather_named(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count,
                                 const struct text *names, size_t names_count);
/* A name that was gathered last; NULL: none of the groups has it. */
struct subject_name *subject_groups_named(const struct subject_groups *groups, const void *name, size_t bytes);
/* ... by another's name, whose key is the same. */
struct subject_name *subject_groups_like(const struct subject_groups *groups, const struct subject_name *name);

/* Of groups that were gathered last: whether this is the first of its name. */
static inline bool subject_group_leads(const struct subject_group *group) {
    return group->name->found == group;
}

/* The entry in which the `nth` of a name's weight is, over all of its groups that were gathered. */
struct subject_entry *subject_name_pick(const struct subject_name *name, uint64_t nth);

#endif

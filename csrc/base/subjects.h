/* Who wants which subject.
 *
 * A subject is tokens separated by dots. In a pattern "*" stands for any one token, and ">" as the last token for one
 * or more. An entry belongs to a pattern, either alone or as a member of a queue group of that pattern. It is embedded
 * in its owner's record of a subscription; the owner may be a client, another process or another server.
 *
 * A match yields patterns, not entries, so that entries may come and go without making a cached match wrong. Patterns
 * without wildcards are found by one look-up of the whole subject, the others in a trie. A match is cached until a
 * pattern with a wildcard, or this very subject as a pattern, is added or removed.
 *
 * Owns patterns and groups (base/subject_groups.h), never entries. Knows nothing of who an entry is. Not for use by
 * several threads. Matching allocates nothing, unless there are more patterns with wildcards than ever before.
 */
#ifndef MQ_SUBJECTS_H
#define MQ_SUBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/siphash.h"

/* The longest subject. A token takes at least a byte and a dot. */
enum { SUBJECT_MAX_BYTES = 64 << 10, SUBJECT_MAX_TOKENS = SUBJECT_MAX_BYTES / 2 };

struct subjects;
struct subject_pattern;
struct subject_group;

struct subject_entry {
    struct subject_pattern *pattern; /* NULL: the entry is not in use */
    struct subject_group *group;     /* NULL: the entry is in no group */
    uint32_t place;
    uint32_t weight; /* in a group: how many members it stands for, at least 1 */
};

/* A list of entries; a single one is stored in place. */
struct subject_entries {
    union {
        struct subject_entry **items;
        struct subject_entry *one; /* when `capacity` is 0 */
    };
    uint32_t count, capacity;
};

static inline struct subject_entry **subject_entries_items(struct subject_entries *entries) {
    return entries->capacity ? entries->items : &entries->one;
}

struct subject_name;

/* A queue group of one pattern. Groups of one name count as one when several patterns match: base/subject_groups.h. */
struct subject_group {
    struct subject_group *next, *previous; /* in the pattern's list */
    struct subject_group *next_hash;
    struct subject_group *same; /* the next gathered group of the same name, under another pattern */
    struct subject_pattern *pattern;
    struct subject_name *name;
    struct subject_entries entries;
    uint64_t weight; /* sum over all entries */
    uint32_t count;  /* in the pattern's first group: how many groups the pattern has */
};

/* A quick hash without a secret, for caches that hold one subject per slot and compare it. Somebody who finds subjects
 * that share a slot gains nothing, except that these are not cached. */
static inline uint64_t subject_mix(const void *subject, size_t bytes) {
    const char *at = subject;
    uint64_t mixed = bytes * 0x9e3779b97f4a7c15ULL, word;
    for (; bytes > sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        mixed = (mixed ^ word) * 0xff51afd7ed558ccdULL;
        mixed ^= mixed >> 32;
    }
    uint32_t low = 0, high = 0;
    if (bytes >= sizeof low) {
        memcpy(&low, at, sizeof low);
        memcpy(&high, at + bytes - sizeof high, sizeof high);
    } else if (bytes > 0) {
        low = (uint32_t)(uint8_t)at[0] | (uint32_t)(uint8_t)at[bytes / 2] << 8;
        high = (uint8_t)at[bytes - 1];
    }
    word = (uint64_t)high << 32 | low;
    return (mixed ^ word) * 0x9e3779b97f4a7c15ULL;
}

/* As memcmp() == 0, fast for short texts. */
static inline bool subject_equal(const void *one, const void *other, size_t bytes) {
    const char *a = one, *b = other;
    uint64_t x, y;
    if (bytes < sizeof x) return memcmp(a, b, bytes) == 0;
    for (size_t at = 0; at + sizeof x <= bytes; at += sizeof x) {
        memcpy(&x, a + at, sizeof x);
        memcpy(&y, b + at, sizeof y);
        if (x != y) return false;
    }
    memcpy(&x, a + bytes - sizeof x, sizeof x);
    memcpy(&y, b + bytes - sizeof y, sizeof y);
    return x == y;
}

struct subject_node;

struct subject_pattern {
    struct subject_entries alone;
    struct subject_group *groups;
    union {
        struct subject_node *node;         /* in the trie, if the pattern has a wildcard */
        struct subject_pattern *next_hash; /* next in the bucket, if it has none */
    };
    uint64_t hash; /* 0: the pattern has a wildcard */
    uint32_t bytes;
    char text[]; /* there may be millions of patterns, so no padding before it */
};

static inline uint32_t subject_groups(const struct subject_pattern *p) {
    return p->groups ? p->groups->count : 0;
}

/* Working memory of a match: one for each thread that matches. */
struct subject_walk;
struct subject_walk *subject_walk_new(void);
void subject_walk_free(struct subject_walk *walk);

/* `key` must be unknown to the strangers who choose names. NULL when memory is short. */
struct subjects *subjects_new(struct siphash_key key);
/* The same without a cache of matches, for many small sets. */
struct subjects *subjects_new_small(struct siphash_key key);
/* All entries must have been removed. */
void subjects_free(struct subjects *subjects);

/* Valid: no empty token, and ">" only as the last. */
bool subject_pattern_is_valid(const void *pattern, size_t bytes);
/* Whether a token is "*", or the last one ">". */
bool subject_has_wildcard(const void *pattern, size_t bytes);
/* Whether every subject that `inner` matches is matched by `outer`; both are valid patterns (or subjects). */
bool subject_covers(const void *outer, size_t outer_bytes, const void *inner, size_t inner_bytes);
/* Whether some subject matches both. */
bool subject_overlaps(const void *one, size_t one_bytes, const void *other, size_t other_bytes);

/* Adds an entry, whose weight is set, to a valid pattern; `queue_bytes` 0: in no group. False, with nothing changed,
 * when memory is short. *first: the pattern (with a queue: the group) had no entry before. */
bool subjects_add(struct subjects *subjects, struct subject_entry *entry, const void *pattern, size_t bytes,
                  const void *queue, size_t queue_bytes, bool *first);
/* Removes an entry. True if its pattern (if it was in a group: its group) now has none. */
bool subjects_remove(struct subjects *subjects, struct subject_entry *entry);
void subjects_weigh(struct subject_entry *entry, uint32_t weight);

uint64_t subjects_count(const struct subjects *subjects);
/* How many patterns have an entry; how many matches were looked for in the cache, and how many found there. */
uint64_t subjects_pattern_count(const struct subjects *subjects);
uint64_t subjects_looked(const struct subjects *subjects);
uint64_t subjects_hits(const struct subjects *subjects);
/* Of the cache: how many subjects, and to how many each fans out (a group counts once): the sum, and the largest. */
struct subjects_kept {
    uint64_t subjects, fanout, max_fanout;
};
/* Adds up the cache from *place on, which begins as 0. Subtracts from *left what it looked at, and stops when that is
 * 0. True when it has reached the end. */
bool subjects_kept(struct subjects *subjects, uint32_t *place, size_t *left, struct subjects_kept *out);

/* The patterns that match a subject: how many, and where. Valid until an entry is added or removed. A subject with an
 * empty token matches nothing. */
size_t subjects_match(struct subjects *subjects, struct subject_walk *walk, const void *subject, size_t bytes,
                      struct subject_pattern *const **out);

/* All patterns, in no order; nothing may be added or removed meanwhile. */
void subjects_each(struct subjects *subjects, void (*each)(void *context, struct subject_pattern *pattern),
                   void *context);

/* How far a walk over all patterns has come; it begins as all zeros. */
struct subjects_cursor {
    uint64_t at;
    uint32_t part;
};

/* The same piece by piece. Between pieces patterns may be added and removed; one that is there throughout is visited at
 * least once. Subtracts from *left what it looked at, and stops when that is 0; `each` may set it to 0. True when it
 * has reached the end. */
bool subjects_each_from(struct subjects *subjects, struct subjects_cursor *cursor, size_t *left,
                        void (*each)(void *context, struct subject_pattern *pattern), void *context);
/* A pattern by its text, or NULL if there is none with an entry. */
struct subject_pattern *subjects_find(const struct subjects *subjects, const void *pattern, size_t bytes);
/* All groups, by their names. */
struct subject_groups *subjects_groups(struct subjects *subjects);

#endif

/* What a set of subjects is made of: patterns, their entries, and queue groups. */
#ifndef MQ_SUBJECT_H
#define MQ_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The longest subject. A token takes at least a byte and a dot. */
enum { SUBJECT_MAX_BYTES = 64 << 10, SUBJECT_MAX_TOKENS = SUBJECT_MAX_BYTES / 2 };

struct subject_pattern;
struct subject_group;

struct subject_entry {
    struct subject_pattern *pattern; /* NULL: the entry is not in use */
    struct subject_group *group;     /* NULL: the entry is in no group */
    uint32_t place;
    uint32_t weight; /* in a group: how many members it stands for */
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

/* A place in a chain of a hash table: base/subject_groups.c. */
struct subject_link {
    struct subject_link *next;
};

/* A queue group of one pattern. Groups of one name count as one when several patterns match: base/subject_groups.h. */
struct subject_group {
    struct subject_link link;              /* must be first: in the table of groups by pattern and name */
    struct subject_group *next, *previous; /* in the pattern's list */
    struct subject_group *same;            /* the next gathered group of the same name, under another pattern */
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

/* --- subject_text.c --- */

/* Valid: no empty token, and ">" only as the last. */
bool subject_pattern_is_valid(const void *pattern, size_t bytes);
/* Whether a token is "*", or the last one ">". */
bool subject_has_wildcard(const void *pattern, size_t bytes);
/* Whether every subject that `inner` matches is matched by `outer`; both are valid patterns (or subjects). */
bool subject_covers(const void *outer, size_t outer_bytes, const void *inner, size_t inner_bytes);
/* Whether some subject matches both. */
bool subject_overlaps(const void *one, size_t one_bytes, const void *other, size_t other_bytes);

#endif

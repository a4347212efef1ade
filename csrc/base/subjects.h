/* Who wants which subject.
 *
 * A subject is tokens with dots between them. In a pattern "*" stands for any one token and ">", as the last, for one or
 * more. Entries stand under patterns, each alone or in a group (a queue group) of that pattern; an entry is embedded in
 * what its owner keeps of a subscription, and an owner may be anybody: a client, another process, another server.
 *
 * A match gives patterns, not entries: entries come and go without anything that was found before being wrong. Patterns
 * without wildcards are found by one look-up of the whole subject; the others are a trie. What was found is kept, as long as
 * no pattern with a wildcard, and not this subject as a pattern, is made or goes.
 *
 * Owns patterns and groups (base/subject_groups.h), never entries. Knows nothing of who an entry is. Not for use by several threads. Matching
 * allocates nothing, unless there are more patterns with wildcards than ever before.
 */
#ifndef MQ_SUBJECTS_H
#define MQ_SUBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/siphash.h"

/* The longest subject; a token is a byte and a dot at least. */
enum { SUBJECT_MAX_BYTES = 64 << 10, SUBJECT_MAX_TOKENS = SUBJECT_MAX_BYTES / 2 };

struct subjects;
struct subject_pattern;
struct subject_group;

struct subject_entry {
    struct subject_pattern *pattern; /* NULL: it stands nowhere */
    struct subject_group *group;     /* NULL: it is alone */
    uint32_t place;
    uint32_t weight; /* of a group's: how many members it stands for; at least 1 */
};

/* One needs no room of its own. */
struct subject_entries {
    union {
        struct subject_entry **items;
        struct subject_entry *one; /* while `capacity` is 0 */
    };
    uint32_t count, capacity;
};

static inline struct subject_entry **subject_entries_items(struct subject_entries *entries) {
    return entries->capacity ? entries->items : &entries->one;
}

struct subject_name;

/* A group of one pattern. One name is one group over all patterns that a subject matches: see base/subject_groups.h. */
struct subject_group {
    struct subject_group *next, *previous; /* of the pattern */
    struct subject_group *next_hash;
    struct subject_group *same; /* of that name, where several patterns have it that were gathered */
    struct subject_pattern *pattern;
    struct subject_name *name;
    struct subject_entries entries;
    uint64_t weight; /* of all entries */
    uint32_t count;  /* of the pattern's first: how many it has */
};

/* Where something is kept of a subject, in a table that holds one subject at each place and compares it: it is quick, and no
 * secret. Who finds subjects that share a place gains nothing but that they are looked for each time. */
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

/* As memcmp, for what is short as a rule. */
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
        struct subject_node *node;         /* of the trie, if it has a wildcard */
        struct subject_pattern *next_hash; /* of those without */
    };
    uint64_t hash; /* 0: it has a wildcard */
    uint32_t bytes;
    char text[]; /* there may be millions: it begins right behind */
};

static inline uint32_t subject_groups(const struct subject_pattern *p) {
    return p->groups ? p->groups->count : 0;
}

/* Room for a walk through a trie: one for all that a thread matches. */
struct subject_walk;
struct subject_walk *subject_walk_new(void);
void subject_walk_free(struct subject_walk *walk);

/* `key`: strangers who choose names must not know it. NULL when memory is short. */
struct subjects *subjects_new(struct siphash_key key);
/* The same, and nothing is kept of earlier matches: for sets that are small, and many. */
struct subjects *subjects_new_small(struct siphash_key key);
/* All entries must have been removed. */
void subjects_free(struct subjects *subjects);

/* No empty token, and ">" only as the last. */
bool subject_pattern_is_valid(const void *pattern, size_t bytes);
/* A token is "*", or the last is ">". */
bool subject_has_wildcard(const void *pattern, size_t bytes);
/* Whether every subject that `inner` matches is matched by `outer`; both are valid patterns (or subjects). */
bool subject_covers(const void *outer, size_t outer_bytes, const void *inner, size_t inner_bytes);
/* Whether some subject is matched by both. */
bool subject_overlaps(const void *one, size_t one_bytes, const void *other, size_t other_bytes);

/* Puts an entry (whose weight is set) under a valid pattern; `queue_bytes` 0: alone. False, with nothing changed, when
 * memory is short. `first`: the pattern (with a queue: the group) had no entry. */
bool subjects_add(struct subjects *subjects, struct subject_entry *entry, const void *pattern, size_t bytes,
                  const void *queue, size_t queue_bytes, bool *first);
/* True if the pattern (of one in a group: the group) has no entry now. */
bool subjects_remove(struct subjects *subjects, struct subject_entry *entry);
void subjects_weigh(struct subject_entry *entry, uint32_t weight);

uint64_t subjects_count(const struct subjects *subjects);
/* Patterns that have an entry; looked for and found in what is kept of earlier matches. */
uint64_t subjects_pattern_count(const struct subjects *subjects);
uint64_t subjects_looked(const struct subjects *subjects);
uint64_t subjects_hits(const struct subjects *subjects);
/* Of what is kept: subjects, and who has a message of each, a group once; all together and of the one with most. */
struct subjects_kept {
    uint64_t subjects, fanout, max_fanout;
};
/* Adds what is found from a place on, which begins with 0. Takes what it looked at off `left`, and stops when that is 0; true
 * when it has come to the end. */
bool subjects_kept(struct subjects *subjects, uint32_t *place, size_t *left, struct subjects_kept *out);

/* The patterns that match a subject: how many, and where. Valid until an entry is added or removed. A subject with an
 * empty token matches nothing. */
size_t subjects_match(struct subjects *subjects, struct subject_walk *walk, const void *subject, size_t bytes,
                      struct subject_pattern *const **out);

/* All patterns, in no order; nothing may be added or removed meanwhile. */
void subjects_each(struct subjects *subjects, void (*each)(void *context, struct subject_pattern *pattern),
                   void *context);

/* How far a walk over all patterns has come; it begins with zeroes. */
struct subjects_cursor {
    uint64_t at;
    uint32_t part;
};

/* The same a piece at a time, and between pieces patterns may be added and removed: one that is there from the first piece to
 * the last is come by once at least. Takes what it looked at off `left`, and stops when that is 0, which `each` may make
 * it; true when it has come to the end. */
bool subjects_each_from(struct subjects *subjects, struct subjects_cursor *cursor, size_t *left,
                        void (*each)(void *context, struct subject_pattern *pattern), void *context);
/* A pattern by its text; NULL if it has no entry. */
struct subject_pattern *subjects_find(const struct subjects *subjects, const void *pattern, size_t bytes);
/* All groups, by their names. */
struct subject_groups *subjects_groups(struct subjects *subjects);

#endif

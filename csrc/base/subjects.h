/* Who wants which subject.
 *
 * A subject is tokens separated by dots. In a pattern "*" stands for any one token, and ">" as the last token for one
 * or more. An entry belongs to a pattern, either alone or as a member of a queue group of that pattern. It is embedded
 * in its owner's record of a subscription; the owner may be a client, another process or another server.
 *
 * A match yields patterns, not entries, so that entries may come and go without making a cached match wrong. Patterns
 * without wildcards are found by one look-up of the whole subject, the others in a trie. A match is cached
 * (subject_cache.h) until a pattern with a wildcard, or this very subject as a pattern, is added or removed.
 *
 * Owns patterns and groups (base/subject_groups.h), never entries. Knows nothing of who an entry is. Not for use by
 * several threads. Matching allocates nothing, unless there are more patterns with wildcards than ever before, or the
 * cache is made or grows.
 */
#ifndef MQ_SUBJECTS_H
#define MQ_SUBJECTS_H

#include "base/siphash.h"
#include "base/subject.h"
#include "base/text.h"

struct subject_tail;
struct subjects;

/* Working memory of a match: one for each thread that matches. */
struct subject_walk;
struct subject_walk *subject_walk_new(void);
void subject_walk_free(struct subject_walk *walk);
/* Strangers choose patterns and subjects: a match may look at every part of all patterns, and find nothing. From now on
 * the parts that a match looks at beyond the first SUBJECT_FEW_PARTS are added to *looked. */
enum { SUBJECT_FEW_PARTS = 64 };
void subject_walk_count(struct subject_walk *walk, uint64_t *looked);

/* `key` must be unknown to the strangers who choose names. NULL when memory is short. */
struct subjects *subjects_new(struct siphash_key key);
/* The same without a cache of matches, for many small sets. */
struct subjects *subjects_new_small(struct siphash_key key);
/* All entries must have been removed. */
void subjects_free(struct subjects *subjects);

/* Adds an entry, whose weight is set, to a valid pattern; `queue_bytes` 0: in no group. False, with nothing changed,
 * when memory is short. *first: the pattern (with a queue: the group) had no entry before. */
bool subjects_add(struct subjects *subjects, struct subject_entry *entry, const void *pattern, size_t bytes,
                  const void *queue, size_t queue_bytes, bool *first);
/* Removes an entry. True if its pattern (if it was in a group: its group) now has none. */
bool subjects_remove(struct subjects *subjects, struct subject_entry *entry);
/* 0: it is still there, but stands for nobody. */
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

/* The patterns that match a subject: how many, and where. Valid until the next match, or until an entry is added or
 * removed. A subject with an empty token matches nothing. */
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
/* The entries of a pattern, of those alone or of those in a group; NULL: there are none. `subjects` may be NULL. */
struct subject_entries *subjects_entries(struct subjects *subjects, struct text pattern, struct text group);

/* Begins a tail (subject_tail.h) with the entries of a pattern that are in no group, from `begin` on. It must be ended,
 * whatever becomes of the pattern. */
void subjects_tail_begin(struct subjects *subjects, struct subject_tail *tail, struct subject_pattern *pattern,
                         uint32_t begin);
void subjects_tail_end(struct subjects *subjects, const struct subject_tail *tail);

#endif

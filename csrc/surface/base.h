/* What Python can call of csrc/base; see csrc/build.py. */

/* == base/process == */

void process_name(const char *name);
void process_dies_with_parent(void);
void process_readable(void);
void process_trim(void);

/* == base/crc32c == */

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_extend_streams(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_extend_portable(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_advance(uint32_t state, uint64_t bytes);

/* == base/json_members == */

size_t json_members(const void *text, size_t bytes, const uint8_t *names, void *out);

/* == base/login_attempts == */

#define LOGIN_SOURCES      ...
#define LOGIN_FREE         ...
#define LOGIN_FIRST_MS     ...
#define LOGIN_LONGEST_MS   ...
#define LOGIN_MAX_WAIT_MS  ...
#define LOGIN_FORGOTTEN_MS ...

struct login_attempts {
    ...;
};
void login_attempts_format(struct login_attempts *all, uint64_t seed);
int64_t login_attempt_begin(struct login_attempts *all, const char *source, size_t bytes, uint64_t now_ns);
void login_attempt_right(struct login_attempts *all, const char *source, size_t bytes);

/* == base/s2 == */

int64_t s2_decoded_bytes(const uint8_t *block, size_t bytes);
int64_t s2_decode(const uint8_t *block, size_t bytes, uint8_t *out, size_t room);
enum s2_level { S2_NONE, S2_FAST, S2_BETTER, S2_BEST };
enum { S2_ENCODED_EXTRA = 32 };
size_t s2_encode(const uint8_t *in, size_t bytes, uint8_t *out, size_t room, enum s2_level level);

/* == base/subjects == */

struct subjects;
struct subject_tail;
struct subject_walk;
struct subject_groups;
struct subject_name;
struct subject_group {
    struct subject_group *next, *same;
    struct subject_name *name;
    uint64_t weight;
    ...;
};
struct subject_entries {
    uint32_t count, capacity;
    ...;
};
struct subject_pattern {
    struct subject_entries alone;
    struct subject_group *groups;
    uint32_t bytes;
    ...;
};
struct subject_entry {
    struct subject_pattern *pattern;
    struct subject_group *group;
    uint32_t place, weight;
};

struct subject_walk *subject_walk_new(void);
void subject_walk_free(struct subject_walk *walk);
struct siphash_key {
    uint64_t words[2];
};
struct siphash_key siphash_key(uint64_t seed);
struct subjects *subjects_new(struct siphash_key key);
void subjects_free(struct subjects *subjects);
bool subject_pattern_is_valid(const void *pattern, size_t bytes);
bool subject_has_wildcard(const void *pattern, size_t bytes);
bool subject_covers(const void *outer, size_t outer_bytes, const void *inner, size_t inner_bytes);
bool subject_overlaps(const void *one, size_t one_bytes, const void *other, size_t other_bytes);
bool subjects_add(struct subjects *subjects, struct subject_entry *entry, const void *pattern, size_t bytes,
                  const void *queue, size_t queue_bytes, bool *first);
bool subjects_remove(struct subjects *subjects, struct subject_entry *entry);
void subjects_weigh(struct subject_entry *entry, uint32_t weight);
uint64_t subjects_count(const struct subjects *subjects);
uint64_t subjects_pattern_count(const struct subjects *subjects);
uint64_t subjects_hits(const struct subjects *subjects);
struct subjects_kept {
    uint64_t subjects, fanout, max_fanout;
};
bool subjects_kept(struct subjects *subjects, uint32_t *place, size_t *left, struct subjects_kept *out);
size_t subjects_match(struct subjects *subjects, struct subject_walk *walk, const void *subject, size_t bytes,
                      struct subject_pattern *const **out);
struct subject_groups *subjects_groups(struct subjects *subjects);
void subjects_tail_begin(struct subjects *subjects, struct subject_tail *tail, struct subject_pattern *pattern,
                         uint32_t begin);
void subjects_tail_end(struct subjects *subjects, const struct subject_tail *tail);
struct subject_entry **subject_entries_items(struct subject_entries *entries);

/* == base/subject_tail == */

struct subject_tail {
    struct subject_entries *entries;
    uint32_t begin, end;
    ...;
};

/* == base/subject_groups == */

#define SUBJECT_NAME_OFFSET ...

struct subject_name {
    struct subject_group *found;
    uint64_t weight;
    uint32_t bytes;
    ...;
};
size_t subject_groups_gather(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count);
struct text {
    const uint8_t *at;
    size_t bytes;
};
void subject_groups_gather_named(struct subject_groups *groups, struct subject_pattern *const *patterns, size_t count,
                                 const struct text *names, size_t names_count);
struct subject_name *subject_groups_named(const struct subject_groups *groups, const void *name, size_t bytes);
struct subject_entry *subject_name_pick(const struct subject_name *name, uint64_t nth);

/* What Python can call of csrc/log; see csrc/build.py. */

/* == log/sync == */

struct syncer;

struct syncer *syncer_new(int wake_fd, int (*sync_fd)(int fd));
void syncer_free(struct syncer *syncer);
bool syncer_request(struct syncer *syncer, uint64_t ticket, const int *fds, size_t count, bool wake);
bool syncer_busy(const struct syncer *syncer);
uint64_t syncer_done(const struct syncer *syncer);
int syncer_error(const struct syncer *syncer);
int syncer_failed_fd(const struct syncer *syncer);

/* == log/spares == */

struct spares {
    uint32_t count;
    ...;
};
void spares_free(struct spares *spares);
int spares_next(struct spares *spares);
bool spares_trim(struct spares *spares, uint64_t now_ns);
bool spares_trim_log(struct log *log, uint64_t now_ns);

/* == log/layout == */

#define SEGMENT_MAGIC   ...
#define SEGMENT_VERSION ...
#define SEGMENT_OLDEST  ...
#define SEGMENT_BYTES   ...

struct segment_header {
    uint64_t magic;
    uint32_t version, shard, shards, segment;
    uint64_t time_ns;
    uint32_t previous_end, missing;
    uint64_t log_began_ns;
    uint32_t reserved[3];
    uint32_t crc;
};
struct record {
    uint32_t bytes;
    uint32_t crc;
    uint8_t kind;
    uint8_t attribute_bytes;
    uint16_t flags;
    uint32_t topic;
    uint64_t seq;
    uint64_t time_ns;
    uint64_t id;
};
typedef uint64_t log_position;
const void *record_attributes(const struct record *r);
const void *record_body(const struct record *r);
size_t record_body_bytes(const struct record *r);
uint64_t record_stride(const struct record *r);

/* == log/log == */

#define SEGMENT_MAX_BYTES ...

enum log_result { LOG_OK, LOG_NO_SPACE, LOG_FAILING, ... };
struct log;

struct log *log_new(uint32_t shard, uint32_t shards);
void log_free(struct log *log);
bool log_add_segment(struct log *log, int fd, uint32_t segment, uint64_t bytes, bool is_new, uint64_t end_offset,
                     uint64_t now_wall_ns);
uint64_t log_wants_segment(const struct log *log);
bool log_allocate_ahead(int fd, uint64_t bytes);
void log_use_spares(struct log *log, struct spares *spares);
void log_prepare_pages(struct log *log);
enum log_result log_reserve(struct log *log, size_t records, size_t bytes, uint64_t keep_bytes, uint64_t now_wall_ns);
log_position log_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                        size_t body_bytes);
log_position log_append_lent(struct log *log, const struct record *head, const void *attributes, const void *body,
                             size_t body_bytes);
enum log_result log_flush(struct log *log);
const struct record *log_read(const struct log *log, log_position position);
const struct record *log_find(const struct log *log, log_position position);
const void *log_body(const struct log *log, const struct record *r);
bool log_map_apart(const struct log *log, const void *bytes, size_t count, uint8_t **map, size_t *map_bytes,
                   const uint8_t **at);
uint32_t log_first_segment(const struct log *log);
uint32_t log_active_segment(const struct log *log);
uint64_t log_segment_end(const struct log *log, uint32_t segment);
void log_drop_first(struct log *log);
uint64_t log_bytes(const struct log *log);
uint64_t log_ahead_bytes(const struct log *log);
uint64_t log_records(const struct log *log);
int log_errno(const struct log *log);
int log_fd(const struct log *log);
uint64_t log_appended(const struct log *log);
uint64_t log_flushed(const struct log *log);
uint64_t log_synced(const struct log *log);
size_t log_unsynced_fds(const struct log *log, int *fds, size_t max, uint64_t *upto);
void log_mark_synced(struct log *log, uint64_t upto);
bool log_keep_copies(struct log *log, int fd, uint32_t segment);
void log_copy(struct log *log, log_position position);

/* == log/copies == */
bool copies_are_of(const void *bytes, size_t count, uint32_t segment);

/* == log/heads == */

enum heads_written { HEADS_WRITTEN, HEADS_UNFIT, HEADS_FAILED, ... };
enum heads_written heads_write(int segment_fd, int heads_fd, uint64_t end, uint64_t most);
enum heads_found { HEADS_FOUND, HEADS_OTHER, HEADS_DAMAGED, ... };

/* == log/large == */

enum log_result log_large_begin(struct log *log, uint64_t before, uint8_t attribute_bytes, uint64_t body_bytes,
                                uint64_t keep_bytes);

/* == log/log_scan == */

int log_scan(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record, uint64_t *bad);
bool log_truncate(struct log *log, uint32_t segment, uint64_t offset);

/* == log/records == */

#define RECORD_TOPIC         ...
#define RECORD_PUBLISH       ...
#define RECORD_STATE         ...
#define RECORD_MOVED         ...
#define RECORD_SUBSCRIPTION  ...
#define RECORD_CURSOR        ...
#define RECORD_FINISH        ...
#define RECORD_TOPIC_GONE    ...
#define RECORD_STAGED        ...
#define RECORD_TXN_END       ...
#define TOPIC_DURABLE        ...
#define TOPIC_STOPPED        ...
#define TOPIC_SAID           ...
#define TOPIC_NON_PERSISTENT ...
#define PUBLISH_MORE         ...
#define TXN_COMMIT           ...
#define MESSAGE_HEADERS      ...
#define SUBSCRIPTION_PAUSED  ...
struct publish_attributes {
    uint32_t pri, unused;
    uint64_t delay_ns, ttr_ns;
};
struct state_attributes {
    uint32_t pri, state, reserves, timeouts, releases, buries, kicks, unused;
    uint64_t delay_ns, deadline_wall_ns;
};
struct publish_attributes publish_attributes_of(const struct record *r);

/* == log/scan == */

enum { SCAN_END, SCAN_FULL, SCAN_PART, SCAN_BAD, ... };

struct scan_columns {
    uint8_t *kind, *attribute_bytes;
    uint16_t *flags;
    uint32_t *topic;
    uint64_t *seq, *time_ns, *id, *offset;
    uint32_t *bytes;
};
struct scan_result {
    uint64_t records, offset, needs;
    uint32_t stop;
};

void scan_records(const uint8_t *base, size_t bytes, uint32_t segment, bool check, uint64_t kinds,
                  const struct scan_columns *out, size_t room, struct scan_result *result);
size_t scan_find(const uint8_t *base, size_t bytes, size_t from, uint32_t segment);
bool scan_gather_file(int fd, const uint64_t *offset, const uint32_t *length, size_t count, uint8_t *out,
                      uint8_t *scratch, size_t scratch_bytes);

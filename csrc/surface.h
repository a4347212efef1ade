/* All that Python can call of the C core. One section a module, in the order in which a message travels. */

/* == ringbuf/ring == */

struct ring_shared {
    ...;
};
struct ring_producer {
    uint64_t data_bytes, tail, published, head;
    uint64_t wakes;
    bool broken;
    struct ring_shared *shared;
    ...;
};
struct ring_consumer {
    uint64_t data_bytes;
    uint64_t head;
    uint64_t released;
    uint64_t tail;
    uint64_t wakes;
    bool broken;
    struct ring_shared *shared;
    ...;
};

int ring_format(int fd, uint64_t data_bytes, uint64_t epoch);
uint64_t ring_epoch(const struct ring_shared *shared);
uint64_t ring_max_payload(uint64_t data_bytes);

int ring_producer_open(struct ring_producer *producer, int fd, int wake_fd);
void ring_producer_close(struct ring_producer *producer);
void *ring_reserve(struct ring_producer *producer, uint64_t payload_bytes);
void ring_commit(struct ring_producer *producer, uint32_t flags);
bool ring_publish_to(struct ring_producer *producer, uint64_t tail);
bool ring_producer_may_sleep(struct ring_producer *producer);
void ring_producer_awake(struct ring_producer *producer);

int ring_consumer_open(struct ring_consumer *consumer, int fd, int wake_fd);
void ring_consumer_close(struct ring_consumer *consumer);
const void *ring_peek(struct ring_consumer *consumer, uint32_t *payload_bytes, uint32_t *flags);
void ring_consume(struct ring_consumer *consumer);
bool ring_release(struct ring_consumer *consumer);
bool ring_consumer_may_sleep(struct ring_consumer *consumer);
void ring_consumer_awake(struct ring_consumer *consumer);

/* == ringbuf/channel == */

struct message {
    uint8_t kind;
    uint8_t status;
    uint16_t flags;
    uint32_t conn;
    union {
        uint32_t slot, consumer;
    };
    uint32_t topic;
    union {
        uint64_t id, shard, credit, sent_bytes, most, kicked;
    };
    union {
        uint32_t pri, count, change, with_consumers, consumer_number, attempts, refused, active, start, why,
            producer_number, epoch, refusal;
    };
    uint32_t body_bytes;
    union {
        uint64_t delay_ns, wait_ns, time_ns, incarnation;
    };
    union {
        uint64_t ttr_ns, seq;
    };
};
struct headers {
    uint32_t bytes;
    uint16_t tag, parts;
    uint32_t key_hash, packed_bytes;
};

#define MSG_HEADERS         ...
#define MSG_PRIORITY        ...
#define MSG_UPTO            ...
#define MSG_PARTS           ...
#define MSG_RETAIN          ...
#define MSG_BY_SEQ          ...
#define MSG_ALL             ...
#define MSG_PERMITS         ...
#define MSG_DISMISS         ...
#define MSG_SEEK            ...
#define MSG_POSITION        ...
#define MSG_PEEK_SEQ        ...
#define MSG_SCAN            ...
#define MSG_COMPACT         ...
#define MSG_TXN_ACK         ...
#define MSG_TXN_END         ...
#define MSG_TXN_LIST        ...
#define START_LATEST        ...
#define START_EARLIEST      ...
#define START_SEQ           ...
#define START_TIME          ...
#define DISMISSED_DELETED   ...
#define DISMISSED_MOVED     ...
#define SUBSCRIBE_START     ...
#define SUBSCRIBE_UNCOUNTED ...
#define SUBSCRIBE_COMPACTED ...
#define STATUS_TERMINATED   ...
#define SUBSCRIBE_POLICY    ...
#define POLICY_TURNS        ...
#define POLICY_EXCLUSIVE    ...
#define POLICY_FAILOVER     ...
#define POLICY_KEY          ...
#define MSG_ACTIVE          ...
#define MSG_ATTACH          ...
#define MSG_DETACH          ...
#define MSG_ATTACHED        ...
#define NO_PLACE            ...
#define ATTACH_NAME_MAX     ...
#define ATTACH_NAME_TAKEN   ...
#define ATTACH_EXCLUDED     ...
#define ATTACH_OTHERS       ...
#define ATTACH_OUTDATED     ...
#define HEADERS_MAX_BYTES   ...
#define HEADERS_NATS        ...
#define HEADERS_PULSAR      ...
#define HEADERS_SPARK       ...
#define STATUS_INVALID      ...
#define SUBSCRIBE_HEADERS   ...

struct channel;
struct channel_counters {
    uint64_t wakes;
    uint64_t overflow_bytes;
    uint64_t overflow_peak_bytes;
};

struct channel *channel_open(int out_fd, int in_fd, int peer_wake_fd, size_t max_message_bytes);
void channel_close(struct channel *channel);
void channel_send(struct channel *channel, const struct message *header, const void *body, size_t body_bytes);
struct message *channel_reserve(struct channel *channel, size_t body_bytes);
void channel_sent(struct channel *channel);
bool channel_backlogged(struct channel *channel);
uint64_t channel_tail(const struct channel *channel);
bool channel_publish(struct channel *channel);
bool channel_publish_to(struct channel *channel, uint64_t tail);
const struct message *channel_receive(struct channel *channel);
void channel_release(struct channel *channel);
bool channel_may_sleep(struct channel *channel);
bool channel_may_sleep_until_room(struct channel *channel);
void channel_awake(struct channel *channel);
bool channel_broken(const struct channel *channel);
uint64_t channel_epoch(const struct channel *channel);
struct channel_counters channel_counters(const struct channel *channel);

/* == acceptor/acceptor == */

#define UPCALL_COMMAND        ...
#define UPCALL_ANSWER         ...
#define UPCALL_CLOSED         ...
#define UPCALL_CONTROL        ...
#define UPCALL_BROKEN         ...
#define UPCALL_INPUT          ...
#define UPCALL_OUTPUT         ...
#define UPCALL_CLOSING        ...
#define UPCALL_POKED          ...
#define UPCALL_CANNOT_ACCEPT  ...
#define MSG_PUBLISH           ...
#define MSG_PEEK_ID           ...
#define MSG_PEEK_READY        ...
#define MSG_PEEK_DELAYED      ...
#define MSG_PEEK_BURIED       ...
#define MSG_KICK              ...
#define MSG_KICK_ID           ...
#define MSG_PAUSE             ...
#define MSG_STATS_ID          ...
#define MSG_STATS_TOPIC       ...
#define MSG_LIST              ...
#define MSG_PUBLISH_MANY      ...
#define MSG_SUBSCRIBE         ...
#define MSG_CHANGE            ...
#define MSG_CATALOG           ...
#define MSG_DURABLE           ...
#define MSG_IDEMPOTENT        ...
#define SUBSCRIBE_EPHEMERAL   ...
#define DESCRIPTION_MAX_BYTES ...
#define CHANGE_MAKE           ...
#define CHANGE_DELETE         ...
#define CHANGE_EMPTY          ...
#define CHANGE_PAUSE          ...
#define CHANGE_UNPAUSE        ...
#define CHANGE_RETAIN         ...
#define CHANGE_TERMINATE      ...
#define FIGURES_PAUSED        ...
#define FIGURES_EPHEMERAL     ...
#define FIGURES_DURABLE       ...
#define STATUS_OK             ...
#define STATUS_NONE           ...
#define STATUS_NOT_FOUND      ...
#define STATUS_NO_SPACE       ...
#define STATUS_FAILED         ...
#define STATUS_FULL           ...
#define STATUS_EARLY          ...
#define STATUS_TOO_MANY       ...
#define JOB_READY             ...
#define JOB_RESERVED          ...
#define JOB_DELAYED           ...
#define JOB_BURIED            ...
#define TOPIC_NAME_BYTES      ...

struct subscribe {
    uint64_t timeout_ns, timeout_max_ns;
    uint32_t sample_percent, max_consumers;
    uint16_t name_bytes, flags;
    uint32_t description_bytes;
};
struct publish_priority {
    uint32_t pri, unused;
};
struct producer_part {
    uint64_t writer, batch;
    uint32_t part, more;
};
struct attach {
    uint32_t access, unused;
    uint64_t epoch, least;
};
struct topic_figures {
    uint32_t name_bytes, flags, channels, shard;
    uint64_t depth, messages, message_bytes, jobs;
};
struct channel_figures {
    uint32_t name_bytes, flags, consumers, consumers_listed;
    uint64_t depth, in_flight, deferred, messages, requeues, timeouts;
};
struct consumer_figures {
    uint32_t acceptor, conn, credit, in_flight;
    uint64_t messages, finishes, requeues;
    uint32_t description_bytes;
    uint16_t sample_percent, is_leaving;
};
struct position {
    uint64_t incarnation, began_seq, first_seq, next_seq, last_time_ns;
    uint16_t last_tag, last_parts;
    uint32_t terminated;
    uint64_t cursor, unfinished, depth, in_flight, last_seq, compacted_until, compacted_last, compacted_messages;
    uint16_t compacted_tag, compacted_parts;
    uint32_t unused;
};
struct job_stats {
    uint64_t id;
    uint32_t state;
    uint32_t pri;
    uint64_t age_ns, delay_ns, ttr_ns, time_left_ns;
    uint32_t file, reserves, timeouts, releases, buries, kicks;
};
struct topic_stats {
    uint64_t urgent, ready, reserved, delayed, buried, total, using, watching, waiting, deletes, pauses, pause_ns,
        pause_left_ns;
};
struct upcall {
    uint32_t kind;
    uint32_t conn;
    uint32_t protocol;
    struct message answer;
    const uint8_t *bytes;
    size_t bytes_count;
    ...;
};
struct broker_totals {
    uint64_t total_connections, connections;
    uint64_t urgent, ready, reserved, delayed, buried, topics, timeouts, total_jobs, published;
    uint64_t oldest_segment, current_segment, records_written, records_migrated;
    bool draining;
};

enum { HISTOGRAM_BUCKETS, HISTOGRAM_FIRST_SHIFT, ... };
enum board_duration { DURATION_TURN, DURATION_PUBLISH, DURATION_SYNC, ... };
struct acceptor;
struct acceptor *acceptor_new(uint32_t index, uint32_t workers, uint32_t shards, int board_fd, int wake_fd);
void acceptor_free(struct acceptor *a);
uint32_t acceptor_protocol(const char *name);
bool acceptor_is_name(uint32_t protocol, const char *name, size_t name_bytes);
int acceptor_set(struct acceptor *a, const char *option, uint64_t value);
int64_t acceptor_configure(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                           size_t bytes_count);
int acceptor_peer(struct acceptor *a, uint32_t worker, int out_fd, int in_fd, int peer_wake_fd);
void acceptor_peer_gone(struct acceptor *a, uint32_t worker);
int acceptor_mesh(struct acceptor *a, uint32_t other, int out_fd, int in_fd, int peer_wake_fd);
void acceptor_mesh_gone(struct acceptor *a, uint32_t other);
int acceptor_listen(struct acceptor *a, int fd, uint32_t protocol, bool filtered);
uint32_t acceptor_listener(const struct acceptor *a, uint32_t conn);
void acceptor_stop_listening(struct acceptor *a, uint32_t protocol);
uint32_t acceptor_adopt(struct acceptor *a, int fd, uint32_t protocol);
void acceptor_receive(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
int acceptor_socket(const struct acceptor *a, uint32_t conn, const uint8_t **bytes, size_t *bytes_count);
void acceptor_forget(struct acceptor *a, uint32_t conn);
int acceptor_control(struct acceptor *a, int fd);
void acceptor_quiesce(struct acceptor *a);
uint32_t acceptor_busy(const struct acceptor *a);

void acceptor_set_now(struct acceptor *a, uint64_t now_ns);
int acceptor_turn(struct acceptor *a);
int acceptor_run(struct acceptor *a, int64_t max_wait_ns);
bool acceptor_upcall(struct acceptor *a, struct upcall *out);

int64_t acceptor_request(struct acceptor *a, uint32_t worker, uint32_t conn, const struct message *request,
                         const void *body, size_t body_bytes);
void acceptor_reply(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
void acceptor_resume(struct acceptor *a, uint32_t conn);
void acceptor_close(struct acceptor *a, uint32_t conn);
int64_t acceptor_call(struct acceptor *a, uint32_t conn, const char *what, uint64_t value, const void *bytes,
                      size_t bytes_count, uint32_t *out, size_t out_limit);
int64_t acceptor_ask(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                     size_t bytes_count, void *out, size_t out_limit);
void acceptor_tell_published(struct acceptor *a, const char *topic, size_t topic_bytes, const void *body,
                             size_t body_bytes);
size_t acceptor_topic_name(const struct acceptor *a, uint32_t topic, char *out);
uint32_t acceptor_shard_of_name(const struct acceptor *a, const char *name, size_t name_bytes);
uint32_t acceptor_worker_of_topic(const struct acceptor *a, uint32_t topic);

uint32_t acceptor_bind(struct acceptor *a, const char *topic, size_t topic_bytes);

void acceptor_filter(struct acceptor *a, uint32_t conn);
void acceptor_feed(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count, bool more);
bool acceptor_is_filtered(const struct acceptor *a, uint32_t conn);
bool acceptor_websocket(struct acceptor *a, uint32_t conn, size_t frame_bytes, uint32_t flags);
void acceptor_send(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
size_t acceptor_remote(const struct acceptor *a, uint32_t conn, char *out, size_t limit);

uint32_t acceptor_local(struct acceptor *a);
uint64_t acceptor_take_ids(struct acceptor *a, uint32_t topic, uint32_t count);
int acceptor_fd(const struct acceptor *a);
int acceptor_poll(struct acceptor *a);
void acceptor_poke(struct acceptor *a);

bool acceptor_count(struct acceptor *a, uint32_t protocol, const char *counter);
const char *acceptor_counter(const struct acceptor *a, uint32_t protocol, uint32_t place, uint64_t *sum);
void acceptor_totals(const struct acceptor *a, struct broker_totals *out);
void acceptor_durations(const struct acceptor *a, uint32_t what, uint64_t *counts, uint64_t *sum_ns);
size_t acceptor_buffered_bytes(const struct acceptor *a);
void acceptor_catalog_versions(const struct acceptor *a, uint64_t *out);

/* == acceptor/websocket == */

#define WEBSOCKET_HEAD_BYTES ...
#define WEBSOCKET_MESSAGE    ...
#define WEBSOCKET_CONTROL    ...
#define WEBSOCKET_ENDED      ...
#define WEBSOCKET_PING       ...
#define WEBSOCKET_UNMASKED   ...
#define WEBSOCKET_BY_FILTER  ...
#define WEBSOCKET_BY_PYTHON  ...

struct websocket {
    uint8_t found;
    uint8_t opcode;
    uint8_t control_bytes;
    bool unmasked;
    bool compresses;
    bool is_compressed;
    uint8_t control[125];
    ...;
};
size_t websocket_take(struct websocket *ws, const uint8_t *in, size_t bytes, uint8_t *out, size_t *made);
size_t websocket_head(uint8_t *out, uint8_t first, uint64_t payload_bytes);

/* == acceptor/protocols/pulsar/pulsar_scan == */

#define MSG_UNSUBSCRIBE   ...
#define KEY_SLOTS         ...
#define KEY_MAX_RANGES    ...
#define CONSUMER_NAME_MAX ...

uint32_t pulsar_murmur(const uint8_t *data, size_t bytes);

/* == acceptor/protocols/go_quote == */

uint8_t *go_quote(uint8_t *out, const uint8_t *text, size_t bytes);

/* == shards/worker == */

bool board_format(int fd);

struct damage {
    uint32_t shard, segment;
    uint64_t offset, until;
};
struct unknown {
    uint32_t shard, segment;
    uint64_t offset;
    uint32_t kind;
};
struct replay {
    uint64_t records, jobs, bytes;
    uint32_t damages;
    struct damage damage[64];
    struct unknown unknown;
};

#define WORKER_CONTROL       ...
#define WORKER_WANTS_SEGMENT ...
#define WORKER_FAILING       ...
#define WORKER_NO_SPACE      ...

#define MSG_GONE        ...
#define MSG_DELETE      ...
#define MSG_CREDIT      ...
#define MSG_FINISH      ...
#define MSG_REQUEUE     ...
#define MSG_EXTEND      ...
#define MSG_SENT        ...
#define MSG_BARRIER     ...
#define MSG_UNSUBSCRIBE ...
#define MSG_DELIVER     ...
#define MSG_REFUSED     ...
#define MSG_DISMISSED   ...
#define MSG_IMPLICIT    ...

#define WINDOW_BYTES       ...
#define SHORT_WINDOW_BYTES ...

struct worker;
struct worker *worker_new(uint32_t index, uint32_t workers, uint32_t shards, int board_fd, int wake_fd, uint64_t seed);
void worker_free(struct worker *w);
bool worker_sync_mode(struct worker *w, int mode, uint64_t interval_ns);
void worker_spin(struct worker *w, uint64_t spin_ns);
void worker_push_at_most(struct worker *w, uint64_t bytes);
bool worker_own(struct worker *w, uint32_t shard);
bool worker_add_segment(struct worker *w, uint32_t shard, int fd, uint32_t segment, uint64_t bytes, bool is_new,
                        uint64_t wall_ns);
bool worker_keep_copies(struct worker *w, uint32_t shard, int fd, uint32_t segment);
void worker_skip(struct worker *w, uint32_t shard, uint32_t segments);
bool worker_replay(struct worker *w, uint32_t shard, struct replay *out, uint64_t now_ns, uint64_t wall_ns);
void worker_recovered(struct worker *w);
uint32_t worker_nameless(const struct worker *w, uint32_t shard, uint64_t *messages);
int64_t worker_wanting_shard(const struct worker *w, uint64_t *bytes, uint32_t *segment);
void worker_ask_segment(struct worker *w, uint32_t shard);
void worker_refuse_segment(struct worker *w, uint32_t shard);
void worker_retry_segments(struct worker *w);

uint64_t worker_longest_turn(struct worker *w);
void worker_limit_turn(struct worker *w, uint32_t steps);
uint32_t worker_dead_segments(struct worker *w, uint32_t shard);
uint32_t worker_first_segment(const struct worker *w, uint32_t shard);
uint32_t worker_active_segment(const struct worker *w, uint32_t shard);
uint64_t worker_appended(const struct worker *w, uint32_t shard);
uint64_t worker_synced(const struct worker *w, uint32_t shard);
bool worker_drop_first(struct worker *w, uint32_t shard);
enum names_moved { NAMES_MORE, NAMES_MOVED, NAMES_NO_ROOM };
uint32_t worker_move_names(struct worker *w, uint32_t shard, uint32_t until);
uint64_t worker_segment_names(const struct worker *w, uint32_t shard, uint32_t segment);
uint64_t worker_next_seq(const struct worker *w, const char *name, size_t bytes);
void worker_limit_topics(struct worker *w, uint32_t limit);
uint32_t worker_topics(const struct worker *w);
void worker_keep_topics(struct worker *w, uint32_t shard, const char *names, size_t bytes);
uint64_t worker_segment_bytes(const struct worker *w, uint32_t shard, uint32_t segment);
void worker_roll(struct worker *w, uint32_t shard);
int worker_disk_errno(const struct worker *w);
uint64_t worker_live_jobs(struct worker *w, uint32_t shard, uint32_t segment, uint64_t *total);
bool worker_compact(struct worker *w, uint32_t shard, uint64_t budget);
bool worker_peer(struct worker *w, uint32_t acceptor, int out_fd, int in_fd, int peer_wake_fd);
void worker_peer_gone(struct worker *w, uint32_t acceptor);

bool worker_turn(struct worker *w, uint64_t now_ns, uint64_t wall_ns);
void worker_read_clock(struct worker *w, bool reads);
uint64_t worker_next_ns(const struct worker *w);
uint32_t worker_run(struct worker *w, int control_fd, uint64_t max_wait_ns);
bool worker_flush(struct worker *w);

/* == base/subjects == */

#define SUBJECT_GROUP_NAME_OFFSET ...

struct subjects;
struct subject_walk;
struct subject_group {
    struct subject_group *next;
    uint64_t weight;
    uint32_t name_bytes;
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
uint64_t subjects_looked(const struct subjects *subjects);
uint64_t subjects_hits(const struct subjects *subjects);
size_t subjects_match(struct subjects *subjects, struct subject_walk *walk, const void *subject, size_t bytes,
                      struct subject_pattern *const **out);
bool subject_group_seen(struct subject_pattern *const *patterns, size_t at, const struct subject_group *group);
struct subject_entry *subject_group_pick(struct subject_pattern *const *patterns, size_t at, size_t count,
                                         const struct subject_group *group, uint64_t random);
struct subject_entry **subject_entries_items(struct subject_entries *entries);

/* == base/process == */

void process_name(const char *name);
void process_dies_with_parent(void);
void process_readable(void);

/* == base/crc32c == */

uint32_t crc32c_extend(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_extend_portable(uint32_t crc, const void *data, size_t bytes);
uint32_t crc32c_advance(uint32_t state, uint64_t bytes);

/* == base/s2 == */

int64_t s2_decoded_bytes(const uint8_t *block, size_t bytes);
int64_t s2_decode(const uint8_t *block, size_t bytes, uint8_t *out, size_t room);

/* == log/sync == */

struct syncer;

struct syncer *syncer_new(int wake_fd, int (*sync_fd)(int fd));
void syncer_free(struct syncer *syncer);
bool syncer_request(struct syncer *syncer, uint64_t ticket, const int *fds, size_t count, bool wake);
bool syncer_busy(const struct syncer *syncer);
uint64_t syncer_done(const struct syncer *syncer);
int syncer_error(const struct syncer *syncer);

/* == log/log == */

#define SEGMENT_MAGIC     ...
#define SEGMENT_VERSION   ...
#define SEGMENT_OLDEST    ...
#define SEGMENT_BYTES     ...
#define SEGMENT_MAX_BYTES ...

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
enum log_result { LOG_OK, LOG_NO_SPACE, LOG_FAILING, ... };
struct log;

struct log *log_new(uint32_t shard, uint32_t shards);
void log_free(struct log *log);
bool log_add_segment(struct log *log, int fd, uint32_t segment, uint64_t bytes, bool is_new, uint64_t end_offset,
                     uint64_t now_wall_ns);
uint64_t log_wants_segment(const struct log *log);
enum log_result log_reserve(struct log *log, size_t records, size_t bytes, uint64_t keep_bytes, uint64_t now_wall_ns);
log_position log_append(struct log *log, const struct record *head, const void *attributes, const void *body,
                        size_t body_bytes);
enum log_result log_flush(struct log *log);
const struct record *log_read(const struct log *log, log_position position);
const void *record_attributes(const struct record *r);
const void *record_body(const struct record *r);
size_t record_body_bytes(const struct record *r);
uint64_t record_stride(const struct record *r);
int log_scan(const struct log *log, uint32_t segment, uint64_t *offset, const struct record **record, uint64_t *bad);
bool log_truncate(struct log *log, uint32_t segment, uint64_t offset);
uint32_t log_first_segment(const struct log *log);
uint32_t log_active_segment(const struct log *log);
uint64_t log_segment_end(const struct log *log, uint32_t segment);
void log_drop_first(struct log *log);
uint64_t log_bytes(const struct log *log);
uint64_t log_ahead_bytes(const struct log *log);
uint64_t log_records(const struct log *log);
int log_errno(const struct log *log);
uint64_t log_appended(const struct log *log);
uint64_t log_flushed(const struct log *log);
uint64_t log_synced(const struct log *log);
size_t log_unsynced_fds(const struct log *log, int *fds, size_t max, uint64_t *upto);
void log_mark_synced(struct log *log, uint64_t upto);
bool log_keep_copies(struct log *log, int fd, uint32_t segment);
void log_copy(struct log *log, log_position position);

/* == pipeline/decode == */

enum { DECODE_MAX_ATTRIBUTES, DECODE_ATTRIBUTE_NAME_BYTES, DECODE_ATTRIBUTE_VALUE_BYTES, ... };
enum { DECODE_HEADERS_ENTRIES, DECODE_HEADERS_NAME_BYTES, DECODE_HEADERS_VALUE_BYTES, ... };
enum { DECODE_ID_MOST_BYTES, DECODE_ID_PREFIX_BYTES, ... };

struct run {
    uint32_t segment, records;
    uint64_t bytes;
};
struct decode_columns {
    size_t capacity, count;
    int64_t *seq, *time_us;
    int32_t *batch_index;
    uint8_t *ids;
    int32_t *id_offsets;
    uint8_t id_prefix[...];
    uint8_t *bodies;
    int32_t *body_offsets;
    size_t body_capacity, body_bytes;
    int32_t *attribute_offsets, *name_offsets;
    uint8_t *names;
    int32_t *value_offsets;
    uint8_t *values;
};
struct decoder {
    struct run run;
    uint64_t next_seq, end_seq;
    uint64_t gap_from, gap_until, gaps_from;
    uint64_t missing, needs, rows, within;
    uint32_t next_part, compression, opened_size;
    uint64_t packed_at, packed_bytes;
    uint32_t was_opened;
    const uint8_t *opened;
};
enum decode_result { DECODE_MORE, DECODE_FULL, DECODE_CORRUPT, DECODE_PACKED, DECODE_MISPLACED };
enum decode_result decode_runs(struct decoder *decoder, const void *input, size_t bytes, size_t *used,
                               struct decode_columns *out);

/* == pipeline/encode == */

#define ENCODE_SIZE_BYTES ...

struct encode_column {
    const int32_t *offsets;
    const int64_t *large_offsets;
    size_t rows;
    const uint8_t *data;
    size_t bytes;
};

int64_t encode_many(const struct encode_column *column, const int64_t *rows, size_t first, size_t count, uint8_t *out,
                    size_t room, size_t *used);

/* == pipeline/contents == */

struct encode_attributes {
    const int32_t *begins, *ends;
    size_t entries;
    const int32_t *name_offsets, *value_offsets;
    const uint8_t *names, *values;
    size_t name_bytes, value_bytes;
    const uint32_t *key_hashes;
};
enum { CONTENTS_ROW_BYTES, CONTENTS_ENTRY_BYTES, CONTENTS_UNSOUND, CONTENTS_TOO_MANY, CONTENTS_NAMELESS, ... };

int64_t encode_contents(const struct encode_column *bodies, const struct encode_attributes *attributes,
                        int64_t *offsets, uint8_t *out, size_t room, size_t *row);

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

/* == ringbuf/many == */

int64_t many_count(const uint8_t *at, size_t bytes, uint32_t max_bytes);
bool many_have_headers(const uint8_t *at, size_t bytes);

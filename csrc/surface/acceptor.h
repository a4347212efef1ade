/* What Python can call of csrc/acceptor; see csrc/build.py. */

/* == acceptor/calls == */

#define UPCALL_COMMAND       ...
#define UPCALL_ANSWER        ...
#define UPCALL_CLOSED        ...
#define UPCALL_CONTROL       ...
#define UPCALL_BROKEN        ...
#define UPCALL_INPUT         ...
#define UPCALL_OUTPUT        ...
#define UPCALL_CLOSING       ...
#define UPCALL_POKED         ...
#define UPCALL_CANNOT_ACCEPT ...
#define UPCALL_GAVE_WAY      ...
#define WEBSOCKET_UNMASKED   ...
#define WEBSOCKET_BY_FILTER  ...
#define WEBSOCKET_BY_PYTHON  ...
#define WEBSOCKET_MASKS      ...

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
    uint64_t total_connections, connections, gave_way;
    uint64_t urgent, ready, reserved, delayed, buried, topics, timeouts, total_jobs, published;
    uint64_t oldest_segment, current_segment, records_written, records_migrated, unreadable;
    bool draining;
};

enum { HISTOGRAM_BUCKETS, HISTOGRAM_FIRST_SHIFT, ... };
enum board_stall { WAITS_WORKER, WAITS_ACCEPTOR, WAITS_CLIENT, WAITS_ROOM, WAITS_SEGMENT, BOARD_STALLS, ... };
struct loop_figures {
    uint64_t busy_ns, long_turns;
    uint64_t stalls[...];
};
enum board_duration { DURATION_TURN, DURATION_PUBLISH, DURATION_SYNC, ... };
struct acceptor;
struct codec_table;
struct acceptor *acceptor_new(const struct codec_table *codecs, uint32_t index, uint32_t workers, uint32_t shards,
                              int board_fd, int wake_fd);
void acceptor_free(struct acceptor *a);
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
void acceptor_receive(struct acceptor *a, uint32_t conn, uint32_t listener, const void *bytes, size_t bytes_count);
int acceptor_socket(const struct acceptor *a, uint32_t conn, const uint8_t **bytes, size_t *bytes_count);
void acceptor_forget(struct acceptor *a, uint32_t conn);
size_t acceptor_take(struct acceptor *a, uint32_t conn, void *room, size_t most);
int acceptor_control(struct acceptor *a, int fd);
void acceptor_quiesce(struct acceptor *a);
uint32_t acceptor_servers(const struct acceptor *a);
void acceptor_part(struct acceptor *a, uint32_t conn);
void acceptor_say_quiet(struct acceptor *a);
bool acceptor_others_are_quiet(struct acceptor *a);
uint32_t acceptor_busy(const struct acceptor *a);

void acceptor_set_now(struct acceptor *a, uint64_t now_ns);
int acceptor_turn(struct acceptor *a);
void acceptor_pause(struct acceptor *a);
int acceptor_run(struct acceptor *a, int64_t max_wait_ns);
bool acceptor_upcall(struct acceptor *a, struct upcall *out);

int64_t acceptor_request(struct acceptor *a, uint32_t worker, uint32_t conn, const struct message *request,
                         const void *body, size_t body_bytes);
void acceptor_reply(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
struct shared_bytes *acceptor_share(struct acceptor *a, const void *bytes, size_t bytes_count);
void acceptor_reply_shared(struct acceptor *a, uint32_t conn, struct shared_bytes *const *shared, size_t count);
void acceptor_unshare(struct acceptor *a, struct shared_bytes *shared);
void acceptor_resume(struct acceptor *a, uint32_t conn);
void acceptor_close(struct acceptor *a, uint32_t conn);
int64_t acceptor_call(struct acceptor *a, uint32_t conn, const char *what, uint64_t value, const void *bytes,
                      size_t bytes_count, uint32_t *out, size_t out_limit);
int64_t acceptor_ask(struct acceptor *a, uint32_t protocol, const char *what, uint64_t value, const void *bytes,
                     size_t bytes_count, void *out, size_t out_limit);
uint64_t acceptor_refused(const struct acceptor *a, uint32_t protocol);
void acceptor_tell_published(struct acceptor *a, const char *topic, size_t topic_bytes, const void *body,
                             size_t body_bytes);
size_t acceptor_topic_name(const struct acceptor *a, uint32_t topic, char *out);
size_t acceptor_topic_names(const struct acceptor *a, const uint32_t *topics, size_t count, char *out);
uint32_t acceptor_shard_of_name(const struct acceptor *a, const char *name, size_t name_bytes);
uint32_t acceptor_worker_of_topic(const struct acceptor *a, uint32_t topic);

uint32_t acceptor_bind(struct acceptor *a, const char *topic, size_t topic_bytes);

void acceptor_filter(struct acceptor *a, uint32_t conn);
void acceptor_feed(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count, bool more);
bool acceptor_is_filtered(const struct acceptor *a, uint32_t conn);
bool acceptor_websocket(struct acceptor *a, uint32_t conn, size_t frame_bytes, uint32_t flags);
void acceptor_websocket_ended(struct acceptor *a, uint32_t conn, const uint8_t *payload, size_t bytes);
void acceptor_hear_out(struct acceptor *a, uint32_t conn);
void acceptor_end_input(struct acceptor *a, uint32_t conn);
bool acceptor_compress(struct acceptor *a, uint32_t conn, uint32_t level);
void acceptor_send(struct acceptor *a, uint32_t conn, const void *bytes, size_t bytes_count);
size_t acceptor_remote(const struct acceptor *a, uint32_t conn, char *out, size_t limit);

uint32_t acceptor_local(struct acceptor *a);
uint64_t acceptor_take_ids(struct acceptor *a, uint32_t topic, uint32_t count);
int acceptor_fd(const struct acceptor *a);
int acceptor_poll(struct acceptor *a);
void acceptor_trim(struct acceptor *a);
void acceptor_poke(struct acceptor *a);

bool acceptor_count(struct acceptor *a, uint32_t protocol, const char *counter);
const char *acceptor_counter(const struct acceptor *a, uint32_t protocol, uint32_t place, uint64_t *sum);
void acceptor_totals(const struct acceptor *a, struct broker_totals *out);
void acceptor_loop(const struct acceptor *a, bool of_worker, uint32_t index, struct loop_figures *out);
void acceptor_worker_totals(const struct acceptor *a, uint32_t worker, struct broker_totals *out);
void acceptor_durations(const struct acceptor *a, uint32_t worker, uint32_t what, uint64_t *counts, uint64_t *sum_ns);
struct login_attempts *acceptor_logins(struct acceptor *a);
size_t acceptor_buffered_bytes(const struct acceptor *a);
void acceptor_catalog_versions(const struct acceptor *a, uint64_t *out);
void acceptor_names_versions(const struct acceptor *a, uint64_t *out);

/* == acceptor/opening == */

enum { PACKED_ASKS, ... };
struct packed_asks {
    uint64_t id;
    uint32_t compression, bytes;
};

/* == acceptor/websocket == */

#define WEBSOCKET_HEAD_BYTES ...
#define WEBSOCKET_MESSAGE    ...
#define WEBSOCKET_CONTROL    ...
#define WEBSOCKET_ENDED      ...
#define WEBSOCKET_PING       ...

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
void websocket_mask(uint8_t *frame, size_t head_bytes, size_t payload_bytes, uint32_t key);

/* == acceptor/protocols/nats/nats_figures == */

enum { NATS_LOOPED, NATS_DAMAGED, ... };
struct nats_figures {
    uint32_t conn, account;
    uint32_t subscriptions, reason;
    uint64_t in_messages, in_bytes, out_messages, out_bytes;
    uint64_t pending_bytes, rtt_ns, idle_ns, opened_ns, client_id;
};
struct nats_account_figures {
    uint64_t number;
    uint64_t taken_messages, taken_bytes, given_messages, given_bytes, slow_consumers;
    uint64_t subscriptions, inserts, removes, looked, hits, members, name_bytes;
};
struct nats_kept_figures {
    uint64_t account, place, subjects, fanout, max_fanout;
};
struct nats_subscription_figures {
    uint64_t delivered, max;
    uint32_t subject_bytes, queue_bytes, sid_bytes;
    uint32_t place;
};

/* == acceptor/protocols/nsq/nsq_producers == */

struct nsq_producer {
    uint32_t conn, topics;
    uint64_t opened_ns;
};
struct nsq_produced {
    uint64_t messages;
    uint32_t hash, name_bytes;
    uint8_t name[...];
};

/* == acceptor/protocols/pulsar/pulsar_terms == */

struct pulsar_rate {
    uint64_t key;
    uint64_t messages, bytes, period_ns;
};
struct producer_place {
    uint64_t key, arrival;
};
struct producer_terms {
    uint64_t max_delay_ms, max_message_bytes;
    uint32_t deduplicates, delays;
    struct pulsar_rate rate, group, broker;
};
struct consumer_wish {
    uint32_t shared;
    int32_t partition;
    uint64_t epoch;
    uint32_t has_epoch, most_unacked;
    uint32_t ranges;
    uint32_t padding;
};

/* == acceptor/protocols/pulsar/pulsar_upcalls == */

#define PULSAR_DO                     ...
#define PULSAR_PRODUCER_ATTACHED      ...
#define PULSAR_PRODUCER_WAITS_NO_MORE ...
#define PULSAR_PRODUCER_GONE          ...
#define PULSAR_CONSUMER_GONE          ...
#define PULSAR_ALIVE                  ...
#define PULSAR_TLS                    ...
struct pulsar_told {
    uint64_t id, number;
};

/* == acceptor/protocols/pulsar/pulsar_scan == */

uint32_t pulsar_murmur(const uint8_t *data, size_t bytes);

/* == acceptor/protocols/go_quote == */

uint8_t *go_quote(uint8_t *out, const uint8_t *text, size_t bytes);

/* == acceptor/protocols/table == */
const struct codec_table *table_protocols(void);
uint32_t table_protocol(const char *name);
const char *table_name(uint32_t protocol);
bool table_is_name(uint32_t protocol, const char *name, size_t name_bytes);

/* What Python can call of csrc/shards; see csrc/build.py. */

/* == shards/calls == */

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
    uint64_t records, jobs, bytes, end;
    uint32_t damages;
    struct damage damage[64];
    struct unknown unknown;
    uint32_t uncut;
    int uncut_errno;
};

#define WORKER_CONTROL       ...
#define WORKER_WANTS_SEGMENT ...
#define WORKER_FAILING       ...
#define WORKER_NO_SPACE      ...

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
int worker_use_heads(struct worker *w, uint32_t shard, int fd, uint32_t segment);
void worker_ended(struct worker *w, uint32_t shard, uint32_t segment, uint64_t end);
void worker_read_from(struct worker *w, uint32_t shard, uint32_t segment);
void worker_lost_end(struct worker *w, uint32_t shard);
bool worker_replay(struct worker *w, uint32_t shard, struct replay *out, uint64_t now_ns, uint64_t wall_ns);
void worker_recovered(struct worker *w);
bool worker_note_ends(struct worker *w);
uint32_t worker_unreadable(struct worker *w, struct damage *place, const char **topic);
uint32_t worker_nameless(const struct worker *w, uint32_t shard, uint64_t *messages);
int64_t worker_wanting_shard(const struct worker *w, uint64_t *bytes, uint32_t *segment);
void worker_ask_segment(struct worker *w, uint32_t shard);
void worker_refuse_segment(struct worker *w, uint32_t shard);
void worker_retry_segments(struct worker *w);

uint64_t worker_longest_turn(struct worker *w);
void worker_limit_turn(struct worker *w, uint32_t steps);
uint32_t worker_dead_segments(struct worker *w, uint32_t shard);
uint32_t worker_needed_from(struct worker *w, uint32_t shard, uint32_t from);
bool worker_retains(const struct worker *w, uint32_t shard);
uint32_t worker_first_segment(const struct worker *w, uint32_t shard);
uint32_t worker_active_segment(const struct worker *w, uint32_t shard);
uint64_t worker_log_began(const struct worker *w, uint32_t shard);
uint64_t worker_segment_bytes(const struct worker *w, uint32_t shard, uint32_t segment);
uint64_t worker_appended(const struct worker *w, uint32_t shard);
uint64_t worker_synced(const struct worker *w, uint32_t shard);
bool worker_drop_first(struct worker *w, uint32_t shard);
enum names_moved { NAMES_MORE, NAMES_MOVED, NAMES_NO_ROOM };
uint32_t worker_move_names(struct worker *w, uint32_t shard, uint32_t until);
uint64_t worker_segment_names(const struct worker *w, uint32_t shard, uint32_t segment);
uint64_t worker_next_seq(const struct worker *w, const char *name, size_t bytes);
void worker_limit_topics(struct worker *w, uint32_t limit);
void worker_limit_parts(struct worker *w, uint32_t limit);
uint32_t worker_topics(const struct worker *w);
void worker_keep_topics(struct worker *w, uint32_t shard, const char *names, size_t bytes);
void worker_roll(struct worker *w, uint32_t shard);
void worker_leave_uncut(struct worker *w);
void worker_reuse_segments(struct worker *w);
int worker_spare_segment(struct worker *w);
bool worker_trim_spares(struct worker *w);
int worker_disk_errno(const struct worker *w, int *fd);
uint64_t worker_published(const struct worker *w);
uint64_t worker_live_jobs(struct worker *w, uint32_t shard, uint32_t segment, uint64_t *total);
bool worker_compact(struct worker *w, uint32_t shard, uint64_t budget);
bool worker_compact_needed(struct worker *w, uint32_t shard, uint64_t budget);
bool worker_peer(struct worker *w, uint32_t acceptor, int out_fd, int in_fd, int peer_wake_fd);
void worker_peer_gone(struct worker *w, uint32_t acceptor);

bool worker_turn(struct worker *w, uint64_t now_ns, uint64_t wall_ns);
void worker_read_clock(struct worker *w, bool reads);
uint64_t worker_next_ns(const struct worker *w);
uint32_t worker_run(struct worker *w, int control_fd, uint64_t max_wait_ns);
bool worker_flush(struct worker *w);

#define _GNU_SOURCE
/* A worker is made, takes its turns, and sleeps between them. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "log/large.h"
#include "log/sync.h"
#include "shards/attach.h"
#include "shards/consumer.h"
#include "shards/delivery.h"
#include "shards/dispatch.h"
#include "shards/finish.h"
#include "shards/finished_ahead.h"
#include "shards/give_up.h"
#include "shards/handover.h"
#include "shards/large_left.h"
#include "shards/leave.h"
#include "shards/pause.h"
#include "shards/peer.h"
#include "shards/queue.h"
#include "shards/requests.h"
#include "shards/retain.h"
#include "shards/shard.h"
#include "shards/sleeping.h"
#include "shards/subscription.h"
#include "shards/tomb.h"
#include "shards/topic_life.h"
#include "shards/transaction_end.h"
#include "shards/transactions.h"
#include "shards/upto.h"

enum {
    CONTROL_EVERY_TURNS = 256, /* a worker that never sleeps still looks at its control fd */
    WANTS_EVERY_TURNS = 16,    /* how often it looks whether some log is half full */
    LOOK_AGAIN_NS = 1000000,
    FEW_MESSAGES = 16, /* a turn that brings no more, for no more subscriptions, ... */
    FEW_SUBSCRIPTIONS = 4,
    FEW_BYTES = 64 << 10,       /* ... and no larger ones, is answered together with their deliveries */
    MUCH_BYTES = 32 << 10,      /* after so much has been written at a stretch ... */
    SPIN_AFTER_MUCH_NS = 10000, /* ... no longer is spun than a wake-up costs in processor time */
};

/* --- life --------------------------------------------------------------------------------------------------------- */

struct worker *worker_new(uint32_t index, uint32_t workers, uint32_t shards, int board_fd, int wake_fd, uint64_t seed) {
    if (index >= BOARD_MAX_WORKERS || workers > BOARD_MAX_WORKERS || shards > WORKER_MAX_SHARDS || !shards) return NULL;
    struct worker *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->index = index;
    w->workers = workers;
    w->shards = shards;
    w->wake_fd = wake_fd;
    w->piece = WORKER_TURN_STEPS;
    w->control_fd = -1;
    w->push_most_bytes = UINT64_MAX;
    w->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->board = board_map(board_fd);
    const struct siphash_key key = siphash_key(seed);
    bool opened = w->poll_fd >= 0 && w->board && arena_open(&w->jobs, sizeof(struct job), WORKER_MAX_JOBS) &&
                  arena_open(&w->reservations, sizeof(struct reservation), WORKER_MAX_JOBS) &&
                  index_open(&w->ids, WORKER_MAX_JOBS, shards) && topics_open(&w->topics, WORKER_MAX_TOPICS, key) &&
                  clients_open(&w->clients, WORKER_MAX_CLIENTS, WORKER_MAX_WATCHES) &&
                  attachments_open(&w->attachments, WORKER_MAX_ATTACHED) &&
                  subscriptions_open(&w->subscriptions, WORKER_MAX_SUBSCRIPTIONS, WORKER_MAX_CLIENTS,
                                     WORKER_MAX_DELIVERIES, shards, key.words[0]) &&
                  transactions_open(&w->transactions);
    /* Edge-triggered: each wake-up is reported once, and the eventfd is never read. */
    struct epoll_event wake = {.events = EPOLLIN | EPOLLET, .data.fd = wake_fd};
    if (!opened || epoll_ctl(w->poll_fd, EPOLL_CTL_ADD, wake_fd, &wake) < 0) {
        worker_free(w);
        return NULL;
    }
    w->unsynced = true; /* it is not known whether what recovery reads was ever synced */
    w->count = &w->board->workers[index];
    memset(w->count, 0, sizeof *w->count);
    return w;
}

void worker_free(struct worker *w) {
    if (w->syncer) syncer_free(w->syncer);
    tombs_free(w);
    handovers_free(w);
    releases_free(w);
    keepings_free(w);
    larges_free(w);
    peers_free(w);
    for (uint32_t s = 0; s < WORKER_MAX_SHARDS; s++)
        if (w->own[s]) shard_free(w->own[s]);
    spares_free(&w->spares);
    wheel_free(&w->inflight);
    heap_free(&w->delays);
    heap_free(&w->pauses);
    heap_free(&w->waits);
    free(w->unserved);
    transactions_close(&w->transactions);
    subscriptions_close(&w->subscriptions);
    attachments_close(&w->attachments);
    if (w->clients.arena.base) clients_close(&w->clients);
    if (w->topics.arena.base) topics_close(&w->topics);
    index_close(&w->ids);
    arena_close(&w->reservations);
    arena_close(&w->jobs);
    board_unmap(w->board);
    if (w->poll_fd >= 0) close(w->poll_fd);
    free(w);
}

bool worker_sync_mode(struct worker *w, int mode, uint64_t interval_ns) {
    w->sync = (enum sync_mode)mode;
    w->sync_interval_ns = interval_ns;
    if (mode != SYNC_NEVER && !w->syncer) {
        w->syncer = syncer_new(w->wake_fd, NULL);
        if (w->syncer) syncer_measure(w->syncer, &w->count->durations[DURATION_SYNC]);
    }
    return mode == SYNC_NEVER || w->syncer;
}

void worker_read_clock(struct worker *w, bool reads) {
    w->reads_clock = reads;
}

void worker_spin(struct worker *w, uint64_t spin_ns) {
    adaptive_spin_set(&w->adaptive_spin, spin_ns);
}

void worker_push_at_most(struct worker *w, uint64_t bytes) {
    w->push_most_bytes = bytes;
}

/* --- a turn ------------------------------------------------------------------------------------------------------- */

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Returns the next message, and reads the clocks if it has just become visible. The turn may have begun before the
 * message was sent: with the time of the turn, messages would be dated too early, and delays would end too early. */
static const struct message *receive(struct worker *w, struct channel *channel) {
    if (channel_drained(channel)) {
        if (!channel_look(channel)) return NULL;
        if (w->reads_clock) worker_set_time(w, clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME));
    }
    return channel_receive(channel);
}

/* One of many messages costs a fraction of one alone. (Very many get a turn of their own, and count as one.) */
enum { MANY_AS_ONE = 4 };

static uint32_t message_count(const struct message *m) {
    if (m->kind == MSG_PUBLISH_MANY) return m->count > WORKER_TURN_STEPS ? 1 : 1 + m->count / MANY_AS_ONE;
    bool is_several = m->kind == MSG_PUBLISH_EACH || m->kind == MSG_REQUEST_EACH;
    return is_several && m->several > 0 ? m->several : 1;
}

/* Receives and carries out an acceptor's messages. If the acceptor does not read, answers pile up in the channel's
 * overflow, so nothing is received from a channel that is backlogged. */
static bool take_in(struct worker *w, uint32_t acceptor) {
    struct peer *p = &w->peers[acceptor];
    uint32_t done = 0;
    uint64_t walk = w->walked + WORKER_TURN_WALK / (uint32_t)__builtin_popcountll(w->peers_there);
    while (done < WORKER_TURN_MESSAGES && w->walked < walk && !channel_backlogged(p->channel)) {
        const struct message *m = p->stalled ? p->stalled : receive(w, p->channel);
        if (!m) break;
        w->taking = p->channel;
        bool handled = request_handle(w, acceptor, m);
        w->taking = NULL;
        p->stalled = handled ? NULL : m;
        if (!handled) {
            w->count->stalls++;
            break;
        }
        done += message_count(m);
        w->taken_bytes += m->body_bytes;
        requests_run_parked(w);
    }
    /* This channel can carry no answers any more; a new process gets new rings. */
    if (channel_broken(p->channel)) process_die("a ring is not to be believed, or out of memory");
    w->taken += done;
    return done > 0;
}

static bool flush_logs(struct worker *w) {
    uint32_t kept = 0;
    w->unsynced |= w->dirty_count > 0;
    for (uint32_t i = 0; i < w->dirty_count; i++) {
        struct shard *s = w->dirty[i];
        w->written_bytes += log_appended(s->log) - log_flushed(s->log);
        if (log_flush(s->log) == LOG_OK)
            s->dirty = false;
        else
            w->dirty[kept++] = s;
    }
    w->dirty_count = kept;
    return kept == 0;
}

/* Whether a sync has failed. */
static bool syncer_has_failed(struct worker *w) {
    int error = syncer_error(w->syncer);
    if (error) w->sync_errno = error, w->unsynced_fd = syncer_failed_fd(w->syncer);
    return error != 0;
}

/* Starts a round of syncs if something is unsynced. True if one was needed. */
static bool start_round(struct worker *w) {
    int *fds = w->sync_fds;
    if (!w->unsynced) return false;
    size_t count = 0;
    for (uint32_t n = 0; n < w->shards && count < WORKER_SYNC_FDS; n++) {
        struct shard *s = w->own[n];
        if (!s || log_synced(s->log) == log_appended(s->log)) continue;
        size_t some = log_unsynced_fds(s->log, fds + count, WORKER_SYNC_FDS - count, &s->sync_upto);
        if (some) s->syncing = true;
        count += some;
    }
    w->synced_at_ns = w->now_ns;
    w->unsynced = count == WORKER_SYNC_FDS;
    if (!count) return false;
    if (!syncer_request(w->syncer, w->next_ticket + 1, fds, count, w->sync == SYNC_ALWAYS)) {
        /* Out of descriptors: replies that wait for this round wait for the next try. */
        (void)syncer_has_failed(w);
        w->sync_refused = w->unsynced = true;
        return true;
    }
    w->sync_refused = false;
    w->sync_ticket = ++w->next_ticket;
    if (!w->unsynced) durations_wait(&w->durations);
    /* More logs than fit in one round: the replies wait for the round with the last of them. */
    if (w->unsynced) return true;
    struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) p->round_tail = channel_tail(p->channel);
    return true;
}

/* True when the round under way is over. */
static bool round_over(struct worker *w) {
    if (syncer_has_failed(w) || syncer_done(w->syncer) < w->sync_ticket) return false;
    w->sync_ticket = 0;
    for (uint32_t n = 0; n < w->shards; n++) {
        struct shard *s = w->own[n];
        if (!s || !s->syncing) continue;
        log_mark_synced(s->log, s->sync_upto);
        s->syncing = false;
    }
    return true;
}

/* Gives the room of received messages back, as they are in the logs now. A message still in a ring when this process
 * dies was not carried out, or nobody knows; so this comes before replies to later messages are published. What
 * it refused of the others is found among the replies that were not published. A request that waits stays in its ring,
 * with a note of how much of it is done: what that refused is not to be refused once more by the acceptor, nor is what
 * was refused but not given back yet. */
static void release_all(struct worker *w) {
    const struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) {
        channel_note(p->channel, p->stalled, p->stalled_at);
        channel_release_noted(p->channel);
    }
}

static void publish_all(struct worker *w) {
    const struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) channel_publish(p->channel);
}

/* With SYNC_ALWAYS: a round covers what was appended before it began, and so the replies that were sent before. */
static void let_out_synced(struct worker *w) {
    if (w->sync_ticket) {
        const struct peer *p;
        if (!round_over(w)) {
            /* Lent bodies may move into the ring before, not yet visible: else the loop would stay busy. */
            for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) channel_move(p->channel);
            return;
        }
        durations_synced(&w->durations, w->count, w->now_ns);
        for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) channel_publish_to(p->channel, p->round_tail);
    }
    if (start_round(w)) return;
    durations_let_out(&w->durations);
    publish_all(w);
}

static void sync_in_background(struct worker *w) {
    if (w->sync_ticket)
        round_over(w);
    else if (w->now_ns - w->synced_at_ns >= w->sync_interval_ns && !start_round(w))
        w->synced_at_ns = w->now_ns;
}

static void let_out(struct worker *w) {
    if (w->sync == SYNC_ALWAYS) {
        let_out_synced(w);
        return;
    }
    durations_let_out(&w->durations);
    publish_all(w);
    if (w->sync == SYNC_INTERVAL) sync_in_background(w);
}

/* Stops waiting if no segment is wanted any more, as the one of a large message that was given up is free again. */
static void want_no_more(struct worker *w) {
    const struct log *log = w->wanting->log;
    if (!log_large_goes_on(log) && !log_wants_segment(log)) w->wanting = NULL;
}

/* Whether finishes are not in the log yet, as they wait for a segment: until then nothing of this turn is published. */
static bool is_owed(const struct worker *w) {
    return w->wanting && w->subscriptions.touched_first && !log_large_goes_on(w->wanting->log);
}

/* Goes on with what earlier turns have left, and does what is due now. True if there was any. */
static bool go_on(struct worker *w) {
    bool busy = give_up_unserved(w);
    busy |= peers_leave(w);
    busy |= requests_resume(w);
    busy |= consumers_leave(w);
    busy |= upto_goes_on(w);
    busy |= tombs_clear(w);
    busy |= subscriptions_clear_orphans(w);
    busy |= transactions_clear(w);
    busy |= finished_ahead_clear(w);
    busy |= handovers_go_on(w);
    busy |= releases_go_on(w);
    busy |= keepings_go_on(w);
    busy |= larges_go_on(w);
    busy |= queue_give_back(w);
    busy |= queue_tick(w);
    busy |= subscriptions_tick(w);
    worker_share_piece(w);
    requests_run_parked(w);
    return busy;
}

static bool take_in_all(struct worker *w) {
    bool busy = false;
    struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) busy |= take_in(w, (uint32_t)(p - w->peers));
    return busy;
}

/* Whether this turn has little to deliver: only what it took in, and that is little. */
static bool delivers_little(const struct worker *w) {
    uint32_t subscription = w->subscriptions.due_first;
    for (uint32_t i = 0; subscription && i < FEW_SUBSCRIPTIONS; i++)
        subscription = worker_subscription(w, subscription)->next_due;
    return !subscription && !w->was_due && w->taken <= FEW_MESSAGES && w->taken_bytes <= FEW_BYTES;
}

/* Answers publishers before the deliveries of their messages are made. Finishes are written first, as before any
 * answer. Few deliveries are made in less time than this takes: a write, and a wake-up for the acceptor, of their own.
 */
static void answer_before_deliveries(struct worker *w) {
    if (w->sync == SYNC_ALWAYS || w->sync_errno || !w->subscriptions.due_first || delivers_little(w)) return;
    subscriptions_write(w);
    if (!flush_logs(w) || is_owed(w)) return;
    release_all(w);
    publish_all(w);
}

static bool deliver(struct worker *w) {
    bool busy = dispatch(w);
    subscriptions_write(w);
    busy |= shards_forget(w);
    busy |= shards_forget_retained(w);
    return busy;
}

bool worker_turn(struct worker *w, uint64_t now_ns, uint64_t wall_ns) {
    bool busy = false;
    worker_set_time(w, now_ns, wall_ns);
    if (w->wanting) want_no_more(w);
    durations_turn(&w->durations, w->count, now_ns);
    if (w->steps > w->most_steps) w->most_steps = w->steps;
    w->steps = w->walked = 0;
    w->taken = 0;
    w->taken_bytes = 0;
    w->was_due = w->subscriptions.due_first != 0;
    w->turns++;
    if (!w->failing) {
        busy = go_on(w);
        busy |= take_in_all(w);
        answer_before_deliveries(w);
        busy |= deliver(w);
    }
    durations_taken(&w->durations, w->count, now_ns, busy);
    w->failing = !flush_logs(w) || w->sync_errno;
    if (!w->failing && !is_owed(w)) {
        release_all(w);
        let_out(w);
    }
    return busy || w->sync_refused;
}

bool worker_flush(struct worker *w) {
    if (!flush_logs(w)) return false;
    int fds[64];
    for (uint32_t n = 0; n < w->shards; n++) {
        struct shard *s = w->own[n];
        uint64_t upto;
        size_t count;
        while (s && (count = log_unsynced_fds(s->log, fds, sizeof fds / sizeof *fds, &upto)) > 0) {
            for (size_t i = 0; i < count; i++)
                if (fdatasync(fds[i]) < 0) w->sync_errno = errno, w->unsynced_fd = fds[i];
            if (w->sync_errno) return false;
            log_mark_synced(s->log, upto);
        }
    }
    return true;
}

uint64_t worker_longest_turn(struct worker *w) {
    uint64_t most = w->steps > w->most_steps ? w->steps : w->most_steps;
    w->steps = w->most_steps = 0;
    return most;
}

void worker_limit_turn(struct worker *w, uint32_t steps) {
    w->piece = steps;
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

uint64_t worker_next_ns(const struct worker *w) {
    uint64_t jobs = queue_next_ns(w), deliveries = subscriptions_next_ns(w);
    return jobs < deliveries ? jobs : deliveries;
}

/* Whether a segment is being made that requests wait for. News of it comes over the control fd. */
static bool awaits_segment(const struct worker *w) {
    return w->wanting && w->wanting->asked && !log_large_goes_on(w->wanting->log);
}

static bool may_sleep(struct worker *w) {
    const bool awaits = awaits_segment(w);
    bool may = true;
    const struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) {
        bool backlogged = channel_backlogged(p->channel);
        /* The channel has room now for deliveries that this turn had no room for. */
        if (p->full && !backlogged && w->subscriptions.due_first) may = false;
        /* Nothing is received from a channel that is backlogged, or stalled on a segment. */
        bool deaf = backlogged || (p->stalled && awaits);
        may &= deaf ? channel_may_sleep_deaf(p->channel) : channel_may_sleep(p->channel);
    }
    return may;
}

/* When to look after the background syncs. A round that is still under way then is looked at again a little later. */
static uint64_t next_sync_ns(const struct worker *w) {
    if (w->sync != SYNC_INTERVAL || !(w->unsynced || w->sync_ticket)) return UINT64_MAX;
    uint64_t due = w->synced_at_ns + w->sync_interval_ns;
    return due > w->now_ns + LOOK_AGAIN_NS ? due : w->now_ns + LOOK_AGAIN_NS;
}

/* Sleeps until it is woken, something is due, or `until_ns`. True if the control fd is readable. */
static bool rest(struct worker *w, uint64_t until_ns, bool block) {
    struct epoll_event events[2];
    int timeout_ms = 0;
    if (block && may_sleep(w)) {
        uint64_t until = worker_next_ns(w) < until_ns ? worker_next_ns(w) : until_ns;
        if (next_sync_ns(w) < until) until = next_sync_ns(w);
        if (w->larges_left && w->now_ns + CUT_AGAIN_NS < until) until = w->now_ns + CUT_AGAIN_NS;
        if (awaits_segment(w) && w->now_ns + LOOK_AGAIN_NS < until) until = w->now_ns + LOOK_AGAIN_NS;
        uint64_t left = until > w->now_ns ? until - w->now_ns : 0;
        timeout_ms = left > 3600000000000u ? 3600000 : (int)((left + 999999) / 1000000);
    }
    int count = epoll_wait(w->poll_fd, events, 2, timeout_ms);
    const struct peer *p;
    for (uint64_t rest = block ? w->peers_there : 0; (p = peer_next(w, &rest));) channel_awake(p->channel);
    bool control = false;
    for (int i = 0; i < count; i++) control |= events[i].data.fd != w->wake_fd;
    return control;
}

static void listen_to(struct worker *w, int control_fd) {
    if (w->control_fd == control_fd) return;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = control_fd};
    if (w->control_fd >= 0) epoll_ctl(w->poll_fd, EPOLL_CTL_DEL, w->control_fd, NULL);
    w->control_fd = control_fd;
    if (control_fd >= 0) epoll_ctl(w->poll_fd, EPOLL_CTL_ADD, control_fd, &event);
}

static bool wants_segment(const struct worker *w) {
    uint64_t bytes;
    uint32_t segment;
    return worker_wanting_shard(w, &bytes, &segment) >= 0;
}

/* After much work being woken takes little time beside it. After little work somebody probably waits for the answer to
 * ask again, and then that time counts. */
static uint64_t spin_ns(const struct worker *w, bool after_much) {
    const uint64_t spin = adaptive_spin_ns(&w->adaptive_spin);
    return after_much && spin > SPIN_AFTER_MUCH_NS ? SPIN_AFTER_MUCH_NS : spin;
}

uint32_t worker_run(struct worker *w, int control_fd, uint64_t max_wait_ns) {
    listen_to(w, control_fd);
    worker_read_clock(w, true);
    uint64_t began = clock_ns(CLOCK_MONOTONIC), idle_since = 0;
    uint64_t before = w->written_bytes; /* when the present stretch of work began */
    uint32_t looks = 0;                 /* since idle_since */
    for (uint32_t turn = 1;; turn++) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC), written = w->written_bytes;
        bool busy = worker_turn(w, now, clock_ns(CLOCK_REALTIME));
        uint32_t events = 0;
        bool wanted = w->wanting && !w->wanting->asked && !log_large_goes_on(w->wanting->log);
        if (wanted || (turn % WANTS_EVERY_TURNS == 1 && wants_segment(w))) events |= WORKER_WANTS_SEGMENT;
        if (w->failing) events |= WORKER_FAILING;
        if (w->no_space) events |= WORKER_NO_SPACE;
        w->no_space = false;
        if (now - began >= max_wait_ns) events |= WORKER_TICK;
        if (busy && idle_since) {
            adaptive_spin_paid(&w->adaptive_spin, now - idle_since);
            before = written;
            idle_since = 0;
        }
        if (!busy && !idle_since) {
            idle_since = now;
            looks = 0;
        }
        const bool after_much = w->written_bytes - before >= MUCH_BYTES;
        bool sleep = !busy && !events && now - idle_since >= spin_ns(w, after_much);
        if (sleep || events || turn % CONTROL_EVERY_TURNS == 0)
            if (rest(w, began + max_wait_ns, sleep)) events |= WORKER_CONTROL;
        if (sleep) {
            if (!after_much) adaptive_spin_in_vain(&w->adaptive_spin, looks);
            before = w->written_bytes;
            idle_since = 0;
        } else if (!busy) {
            looks++;
            sched_yield();
        }
        if (events) return events;
    }
}

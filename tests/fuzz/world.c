#define _GNU_SOURCE
#include "world.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log/heads.h"
#include "ringbuf/ring.h"
#include "script.h"

struct world world;

/* --- segments ----------------------------------------------------------------------------------------------------- */

static void give_segments(struct worker *w) {
    uint64_t bytes;
    uint32_t number;
    int64_t shard;
    while ((shard = worker_wanting_shard(w, &bytes, &number)) >= 0) {
        if (world.disk_full || world.segment_count == SEGMENTS) {
            world.disk_was_full = true;
            worker_refuse_segment(w, (uint32_t)shard);
            continue;
        }
        int fd = worker_spare_segment(w);
        if (fd < 0) fd = memfd_create("segment", MFD_CLOEXEC);
        /* Smaller than it asks for, unless for a large job: so logs roll over, are compacted and dropped. */
        uint64_t size = bytes > SEGMENT_BYTES ? bytes : world.segment_bytes;
        int copies = memfd_create("copies", MFD_CLOEXEC);
        world.segments[world.segment_count++] = (struct segment){(uint32_t)shard, number, dup(fd), copies, size, false};
        bool added = worker_add_segment(w, (uint32_t)shard, fd, number, size, true, world.wall) &&
                     worker_keep_copies(w, (uint32_t)shard, dup(copies), number);
        assert(added);
    }
}

void shard_drops_dead(uint32_t shard) {
    struct worker *w = world.workers[shard % WORKERS];
    /* What they are no longer needed for is written first. */
    if (!w || !worker_dead_segments(w, shard) || !worker_flush(w)) return;
    while (worker_dead_segments(w, shard)) {
        uint32_t number = worker_first_segment(w, shard);
        if (pick(2)) (void)worker_move_names(w, shard, number);
        if (!worker_drop_first(w, shard)) return; /* no room for names */
        for (uint32_t i = 0; i < world.segment_count; i++) {
            if (world.segments[i].shard != shard || world.segments[i].number != number) continue;
            close(world.segments[i].fd);
            close(world.segments[i].copies);
            memmove(world.segments + i, world.segments + i + 1, (--world.segment_count - i) * sizeof *world.segments);
            break;
        }
    }
}

void shard_passes_over(uint32_t shard) {
    struct worker *w = world.workers[shard % WORKERS];
    uint32_t needed = w ? worker_needed_from(w, shard, world.read_from[shard]) : 0, moved;
    if (!needed) return;
    do moved = worker_move_names(w, shard, needed - 1);
    while (moved == NAMES_MORE);
    if (moved != NAMES_MOVED || !worker_flush(w)) return;
    trace("shard %u is read from segment %u on", shard, needed);
    world.read_from[shard] = needed;
}

void shard_moves_live(uint32_t shard, uint64_t budget) {
    struct worker *w = world.workers[shard % WORKERS];
    if (w) (void)(pick(2) ? worker_compact(w, shard, budget) : worker_compact_needed(w, shard, budget));
}

void disk_set_full(bool full) {
    trace("the disk %s", full ? "is full" : "has room");
    world.disk_full = full;
    for (uint32_t i = 0; !full && i < WORKERS; i++)
        if (world.workers[i]) worker_retry_segments(world.workers[i]);
}

/* As shards/memory.py does. */
static void cut_stale(int fd) {
    off_t end = lseek(fd, 0, SEEK_CUR), size = lseek(fd, 0, SEEK_END);
    bool cut = end == 0 || end >= size || ftruncate(fd, end) == 0;
    assert(cut && lseek(fd, 0, SEEK_SET) == 0);
}

/* As shards/store.py decides. */
static bool never_written(int fd) {
    static const uint8_t zeros[64];
    uint8_t header[64];
    ssize_t bytes = pread(fd, header, sizeof header, 0);
    return bytes < (ssize_t)sizeof header || !memcmp(header, zeros, sizeof header);
}

static void trace_segment(struct segment s) {
    struct record r;
    uint64_t at = sizeof(struct segment_header);
    while (pread(s.fd, &r, sizeof r, (off_t)at) == (ssize_t)sizeof r && r.bytes) {
        trace("shard %u, segment %u, %llu: kind %u, flags %u, topic %u, seq %llu, id %llu, %u bytes", s.shard, s.number,
              (unsigned long long)at, r.kind, r.flags, r.topic, (unsigned long long)r.seq, (unsigned long long)r.id,
              r.bytes);
        at += (r.bytes + 7u) & ~7u;
    }
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

void rings_make(int *there, int *back) {
    *there = memfd_create("requests", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    *back = memfd_create("replies", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    world.epoch++;
    bool made = !ring_format(*there, RING_BYTES, world.epoch) && !ring_format(*back, RING_BYTES, world.epoch);
    assert(made);
}

void worker_join(uint32_t index) {
    int there, back;
    rings_make(&there, &back);
    bool joined = worker_peer(world.workers[index], 0, back, there, world.acceptor_wake) &&
                  !acceptor_peer(world.acceptor, index, there, back, world.wakes[index]);
    assert(joined);
    close(there);
    close(back);
}

/* Has the worker read the heads of sealed segments, as far as these are whole. */
static void use_heads(struct worker *w, uint32_t shard) {
    for (uint32_t i = 0; i + 1 < world.segment_count; i++) {
        const struct segment s = world.segments[i];
        struct segment_header next = {0};
        for (uint32_t n = 0; n < world.segment_count; n++)
            if (world.segments[n].shard == shard && world.segments[n].number == s.number + 1)
                (void)!pread(world.segments[n].fd, &next, sizeof next, 0);
        if (s.shard != shard || !next.previous_end) continue;
        int heads = memfd_create("heads", MFD_CLOEXEC);
        if (heads_write(s.fd, heads, next.previous_end, UINT64_MAX) == HEADS_WRITTEN)
            trace("of shard %u, segment %u heads are read: %d", shard, s.number,
                  worker_use_heads(w, shard, heads, s.number));
        close(heads);
    }
}

/* Gives up, as a start that passes something over has found damage: another reads all there is. */
static void begin_anew(struct worker *w, uint32_t index, uint32_t shard) {
    assert(errno == EAGAIN && world.spoilt && world.read_from[shard]);
    const uint32_t from = world.read_from[shard];
    world.read_from[shard] = 0;
    worker_free(w);
    close(world.wakes[index]);
    worker_start(index);
    world.read_from[shard] = from;
}

void worker_start(uint32_t index) {
    world.wakes[index] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct worker *w = worker_new(index, WORKERS, SHARDS, world.board, world.wakes[index], 42);
    assert(w);
    static struct replay found;
    memset(&found, 0, sizeof found);
    for (uint32_t shard = index; shard < SHARDS; shard += WORKERS) {
        bool owned = worker_own(w, shard);
        assert(owned);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < world.segment_count; i++) {
            struct segment s = world.segments[i];
            if (s.shard == shard) cut_stale(s.fd);
            if (s.shard == shard && !s.begun && never_written(s.fd)) {
                close(s.fd);
                close(s.copies);
                continue;
            }
            world.segments[kept++] = s;
            if (s.shard != shard) continue;
            trace_segment(s);
            bool added = worker_add_segment(w, shard, dup(s.fd), s.number, s.bytes, false, world.wall) &&
                         worker_keep_copies(w, shard, dup(s.copies), s.number);
            assert(added);
        }
        world.segment_count = kept;
        if (pick(2)) use_heads(w, shard);
        worker_read_from(w, shard, world.read_from[shard]);
        if (!worker_replay(w, shard, &found, world.now, world.wall)) {
            begin_anew(w, index, shard);
            return;
        }
    }
    for (uint32_t i = 0; !world.spoilt && i < found.damages && i < 64; i++)
        fprintf(stderr, "shard %u, segment %u: [%llu, %llu) is damaged\n", found.damage[i].shard,
                found.damage[i].segment, (unsigned long long)found.damage[i].offset,
                (unsigned long long)found.damage[i].until);
    assert(found.damages == 0 || world.spoilt);
    worker_recovered(w);
    if (index == 0) worker_reuse_segments(w); /* else as on a disk */
    if (world.piece) worker_limit_turn(w, world.piece);
    world.workers[index] = w;
    give_segments(w);
}

void worker_stop(uint32_t index) {
    worker_free(world.workers[index]);
    world.workers[index] = NULL;
    close(world.wakes[index]);
}

bool worker_takes_turn(uint32_t index) {
    if (!world.workers[index]) return false;
    bool alive = worker_turn(world.workers[index], world.now, world.wall);
    give_segments(world.workers[index]);
    return alive;
}

/* --- the acceptor, time and all ----------------------------------------------------------------------------------- */

void acceptor_start(void) {
    world.acceptor_wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    world.acceptor = acceptor_new(table_protocols(), 0, WORKERS, SHARDS, world.board, world.acceptor_wake);
    assert(world.acceptor);
    acceptor_set_now(world.acceptor, world.now);
}

void acceptor_stop(void) {
    acceptor_free(world.acceptor);
    close(world.acceptor_wake);
}

void world_pass_time(uint64_t span_ns) {
    uint64_t until = world.now + span_ns;
    for (uint32_t i = 0; i < WORKERS; i++) {
        uint64_t due = world.workers[i] ? worker_next_ns(world.workers[i]) : UINT64_MAX;
        if (pick(2) && due < until) until = due > world.now ? due : world.now;
    }
    world.wall += until - world.now;
    trace("%llu ns pass", (unsigned long long)(until - world.now));
    world.now = until;
    if (world.acceptor) acceptor_set_now(world.acceptor, world.now);
}

void world_begin(uint64_t segment_bytes) {
    memset(&world, 0, sizeof world);
    world.now = 1000 * SECOND;
    world.wall = 1700000000 * SECOND;
    world.segment_bytes = segment_bytes;
    world.board = memfd_create("board", MFD_CLOEXEC);
    bool formatted = board_format(world.board);
    assert(formatted);
}

void world_end(void) {
    close(world.board);
    for (uint32_t i = 0; i < world.segment_count; i++) {
        close(world.segments[i].fd);
        close(world.segments[i].copies);
    }
}

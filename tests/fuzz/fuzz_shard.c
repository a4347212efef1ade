/* Scripts of the shard protocol: messages straight into the rings of workers, as an acceptor sends them and as none
 * would; and workers that end and are read back from their segments.
 *
 * What is looked for, beside assertions and what the sanitizers see: each request of a connection is answered once, in
 * order; a consumer gets no more than its credit, and nothing before it is one or after it is dismissed; a catalog is
 * what message.h says; all counts of a worker are true at any time (audit.h); and what it held before it ended it
 * holds after, in the same state if no disk was full and no ephemeral channel was there.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "audit.h"
#include "shard_play.h"

enum {
    MANY_TURNS = 500,
    LEAST_PIECE = ACCEPTORS * CONNECTIONS + 1, /* each that goes on takes one step of it */
};

static void join(uint32_t acceptor, uint32_t worker) {
    int there, back;
    rings_make(&there, &back);
    if (side.channels[acceptor][worker]) channel_close(side.channels[acceptor][worker]);
    side.channels[acceptor][worker] = channel_open(there, back, -1, 1 << 30);
    bool joined = side.channels[acceptor][worker] && worker_peer(world.workers[worker], acceptor, back, there, -1);
    assert(joined);
    close(there);
    close(back);
    for (uint32_t i = 0; i < CONNECTIONS; i++) side.connections[acceptor][i].with[worker] = (struct relation){0};
    say_open(acceptor, worker);
    side.unsure = true;
}

static bool takes_turn(uint32_t worker) {
    trace("worker %u takes a turn", worker);
    bool alive = worker_takes_turn(worker);
    audit_worker(world.workers[worker]);
    return alive;
}

static void run_until_quiet(void) {
    for (int turns = 0, quiet = 0; quiet < 2; turns++) {
        assert(turns < UNTIL_QUIET && "the workers are busy for ever");
        bool alive = false;
        for (uint32_t i = 0; i < WORKERS; i++) {
            alive |= takes_turn(i);
            for (uint32_t a = 0; a < ACCEPTORS; a++) {
                alive |= channel_backlogged(side.channels[a][i]);
                alive |= hear_worker(a, i);
            }
        }
        quiet = alive ? 0 : quiet + 1;
    }
    for (uint32_t a = 0; a < ACCEPTORS; a++)
        for (uint32_t i = 0; i < CONNECTIONS; i++)
            for (uint32_t w = 0; w < WORKERS; w++)
                for (uint32_t n = 0; n < CONSUMERS; n++) {
                    struct consuming *as = &side.connections[a][i].with[w].as[n];
                    as->highest_credit = as->credit;
                }
    side.unsure = false;
}

static void pass_time(void) {
    static const uint64_t spans[] = {1, SECOND / 1000, SECOND / 2, SECOND, 2 * SECOND, 5 * SECOND};
    world_pass_time(spans[pick(6)]);
    forget_in_flight();
}

#ifdef SPOIL
static bool spoil(uint32_t worker, struct holdings *held);
#endif

/* So that all that it held must be there again. */
static void end_what_goes_on(uint32_t worker) {
    for (int turns = 0; turns < MANY_TURNS && likeness_now(world.workers[worker]) != ALIKE; turns++) takes_turn(worker);
}

static void restart_worker(uint32_t worker) {
    takes_turn(worker);
    if (world.piece && pick(2)) end_what_goes_on(worker);
    enum likeness likeness = world.piece ? likeness_now(world.workers[worker]) : ALIKE;
    if (world.disk_was_full && likeness < NO_LESS) likeness = NO_LESS;
    if (side.ephemerals) likeness = NO_NAME_LESS;
    trace("worker %u ends and is back", worker);
    struct holdings before = holdings_of(world.workers[worker]);
#ifdef SPOIL
    /* Without either of the two places of a name nothing is promised but that all counts are true. */
    bool promised = spoil(worker, &before);
    worker_start(worker);
    audit_worker(world.workers[worker]);
    struct holdings after = holdings_of(world.workers[worker]);
    if (promised) holdings_survive(&before, &after, likeness == ALIKE ? NO_LESS : likeness);
#else
    worker_stop(worker);
    worker_start(worker);
    audit_worker(world.workers[worker]);
    struct holdings after = holdings_of(world.workers[worker]);
    holdings_survive(&before, &after, likeness);
#endif
    holdings_free(&before);
    holdings_free(&after);
    for (uint32_t a = 0; a < ACCEPTORS; a++) join(a, worker);
    forget_in_flight();
}

static void see_to_segments(void) {
    uint32_t shard = pick(SHARDS);
    uint32_t what = pick(5);
    static const char *const done[] = {"rolls", "drops what is dead", "passes over what is dead"};
    trace("shard %u %s", shard, what < 3 ? done[what] : "moves what is live");
    switch (what) {
    case 0: worker_roll(world.workers[shard % WORKERS], shard); break;
    case 1: shard_drops_dead(shard); break;
    case 2: shard_passes_over(shard); break;
    default: shard_moves_live(shard, 1 + pick(4) * 3000); break;
    }
}

static bool is_request(uint32_t kind) {
    return kind <= MSG_SENT || (kind >= MSG_PUBLISH && kind <= MSG_REQUEST_EACH);
}

static bool has_large_body(uint32_t kind) {
    return kind == MSG_PUBLISH || kind == MSG_PUBLISH_EACH || kind == MSG_PUBLISH_MANY || kind == MSG_SUBSCRIBE;
}

/* Every kind of request with every flag, with parameters that `random` gives: a script is too short for so many. */
static void say_every_flag(uint32_t acceptor, uint32_t random) {
    static uint8_t made[512];
    for (uint32_t kind = MSG_OPEN; kind <= MSG_REQUEST_EACH; kind++) {
        struct connection *c = &side.connections[acceptor][kind % CONNECTIONS];
        if (!is_request(kind)) continue;
        for (size_t i = 0; i < sizeof made; i++) made[i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
        script = (struct script){made, made + sizeof made};
        /* Behind a reserve that waits nothing else would be answered. */
        say_gone(acceptor, c);
        for (uint32_t bit = 0; bit < 16; bit++) {
            say_with_flags(acceptor, c, (uint8_t)kind, (uint16_t)(1u << bit));
            if (has_large_body(kind)) run_until_quiet(); /* so that the ring has room for the next */
        }
        run_until_quiet();
    }
    script = (struct script){0};
    forget_in_flight();
}

void tell_of_all(void) {
    for (uint32_t kind = MSG_OPEN; kind <= MSG_REQUEST_EACH; kind++)
        if (is_request(kind) && flags_sent[kind] != UINT16_MAX)
            printf("kind %u: flags 0x%x were never sent\n", kind, UINT16_MAX & ~flags_sent[kind]);
}

static void step(void) {
    uint32_t acceptor = pick(ACCEPTORS);
    struct connection *c = &side.connections[acceptor][pick(CONNECTIONS)];
    switch (pick(32)) {
    case 0: say_gone(acceptor, c); break;
    case 1: restart_worker(pick(WORKERS)); break;
    case 2:
        if (!pick(4)) join(acceptor, pick(WORKERS));
        break;
    case 3:
    case 4: run_until_quiet(); break;
    case 5:
    case 6: (void)takes_turn(pick(WORKERS)); break;
    case 7: (void)hear_worker(acceptor, pick(WORKERS)); break;
    case 8: pass_time(); break;
    case 9:
    case 10: see_to_segments(); break;
    case 11: disk_set_full(world.disk_was_full && pick(4) == 0); break;
    case 12: say_change(acceptor, c); break;
    case 13:
        for (uint32_t n = pick(4); n < 4; n++) say_change(acceptor, c);
        break;
    case 14: say_anything(acceptor, c); break;
    case 15:
        switch (pick(8)) {
        case 0:
        case 1: say_catalog(acceptor, c); break;
        case 2:
        case 3: say_unsubscribe(acceptor, c); break;
        case 4: say_attach(acceptor, c); break;
        case 5: say_detach(acceptor, c); break;
        default: say_end(acceptor, c);
        }
        break;
    case 16: say_sent(acceptor, c); break;
    case 17: (pick(8) ? say_together : say_damaged_requests)(acceptor, c); break;
    case 18: say_of_queue(acceptor, c); break;
    case 19:
    case 20: say_credit(acceptor, c); break;
    case 21:
    case 22: say_subscribe(acceptor, c); break;
    case 23:
    case 24: say_publish_many(acceptor, c); break;
    case 25: say_publish_each(acceptor, c); break;
    case 26: say_publish(acceptor, c); break;
    case 27: (pick(3) ? say_publish : say_stage)(acceptor, c); break;
    case 28: (pick(2) ? say_consume : say_acknowledge)(acceptor, c); break;
    default:
        for (uint32_t n = pick(6); n < 6; n++) say_consume(acceptor, c);
        break;
    }
}

void run_script(void) {
    uint8_t kind = byte(), flags = byte();
    world_begin((uint64_t)(8 + 8 * (kind & 7)) << 10);
    memset(&side, 0, sizeof side);
    side.next_id = 1;
    side.ephemerals = (kind & 0x18) == 0;
    world.disk_was_full = (kind & 0x60) == 0; /* or will be */
    /* What usually takes a turn takes several: publishes are groups, backlogs are handed over. */
    if (kind & 0x80) world.piece = LEAST_PIECE + pick(20);
    for (uint32_t a = 0; a < ACCEPTORS; a++)
        for (uint32_t i = 0; i < CONNECTIONS; i++) side.connections[a][i].number = 1 + i;
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_start(i);
        for (uint32_t a = 0; a < ACCEPTORS; a++) join(a, i);
    }
    while (script_goes_on()) step();
    if ((flags & 3) == 0) say_every_flag(flags >> 2 & 1, flags);
    disk_set_full(false);
    run_until_quiet();
    for (uint32_t i = 0; i < WORKERS; i++) restart_worker(i);
    run_until_quiet();
    for (uint32_t i = 0; i < WORKERS; i++) {
        for (uint32_t a = 0; a < ACCEPTORS; a++) channel_close(side.channels[a][i]);
        worker_stop(i);
    }
    world_end();
}

/* Turns of the acceptor and of workers, one at a time, or until all is quiet; workers that die and come back. */
#include "audit.h"
#include "nsq_play.h"

static struct holdings held[WORKERS]; /* by those that are away, ... */
static uint64_t lost_at[WORKERS];     /* ... since when */

bool turn_acceptor(void) {
    bool alive = acceptor_turn(world.acceptor) > 0;
    handle_upcalls();
    return alive;
}

bool turn_worker(uint32_t index) {
    bool alive = worker_takes_turn(index);
    if (world.workers[index]) audit_worker(world.workers[index]);
    return alive;
}

void lose_worker(uint32_t index) {
    if (!world.workers[index]) return;
    trace("worker %u is lost", index);
    turn_worker(index);
    held[index] = holdings_of(world.workers[index]);
    lost_at[index] = world.now;
    worker_stop(index);
    acceptor_peer_gone(world.acceptor, index);
    handle_upcalls();
    forget_flights();
}

void bring_back_worker(uint32_t index) {
    if (world.workers[index]) return;
    trace("worker %u is back", index);
    worker_start(index);
    audit_worker(world.workers[index]);
    struct holdings after = holdings_of(world.workers[index]);
    /* What was deferred may be due by now. */
    bool alike = !world.disk_was_full && world.now == lost_at[index];
    holdings_survive(&held[index], &after, options.ephemerals ? NO_NAME_LESS : alike ? ALIKE : NO_LESS);
    holdings_free(&held[index]);
    holdings_free(&after);
    worker_join(index);
    forget_flights();
}

/* A client that is followed, of which Python has nothing left to do. */
static bool is_followed(const struct nsq_client *c) {
    return c->remote.fd >= 0 && !c->crooked && !c->muffled;
}

/* What the worker that it consumes from believes its RDY to be. */
static void check_credit(const struct nsq_client *c) {
    for (uint32_t i = 0; i < WORKERS; i++) {
        const struct worker *w = world.workers[i];
        uint32_t known_as = clients_find(&w->clients, 0, c->conn);
        uint32_t consumer = known_as ? client_at(&w->clients, known_as)->consumer : 0;
        if (consumer) assert(consumer_at(&w->subscriptions, consumer)->credit == c->rdy && "its last RDY is in force");
    }
}

static void check_quiet(void) {
    bool all_followed = true;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct nsq_client *c = &clients[i];
        all_followed &= c->remote.fd < 0 || is_followed(c);
        if (!is_followed(c)) continue;
        assert(!c->over && "who was told that it is over is cut off");
        drop_remarks(c);
        if (c->expected_count)
            trace("client %td, %#x, waits for %u (%u in all)", c - clients, c->conn, c->expected[0].what,
                  c->expected_count);
        assert(!c->expected_count && "each command is answered in the end");
        c->highest_rdy = c->rdy;
        c->unsure = false; /* of who is muffled, something may still be on its way through Python */
        if (c->subscribed && !c->doomed) check_credit(c);
    }
    for (uint32_t i = 0; i < LOCALS; i++) assert(!locals[i].missing && "each request is answered in the end");
    for (uint32_t i = 0; i < KNOWN; i++) all_followed &= !known[i].conn || known[i].passes < LATE;
    if (!all_followed) return;
    assert(!acceptor_busy(world.acceptor));
    for (uint32_t i = 0; i < WORKERS && !world.disk_full; i++) audit_at_rest(world.workers[i]);
}

void run_until_quiet(void) {
    for (uint32_t i = 0; i < WORKERS; i++) bring_back_worker(i);
    /* A large message takes some turns to pass through a small ring, in which nobody does anything else. */
    for (int turns = 0, quiet = 0; quiet < 12; turns++) {
        assert(turns < UNTIL_QUIET && "the engines keep each other busy for ever");
        bool alive = turn_acceptor();
        for (uint32_t i = 0; i < KNOWN; i++) {
            if (!known[i].conn) continue;
            alive |= known[i].command.count > 0;
            think(&known[i]);
        }
        for (uint32_t i = 0; i < WORKERS; i++) alive |= turn_worker(i);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            alive |= remote_flush(&clients[i].remote, SIZE_MAX);
            alive |= receive(&clients[i]);
        }
        alive |= remote_flush(&tube_client, SIZE_MAX);
        alive |= remote_receive(&tube_client);
        bytes_drop(&tube_client.got, tube_client.got.count);
        quiet = alive ? 0 : quiet + 1;
    }
    check_quiet();
}

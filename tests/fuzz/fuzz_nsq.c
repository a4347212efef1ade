/* Scripts of bytes against NSQ's whole path: connections, filters, an acceptor, workers, their logs, crashes.
 *
 * Clients send commands that are mostly sensible, cut where a script says; sizes, names and numbers are wrong at times,
 * ids are those of messages that were delivered. The target plays Python's part: it answers IDENTIFY, AUTH and SUB, or
 * puts that off; it passes filtered bytes on as they are, at once, late or never. Connections of its own change topics
 * and channels and ask for catalogs, a beanstalkd client shares the topics, workers and the acceptor die, disks are
 * full, time passes.
 *
 * What is looked for, beside assertions and what the sanitizers see:
 *
 *   - each client gets whole frames that it may get, replies in the order of its commands, and nothing behind an error
 *     that ends its connection;
 *   - no consumer has more messages in flight than its RDY, nor one before it has subscribed;
 *   - a message is the same wherever it is delivered;
 *   - once all is quiet every command is answered, and nobody who could be given a message waits for one;
 *   - each request of Python's is answered once, and it hears of the end of each connection it knows of;
 *   - workers' counts are true (audit.h), and what one held it holds when it is back.
 *
 * A client whose bytes went wrong is not followed any more: then it is only its frames that are looked at.
 */
#define _GNU_SOURCE
#include <sys/socket.h>

#include "audit.h"
#include "nsq_play.h"

static void start_acceptor(void) {
    static const struct {
        const char *name;
        uint64_t value;
    } set[] = {
        {"nsq.max-msg-size", MAX_MESSAGE}, {"nsq.max-body-size", MAX_BODY},
        {"nsq.max-rdy-count", MAX_RDY},    {"nsq.max-req-timeout-ns", 10 * SECOND},
        {"nsq.msg-timeout-ns", SECOND},    {"nsq.client-timeout-ns", 10 * SECOND},
        {"beanstalk.max-job-size", 2000},  {"max-outstanding-output", 4096},
    };
    acceptor_start();
    for (uint32_t i = 0; i < sizeof set / sizeof *set; i++) {
        int result = acceptor_set(world.acceptor, set[i].name, set[i].value);
        assert(result == 0);
    }
    (void)acceptor_set(world.acceptor, "nsq.auth", options.auth);
    (void)acceptor_set(world.acceptor, "nsq.tls-required", options.tls_required);
}

static void stop_acceptor(void) {
    acceptor_stop();
    for (uint32_t i = 0; i < CLIENTS; i++) remote_disconnect(&clients[i].remote);
    remote_disconnect(&tube_client);
    for (uint32_t i = 0; i < KNOWN; i++) forget_known(&known[i]);
    memset(locals, 0, sizeof locals);
}

static void crash_acceptor(void) {
    trace("the acceptor is lost");
    stop_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++)
        if (world.workers[i]) worker_peer_gone(world.workers[i], 0);
    if (pick(2)) (void)turn_worker(0);
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++)
        if (world.workers[i]) worker_join(i);
}

static void pass_time(void) {
    static const uint64_t spans[] = {1, SECOND / 1000, SECOND / 4, SECOND, 2 * SECOND, 5 * SECOND};
    world_pass_time(spans[pick(6)]);
    forget_flights();
}

static void some_of_python(void) {
    struct known *k = &known[pick(8)];
    if (!k->conn) return;
    switch (pick(4)) {
    case 0:
        if (k->passes == LATE) answer_input(k);
        break;
    case 1: pass_output(k, pick(300)); break;
    case 2:
        if (!pick(4)) {
            struct nsq_client *c = client_of(k->conn);
            if (c) c->crooked = true;
            acceptor_close(world.acceptor, k->conn);
        }
        break;
    default: think(k); break;
    }
}

static void end_local(void) {
    uint32_t which = pick(LOCALS);
    if (!locals[which].conn) return;
    acceptor_close(world.acceptor, locals[which].conn);
    locals[which].conn = locals[which].missing = 0;
}

static void see_to_segments(void) {
    uint32_t shard = pick(SHARDS), what = pick(5);
    if (!world.workers[shard % WORKERS]) return;
    switch (what) {
    case 0: worker_roll(world.workers[shard % WORKERS], shard); break;
    case 1: shard_drops_dead(shard); break;
    case 2: shard_passes_over(shard); break;
    default: shard_moves_live(shard, 1 + pick(4) * 3000); break;
    }
}

static void step(void) {
    struct nsq_client *c = &clients[pick(CLIENTS)];
    if (c->remote.fd < 0) connect_client(c);
    switch (pick(48)) {
    case 0: remote_disconnect(&c->remote); break;
    case 1:
        if (pick(4)) break;
        c->crooked = true;
        (void)shutdown(c->remote.fd, SHUT_WR);
        break;
    case 2:
        switch (pick(12)) {
        case 0: crash_acceptor(); break;
        case 1: flood(c); break;
        default: break;
        }
        break;
    case 3: lose_worker(pick(WORKERS)); break;
    case 4: bring_back_worker(pick(WORKERS)); break;
    case 5:
    case 6:
    case 7:
    case 8: run_until_quiet(); break;
    case 9:
    case 10:
    case 11: (void)turn_acceptor(); break;
    case 12:
    case 13:
    case 14: (void)turn_worker(pick(WORKERS)); break;
    case 15:
    case 16: pass_time(); break;
    case 17:
    case 18: (void)receive(c); break;
    case 19: disk_set_full(world.disk_was_full && pick(4) == 0); break;
    case 20: see_to_segments(); break;
    case 21:
    case 22: some_of_python(); break;
    case 23:
    case 24:
    case 25: local_request(); break;
    case 26: tube_command(); break;
    case 27:
        if (!pick(4)) end_local();
        break;
    case 28:
    case 29:
    case 30: (void)remote_flush(&c->remote, 1 + pick(300)); break;
    case 31: (void)remote_flush(&c->remote, SIZE_MAX); break;
    default:
        for (uint32_t n = pick(5); n < 5; n++) some_command(c);
        if (pick(4)) (void)remote_flush(&c->remote, SIZE_MAX);
        break;
    }
}

void run_script(void) {
    uint8_t kind = byte(), more = byte();
    world_begin((uint64_t)(8 + 16 * (kind & 7)) << 10);
    memset(clients, 0, sizeof clients);
    memset(past, 0, sizeof past);
    memset(recent, 0, sizeof recent);
    recent_count = 0;
    options.ephemerals = (kind & 0x18) == 0;
    options.auth = (more & 3) == 0;
    options.tls_required = (more & 0x1c) == 0;
    world.disk_was_full = (more & 0x60) == 0; /* or will be */
    for (uint32_t i = 0; i < CLIENTS; i++) clients[i].remote.fd = -1;
    tube_client.fd = -1;
    start_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_start(i);
        worker_join(i);
    }
    while (script_goes_on()) step();
    disk_set_full(false);
    run_until_quiet();
    for (uint32_t i = 0; i < CLIENTS; i++) remote_disconnect(&clients[i].remote);
    for (uint32_t i = 0; i < KNOWN; i++) {
        known[i].passes = AT_ONCE;
        answer_input(&known[i]);
    }
    run_until_quiet();
    for (uint32_t i = 0; i < KNOWN; i++) assert(!known[i].conn && "Python is told when a connection is closed");
    stop_acceptor();
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_stop(i);
        worker_start(i); /* what is left can be read back */
        audit_worker(world.workers[i]);
        worker_stop(i);
    }
    world_end();
}

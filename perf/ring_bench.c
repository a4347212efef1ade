/* Two processes on two cores, one ring between them: how many records and bytes a second come through.
 *
 *     ring_bench RECORD_BYTES RING_BYTES RECORDS [sleep SECONDS]
 *
 * The producer copies each record in from a buffer of its own; the consumer reads every word of it. They publish or
 * release after so many bytes, as a loop does at the end of a turn, and spin when there is nothing to do: this shows
 * the ring's own limit, without sleeping or waking.
 *
 * With `sleep` they sleep by the ring's protocol instead, a random moment after they found nothing to do: that is a
 * stress test of the protocol rather than a measurement. The ring should be smaller than a turn: then the producer
 * publishes only when it is full, and the consumer releases only when it is empty. No later move can then make up for a
 * wake-up that was lost, and both sleep for ever. A sleep that does not end within 5 s ends the run with status 3.
 * After SECONDS no more records are sent: on a busy machine each sleep takes long.
 *
 * Prints "seconds records bytes sleeps" of the run, from the first record to the last release; the sleeps are those
 * of both sides. Status 4 if what arrived is not what was sent. */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ringbuf/ring.h"

#define SOURCE_BYTES ((size_t)64 << 10)
#define TURN_BYTES   ((uint64_t)16 << 10)

#define SLEEP_LIMIT_MS 5000
/* A record's flag: it is the last one. */
#define LAST 1u

#define STATUS_LOST  3
#define STATUS_WRONG 4

struct run {
    uint64_t record_bytes;
    uint64_t records;
    int ring_fd;
    int producer_wake_fd; /* -1 for both: spin */
    int consumer_wake_fd;
    double seconds; /* 0: however long it takes */
};

struct outcome {
    uint64_t records;
    double seconds;
    uint64_t sum;
    uint64_t sleeps;
};

static void pin(size_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    /* Where pinning is not allowed, the measurement is unpinned. */
    (void)sched_setaffinity(0, sizeof set, &set);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static uint64_t sum_words(const void *payload, uint32_t bytes) {
    const uint64_t *words = payload;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < bytes / 8; i++) sum ^= words[i];
    return sum;
}

/* Record i begins with i; the rest is a piece of the source whose place moves with i. */
static const uint8_t *piece(const uint8_t *source, uint64_t i, uint64_t record_bytes) {
    return source + (i * 64) % (SOURCE_BYTES - record_bytes);
}

static bool turn_is_over(uint64_t bytes) {
    return bytes >= TURN_BYTES;
}

/* Pauses at random, so that the moves of the two sides meet in every order. */
static void pause_at_random(uint64_t *dice) {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    for (uint64_t i = *dice & 31; i > 0; i--) relax();
}

/* Polls the eventfd for a while before it really sleeps: real sleeps take so long that few could be tried. */
static void sleep_until_woken(int wake_fd) {
    uint64_t count;
    for (int i = 0; i < 200; i++)
        if (read(wake_fd, &count, sizeof count) == sizeof count) return;
    struct pollfd poll_fd = {.fd = wake_fd, .events = POLLIN};
    if (poll(&poll_fd, 1, SLEEP_LIMIT_MS) != 1) _exit(STATUS_LOST);
    if (read(wake_fd, &count, sizeof count) != sizeof count) _exit(STATUS_LOST);
}

static int produce(const struct run *run, const uint8_t *source, uint64_t *sleeps) {
    struct ring_producer producer;
    if (ring_producer_open(&producer, run->ring_fd, run->consumer_wake_fd) != 0) return 1;
    uint64_t dice = 88172645463325252ULL;
    const double until = now_s() + run->seconds;
    bool is_last = false;
    for (uint64_t i = 0; !is_last; i++) {
        is_last = i + 1 == run->records || (run->seconds > 0 && i % 256 == 0 && now_s() > until);
        uint8_t *room;
        while ((room = ring_reserve(&producer, run->record_bytes)) == NULL) {
            ring_publish(&producer);
            relax();
            if (run->producer_wake_fd < 0) continue;
            pause_at_random(&dice);
            if (ring_producer_may_sleep(&producer)) {
                ++*sleeps;
                sleep_until_woken(run->producer_wake_fd);
            }
            ring_producer_awake(&producer);
        }
        memcpy(room, piece(source, i, run->record_bytes), run->record_bytes);
        memcpy(room, &i, sizeof i);
        ring_commit(&producer, is_last ? LAST : 0);
        if (turn_is_over(producer.tail - producer.published)) ring_publish(&producer);
    }
    ring_publish(&producer);
    ring_producer_close(&producer);
    return 0;
}

static int consume(const struct run *run, struct outcome *outcome) {
    struct ring_consumer consumer;
    if (ring_consumer_open(&consumer, run->ring_fd, run->producer_wake_fd) != 0) return 1;
    uint64_t dice = 6364136223846793005ULL;
    double begin = 0;
    for (bool is_last = false; !is_last;) {
        uint32_t bytes, flags;
        const void *payload = ring_peek(&consumer, &bytes, &flags);
        if (payload == NULL) {
            if (consumer.broken) return STATUS_WRONG;
            ring_release(&consumer);
            relax();
            if (run->consumer_wake_fd < 0) continue;
            pause_at_random(&dice);
            if (ring_consumer_may_sleep(&consumer)) {
                outcome->sleeps++;
                sleep_until_woken(run->consumer_wake_fd);
            }
            ring_consumer_awake(&consumer);
            continue;
        }
        if (outcome->records == 0) begin = now_s();
        uint64_t number;
        memcpy(&number, payload, sizeof number);
        if (bytes != run->record_bytes || number != outcome->records) return STATUS_WRONG;
        is_last = flags == LAST;
        outcome->sum ^= sum_words(payload, bytes);
        ring_consume(&consumer);
        outcome->records++;
        if (turn_is_over(consumer.head - consumer.released)) ring_release(&consumer);
    }
    ring_release(&consumer);
    outcome->seconds = now_s() - begin;
    ring_consumer_close(&consumer);
    return 0;
}

static uint64_t expected_sum(const struct run *run, uint64_t records, const uint8_t *source) {
    uint64_t sum = 0;
    uint8_t *record = malloc(run->record_bytes);
    if (record == NULL) abort();
    for (uint64_t i = 0; i < records; i++) {
        memcpy(record, piece(source, i, run->record_bytes), run->record_bytes);
        memcpy(record, &i, sizeof i);
        sum ^= sum_words(record, (uint32_t)run->record_bytes);
    }
    free(record);
    return sum;
}

/* Runs the producer in a child, the consumer here. Returns the status of the side that failed. */
static int both(const struct run *run, const uint8_t *source, struct outcome *outcome) {
    uint64_t *child_sleeps =
        mmap(NULL, sizeof *child_sleeps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (child_sleeps == MAP_FAILED) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(0);
        _exit(produce(run, source, child_sleeps));
    }
    pin(1);
    int failed = consume(run, outcome);
    if (failed != 0) kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    outcome->sleeps += *child_sleeps;
    if (failed != 0) return failed;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv) {
    bool sleeping = argc == 6 && strcmp(argv[4], "sleep") == 0;
    if (argc != 4 && !sleeping) return 2;
    struct run run = {
        .record_bytes = strtoull(argv[1], NULL, 10),
        .records = strtoull(argv[3], NULL, 10),
        .seconds = sleeping ? strtod(argv[5], NULL) : 0,
        .ring_fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        .producer_wake_fd = sleeping ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1,
        .consumer_wake_fd = sleeping ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1,
    };
    uint64_t ring_bytes = strtoull(argv[2], NULL, 10);
    if (run.record_bytes < 8 || run.record_bytes > SOURCE_BYTES / 2 || run.records == 0) return 2;
    if (ring_bytes < 8 * run.record_bytes) return 2;

    uint8_t *source = malloc(SOURCE_BYTES);
    if (source == NULL || run.ring_fd < 0 || ring_format(run.ring_fd, ring_bytes, 1) != 0) return 1;
    srandom(1);
    for (size_t i = 0; i < SOURCE_BYTES; i++) source[i] = (uint8_t)random();

    struct outcome outcome = {0};
    int failed = both(&run, source, &outcome);
    if (failed != 0) return failed;
    if (outcome.sum != expected_sum(&run, outcome.records, source)) return STATUS_WRONG;
    printf("%.6f %llu %llu %llu\n", outcome.seconds, (unsigned long long)outcome.records,
           (unsigned long long)(outcome.records * run.record_bytes), (unsigned long long)outcome.sleeps);
    return 0;
}

#define _GNU_SOURCE
#include "measure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STAMP_CHECK UINT64_C(0x9e3779b97f4a7c15)

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (!memory) die("out of memory");
    return memory;
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

double number(const char *text, double low, double high) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || *end || !(value >= low && value <= high))
        die("not a number in %g..%g: %s", low, high, text);
    return value;
}

/* ---- processes ---- */

void read_pids(struct processes *processes, char *list) {
    char *rest = list;
    for (char *pid; (pid = strsep(&rest, ",")) != NULL;) {
        if (processes->count == MAX_PIDS) die("more than %u processes", MAX_PIDS);
        processes->pids[processes->count++] = (pid_t)number(pid, 1, INT32_MAX);
    }
}

/* Returns the CPU time of a process, in nanoseconds: ticks would be too coarse. */
static uint64_t process_cpu_ns(pid_t pid) {
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) != 0) die("process %d is not there", (int)pid);
    return clock_ns(clock);
}

struct usage usage_now(const struct processes *processes) {
    struct usage usage = {.time_ns = now_ns(), .own_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID)};
    for (unsigned i = 0; i < processes->count; i++) usage.server_cpu_ns += process_cpu_ns(processes->pids[i]);
    return usage;
}

void report_cpu(const struct usage *begin, const struct usage *end, unsigned pid_count, uint64_t count,
                const char *unit) {
    double own_s = (double)(end->own_cpu_ns - begin->own_cpu_ns) / 1e9;
    double server_s = (double)(end->server_cpu_ns - begin->server_cpu_ns) / 1e9;
    double things = count ? (double)count : 1;
    if (pid_count > 0)
        printf(", \"server_cpu_s\": %.4f, \"server_cpu_us_per_%s\": %.3f", server_s, unit, server_s / things * 1e6);
    printf(", \"own_cpu_s\": %.4f, \"own_cpu_us_per_%s\": %.3f", own_s, unit, own_s / things * 1e6);
}

/* ---- histogram ---- */

static unsigned histogram_bucket(uint64_t ns) {
    if (ns < HISTOGRAM_FINE) return (unsigned)ns;
    unsigned exponent = 63u - (unsigned)__builtin_clzll(ns);
    uint64_t bucket = (uint64_t)(exponent - 6) * HISTOGRAM_FINE + (ns >> (exponent - 6));
    return bucket < HISTOGRAM_BUCKETS ? (unsigned)bucket : HISTOGRAM_BUCKETS - 1;
}

/* Returns the middle of a bucket. */
static uint64_t histogram_value(unsigned bucket) {
    if (bucket < 2 * HISTOGRAM_FINE) return bucket;
    unsigned shift = bucket / HISTOGRAM_FINE - 1;
    uint64_t low = (uint64_t)(bucket % HISTOGRAM_FINE + HISTOGRAM_FINE) << shift;
    return low + ((uint64_t)1 << shift) / 2;
}

void histogram_add(struct histogram *h, uint64_t ns) {
    h->counts[histogram_bucket(ns)]++;
    h->total++;
    if (ns > h->max_ns) h->max_ns = ns;
}

static double histogram_us(const struct histogram *h, double quantile) {
    uint64_t rank = (uint64_t)(quantile * (double)h->total);
    uint64_t seen = 0;
    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += h->counts[bucket];
        if (seen > rank) return (double)histogram_value(bucket) / 1e3;
    }
    return (double)h->max_ns / 1e3;
}

void report_histogram(const char *name, const struct histogram *h) {
    if (h->total == 0)
        printf(", \"%s\": null", name);
    else
        printf(", \"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"p99.9\": %.1f, \"max\": %.1f, \"samples\": %" PRIu64 "}",
               name, histogram_us(h, 0.5), histogram_us(h, 0.99), histogram_us(h, 0.999), (double)h->max_ns / 1e3,
               h->total);
}

/* ---- stamps ---- */

void write_stamp(char *body, uint64_t time_ns) {
    uint64_t stamp[2] = {time_ns, time_ns ^ STAMP_CHECK};
    memcpy(body, stamp, sizeof stamp);
}

void write_body(char *body, size_t bytes) {
    memset(body, 'x', bytes);
    if (bytes >= STAMP_BYTES) write_stamp(body, 0);
}

void read_body(const char *body, size_t bytes, uint64_t now_ns, struct histogram *h) {
    uint64_t stamp[2];
    if (bytes < STAMP_BYTES) return;
    memcpy(stamp, body, sizeof stamp);
    if ((stamp[0] ^ stamp[1]) != STAMP_CHECK || (bytes > STAMP_BYTES && body[bytes - 1] != 'x'))
        die("a body that was not put");
    if (h != NULL && stamp[0] != 0 && now_ns > stamp[0]) histogram_add(h, now_ns - stamp[0]);
}

/* ---- round trips ---- */

void count_sent(struct round_trips *r, uint64_t commands, uint64_t now_ns) {
    if (r->sample_ns == 0 && commands > 0) {
        r->sample_at = r->sent;
        r->sample_ns = now_ns;
    }
    r->sent += commands;
}

void count_answered(struct round_trips *r, uint64_t commands, uint64_t now_ns, struct histogram *h) {
    if (commands > unanswered(r)) die("more answers than commands");
    r->answered += commands;
    if (r->sample_ns == 0 || r->answered <= r->sample_at) return;
    histogram_add(h, now_ns - r->sample_ns);
    r->sample_ns = 0;
}

/* What every load generator measures with: clocks, the CPU time of processes, a histogram of times, and numbers in
 * options. Any failure ends the program with a message: a measurement that cannot be trusted is none. */
#ifndef MQ_PERF_MEASURE_H
#define MQ_PERF_MEASURE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NS                UINT64_C(1000000000)
#define MAX_PIDS          64u
#define HISTOGRAM_FINE    64u
#define HISTOGRAM_BUCKETS (HISTOGRAM_FINE * 40u)
#define STAMP_BYTES       16u /* at the beginning of a body: when it was sent, and a check */

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

/* Returns zeroed memory, never NULL. */
void *allocate(size_t count, size_t bytes);

/* Returns the time by CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* Returns the number in `text`; ends the program if it is none in low..high. */
double number(const char *text, double low, double high);

/* Processes of the server under load. */
struct processes {
    pid_t pids[MAX_PIDS];
    unsigned count;
};

/* Adds the process ids of a comma-separated list, which is cut up. */
void read_pids(struct processes *processes, char *list);

/* A moment, and the CPU time used until then by all threads, also by those that have ended. */
struct usage {
    uint64_t time_ns;
    uint64_t own_cpu_ns;
    uint64_t server_cpu_ns;
};

struct usage usage_now(const struct processes *processes);

/* Prints members of a JSON object, after the first: CPU time in all, and for each of `count` things named `unit`. */
void report_cpu(const struct usage *begin, const struct usage *end, unsigned pid_count, uint64_t count,
                const char *unit);

/* Times in nanoseconds, in buckets of 1/64 of a power of two. */
struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    uint64_t max_ns;
};

void histogram_add(struct histogram *h, uint64_t ns);

/* Prints one member of a JSON object, after the first: quantiles in microseconds, or null. */
void report_histogram(const char *name, const struct histogram *h);

/* Writes a body: x's, and at its beginning a stamp, if there is room for one. */
void write_body(char *body, size_t bytes);

/* Writes a stamp at the beginning of a body: a time, or 0 for a body that is not measured. */
void write_stamp(char *body, uint64_t time_ns);

/* Adds how long a body was on its way until `now_ns`, if its stamp says when it was sent. Ends the program if it was
 * not made by write_body(). `h` may be NULL. */
void read_body(const char *body, size_t bytes, uint64_t now_ns, struct histogram *h);

/* The round trips of the commands of one sender: of those that are on their way one is measured. */
struct round_trips {
    uint64_t sent, answered; /* numbers of commands */
    uint64_t sample_at;      /* the command that is measured, if sample_ns is not 0: when it was sent */
    uint64_t sample_ns;
};

void count_sent(struct round_trips *r, uint64_t commands, uint64_t now_ns);
/* Ends the program if there are more answers than commands. */
void count_answered(struct round_trips *r, uint64_t commands, uint64_t now_ns, struct histogram *h);

static inline uint64_t unanswered(const struct round_trips *r) {
    return r->sent - r->answered;
}

#endif

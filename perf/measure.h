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

/* Writes a stamp at the beginning of a body: a time, or 0 for a body that is not measured. */
void write_stamp(char *body, uint64_t time_ns);

/* Returns the time in a stamp. Ends the program if this is no stamp. */
uint64_t read_stamp(const char *body);

#endif

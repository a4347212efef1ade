/* One run of a load: over a number of messages from the first to the last, or for a time after a warm-up. Knows no
 * protocol: what is sent, and when all is done, the load says. */
#ifndef MQ_PERF_RUN_H
#define MQ_PERF_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop.h"
#include "measure.h"
#include "options.h"

/* What all load generators are told. */
struct run_options {
    const char *host;
    uint16_t port;
    size_t body_bytes;
    double seconds;
    double warmup;
    double rate;       /* messages a second; 0: closed loop */
    uint64_t messages; /* 0: the run ends by time */
    struct processes server;
};

#define RUN_DEFAULTS .host = "127.0.0.1", .seconds = 3, .warmup = 0.5

/* Rows for them; not all generators have the others. */
#define RUN_OPTIONS(o, least_body, most_body)                                                                          \
    OPTION_TEXTUAL("host", "A", (o).host, "IPv4 address"), OPTION("port", "PORT", (o).port, 1, 65535, "its port"),     \
        OPTION("body", "BYTES", (o).body_bytes, least_body, most_body, "of each message; times are taken from 16 on"), \
        OPTION("seconds", "S", (o).seconds, 0.01, 86400, "length of the measured window"),                             \
        OPTION("warmup", "W", (o).warmup, 0, 3600, "seconds before the window"),                                       \
        OPTION_TEXTUAL("pids", "A,B,...", (o).server, "processes of the server, whose CPU time is reported")
#define RUN_RATE(o)                                                                                                    \
    OPTION("rate", "R", (o).rate, 1, 1e9, "messages a second, at fixed times, instead of as many as are answered")
#define RUN_MESSAGES(o, name)                                                                                          \
    OPTION(name, "N", (o).messages, 1, 1e12, "instead of a window: so many, from the first to the last")

/* Reads the options of a load into a table's places; `run` are among them. */
void run_read_options(const char *program, const struct option_row *rows, const struct run_options *run, int argc,
                      char **argv);

struct run_calls {
    void (*start)(void *load); /* sends what comes first */
    void (*turn)(void *load);
    void (*count)(void *load);         /* begins to count: forgets what was counted, and timed, before */
    bool (*is_done)(const void *load); /* of a run over a number of messages */
    void (*finish)(void *load);        /* follows its last message; may be NULL */
};

struct run {
    struct usage begin, end;
};

struct run run_load(struct loop *loop, const struct run_options *o, const struct run_calls *calls, void *load);

/* Says that all connections are there, and keeps them until the program is ended. */
__attribute__((noreturn)) void run_idle(struct loop *loop, const struct run_calls *calls, void *load);

/* Prints members of a JSON object, after the first: how long the run was, how many things named `unit` there were,
 * their rate, and what CPU time they took. */
void run_report(const struct run *run, const struct run_options *o, uint64_t count, const char *unit);

#endif

#define _GNU_SOURCE
#include "run.h"

#include <inttypes.h>
#include <stdio.h>

void run_read_options(const char *program, const struct option_row *rows, const struct run_options *run, int argc,
                      char **argv) {
    options_read(program, rows, argc, argv);
    if (run->port == 0) die("--port is missing; --help says what there is");
}

struct run run_load(struct loop *loop, const struct run_options *o, const struct run_calls *calls, void *load) {
    struct run run;
    calls->count(load);
    run.begin = usage_now(&o->server);
    uint64_t warm_ns = run.begin.time_ns + (uint64_t)(o->warmup * 1e9);
    uint64_t end_ns = warm_ns + (uint64_t)(o->seconds * 1e9);
    loop_begin(loop);
    calls->start(load);
    if (o->messages) {
        while (!calls->is_done(load)) calls->turn(load);
        if (calls->finish != NULL) calls->finish(load);
    } else {
        while (loop->now_ns < warm_ns) calls->turn(load);
        calls->count(load);
        run.begin = usage_now(&o->server);
        while (loop->now_ns < end_ns) calls->turn(load);
    }
    run.end = usage_now(&o->server);
    return run;
}

void run_idle(struct loop *loop, const struct run_calls *calls, void *load) {
    puts("ready");
    fflush(stdout);
    for (;; calls->turn(load)) loop->last_progress_ns = now_ns();
}

void run_report(const struct run *run, const struct run_options *o, uint64_t count, const char *unit) {
    double seconds = (double)(run->end.time_ns - run->begin.time_ns) / 1e9;
    printf(", \"body_bytes\": %zu, \"seconds\": %.4f, \"%ss\": %" PRIu64 ", \"rate\": %.0f", o->body_bytes, seconds,
           unit, count, (double)count / seconds);
    report_cpu(&run->begin, &run->end, o->server.count, count, unit);
}

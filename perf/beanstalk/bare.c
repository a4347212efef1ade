/* beanstalkd's protocol: just put, reserve and delete in one tube, whose jobs leave in the order in which they came. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "bare.h"
#include "measure.h"

static struct fifo jobs;
static struct cursor next_job;
static uint64_t inserted, reserved;
static struct connection *first_waiting, **last_waiting = &first_waiting; /* clients whose reserve is unanswered */

/* Answers a word, a number and the end of a line. */
static void answer_number(struct connection *c, const char *word, size_t word_bytes, uint64_t number) {
    char text[64];
    memcpy(text, word, word_bytes);
    char *end = write_number(text + word_bytes, number);
    memcpy(end, "\r\n", 2);
    bare_answer(c, text, (size_t)(end + 2 - text));
}

static bool reserve(struct connection *c) {
    size_t bytes;
    const char *body = fifo_next(&jobs, &next_job, &bytes);
    if (body == NULL) return false;
    char head[64];
    memcpy(head, "RESERVED ", 9);
    char *at = write_number(head + 9, ++reserved);
    *at++ = ' ';
    at = write_number(at, bytes);
    memcpy(at, "\r\n", 2);
    size_t head_bytes = (size_t)(at + 2 - head);
    char *to = bare_room(c, head_bytes + bytes + 2);
    memcpy(to, head, head_bytes);
    memcpy(to + head_bytes, body, bytes);
    memcpy(to + head_bytes + bytes, "\r\n", 2);
    return true;
}

static void wait_for_job(struct connection *c) {
    c->is_waiting = true;
    c->next_waiting = NULL;
    *last_waiting = c;
    last_waiting = &c->next_waiting;
}

/* Returns where the command ends, or NULL if its body has not come whole. */
static const char *put(struct connection *c, const char *at, const char *line_end) {
    const char *end = c->in + c->in_end;
    const char *number = at + 4;
    uint64_t body_bytes = 0;
    for (int field = 0; field < 4; field++) body_bytes = read_number(number, &number), number++;
    if ((uint64_t)(end - line_end) < body_bytes + 2) return NULL;
    memcpy(fifo_push(&jobs, body_bytes), line_end, body_bytes);
    answer_number(c, "INSERTED ", 9, ++inserted);
    return line_end + body_bytes + 2;
}

static void answer_stats(struct connection *c) {
    char body[128], head[32];
    int bytes =
        snprintf(body, sizeof body, "---\ncurrent-jobs-ready: %llu\n", (unsigned long long)(inserted - reserved));
    int head_bytes = snprintf(head, sizeof head, "OK %d\r\n", bytes);
    bare_answer(c, head, (size_t)head_bytes);
    bare_answer(c, body, (size_t)bytes);
    bare_answer(c, "\r\n", 2);
}

static void slow_command(struct connection *c, const char *at, const char *line_end) {
    if (memcmp(at, "use ", 4) == 0) {
        bare_answer(c, "USING ", 6);
        bare_answer(c, at + 4, (size_t)(line_end - at - 4));
    } else if (memcmp(at, "watch ", 6) == 0 || memcmp(at, "ignore ", 7) == 0) {
        bare_answer(c, "WATCHING 1\r\n", 12);
    } else if (memcmp(at, "stats\r\n", 7) == 0) {
        answer_stats(c);
    } else {
        die("an unknown command: %.*s", (int)(line_end - at - 2), at);
    }
}

/* Handles commands up to a reserve that must wait: those behind it wait, too. */
static void handle(struct connection *c) {
    const char *at = c->in + c->in_begin, *end = c->in + c->in_end;
    while (at < end && !c->is_waiting) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) break;
        const char *next = newline + 1;
        if (memcmp(at, "put ", 4) == 0) {
            next = put(c, at, next);
            if (next == NULL) break;
        } else if (memcmp(at, "reserve\r\n", 9) == 0) {
            if (!reserve(c)) wait_for_job(c);
        } else if (memcmp(at, "delete ", 7) == 0) {
            bare_answer(c, "DELETED\r\n", 9);
        } else {
            slow_command(c, at, next);
        }
        at = next;
    }
    c->in_begin = (size_t)(at - c->in);
}

static void deliver(void) {
    while (first_waiting && !fifo_at_end(&jobs, &next_job)) {
        struct connection *c = first_waiting;
        first_waiting = c->next_waiting;
        if (first_waiting == NULL) last_waiting = &first_waiting;
        c->is_waiting = false;
        if (c->is_closed) continue;
        reserve(c);
        handle(c);
    }
    fifo_release(&jobs, next_job.chunk);
}

const struct protocol bare_beanstalk = {.name = "beanstalk", .handle = handle, .deliver = deliver};

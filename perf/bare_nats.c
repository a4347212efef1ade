/* NATS' protocol, as far as CONNECT, PING, SUB and PUB of exact subjects: what is published is copied to the output of
 * each subscriber at once. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "measure.h"

#define BUCKETS       4096u
#define LONGEST_NAME  255u
#define LONGEST_SID   20u
#define NUMBER_DIGITS 20u

struct subscription {
    struct subscription *next; /* of the bucket */
    struct connection *connection;
    unsigned subject_bytes, sid_bytes;
    char subject[LONGEST_NAME];
    char sid[LONGEST_SID];
};

static struct subscription *buckets[BUCKETS];

static struct subscription **bucket_of(const char *subject, size_t bytes) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)subject[i]) * 16777619u;
    return &buckets[hash % BUCKETS];
}

/* The next word of a line that ends at `end`; *at moves behind it. */
static const char *word(const char **at, const char *end, size_t *bytes) {
    const char *begin = *at;
    while (begin < end && *begin == ' ') begin++;
    const char *stop = begin;
    while (stop < end && *stop != ' ') stop++;
    *at = stop;
    *bytes = (size_t)(stop - begin);
    return begin;
}

static void subscribe(struct connection *c, const char *at, const char *line_end) {
    size_t subject_bytes, sid_bytes;
    const char *subject = word(&at, line_end, &subject_bytes), *sid = word(&at, line_end, &sid_bytes);
    if (subject_bytes > LONGEST_NAME || sid_bytes > LONGEST_SID || sid_bytes == 0) die("not such a SUB");
    struct subscription *s = allocate(1, sizeof *s);
    struct subscription **bucket = bucket_of(subject, subject_bytes);
    *s = (struct subscription){.next = *bucket, .connection = c};
    s->subject_bytes = (unsigned)subject_bytes;
    s->sid_bytes = (unsigned)sid_bytes;
    memcpy(s->subject, subject, subject_bytes);
    memcpy(s->sid, sid, sid_bytes);
    *bucket = s;
}

static void send_message(const struct subscription *s, const char *payload, size_t bytes) {
    char *room = answer_room(s->connection, 4 + s->subject_bytes + 1 + s->sid_bytes + 1 + NUMBER_DIGITS + 4 + bytes);
    char *to = room;
    memcpy(to, "MSG ", 4);
    memcpy(to += 4, s->subject, s->subject_bytes);
    to += s->subject_bytes;
    *to++ = ' ';
    memcpy(to, s->sid, s->sid_bytes);
    to += s->sid_bytes;
    *to++ = ' ';
    to = write_number(to, bytes);
    memcpy(to, "\r\n", 2);
    memcpy(to + 2, payload, bytes + 2); /* with the end of its line */
    s->connection->out_end = (size_t)(to + 2 + bytes + 2 - s->connection->out);
}

/* Returns where the command ends, or NULL if its payload is not whole. */
static const char *publish(const char *at, const char *line_end, const char *next, const char *end) {
    size_t subject_bytes, digits;
    const char *subject = word(&at, line_end, &subject_bytes), *number = word(&at, line_end, &digits);
    const char *number_end;
    uint64_t bytes = read_number(number, &number_end);
    if (digits == 0 || number_end != line_end) die("not such a PUB");
    if ((uint64_t)(end - next) < bytes + 2) return NULL;
    for (const struct subscription *s = *bucket_of(subject, subject_bytes); s; s = s->next)
        if (s->subject_bytes == subject_bytes && memcmp(s->subject, subject, subject_bytes) == 0)
            send_message(s, next, bytes);
    return next + bytes + 2;
}

static void handle(struct connection *c) {
    const char *at = c->in + c->in_begin, *end = c->in + c->in_end;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) break;
        const char *next = newline + 1, *line_end = newline > at && newline[-1] == '\r' ? newline - 1 : newline;
        if (memcmp(at, "PUB ", 4) == 0) {
            next = publish(at + 4, line_end, next, end);
            if (next == NULL) break;
        } else if (memcmp(at, "SUB ", 4) == 0) {
            subscribe(c, at + 4, line_end);
        } else if (memcmp(at, "PING", 4) == 0) {
            answer(c, "PONG\r\n", 6);
        } else if (memcmp(at, "CONNECT ", 8) != 0 && memcmp(at, "PONG", 4) != 0) {
            die("an unknown command: %.*s", (int)(line_end - at), at);
        }
        at = next;
    }
    c->in_begin = (size_t)(at - c->in);
}

static void greet(struct connection *c) {
    static const char info[] =
        "INFO {\"server_id\":\"bare\",\"version\":\"2.10.0\",\"proto\":1,\"max_payload\":1048576}\r\n";
    answer(c, info, sizeof info - 1);
}

static void forget(struct connection *c) {
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct subscription **at = &buckets[i]; *at;) {
            struct subscription *s = *at;
            if (s->connection != c) {
                at = &s->next;
                continue;
            }
            *at = s->next;
            free(s);
        }
    }
}

const struct protocol bare_nats = {.name = "nats", .greet = greet, .handle = handle, .gone = forget};

/* NATS' protocol: just CONNECT, PING, SUB and PUB. A message is copied to the output of each subscriber at once.
 * Wildcards are supported only as the last token (`a.*`, `a.>`), and only one queue group for each subject; the
 * members of a group take turns. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "measure.h"

#define BUCKETS      4096u
#define LONGEST_NAME 255u
#define LONGEST_SID  20u

struct target {
    struct connection *connection;
    unsigned sid_bytes;
    char sid[LONGEST_SID];
};

struct subscription {
    struct subscription *next; /* in the bucket */
    bool is_below;             /* matches subjects of one more token */
    bool is_group;             /* its targets get messages in turn */
    unsigned subject_bytes;
    char subject[LONGEST_NAME];
    struct target *targets;
    unsigned target_count, turn;
};

static struct subscription *buckets[BUCKETS];
static unsigned below_count;

static struct subscription **bucket_of(const char *subject, size_t bytes) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)subject[i]) * 16777619u;
    return &buckets[hash % BUCKETS];
}

/* Returns the next word of a line that ends at `end`, and moves *at behind it. */
static const char *word(const char **at, const char *end, size_t *bytes) {
    const char *begin = *at;
    while (begin < end && *begin == ' ') begin++;
    const char *stop = begin;
    while (stop < end && *stop != ' ') stop++;
    *at = stop;
    *bytes = (size_t)(stop - begin);
    return begin;
}

static bool is_of(const struct subscription *s, const char *subject, size_t bytes, bool below) {
    return s->is_below == below && s->subject_bytes == bytes && memcmp(s->subject, subject, bytes) == 0;
}

static struct subscription *subscription_of(const char *subject, size_t bytes, bool below, bool group) {
    struct subscription **bucket = bucket_of(subject, bytes);
    for (struct subscription *s = *bucket; s; s = s->next)
        if (is_of(s, subject, bytes, below) && s->is_group == group) return s;
    struct subscription *s = allocate(1, sizeof *s);
    *s = (struct subscription){.next = *bucket, .is_below = below, .is_group = group};
    s->subject_bytes = (unsigned)bytes;
    memcpy(s->subject, subject, bytes);
    if (below) below_count++;
    return *bucket = s;
}

static void subscribe(struct connection *c, const char *at, const char *line_end) {
    size_t subject_bytes, second_bytes, third_bytes;
    const char *subject = word(&at, line_end, &subject_bytes), *second = word(&at, line_end, &second_bytes);
    const char *third = word(&at, line_end, &third_bytes);
    bool group = third_bytes > 0, below = subject_bytes > 2 && memchr("*>", subject[subject_bytes - 1], 2) != NULL;
    const char *sid = group ? third : second;
    size_t sid_bytes = group ? third_bytes : second_bytes;
    if (subject_bytes > LONGEST_NAME || sid_bytes > LONGEST_SID || sid_bytes == 0) die("not such a SUB");
    struct subscription *s = subscription_of(subject, subject_bytes - (below ? 2 : 0), below, group);
    s->targets = realloc(s->targets, (s->target_count + 1) * sizeof *s->targets);
    if (s->targets == NULL) die("out of memory");
    struct target *t = &s->targets[s->target_count++];
    *t = (struct target){.connection = c, .sid_bytes = (unsigned)sid_bytes};
    memcpy(t->sid, sid, sid_bytes);
}

struct published {
    const char *subject, *rest, *payload; /* rest: "[reply ]size\r\n" */
    size_t subject_bytes, rest_bytes, payload_bytes;
};

static void send_message(const struct target *t, const struct published *p) {
    size_t bytes = 4 + p->subject_bytes + 1 + t->sid_bytes + 1 + p->rest_bytes + p->payload_bytes + 2;
    char *room = bare_room(t->connection, bytes), *to = room;
    memcpy(to, "MSG ", 4);
    memcpy(to += 4, p->subject, p->subject_bytes);
    to += p->subject_bytes;
    *to++ = ' ';
    memcpy(to, t->sid, t->sid_bytes);
    to += t->sid_bytes;
    *to++ = ' ';
    memcpy(to, p->rest, p->rest_bytes);
    memcpy(to + p->rest_bytes, p->payload, p->payload_bytes + 2); /* the payload and the end of its line */
    t->connection->out_end = (size_t)(room + bytes - t->connection->out);
}

static void send_to_all(const struct published *p, size_t subject_bytes, bool below) {
    for (struct subscription *s = *bucket_of(p->subject, subject_bytes); s; s = s->next) {
        if (!is_of(s, p->subject, subject_bytes, below)) continue;
        if (s->is_group) send_message(&s->targets[s->turn++ % s->target_count], p);
        for (unsigned i = 0; i < s->target_count && !s->is_group; i++) send_message(&s->targets[i], p);
    }
}

/* Returns where the command ends, or NULL if its payload has not come whole. */
static const char *publish(const char *at, const char *line_end, const char *next, const char *end) {
    struct published p = {.payload = next};
    size_t second_bytes, third_bytes;
    p.subject = word(&at, line_end, &p.subject_bytes);
    const char *second = word(&at, line_end, &second_bytes), *third = word(&at, line_end, &third_bytes);
    const char *number_end;
    p.payload_bytes = read_number(third_bytes > 0 ? third : second, &number_end);
    if (second_bytes == 0 || number_end != line_end) die("not such a PUB");
    if ((uint64_t)(end - next) < p.payload_bytes + 2) return NULL;
    p.rest = second;
    p.rest_bytes = (size_t)(next - second);
    send_to_all(&p, p.subject_bytes, false);
    const char *dot = below_count > 0 ? memrchr(p.subject, '.', p.subject_bytes) : NULL;
    if (dot) send_to_all(&p, (size_t)(dot - p.subject), true);
    return next + p.payload_bytes + 2;
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
            bare_answer(c, "PONG\r\n", 6);
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
    bare_answer(c, info, sizeof info - 1);
}

static void forget(struct connection *c) {
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct subscription **at = &buckets[i]; *at;) {
            struct subscription *s = *at;
            unsigned kept = 0;
            for (unsigned t = 0; t < s->target_count; t++)
                if (s->targets[t].connection != c) s->targets[kept++] = s->targets[t];
            s->target_count = kept;
            if (kept > 0) {
                at = &s->next;
                continue;
            }
            *at = s->next;
            if (s->is_below) below_count--;
            free(s->targets);
            free(s);
        }
    }
}

const struct protocol bare_nats = {.name = "nats", .greet = greet, .handle = handle, .gone = forget};

/* Replies to bytes. */
#include "acceptor/protocols/beanstalk/beanstalk_replies.h"

#include <string.h>

#include "acceptor/protocols/beanstalk/beanstalk_words.h"

/* Of one length, so that they are copied by a few instructions. */
struct done_text {
    char text[15];
    uint8_t bytes;
};
#define DONE(text) {text "\r\n", sizeof(text "\r\n") - 1}

static const struct done_text done_texts[MSG_LIST + 1] = {
    [MSG_DELETE] = DONE("DELETED"), [MSG_RELEASE] = DONE("RELEASED"), [MSG_BURY] = DONE("BURIED"),
    [MSG_TOUCH] = DONE("TOUCHED"),  [MSG_KICK_ID] = DONE("KICKED"),   [MSG_PAUSE] = DONE("PAUSED"),
};

enum { WORD_BYTES = 9 };

static const char *failure_text(uint8_t status) {
    switch (status) {
    case STATUS_NOT_FOUND: return "NOT_FOUND\r\n";
    case STATUS_TIMED_OUT:
    case STATUS_CANCELLED: return "TIMED_OUT\r\n";
    case STATUS_DEADLINE_SOON: return "DEADLINE_SOON\r\n";
    case STATUS_NO_SPACE:
    case STATUS_TOO_MANY: return "OUT_OF_MEMORY\r\n";
    case STATUS_TERMINATED: return "DRAINING\r\n"; /* no new jobs are accepted, as clients know it of a server */
    default: return "INTERNAL_ERROR\r\n";
    }
}

__attribute__((always_inline)) static inline uint8_t *put_text(uint8_t *out, const char *text) {
    size_t bytes = strlen(text);
    memcpy(out, text, bytes);
    return out + bytes;
}

static void answer_text(struct acceptor *a, struct connection *c, const char *text) {
    (void)socket_say(a, c, text, strlen(text));
}

static void answer_done(struct acceptor *a, struct connection *c, const struct done_text *done) {
    uint8_t *room = socket_room(a, c, sizeof done->text);
    if (room == NULL) return;
    memcpy(room, done->text, sizeof done->text);
    socket_written(a, c, room + done->bytes);
}

/* A word of at most WORD_BYTES, with the space behind it, and a number. These two are inlined, so that the word is a
 * constant. */
__attribute__((always_inline)) static inline void answer_number(struct acceptor *a, struct connection *c,
                                                                const char *word, uint64_t number) {
    uint8_t *room = socket_room(a, c, WORD_BYTES + DECIMAL_MAX_BYTES + CRLF_BYTES);
    if (room == NULL) return;
    uint8_t *end = decimal_put(put_text(room, word), number);
    socket_written(a, c, put_text(end, "\r\n"));
}

/* RESERVED or FOUND, with the space behind it. */
__attribute__((always_inline)) static inline void answer_job(struct acceptor *a, struct connection *c, const char *word,
                                                             uint64_t id, const uint8_t *body, uint32_t body_bytes) {
    size_t here = body_bytes < BORROWED_BYTES ? body_bytes : 0;
    uint8_t *room = socket_room(a, c, WORD_BYTES + (size_t)(2 * DECIMAL_MAX_BYTES) + sizeof " \r\n\r\n" + here);
    if (room == NULL) return;
    uint8_t *end = decimal_put(put_text(room, word), id);
    *end++ = ' ';
    end = put_text(decimal_put(end, body_bytes), "\r\n");
    if (here < body_bytes) {
        socket_written(a, c, end);
        if (socket_say(a, c, body, body_bytes)) answer_text(a, c, "\r\n");
        return;
    }
    if (body_bytes > 0) memcpy(end, body, body_bytes);
    socket_written(a, c, put_text(end + body_bytes, "\r\n"));
}

/* --- figures of a job and of a tube ------------------------------------------------------------------------------- */

/* A list of names and values, as its bytes. */
struct figures {
    size_t bytes;
    uint8_t text[2048];
};
enum { FIGURES_MOST = 14, FIGURE_NAME_BYTES = 26, FIGURE_BYTES = FIGURE_NAME_BYTES + DECIMAL_MAX_BYTES + 1 };
_Static_assert(FIGURES_MOST *FIGURE_BYTES + TOPIC_NAME_BYTES + sizeof "---\n" <=
                   sizeof(struct figures) - sizeof(size_t),
               "all figures and one name fit");

struct figure {
    const char *name; /* with the colon and the space, FIGURE_NAME_BYTES at most */
    uint64_t value;
};

static void put_word(struct figures *f, const char *name, const void *word, size_t bytes) {
    uint8_t *end = put_text(f->text + f->bytes, name);
    memcpy(end, word, bytes);
    end[bytes] = '\n';
    f->bytes = (size_t)(end + bytes + 1 - f->text);
}

static void put_figures(struct figures *f, const struct figure *figures, size_t count) {
    uint8_t *end = f->text + f->bytes;
    for (size_t i = 0; i < count; i++) {
        end = decimal_put(put_text(end, figures[i].name), figures[i].value);
        *end++ = '\n';
    }
    f->bytes = (size_t)(end - f->text);
}

static void answer_figures(struct acceptor *a, struct connection *c, const struct figures *f) {
    uint8_t *room = socket_room(a, c, sizeof "OK \r\n\r\n" + DECIMAL_MAX_BYTES + f->bytes);
    if (room == NULL) return;
    uint8_t *end = put_text(decimal_put(put_text(room, "OK "), f->bytes), "\r\n");
    memcpy(end, f->text, f->bytes);
    socket_written(a, c, put_text(end + f->bytes, "\r\n"));
}

#define FIGURES_OF(array) array, sizeof(array) / sizeof *(array)

static void answer_job_stats(struct acceptor *a, struct connection *c, const uint8_t *body, uint32_t body_bytes) {
    static const char *const states[] = {
        [JOB_READY] = "ready", [JOB_RESERVED] = "reserved", [JOB_DELAYED] = "delayed", [JOB_BURIED] = "buried"};
    struct job_stats s;
    assert(body_bytes >= sizeof s && body_bytes - sizeof s <= TOPIC_NAME_BYTES);
    memcpy(&s, body, sizeof s);
    assert(s.state >= JOB_READY && s.state <= JOB_BURIED);
    const struct figure id[] = {{"id: ", s.id}};
    const struct figure rest[] = {
        {"pri: ", s.pri},
        {"age: ", s.age_ns / SECOND_NS},
        {"delay: ", s.delay_ns / SECOND_NS},
        {"ttr: ", s.ttr_ns / SECOND_NS},
        {"time-left: ", s.time_left_ns / SECOND_NS},
        {"file: ", s.file},
        {"reserves: ", s.reserves},
        {"timeouts: ", s.timeouts},
        {"releases: ", s.releases},
        {"buries: ", s.buries},
        {"kicks: ", s.kicks},
    };
    struct figures f = {.bytes = 4, .text = "---\n"};
    put_figures(&f, FIGURES_OF(id));
    put_word(&f, "tube: ", body + sizeof s, body_bytes - sizeof s);
    put_word(&f, "state: ", states[s.state], strlen(states[s.state]));
    put_figures(&f, FIGURES_OF(rest));
    answer_figures(a, c, &f);
}

static void answer_tube_stats(struct acceptor *a, struct connection *c, const uint8_t *body, uint32_t body_bytes) {
    struct topic_stats s;
    assert(body_bytes >= sizeof s && body_bytes - sizeof s <= TOPIC_NAME_BYTES);
    memcpy(&s, body, sizeof s);
    const struct figure rest[] = {
        {"current-jobs-urgent: ", s.urgent},
        {"current-jobs-ready: ", s.ready},
        {"current-jobs-reserved: ", s.reserved},
        {"current-jobs-delayed: ", s.delayed},
        {"current-jobs-buried: ", s.buried},
        {"total-jobs: ", s.total},
        {"current-using: ", s.using},
        {"current-watching: ", s.watching},
        {"current-waiting: ", s.waiting},
        {"cmd-delete: ", s.deletes},
        {"cmd-pause-tube: ", s.pauses},
        {"pause: ", s.pause_ns / SECOND_NS},
        {"pause-time-left: ", s.pause_left_ns / SECOND_NS},
    };
    struct figures f = {.bytes = 4, .text = "---\n"};
    put_word(&f, "name: ", body + sizeof s, body_bytes - sizeof s);
    put_figures(&f, FIGURES_OF(rest));
    answer_figures(a, c, &f);
}

/* ------------------------------------------------------------------------------------------------------------------ */

void beanstalk_answer_failure(struct acceptor *a, struct connection *c, uint8_t status) {
    answer_text(a, c, failure_text(status));
}

void beanstalk_answer(struct acceptor *a, struct connection *c, const struct codec_answer *answer) {
    if (answer->kind == MSG_BARRIER) {
        /* A worker that has died is told everything again when it is back. */
        (void)socket_say(a, c, answer->body, answer->body_bytes);
        return;
    }
    if (answer->status != STATUS_OK) {
        beanstalk_answer_failure(a, c, answer->status);
        return;
    }
    switch (answer->kind) {
    case MSG_PUBLISH: answer_number(a, c, "INSERTED ", answer->value); break;
    case MSG_KICK: answer_number(a, c, "KICKED ", answer->id); break;
    case MSG_RESERVE_ID:
    case MSG_RESERVE: answer_job(a, c, "RESERVED ", answer->id, answer->body, answer->body_bytes); break;
    case MSG_PEEK_ID:
    case MSG_PEEK_READY:
    case MSG_PEEK_DELAYED:
    case MSG_PEEK_BURIED: answer_job(a, c, "FOUND ", answer->id, answer->body, answer->body_bytes); break;
    case MSG_STATS_ID: answer_job_stats(a, c, answer->body, answer->body_bytes); break;
    case MSG_STATS_TOPIC: answer_tube_stats(a, c, answer->body, answer->body_bytes); break;
    default: answer_done(a, c, &done_texts[answer->kind]);
    }
}

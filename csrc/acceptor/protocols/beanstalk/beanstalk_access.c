/* What a connection may do where there are users: Python decides once, and its answers are kept here. */
#include "acceptor/protocols/beanstalk/beanstalk_access.h"

#include <string.h>

#include "acceptor/protocols/beanstalk/beanstalk_tubes.h"
#include "acceptor/protocols/beanstalk/beanstalk_words.h"

enum { ABOUT_BYTES = BEANSTALK_NAME_BYTES };

/* Always false: the command is parsed again when Python has answered. */
static bool ask_python(struct acceptor *a, struct connection *c, enum beanstalk_question question, const void *about,
                       size_t bytes) {
    uint8_t line[2 + ABOUT_BYTES] = {0, (uint8_t)question};
    assert(bytes <= ABOUT_BYTES);
    if (!may_do_alone(c)) return false;
    if (bytes > 0) memcpy(line + 2, about, bytes);
    reply_by_python(a, c, line, 2 + bytes);
    c->known = true;
    return false;
}

bool beanstalk_introduced(struct acceptor *a, struct connection *c) {
    if (!beanstalk_options(a, c)->guarded || beanstalk_of(c)->introduced) return true;
    return ask_python(a, c, ASKS_WHO, NULL, 0);
}

bool beanstalk_knows_put(struct acceptor *a, struct connection *c) {
    if (!beanstalk_is_guarded(a, c) || beanstalk_of(c)->may_put != VERDICT_NONE) return true;
    return ask_python(a, c, ASKS_PUT, NULL, 0);
}

enum beanstalk_verdict beanstalk_may(struct acceptor *a, struct connection *c, enum beanstalk_question question,
                                     const void *about, size_t bytes) {
    struct beanstalk *b = beanstalk_of(c);
    bool consumes = question == ASKS_WATCH || question == ASKS_JOB;
    if (!beanstalk_is_guarded(a, c) || (consumes && b->consumes_all)) return VERDICT_ALLOWED;
    enum beanstalk_verdict said = (enum beanstalk_verdict)b->verdict;
    b->verdict = VERDICT_NONE;
    if (said == VERDICT_NONE) (void)ask_python(a, c, question, about, bytes);
    return said;
}

/* --- what Python says and asks ------------------------------------------------------------------------------------ */

static int64_t watched(const struct beanstalk *b, const struct codec_call *call) {
    for (uint32_t i = 0; i < b->watched_count && i < call->out_limit; i++) call->out[i] = b->watched[i];
    return b->watched_count;
}

static int64_t unwatch(struct acceptor *a, struct connection *c, uint64_t topic) {
    const struct beanstalk *b = beanstalk_of(c);
    uint32_t place = topic <= UINT32_MAX ? beanstalk_watch_place(b, (uint32_t)topic) : b->watched_count;
    if (place < b->watched_count) beanstalk_ignore(a, c, place);
    return CALL_DONE;
}

int64_t beanstalk_call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call) {
    struct beanstalk *b = beanstalk_of(c);
    if (strcmp(what, "used") == 0) return b->used;
    if (strcmp(what, "watched") == 0) return watched(b, call);
    if (strcmp(what, "unwatch") == 0) return unwatch(a, c, call->value);
    if (call->value > VERDICT_REFUSED) return CALL_REFUSED;
    if (strcmp(what, "introduced") == 0)
        b->introduced = true;
    else if (strcmp(what, "trusted") == 0)
        b->introduced = b->trusted = true;
    else if (strcmp(what, "consumes-all") == 0)
        b->consumes_all = call->value != 0;
    else if (strcmp(what, "may-put") == 0)
        b->may_put = call->value & 3u;
    else if (strcmp(what, "verdict") == 0)
        b->verdict = call->value & 3u;
    else
        return CALL_REFUSED;
    return CALL_DONE;
}

bool beanstalk_set(void *state, const char *option, uint64_t value) {
    struct beanstalk_options *options = state;
    if (strcmp(option, "max-job-size") == 0 && value <= MAX_BODY_BYTES)
        options->max_job_bytes = (uint32_t)value;
    else if (strcmp(option, "max-watches") == 0 && value > 0 && value <= MAX_ALL_WATCHED)
        options->max_watches = (uint32_t)value;
    else if (strcmp(option, "guarded") == 0 && value <= 1)
        options->guarded = value != 0;
    else
        return false;
    return true;
}

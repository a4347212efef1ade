#include "acceptor/protocols/nats/nats_latency.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_answers.h"
#include "acceptor/protocols/nats/nats_asker.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_random.h"
#include "acceptor/protocols/nats/nats_sampled.h"
#include "acceptor/protocols/nats/nats_set_header.h"
#include "base/decimal.h"
#include "base/hex.h"

enum {
    BUCKETS = 1 << 10,
    ID_BYTES = 22,            /* of a result */
    RESULT_BYTES = 1 << 20,   /* longest result */
    HEADERS_BYTES = 16 << 10, /* of a request in its result; without them if they are longer */
    EXPIRED_AT_ONCE = 1024,
};

struct nats_latency {
    uint32_t references, percent; /* 0: only those are measured whose headers ask for it */
    size_t subject_bytes;
    uint8_t subject[]; /* where results are published */
};

enum state { IS_FREE, IS_WAITING, IS_HALF };

struct bytes {
    uint8_t *at; /* NULL: none */
    size_t bytes;
};

/* A request that is being measured. IS_HALF: it has been answered, and waits for the half of the responder's side. */
struct nats_measure {
    struct nats_latency *latency;
    uint64_t token; /* of its answer's subject */
    uint64_t start_ns, start_wall_ns, until_ns;
    uint64_t wall_ns, service_ns, total_ns, asker_rtt_ns; /* IS_HALF: when it was answered, and what was measured */
    struct bytes headers, asker, responder;               /* JSON; `responder`: the other half came first, ... */
    uint64_t half_service_ns, half_rtt_ns;                /* ... and says this */
    uint32_t slot;                                        /* where its answer is awaited */
    struct nats_account_ref exporter;
    uint32_t asker_number;   /* a connection */
    uint32_t next, previous; /* in its bucket; `next` among the free ones, too */
    enum state state;
    bool shared;
};

/* What a result says. */
struct outcome {
    uint32_t status;
    const char *error; /* NULL: none */
    struct text asker, responder, headers;
    uint64_t start_wall_ns, wall_ns, service_ns, system_ns, total_ns;
};

static struct text text_of(struct bytes bytes) {
    return (struct text){bytes.at, bytes.bytes};
}

static bool has_room(const struct nats_latencies *l, size_t bytes) {
    return bytes <= NATS_KEPT_BYTES - l->kept_bytes;
}

/* Without room it is empty. */
static struct bytes keep(struct nats_latencies *l, struct text text) {
    uint8_t *at = text.bytes > 0 && has_room(l, text.bytes) ? malloc(text.bytes) : NULL;
    if (at == NULL) return (struct bytes){NULL, 0};
    memcpy(at, text.at, text.bytes);
    l->kept_bytes += text.bytes;
    return (struct bytes){at, text.bytes};
}

static void let_go(struct nats_latencies *l, const struct bytes *kept) {
    free(kept->at);
    l->kept_bytes -= kept->bytes;
}

static uint64_t less(uint64_t one, uint64_t other) {
    return one > other ? one - other : 0;
}

/* --- what an export says ------------------------------------------------------------------------------------------ */

struct nats_latency *nats_latency_new(uint64_t percent, struct text subject) {
    if (percent > 100 || !subject_pattern_is_valid(subject.at, subject.bytes)) return NULL;
    struct nats_latency *latency = malloc(sizeof *latency + subject.bytes);
    if (latency == NULL) return NULL;
    latency->references = 1;
    latency->percent = (uint32_t)percent;
    latency->subject_bytes = subject.bytes;
    memcpy(latency->subject, subject.at, subject.bytes);
    return latency;
}

void nats_latency_drop(struct nats_latency *latency) {
    if (latency != NULL && --latency->references == 0) free(latency);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

void nats_latency_say(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                      const struct json_text *result) {
    struct nats_latencies *l = server->latencies;
    const size_t bytes = subject.bytes + result->bytes;
    if (result->failed || l->results == NATS_RESULTS || !has_room(l, bytes)) return;
    struct nats_result *r = malloc(sizeof *r + bytes);
    if (r == NULL) return;
    l->kept_bytes += bytes;
    *r = (struct nats_result){NULL, nats_account_refer(server, account), subject.bytes, result->bytes};
    memcpy(r->text, subject.at, subject.bytes);
    memcpy(r->text + subject.bytes, result->at, result->bytes);
    *l->last = r;
    l->last = &r->next;
    l->results++;
    codec_left(a, server->protocol);
}

static void put_id(struct nats_server *server, struct json_text *out) {
    static const char DIGITS[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char id[ID_BYTES];
    for (size_t i = 0; i < ID_BYTES; i++) id[i] = DIGITS[nats_random(server) % (sizeof DIGITS - 1)];
    json_put_string(out, id, ID_BYTES);
}

static void put_some(struct json_text *out, const char *key, struct text value, const char *end) {
    if (value.bytes == 0) return;
    json_put_name(out, key);
    json_put(out, value.at, value.bytes);
    json_put_name(out, end);
}

static void put_number(struct json_text *out, const char *key, uint64_t value) {
    json_put_name(out, key);
    json_put_number(out, value);
}

static void say(struct acceptor *a, struct nats_server *server, const struct nats_latency *latency,
                struct nats_account_ref exporter, const struct outcome *o) {
    const uint32_t account = nats_account_referred(server, exporter);
    if (account == 0) return;
    struct json_text out = {.limit = RESULT_BYTES};
    json_put_name(&out, "{\"type\":\"io.nats.server.metric.v1.service_latency\",\"id\":");
    put_id(server, &out);
    json_put_name(&out, ",\"timestamp\":");
    json_put_time(&out, o->wall_ns);
    put_number(&out, ",\"status\":", o->status);
    if (o->error != NULL)
        put_some(&out, ",\"description\":\"", (struct text){(const uint8_t *)o->error, strlen(o->error)}, "\"");
    put_some(&out, ",\"requestor\":", o->asker, "");
    put_some(&out, ",\"responder\":", o->responder, "");
    put_some(&out, ",\"header\":{", o->headers, "}");
    json_put_name(&out, ",\"start\":");
    json_put_time(&out, o->start_wall_ns);
    put_number(&out, ",\"service\":", o->service_ns);
    put_number(&out, ",\"system\":", o->system_ns);
    put_number(&out, ",\"total\":", o->total_ns);
    json_put_name(&out, "}");
    nats_latency_say(a, server, account, (struct text){latency->subject, latency->subject_bytes}, &out);
    free(out.at);
}

struct text nats_latency_describe(const struct nats_server *server, const struct connection *c, bool whole,
                                  struct nats_room *room) {
    const struct nats_asker who = {c, 0};
    if (c == NULL || nats_room_for(room, nats_asker_bytes(server, &who)) == NULL) return (struct text){NULL, 0};
    return (struct text){room->at, (size_t)(nats_put_asker(server, &who, whole, room->at) - room->at)};
}

static uint64_t rtt_of(const struct nats_server *server, const struct connection *c) {
    return c != NULL ? nats_requestor_of(server, c).rtt_ns : 0;
}

/* --- measures ----------------------------------------------------------------------------------------------------- */

static uint32_t *bucket_of(const struct nats_latencies *l, uint32_t asker_number) {
    return &l->by_asker[(asker_number * 2654435761u) >> 22];
}

_Static_assert(BUCKETS == 1 << (32 - 22), "a bucket for each hash");

static struct nats_measure *new_measure(struct nats_latencies *l, uint32_t asker_number) {
    uint32_t number = l->first_free;
    if (number == 0 && l->used == NATS_MEASURES) return NULL;
    if (number != 0)
        l->first_free = l->measures[number].next;
    else
        number = l->used++;
    uint32_t *bucket = bucket_of(l, asker_number);
    struct nats_measure *m = &l->measures[number];
    *m = (struct nats_measure){.state = IS_WAITING, .asker_number = asker_number, .next = *bucket};
    if (m->next != 0) l->measures[m->next].previous = number;
    *bucket = number;
    l->waiting++;
    return m;
}

static void free_measure(struct nats_latencies *l, struct nats_measure *m) {
    uint32_t number = (uint32_t)(m - l->measures);
    if (m->next != 0) l->measures[m->next].previous = m->previous;
    if (m->previous != 0)
        l->measures[m->previous].next = m->next;
    else
        *bucket_of(l, m->asker_number) = m->next;
    let_go(l, &m->headers);
    let_go(l, &m->asker);
    let_go(l, &m->responder);
    nats_latency_drop(m->latency);
    *m = (struct nats_measure){.state = IS_FREE, .next = l->first_free};
    l->first_free = number;
    l->waiting--;
}

static struct nats_measure *measure_of(const struct nats_server *server, uint32_t number, uint64_t token) {
    const struct nats_latencies *l = server->latencies;
    if (l == NULL || number == 0 || number >= l->used) return NULL;
    struct nats_measure *m = &l->measures[number];
    return m->state != IS_FREE && m->token == token ? m : NULL;
}

/* Ends a request that was not answered. */
static void end_without(struct acceptor *a, struct nats_server *server, struct nats_measure *m,
                        const struct connection *asker, uint32_t status, const char *error) {
    struct nats_latencies *l = server->latencies;
    struct outcome o = {.status = status, .error = error, .headers = text_of(m->headers)};
    o.asker = nats_latency_describe(server, asker, m->shared, &l->asker);
    o.start_wall_ns = m->start_wall_ns - rtt_of(server, asker);
    o.wall_ns = nats_wall_now(a);
    nats_answer_forget(server, m->slot, m->token);
    say(a, server, m->latency, m->exporter, &o);
    free_measure(l, m);
}

/* Both halves are there. */
static void end_whole(struct acceptor *a, struct nats_server *server, struct nats_measure *m) {
    const struct outcome o = {.status = 200,
                              .asker = text_of(m->asker),
                              .responder = text_of(m->responder),
                              .headers = text_of(m->headers),
                              .start_wall_ns = m->start_wall_ns - m->asker_rtt_ns,
                              .wall_ns = m->wall_ns,
                              .service_ns = m->half_service_ns,
                              .system_ns = less(m->service_ns, m->half_service_ns + m->half_rtt_ns),
                              .total_ns = m->total_ns};
    say(a, server, m->latency, m->exporter, &o);
    free_measure(server->latencies, m);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* A request without a reply subject: nobody can answer it. */
static void say_bad(struct acceptor *a, struct nats_server *server, const struct nats_measured *request,
                    struct text headers) {
    uint64_t now = nats_wall_now(a);
    const struct outcome o = {
        .status = 400,
        .error = "Bad Request",
        .asker = nats_latency_describe(server, request->asker, request->shared, &server->latencies->asker),
        .headers = headers,
        .start_wall_ns = now - rtt_of(server, request->asker),
        .wall_ns = now};
    say(a, server, request->latency, nats_account_refer(server, request->exporter), &o);
}

uint32_t nats_latency_begin(struct acceptor *a, struct nats_server *server, const struct nats_measured *request) {
    struct nats_latencies *l = server->latencies;
    struct json_text headers = {.limit = HEADERS_BYTES};
    struct nats_measure *m = NULL;
    if (l == NULL || request->asker == NULL) return 0;
    if (request->asker->protocol == server->protocol && nats_is(request->asker, NATS_OF_SERVER)) return 0;
    bool is_sampled = nats_is_sampled(server, request->latency->percent, request->message, &headers);
    if (headers.failed) headers.bytes = 0;
    if (is_sampled && request->message->reply.bytes == 0)
        say_bad(a, server, request, (struct text){headers.at, headers.bytes});
    else if (is_sampled && has_room(l, headers.bytes))
        m = new_measure(l, request->asker->number);
    if (m != NULL) m->headers = keep(l, (struct text){headers.at, headers.bytes});
    free(headers.at);
    if (m == NULL) return 0;
    m->latency = request->latency;
    m->latency->references++;
    m->start_ns = exact_now(a);
    m->start_wall_ns = nats_wall_now(a);
    m->until_ns = m->start_ns + request->lifetime_ns;
    m->exporter = nats_account_refer(server, request->exporter);
    m->shared = request->shared;
    return (uint32_t)(m - l->measures);
}

void nats_latency_await(struct nats_server *server, uint32_t number, uint32_t slot, uint64_t token) {
    struct nats_measure *m = &server->latencies->measures[number];
    m->slot = slot;
    m->token = token;
}

void nats_latency_cancel(struct nats_server *server, uint32_t number) {
    free_measure(server->latencies, &server->latencies->measures[number]);
}

void nats_latency_unavailable(struct acceptor *a, struct nats_server *server, struct text reply) {
    uint64_t token;
    uint32_t number;
    if (!nats_answer_number(server, reply, &number, &token)) return;
    struct nats_measure *m = measure_of(server, number, token);
    if (m != NULL && m->state == IS_WAITING)
        end_without(a, server, m, connection_find(a, m->asker_number), 503, "Service Unavailable");
}

void nats_latency_answered(struct acceptor *a, struct nats_server *server, uint32_t number, uint64_t token,
                           const struct connection *responder) {
    struct nats_latencies *l = server->latencies;
    struct nats_measure *m = measure_of(server, number, token);
    if (m == NULL || m->state != IS_WAITING) return;
    const struct connection *asker = connection_find(a, m->asker_number);
    uint64_t now = exact_now(a), took_ns = now - m->start_ns;
    m->asker_rtt_ns = rtt_of(server, asker);
    m->total_ns = m->asker_rtt_ns + took_ns;
    m->wall_ns = nats_wall_now(a);
    m->service_ns = less(took_ns, rtt_of(server, responder));
    struct text who = nats_latency_describe(server, asker, m->shared, &l->asker);
    if (responder == NULL) {
        m->state = IS_HALF;
        m->asker = keep(l, who);
        if (m->responder.at != NULL) end_whole(a, server, m);
        return;
    }
    struct outcome o = {.status = 200, .asker = who, .headers = text_of(m->headers)};
    o.responder = nats_latency_describe(server, responder, true, &l->responder);
    o.start_wall_ns = m->start_wall_ns - m->asker_rtt_ns;
    o.wall_ns = m->wall_ns;
    o.service_ns = m->service_ns;
    if (rtt_of(server, responder) > 0) o.system_ns = exact_now(a) - now;
    o.total_ns = m->total_ns + o.system_ns;
    say(a, server, m->latency, m->exporter, &o);
    free_measure(l, m);
}

/* Whether anybody wants what is published to a subject. */
static bool is_wanted(struct nats_server *server, uint32_t number, struct text subject) {
    struct subject_pattern *const *patterns;
    const struct nats_account *account = &server->accounts[number];
    if (subjects_match(account->subjects, server->walk, subject.at, subject.bytes, &patterns) > 0) return true;
    return account->remote != NULL &&
           subjects_match(account->remote, server->remote_walk, subject.at, subject.bytes, &patterns) > 0;
}

void nats_latency_unsubscribed(struct acceptor *a, struct nats_server *server, const struct connection *c,
                               struct text pattern) {
    struct nats_latencies *l = server->latencies;
    for (uint32_t number = *bucket_of(l, c->number), next; number != 0; number = next) {
        struct nats_measure *m = &l->measures[number];
        uint32_t account;
        next = m->next;
        a->handed++; /* they may be many, and what ends a subscription is short */
        if (m->asker_number != c->number || m->state != IS_WAITING) continue;
        const struct text reply = nats_answer_reply(server, m->slot, m->token, &account);
        if (reply.bytes == 0) continue; /* the slot is another request's by now: this one's time will be over */
        if (pattern.bytes > 0 && !subject_covers(pattern.at, pattern.bytes, reply.at, reply.bytes)) continue;
        if (!is_wanted(server, account, reply)) end_without(a, server, m, c, 408, "Request Timeout");
    }
}

static void expire(struct acceptor *a, struct nats_server *server) {
    struct nats_latencies *l = server->latencies;
    uint32_t left = EXPIRED_AT_ONCE;
    for (uint32_t i = 1; i < l->used && l->waiting > 0 && left > 0; i++) {
        struct nats_measure *m = &l->measures[i];
        if (m->state == IS_FREE || a->now_ns < m->until_ns) continue;
        left--;
        if (m->state == IS_WAITING)
            end_without(a, server, m, connection_find(a, m->asker_number), 504, "Service Timeout");
        else
            free_measure(l, m);
    }
}

/* --- the other half ----------------------------------------------------------------------------------------------- */

/* "RTT_NS REQUEST RESPONDER" */
static int64_t hear_half(struct acceptor *a, struct nats_server *server, uint64_t service_ns, struct text said) {
    const uint8_t *at = said.at, *end = said.at + said.bytes, *blank;
    uint64_t rtt_ns, token;
    uint32_t number;
    if (!decimal_get(&at, end, INT64_MAX, &rtt_ns) || at == end || *at++ != ' ') return CALL_REFUSED;
    if ((blank = memchr(at, ' ', (size_t)(end - at))) == NULL) return CALL_REFUSED;
    if (!nats_answer_number(server, (struct text){at, (size_t)(blank - at)}, &number, &token)) return CALL_DONE;
    struct nats_measure *m = measure_of(server, number, token);
    if (m == NULL || m->responder.at != NULL) return CALL_DONE;
    m->half_service_ns = service_ns;
    m->half_rtt_ns = rtt_ns;
    m->responder = keep(server->latencies, (struct text){blank + 1, (size_t)(end - blank - 1)});
    if (m->state == IS_HALF && m->responder.at != NULL) end_whole(a, server, m);
    return CALL_DONE;
}

/* --- the acceptor ------------------------------------------------------------------------------------------------- */

bool nats_latency_open(struct nats_server *server) {
    if (server->latencies != NULL) return true;
    struct nats_latencies *l = calloc(1, sizeof *l);
    if (l == NULL) return false;
    l->measures = calloc(NATS_MEASURES, sizeof *l->measures);
    l->by_asker = calloc(BUCKETS, sizeof *l->by_asker);
    l->halves = calloc(1, sizeof *l->halves);
    l->used = 1;
    l->last = &l->first;
    server->latencies = l;
    if (l->measures != NULL && l->by_asker != NULL && l->halves != NULL) return true;
    nats_latency_close(server);
    return false;
}

void nats_latency_close(struct nats_server *server) {
    struct nats_latencies *l = server->latencies;
    if (l == NULL) return;
    for (uint32_t i = 1; i < l->used && l->measures != NULL; i++)
        if (l->measures[i].state != IS_FREE) free_measure(l, &l->measures[i]);
    for (struct nats_result *r = l->first, *next; r != NULL; r = next) {
        next = r->next;
        free(r);
    }
    free(l->measures);
    free(l->by_asker);
    free(l->halves);
    free(l->asker.at);
    free(l->responder.at);
    free(l);
    server->latencies = NULL;
}

int64_t nats_latency_configure(struct acceptor *a, struct nats_server *server, const char *what, uint64_t value,
                               struct text said) {
    if (strcmp(what, "latency") == 0) {
        if (value >= server->account_count || !nats_latency_open(server)) return CALL_REFUSED;
        nats_account_hold(server, (uint32_t)value);
        if (server->latencies->system_account != 0) nats_account_drop(a, server, server->latencies->system_account);
        server->latencies->system_account = (uint32_t)value;
        return nats_answers_id(server);
    }
    if (server->latencies == NULL) return CALL_REFUSED;
    if (strcmp(what, "latency-half") == 0) return hear_half(a, server, value, said);
    expire(a, server);
    return CALL_DONE;
}

/* The event of a traced message: its parts are written as things happen, and put together at the end. */
#include "acceptor/protocols/nats/nats_traced.h"

#include <stdlib.h>

#include "acceptor/protocols/go_quote.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_give.h"
#include "acceptor/protocols/nats/nats_route_state.h"
#include "base/decimal.h"
#include "base/subject_groups.h"

static void put_text(struct json_text *json, const char *key, struct text value) {
    json_put_name(json, key);
    json_put_string(json, value.at, value.bytes);
}

/* A field that is left out when it is empty. */
static void put_some(struct json_text *json, const char *key, struct text value) {
    if (value.bytes > 0) put_text(json, key, value);
}

static struct text name_of(const struct nats_server *server, uint32_t account) {
    const struct nats_account *found = &server->accounts[account];
    return (struct text){(const uint8_t *)found->name, found->name_bytes};
}

/* {"type":"eg","ts":"..." */
static void begin_event(const struct acceptor *a, struct json_text *json, const char *type) {
    json_put_name(json, "{\"type\":\"");
    json_put_name(json, type);
    json_put_name(json, "\",\"ts\":");
    json_put_time(json, nats_wall_now(a));
}

/* The same behind the others. */
static void next_event(const struct acceptor *a, struct nats_trace *t, const char *type) {
    json_put_name(&t->events, ",");
    begin_event(a, &t->events, type);
}

/* Only whole events count: the last one may have been too much. */
static void end_event(struct nats_trace *t) {
    json_put_name(&t->events, "}");
    if (!t->events.failed) t->whole_bytes = t->events.bytes;
}

struct text nats_trace_part(const struct nats_trace *t) {
    return (struct text){t->events.at, t->whole_bytes};
}

void nats_trace_add(struct nats_trace *t, struct text events) {
    json_put(&t->events, events.at, events.bytes);
    if (!t->events.failed) t->whole_bytes = t->events.bytes;
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

struct nats_trace *nats_trace_new(struct acceptor *a, struct nats_server *server, uint32_t account, struct text dest,
                                  struct text hop) {
    struct nats_trace *t = calloc(1, sizeof *t + dest.bytes + hop.bytes);
    if (t == NULL) return NULL;
    t->number = (uint64_t)a->index << 32 | (++server->traces_made & UINT32_MAX);
    t->account = account;
    t->account_life = server->accounts[account].life;
    t->dest_bytes = dest.bytes;
    t->hop_bytes = hop.bytes;
    if (dest.bytes > 0) memcpy(t->texts, dest.at, dest.bytes);
    if (hop.bytes > 0) memcpy(t->texts + dest.bytes, hop.at, hop.bytes);
    t->request.limit = t->ingress.limit = t->events.limit = NATS_TRACE_BYTES;
    return t;
}

void nats_trace_free(struct nats_trace *t) {
    free(t->request.at);
    free(t->ingress.at);
    free(t->events.at);
    free(t);
}

static int in_order(const void *left, const void *right) {
    const struct text *a = *(const struct text *const *)left, *b = *(const struct text *const *)right;
    int found = memcmp(a->at, b->at, a->bytes < b->bytes ? a->bytes : b->bytes);
    if (found == 0 && a->bytes != b->bytes) found = a->bytes < b->bytes ? -1 : 1;
    /* Values of one name stay in their order. */
    return found != 0 ? found : (a > b) - (a < b);
}

static bool is_same(const struct text *a, const struct text *b) {
    return a->bytes == b->bytes && memcmp(a->at, b->at, a->bytes) == 0;
}

/* {"name":["value",...],...}, by name. */
static void put_headers(struct json_text *json, const struct text *names, const struct text *values, size_t count) {
    const struct text *sorted[NATS_TRACE_HEADERS];
    for (size_t i = 0; i < count; i++) sorted[i] = &names[i];
    qsort(sorted, count, sizeof *sorted, in_order);
    for (size_t i = 0; i < count; i++) {
        const struct text *value = &values[sorted[i] - names];
        bool is_next = i > 0 && is_same(sorted[i - 1], sorted[i]);
        if (!is_next) {
            json_put_name(json, i == 0 ? "{" : "],");
            json_put_string(json, sorted[i]->at, sorted[i]->bytes);
        }
        json_put_name(json, is_next ? "," : ":[");
        json_put_string(json, value->at, value->bytes);
    }
    json_put_name(json, "]}");
}

void nats_trace_ingress(struct acceptor *a, struct nats_trace *t, const struct nats_ingress *from,
                        const struct nats_message *m, const struct text *names, const struct text *values,
                        size_t headers) {
    const struct connection *c = from->connection;
    bool is_client = from->kind == NATS_KIND_CLIENT;
    json_put_name(&t->request, "{\"header\":");
    put_headers(&t->request, names, values, headers);
    if (m->payload_bytes > 0) {
        json_put_name(&t->request, ",\"msgsize\":");
        json_put_number(&t->request, m->payload_bytes);
    }
    begin_event(a, &t->ingress, "in");
    json_put_name(&t->ingress, ",\"kind\":");
    json_put_number(&t->ingress, from->kind);
    json_put_name(&t->ingress, ",\"cid\":");
    json_put_number(&t->ingress, is_client ? nats_of(c)->client_id : c->number);
    put_some(&t->ingress, ",\"name\":", is_client ? nats_name_of(nats_of(c)->name) : nats_name_of(route_of(c)->name));
    put_text(&t->ingress, ",\"acc\":", name_of(is_client ? nats_server_of(a, c) : route_server(a, c), from->account));
    put_text(&t->ingress, ",\"subj\":", from->subject);
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

void nats_trace_refused(struct nats_server *server, const char *text) {
    if (server->trace == NULL) return;
    put_text(&server->trace->ingress, ",\"error\":", (struct text){(const uint8_t *)text, strlen(text)});
}

void nats_trace_violation(struct nats_server *server, const char *what, struct text subject) {
    static const char VIOLATION[] = "Permissions Violation for ";
    if (server->trace == NULL) return;
    const size_t most = sizeof VIOLATION + strlen(what) + QUOTED_BYTES(subject.bytes) + 1;
    char *text = calloc(1, most);
    if (text == NULL) return;
    memcpy(text, VIOLATION, sizeof VIOLATION - 1);
    memcpy(text + sizeof VIOLATION - 1, what, strlen(what));
    go_quote((uint8_t *)text + sizeof VIOLATION - 1 + strlen(what), subject.at, subject.bytes);
    nats_trace_refused(server, text);
    free(text);
}

void nats_trace_mapped(struct acceptor *a, struct nats_server *server, struct text subject) {
    if (server->trace == NULL) return;
    next_event(a, server->trace, "sm");
    put_text(&server->trace->events, ",\"to\":", subject);
    end_event(server->trace);
}

void nats_trace_import(struct acceptor *a, struct nats_server *server, uint32_t account, struct text from,
                       struct text to) {
    struct json_text *events = &server->trace->events;
    next_event(a, server->trace, "si");
    put_text(events, ",\"acc\":", name_of(server, account));
    put_text(events, ",\"from\":", from);
    put_text(events, ",\"to\":", to);
    end_event(server->trace);
}

void nats_trace_egress(struct acceptor *a, const struct nats_server *server, struct nats_trace *t,
                       const struct nats_egress *e) {
    struct json_text *events = &t->events;
    if (events->failed) return;
    next_event(a, t, "eg");
    json_put_name(events, ",\"kind\":");
    json_put_number(events, e->kind);
    json_put_name(events, ",\"cid\":");
    json_put_number(events, e->cid);
    put_some(events, ",\"name\":", e->name);
    put_some(events, ",\"hop\":", e->hop);
    if (e->account != 0) put_text(events, ",\"acc\":", name_of(server, e->account));
    if (e->entry != NULL) {
        const struct subject_pattern *p = e->entry->pattern;
        const struct subject_group *g = e->entry->group;
        put_text(events, ",\"sub\":", (struct text){(const uint8_t *)p->text, p->bytes});
        if (g != NULL) put_text(events, ",\"queue\":", (struct text){(const uint8_t *)g->name->text, g->name->bytes});
    }
    if (e->error != NULL) put_text(events, ",\"error\":", (struct text){(const uint8_t *)e->error, strlen(e->error)});
    end_event(t);
}

/* The message is exported as a stream to the subscriber's account. */
static void put_export(const struct nats_delivery *d, struct nats_trace *t) {
    next_event(d->a, t, "se");
    put_text(&t->events, ",\"acc\":", (struct text){(const uint8_t *)d->account->name, d->account->name_bytes});
    put_text(&t->events, ",\"to\":", d->message->subject);
    end_event(t);
}

static const char *const REFUSALS[] = {
    [NATS_NO_ECHO] = "Not delivered because of no echo",
    [NATS_DENIED] = "Not delivered because subscription denies this subject",
    [NATS_GONE] = "Not delivered because client is closed",
    [NATS_HAD_ALL] = "Not delivered because auto-unsubscribe exceeded",
};

void nats_give_traced(struct nats_delivery *d, struct nats_subscription *s) {
    struct nats_trace *t = d->server->trace;
    enum nats_refusal refusal = nats_refusal_of(d, s);
    bool is_shown = s->connection != NULL && !nats_is(s->connection, NATS_OF_SERVER);
    if (is_shown && (t->legs & NATS_LEG_STREAM) != 0) put_export(d, t);
    if (t->only && refusal == NATS_ALLOWED)
        d->delivered++;
    else
        nats_give(d, s);
    if (!is_shown || (t->legs & NATS_LEG_CLOSED) != 0) return;
    const struct nats *n = nats_of(s->connection);
    const struct nats_egress e = {.kind = NATS_KIND_CLIENT,
                                  .cid = n->client_id,
                                  .name = nats_name_of(n->name),
                                  .account = (t->legs & NATS_LEG_ABROAD) != 0 ? n->account : 0,
                                  .entry = &s->entry,
                                  .error = REFUSALS[refusal]};
    nats_trace_egress(d->a, d->server, t, &e);
}

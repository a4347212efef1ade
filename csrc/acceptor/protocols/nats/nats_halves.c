/* Measured requests of other acceptors and servers that clients here have got, by their reply subjects: a table of
 * keyed hashes. A request that nobody answers stays there until another takes its place. */
#include "acceptor/protocols/nats/nats_halves.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_latency.h"

enum { PROBES = 8, HALF_BYTES = 1 << 20 /* longest half */ };

static uint64_t hash_of(const struct nats_server *server, struct text subject) {
    uint64_t hash = siphash(server->key, subject.at, subject.bytes);
    return hash != 0 ? hash : 1;
}

static struct nats_half *probe(struct nats_halves *halves, uint64_t hash, uint32_t i) {
    return &halves->items[(hash + i) % NATS_HALVES];
}

/* Whether this is the reply subject of a measured request. */
static bool is_measured(struct text reply) {
    return reply.bytes > 6 && reply.at[reply.bytes - 1] == 'T' && reply.at[reply.bytes - 2] == '.' &&
           memcmp(reply.at, "_R_.", 4) == 0;
}

void nats_half_begin(struct acceptor *a, struct nats_server *server, uint32_t account, struct text reply) {
    struct nats_halves *halves = server->latencies->halves;
    if (!is_measured(reply)) return;
    uint64_t hash = hash_of(server, reply);
    struct nats_half *place = probe(halves, hash, 0);
    for (uint32_t i = 0; i < PROBES && place->hash != 0; i++) {
        struct nats_half *h = probe(halves, hash, i);
        if (h->hash == 0 || h->start_ns < place->start_ns) place = h;
    }
    *place = (struct nats_half){hash, exact_now(a), nats_wall_now(a), nats_account_refer(server, account)};
}

/* Takes a request out of the table; false if it is not there. */
static bool take(struct nats_server *server, struct text reply, struct nats_half *taken) {
    uint64_t hash = hash_of(server, reply);
    for (uint32_t i = 0; i < PROBES; i++) {
        struct nats_half *h = probe(server->latencies->halves, hash, i);
        if (h->hash != hash) continue;
        *taken = *h;
        h->hash = 0;
        return true;
    }
    return false;
}

static void put_half(struct acceptor *a, struct nats_server *server, const struct nats_half *h,
                     const struct connection *c, struct text subject, struct json_text *out) {
    const struct text responder = nats_latency_describe(server, c, true, &server->latencies->responder);
    const struct nats_account *account = &server->accounts[h->account.number];
    uint64_t took_ns = exact_now(a) - h->start_ns, rtt_ns = nats_of(c)->rtt_ns;
    uint64_t service_ns = took_ns > rtt_ns ? took_ns - rtt_ns : 0;
    json_put_name(out, "{\"account\":");
    json_put_string(out, account->name, account->name_bytes);
    json_put_name(out, ",\"req_id\":");
    json_put_string(out, subject.at, subject.bytes);
    json_put_name(out, ",\"m2\":{\"type\":\"\",\"id\":\"\",\"timestamp\":\"0001-01-01T00:00:00Z\",\"status\":200");
    if (responder.bytes > 0) json_put_name(out, ",\"responder\":");
    json_put(out, responder.at, responder.bytes);
    json_put_name(out, ",\"start\":");
    json_put_time(out, h->start_wall_ns);
    json_put_name(out, ",\"service\":");
    json_put_number(out, service_ns);
    json_put_name(out, ",\"system\":0,\"total\":");
    json_put_number(out, service_ns + rtt_ns);
    json_put_name(out, "}}");
}

/* Writes where the half goes to: the ID in the subject, "_R_....ID.T". */
static void put_destination(struct text subject, struct json_text *out) {
    size_t end = subject.bytes - 2, begin = end;
    while (begin > 0 && subject.at[begin - 1] != '.') begin--;
    json_put_name(out, "$SYS.LATENCY.M2.");
    json_put(out, subject.at + begin, end - begin);
}

void nats_half_end(struct acceptor *a, struct nats_server *server, const struct connection *c, struct text subject) {
    uint32_t account = server->latencies->system_account;
    struct json_text half = {.limit = HALF_BYTES}, to = {.limit = NATS_MAX_CONTROL_LINE};
    struct nats_half taken;
    if (account == 0 || !is_measured(subject) || !take(server, subject, &taken)) return;
    if (nats_account_referred(server, taken.account) == 0) return;
    put_half(a, server, &taken, c, subject, &half);
    put_destination(subject, &to);
    if (!to.failed) nats_latency_say(a, server, account, (struct text){to.at, to.bytes}, &half);
    free(to.at);
    free(half.at);
}

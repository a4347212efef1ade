/* What services are told of a client, leaf node or hub that makes a request. */
#include "acceptor/protocols/nats/nats_asker.h"

#include "acceptor/protocols/go_quote.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_route_state.h"
#include "base/decimal.h"

static uint8_t *put_name(uint8_t *out, const char *key, const struct nats_account *account) {
    out = nats_put(out, key, strlen(key));
    return go_quote(out, (const uint8_t *)account->name, account->name_bytes);
}

struct nats_requestor nats_requestor_of(const struct nats_server *server, const struct connection *c) {
    if (c->protocol == server->protocol) {
        const struct nats *n = nats_of(c);
        return (struct nats_requestor){nats_name_of(n->info), n->account, n->rtt_ns};
    }
    const struct nats_route *r = route_of(c);
    return (struct nats_requestor){nats_name_of(r->info), r->account, r->rtt_ns};
}

/* {"acc":"NAME","svc":"NAME","rtt":N}, or more: Python has prepared what stands around the time. */
uint8_t *nats_put_asker(const struct nats_server *server, const struct nats_asker *asker, bool shared, uint8_t *out) {
    const struct nats_requestor who = nats_requestor_of(server, asker->connection);
    const uint8_t *info = who.info.at, *end = info + who.info.bytes, *middle = NULL;
    if (shared && info != NULL) middle = memchr(info, '\n', who.info.bytes);
    if (middle != NULL)
        out = nats_put(out, info, (size_t)(middle - info));
    else
        out = put_name(out, "{\"acc\":", &server->accounts[who.account]);
    if (asker->service != 0) out = put_name(out, ",\"svc\":", &server->accounts[asker->service]);
    if (who.rtt_ns > 0) out = decimal_put(nats_put(out, ",\"rtt\":", 7), who.rtt_ns);
    return middle != NULL ? nats_put(out, middle + 1, (size_t)(end - middle - 1)) : nats_put(out, "}", 1);
}

size_t nats_asker_bytes(const struct nats_server *server, const struct nats_asker *asker) {
    return nats_requestor_of(server, asker->connection).info.bytes + 2 * QUOTED_BYTES(NATS_MAX_ACCOUNT_BYTES) + 64;
}

/* Which streams accounts import from each other, as their shares say. */
#include "acceptor/protocols/nats/nats_streams.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_shadows.h"
#include "acceptor/protocols/nats/nats_shares.h"

static struct nats_shadows *shadows_for(struct nats_server *server, uint32_t account) {
    const struct nats_share *share = nats_share_stream(nats_shares_first(server->accounts[account].shares));
    struct nats_shadows *shadows = share != NULL ? calloc(1, sizeof *shadows) : NULL;
    if (share != NULL && shadows == NULL) abort();
    for (; share != NULL; share = nats_share_stream(nats_share_next(share))) {
        struct nats_stream *s = calloc(1, sizeof *s);
        if (s == NULL) abort();
        *s = nats_stream_of(share);
        s->exporter = account;
        s->next = shadows->streams;
        shadows->streams = s;
        s->next_importing = server->accounts[s->importer].importing;
        if (s->next_importing != NULL) s->next_importing->previous_importing = s;
        server->accounts[s->importer].importing = s;
    }
    return shadows;
}

void nats_streams_make(struct acceptor *a, struct nats_server *server, uint32_t account) {
    struct nats_shadows *before = server->accounts[account].shadows, *now = shadows_for(server, account);
    server->accounts[account].shadows = now;
    for (const struct nats_stream *s = now != NULL ? now->streams : NULL; s != NULL; s = s->next)
        nats_shadows_make(server, s);
    nats_shadows_tell(a, server, account, before);
    nats_shadows_free(server, before);
}

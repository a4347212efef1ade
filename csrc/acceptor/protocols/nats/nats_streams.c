/* Which streams accounts import from each other, as their shares say. */
#include "acceptor/protocols/nats/nats_streams.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_shadows.h"
#include "acceptor/protocols/nats/nats_shares.h"
#include "acceptor/protocols/nats/nats_transform.h"

/* The importer finds it by what is wanted there. */
static void place(struct nats_server *server, struct nats_stream *s) {
    struct nats_account *importer = &server->accounts[s->importer];
    uint8_t *pattern = server->subjects_made[0];
    size_t bytes = nats_transform_pattern(s->to, pattern, NATS_MAX_CONTROL_LINE);
    bool first;
    if (!subject_pattern_is_valid(pattern, bytes)) return;
    if (importer->importing == NULL) importer->importing = subjects_new_small(server->key);
    s->entry.weight = 1;
    if (importer->importing == NULL) abort();
    if (!subjects_add(importer->importing, &s->entry, pattern, bytes, NULL, 0, &first)) abort();
}

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
        place(server, s);
    }
    return shadows;
}

void nats_streams_make(struct acceptor *a, struct nats_server *server, uint32_t account) {
    struct nats_shadows *before = server->accounts[account].shadows, *now;
    uint32_t importer = 0;
    nats_shadows_unlink(server, before);
    server->accounts[account].shadows = now = shadows_for(server, account);
    for (const struct nats_stream *s = now != NULL ? now->streams : NULL; s != NULL; s = s->next) {
        if (s->importer == importer) continue;
        importer = s->importer;
        nats_shadows_make(server, account, importer);
    }
    nats_shadows_tell(a, server, account, before);
    nats_shadows_free(server, before);
}

/* A message into the outputs of those who have it: the line in front of it is made once, and copied with it. A large payload
 * is held once for all. */
#ifndef MQ_NATS_GIVE_H
#define MQ_NATS_GIVE_H

#include "acceptor/protocols/nats/nats.h"

/* What stands behind a subscription's sid; for a client that wants headers and for one that does not. */
struct nats_tail {
    struct text end; /* "[reply ]sizes\r\n" */
    const char *verb;
    size_t verb_bytes;
    const uint8_t *payload;
    size_t payload_bytes;
    bool joined; /* the payload and the end of its line stand right behind `end` */
};

/* One handing-out. */
struct nats_delivery {
    struct acceptor *a;
    struct nats_server *server;
    struct connection *from; /* NULL: no client of ours */
    const struct nats_message *message;
    struct nats_tail whole,
        without;                 /* headers and all; what a client has that does not know headers, when there was one */
    bool is_cut;                 /* `without` has been made */
    bool answers;                /* to what another account asked */
    bool kept;                   /* here, and so by no other server of the group that shares that */
    struct shared_bytes *shared; /* the payload and what ends it; NULL: it is copied */
    uint64_t delivered, bytes;
    uint64_t looked; /* at so many who might have it */
    size_t dirty;    /* connections that had something to send before */
    struct nats_account *account;
};

static inline struct nats_subscription *nats_subscription_of(struct subject_entry *entry) {
    return (struct nats_subscription *)(void *)entry;
}

/* Of messages in one account, one after the other: `from` and `message` are still to be set. */
static inline struct nats_delivery nats_delivery_of(struct acceptor *a, struct nats_server *server,
                                                    struct nats_account *account) {
    struct nats_delivery d;
    d.a = a;
    d.server = server;
    d.from = NULL;
    d.is_cut = d.answers = d.kept = false;
    d.shared = NULL;
    d.delivered = d.bytes = d.looked = 0;
    d.dirty = a->dirty.count;
    d.account = account;
    return d;
}

/* What it has cost so far, as HANDED_PER_TURN counts. */
static inline size_t nats_handed(const struct nats_delivery *d) {
    return (size_t)(d->looked + d->bytes / HANDED_BYTES);
}

/* There is somebody who may have d->message. */
void nats_begin(struct nats_delivery *d);
/* To one, if it may have it: d->delivered says whether. */
void nats_give(struct nats_delivery *d, struct nats_subscription *s);
/* What could not be done while lists were gone through. */
void nats_settle(struct acceptor *a, struct nats_server *server);
/* All who are to have the last message have it. */
void nats_made(struct nats_delivery *d);

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* To all who stand alone in these patterns, and to one of each group; nobody is anywhere else. */
void nats_deliver_matching(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t count);

#endif

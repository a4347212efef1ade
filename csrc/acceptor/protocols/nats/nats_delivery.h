/* A message on its way to its recipients in one account. */
#ifndef MQ_NATS_DELIVERY_H
#define MQ_NATS_DELIVERY_H

#include "acceptor/protocols/nats/nats_state.h"

struct nats_account;
struct nats_message;
struct nats_subscription;
struct shared_bytes;
struct subject_pattern;

/* What follows a subscription's sid in a line, and the payload: for clients with headers, or for those without. */
struct nats_tail {
    struct text end; /* "[reply ]sizes\r\n" */
    const char *verb;
    size_t verb_bytes;
    const uint8_t *payload;
    size_t payload_bytes;
    bool joined; /* the payload and its CRLF follow right behind `end` */
};

/* The delivery of a message in one account. */
struct nats_delivery {
    struct acceptor *a;
    struct nats_server *server;
    struct connection *from; /* the publisher; NULL: not a client of ours */
    const struct nats_message *message;
    struct nats_tail whole, without; /* with headers; for clients that do not know headers, made when there is one */
    bool is_cut;                     /* `without` has been made */
    bool answers;                    /* a subscriber was the server itself: it may be an answer to another account */
    bool kept;                       /* it is logged here, so no other server of the topics-queue may log it */
    struct shared_bytes *shared;     /* the payload and its CRLF, if large; NULL: it is copied */
    uint64_t delivered, bytes;
    uint64_t looked; /* how many possible recipients were looked at */
    size_t most;     /* a run of messages ends when it has cost so much */
    size_t dirty;    /* length of the dirty list before this delivery */
    struct nats_account *account;
    struct subject_pattern *const *shadows; /* those that match, if importing accounts have groups that want it; */
    size_t shadow_count;                    /* 0: they have none, or the message is not imported */
    uint32_t hub; /* no import takes it to hubs that may be of this one's cluster; 0: no hub */
};

static inline struct nats_subscription *nats_subscription_of(struct subject_entry *entry) {
    return (struct nats_subscription *)(void *)entry;
}

/* For messages in one account, one after the other: the caller sets `from` and `message`. */
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
    d.most = SIZE_MAX;
    d.account = account;
    d.shadow_count = 0;
    d.hub = 0;
    return d;
}

/* What the delivery has cost so far, in the units of HANDED_PER_TURN. To find who wants a message may take longer than
 * to give it to them. */
static inline size_t nats_handed(const struct nats_delivery *d) {
    return (size_t)(d->looked + d->server->walked + d->bytes / HANDED_BYTES);
}

/* Why a subscription may not have a message. */
enum nats_refusal { NATS_ALLOWED, NATS_FOR_SERVER, NATS_GONE, NATS_NO_ECHO, NATS_HAD_ALL, NATS_DENIED };

#endif

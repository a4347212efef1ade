/* Writes a message into the outputs of its recipients. The line in front of the payload is made once and copied; a
 * large payload is stored once for all recipients. */
#ifndef MQ_NATS_GIVE_H
#define MQ_NATS_GIVE_H

#include "acceptor/protocols/nats/nats.h"
#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_subscription.h"

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
    return d;
}

/* What the delivery has cost so far, in the units of HANDED_PER_TURN. To find who wants a message may take longer than to
 * give it to them. */
static inline size_t nats_handed(const struct nats_delivery *d) {
    return (size_t)(d->looked + d->server->walked + d->bytes / HANDED_BYTES);
}

/* Prepares for giving d->message to somebody. A payload that is shared already stays so. */
void nats_begin(struct nats_delivery *d);
/* Why a subscription may not have a message. */
enum nats_refusal { NATS_ALLOWED, NATS_FOR_SERVER, NATS_GONE, NATS_NO_ECHO, NATS_HAD_ALL, NATS_DENIED };

enum nats_refusal nats_refusal_of(struct nats_delivery *d, const struct nats_subscription *s);
/* Gives the message to one subscription, if it may have it; d->delivered tells. */
void nats_give(struct nats_delivery *d, struct nats_subscription *s);
/* nats_traced.c: the same for a message that is traced, which perhaps nobody is to have. */
__attribute__((noinline, cold)) void nats_give_traced(struct nats_delivery *d, struct nats_subscription *s);
/* Removes expired subscriptions and closed clients, which had to wait while lists were walked. */
void nats_settle(struct acceptor *a, struct nats_server *server);
/* The delivery is over. */
void nats_made(struct nats_delivery *d);

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* Gives the message to all plain subscribers of these patterns and to one of each group; there are none elsewhere. */
void nats_deliver_matching(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t count);

#endif

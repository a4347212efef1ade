#include "shards/chunks.h"

#include <string.h>

#include "shards/client.h"
#include "shards/keys_in_flight.h"
#include "shards/policy.h"
#include "shards/unreadable.h"

bool chunk_is(const struct worker *w, uint32_t subscription, const struct record *r) {
    struct headers h;
    if (worker_subscription(w, subscription)->policy != POLICY_TURNS || !message_headers_bytes(r)) return false;
    memcpy(&h, record_body(r), sizeof h);
    return (h.key_hash & KEY_HASH_CHUNK) != 0;
}

uint32_t chunk_holder(const struct worker *w, uint32_t subscription, const struct record *r, uint32_t consumer) {
    uint32_t holder = policy_slot_user(w, subscription, policy_slot(r));
    if (!holder) return consumer;
    const struct consumer *c = worker_consumer(w, holder);
    return c->next_turn && !w->peers[client_at(&w->clients, c->client)->acceptor].full ? holder : 0;
}

uint32_t chunk_again(const struct worker *w, uint32_t subscription, uint16_t slot) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint32_t n = s->redelivery_first, first = 0;
    uint64_t first_seq = UINT64_MAX;
    for (int i = 0; n && i <= CHUNKS_HELD_BACK; i++) {
        const struct delivery *d = worker_delivery(w, n);
        const struct record *r = d->seq < first_seq ? message_record(w, t, d->seq) : NULL;
        if (r && message_head(w, t, d->seq) && chunk_is(w, subscription, r) && policy_slot(r) == slot) {
            first = n;
            first_seq = d->seq;
        }
        n = d->following;
    }
    return first;
}

uint32_t chunk_first_again(const struct worker *w, uint32_t subscription, uint32_t consumer) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint32_t n = s->redelivery_first;
    if (s->policy != POLICY_TURNS) return n;
    for (int i = 0; n && i <= CHUNKS_HELD_BACK; i++) {
        const struct delivery *d = worker_delivery(w, n);
        const struct record *r = d->part ? NULL : message_record(w, t, d->seq);
        if (!r || !message_head(w, t, d->seq) || !chunk_is(w, subscription, r)) return n;
        if (chunk_holder(w, subscription, r, consumer)) return chunk_again(w, subscription, policy_slot(r));
        n = d->following;
    }
    return 0;
}

void chunk_hold(struct worker *w, uint32_t delivery, uint16_t slot) {
    (void)policy_slot_take(w, delivery, slot, worker_delivery(w, delivery)->consumer);
}

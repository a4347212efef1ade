/* Requests that a connection may answer although it may not publish to their reply subjects. A table of the connection
 * holds keyed hashes of these subjects. When it is full, expired entries are removed. If none has expired, later
 * requests are not noted, and answers to them are permission violations; the whole table is looked at again when some
 * may have expired. */
#include "acceptor/protocols/nats/nats_replies.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_state.h"
#include "base/time_units.h"

enum { FIRST_REPLIES = 16, ENOUGH = 8 /* an eighth of the entries is worth a look at all */ };

struct reply {
    uint64_t hash; /* 0: free */
    uint64_t since_ns;
    uint64_t sent;
};

struct nats_replies {
    struct reply *items; /* open addressing */
    uint32_t mask, count;
    uint32_t answered;      /* entries that are done with, since the last look at a table that stayed full */
    uint64_t look_again_ns; /* because of time */
};

static uint64_t hash_of(const struct acceptor *a, const struct connection *c, struct text subject) {
    uint64_t hash = siphash(nats_server_of(a, c)->key, subject.at, subject.bytes);
    return hash != 0 ? hash : 1;
}

static struct reply *place_of(const struct nats_replies *r, uint64_t hash) {
    uint32_t at = (uint32_t)hash & r->mask;
    while (r->items[at].hash != 0 && r->items[at].hash != hash) at = (at + 1) & r->mask;
    return &r->items[at];
}

static bool is_over(const struct reply *r, uint64_t now_ns, uint64_t max, uint64_t lifetime_ns) {
    return (max > 0 && r->sent >= max) || (lifetime_ns > 0 && now_ns - r->since_ns > lifetime_ns);
}

/* Moves the entries that have not expired to a half-empty table; false at the limit, or when memory is short. */
static bool make_room(struct nats_replies *r, uint64_t now_ns, uint64_t max, uint64_t lifetime_ns) {
    uint32_t good = 0, slots = FIRST_REPLIES;
    for (uint32_t i = 0; r->items != NULL && i <= r->mask; i++)
        if (r->items[i].hash != 0 && !is_over(&r->items[i], now_ns, max, lifetime_ns)) good++;
    if (good >= NATS_MAX_REPLIES) {
        r->answered = 0;
        r->look_again_ns = now_ns + SECOND_NS;
        return false;
    }
    while (slots <= good * 2) slots *= 2;
    struct nats_replies larger = {.items = calloc(slots, sizeof *larger.items), .mask = slots - 1, .count = good};
    if (larger.items == NULL) return false;
    for (uint32_t i = 0; r->items != NULL && i <= r->mask; i++) {
        const struct reply *item = &r->items[i];
        if (item->hash != 0 && !is_over(item, now_ns, max, lifetime_ns)) *place_of(&larger, item->hash) = *item;
    }
    free(r->items);
    *r = larger;
    return true;
}

static bool is_worth_a_look(const struct nats_replies *r, uint64_t now_ns) {
    return now_ns >= r->look_again_ns || r->answered > r->count / ENOUGH;
}

void nats_reply_expect(struct acceptor *a, struct connection *c, struct text reply) {
    struct nats *n = nats_of(c);
    uint64_t max, lifetime_ns;
    if (!nats_replies_of(n->permissions, &max, &lifetime_ns)) return;
    if (n->replies == NULL && (n->replies = calloc(1, sizeof *n->replies)) == NULL) return;
    struct nats_replies *r = n->replies;
    bool full = r->items == NULL || r->count >= (r->mask + 1) / 4 * 3;
    if (full && (!is_worth_a_look(r, a->now_ns) || !make_room(r, a->now_ns, max, lifetime_ns))) return;
    uint64_t hash = hash_of(a, c, reply);
    struct reply *place = place_of(r, hash);
    if (place->hash == 0) r->count++;
    *place = (struct reply){hash, a->now_ns, 0};
}

bool nats_reply_allowed(struct acceptor *a, struct connection *c, struct text subject) {
    const struct nats *n = nats_of(c);
    uint64_t max, lifetime_ns;
    if (n->replies == NULL || !nats_replies_of(n->permissions, &max, &lifetime_ns)) return false;
    struct reply *place = place_of(n->replies, hash_of(a, c, subject));
    if (place->hash == 0 || is_over(place, a->now_ns, max, lifetime_ns)) return false;
    if (++place->sent == max) n->replies->answered++;
    return true;
}

void nats_replies_free(struct nats_replies *replies) {
    if (replies == NULL) return;
    free(replies->items);
    free(replies);
}

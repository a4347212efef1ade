#include "acceptor/protocols/nats/nats_fanout.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_give.h"
#include "acceptor/protocols/nats/nats_traced.h"

/* A connection that had nothing to send costs far more than one that had: it takes a block for its output, and a system
 * call. This many of them are given something in a turn. */
enum { FRESH_PER_TURN = 1024, LEAST_FRESH = 64 };
/* How much is given at a time before it is looked at how much that was. */
enum { GIVEN_AT_ONCE = 64 };

/* --- giving ------------------------------------------------------------------------------------------------------- */

static size_t fresh_of(const struct nats_delivery *d) {
    return d->a->put_off + d->a->dirty.count - d->dirty;
}

/* A payload that is shared is not copied for each. */
static size_t cost_of(const struct nats_delivery *d) {
    return (size_t)(d->looked + (d->shared == NULL ? d->bytes / HANDED_BYTES : 0));
}

uint32_t nats_give_some(struct nats_delivery *d, struct subject_entries *entries, uint32_t begin, uint32_t end,
                        size_t most) {
    struct subject_entry **items = subject_entries_items(entries);
    const size_t cost = cost_of(d) + most, least = fresh_of(d) + LEAST_FRESH;
    const size_t fresh = least > FRESH_PER_TURN ? least : FRESH_PER_TURN;
    while (begin < end && cost_of(d) < cost && fresh_of(d) < fresh) {
        uint32_t stop = end - begin > GIVEN_AT_ONCE ? begin + GIVEN_AT_ONCE : end;
        d->looked += stop - begin;
        for (; begin < stop; begin++) nats_give(d, nats_subscription_of(items[begin]));
    }
    return begin;
}

static void give_all(struct nats_delivery *d, struct subject_entries *entries, uint32_t begin) {
    struct subject_entry **items = subject_entries_items(entries);
    d->looked += entries->count - begin;
    for (; begin < entries->count; begin++) {
        if (d->server->trace != NULL)
            nats_give_traced(d, nats_subscription_of(items[begin]));
        else
            nats_give(d, nats_subscription_of(items[begin]));
    }
}

/* --- what is left for later turns --------------------------------------------------------------------------------- */

static struct text copy(uint8_t **out, struct text text) {
    const struct text copied = {text.at != NULL ? *out : NULL, text.bytes};
    if (text.bytes > 0) *out = nats_put(*out, text.at, text.bytes);
    return copied;
}

void nats_fanout_count(struct nats_server *server, const struct nats_fanout *f, bool more) {
    server->fanouts.count += more ? 1 : UINT32_MAX;
    server->fanouts.bytes += more ? f->bytes : -f->bytes;
}

static struct nats_fanout *fanout_new(struct nats_delivery *d) {
    const struct nats_message *m = d->message;
    const size_t payload_bytes = d->shared == NULL ? m->payload_bytes : 0;
    const size_t bytes = m->subject.bytes + m->reply.bytes + m->size.bytes + m->header_size.bytes + payload_bytes;
    struct nats_fanout *f = malloc(sizeof *f + bytes);
    if (f == NULL) return NULL;
    *f = (struct nats_fanout){.origin = d->server->fanouts.origin,
                              .account = (uint32_t)(d->account - d->server->accounts),
                              .from = d->from != NULL ? d->from->number : 0,
                              .bytes = sizeof *f + bytes,
                              .message = *m,
                              .shared = d->shared,
                              .blocks = &d->a->blocks};
    uint8_t *out = f->texts;
    nats_account_hold(d->server, f->account);
    f->message.subject = copy(&out, m->subject);
    f->message.reply = copy(&out, m->reply);
    f->message.size = copy(&out, m->size);
    f->message.header_size = copy(&out, m->header_size);
    f->message.joined = false;
    f->message.payload = f->shared != NULL ? f->shared->at : out;
    if (payload_bytes > 0) memcpy(out, m->payload, payload_bytes);
    if (f->shared == NULL) return f;
    f->shared->references++;
    f->bytes += f->shared->bytes;
    return f;
}

void nats_fanout_pause(struct acceptor *a, uint64_t origin, bool pause) {
    if (origin <= UINT32_MAX) return;
    if (pause)
        a->mesh_paused |= bit_of((uint32_t)origin);
    else
        a->mesh_paused &= ~bit_of((uint32_t)origin);
}

void nats_give_many(struct nats_delivery *d, struct subject_pattern *pattern) {
    struct nats_fanouts *all = &d->server->fanouts;
    const size_t handed = d->a->handed + nats_handed(d);
    const size_t most = handed + HANDED_WHILE_LATE < HANDED_PER_TURN ? HANDED_PER_TURN - handed : HANDED_WHILE_LATE;
    const uint64_t before = d->delivered;
    uint32_t begin = 0;
    if (d->server->trace == NULL && all->origin != 0)
        begin = nats_give_some(d, &pattern->alone, 0, pattern->alone.count, most);
    /* Whether anybody has got it must be known in this turn. */
    bool is_left = begin < pattern->alone.count && d->delivered > before;
    struct nats_fanout *f = is_left ? fanout_new(d) : NULL;
    if (f == NULL) {
        give_all(d, &pattern->alone, begin);
        return;
    }
    subjects_tail_begin(d->account->subjects, &f->tail, pattern, begin);
    *(all->last != NULL ? &all->last->next : &all->first) = f;
    all->last = f;
    nats_fanout_count(d->server, f, true);
    nats_fanout_pause(d->a, f->origin, true);
    codec_left(d->a, d->server->protocol);
    d->most = 0;
}

bool nats_fanout_holds(const struct nats_server *server, uint64_t origin) {
    const struct nats_fanout *f = server->fanouts.first;
    while (f != NULL && f->origin != origin) f = f->next;
    return f != NULL;
}

/* Messages for very many, in the turns after that of their arrival. */
#include "acceptor/protocols/nats/nats_fanouts.h"

#include <stdlib.h>

#include "acceptor/lists.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_fanout.h"
#include "acceptor/protocols/nats/nats_give.h"
#include "acceptor/protocols/nats/nats_journey.h"

static void fanout_free(struct nats_server *server, struct nats_fanout *f) {
    subjects_tail_end(server->accounts[f->account].subjects, &f->tail);
    if (f->shared != NULL) shared_drop(f->blocks, f->shared);
    nats_fanout_count(server, f, false);
    free(f);
}

static void take_out(struct nats_fanouts *all, const struct nats_fanout *f, struct nats_fanout *before) {
    *(before != NULL ? &before->next : &all->first) = f->next;
    if (all->last == f) all->last = before;
}

/* The publisher takes its turn among others. */
static void let_go_on(struct acceptor *a, struct nats_server *server, uint64_t origin) {
    if (nats_fanout_holds(server, origin)) return;
    if (origin > UINT32_MAX)
        nats_fanout_pause(a, origin, false);
    else
        connection_list_add(&server->publishers, (uint32_t)origin);
}

/* Returns what it has cost. */
static size_t give_on(struct acceptor *a, struct nats_server *server, struct nats_fanout *f, size_t most) {
    struct nats_delivery d = nats_delivery_of(a, server, &server->accounts[f->account]);
    if (f->tail.begin == f->tail.end) return 0;
    d.message = &f->message;
    d.from = f->from != 0 ? connection_find(a, f->from) : NULL;
    d.shared = f->shared;
    if (d.shared != NULL) d.shared->references++;
    nats_begin(&d);
    server->delivering = true;
    f->tail.begin = nats_give_some(&d, f->tail.entries, f->tail.begin, f->tail.end, most);
    f->answers |= d.answers;
    const size_t cost = nats_handed(&d);
    nats_made(&d);
    return cost;
}

/* What was given to the server itself may be an answer to another account. */
static void end(struct acceptor *a, struct nats_server *server, struct nats_fanout *f) {
    const uint64_t origin = f->origin;
    struct connection *from = f->from != 0 ? connection_find(a, f->from) : NULL;
    if (f->answers) nats_go_on(a, server, f->account, from, &f->message, true, false);
    nats_account_drop(a, server, f->account);
    fanout_free(server, f);
    let_go_on(a, server, origin);
}

/* While output of earlier turns is still unsent, no more is given than counts for that: see turn.c. */
void nats_fanouts_go_on(struct acceptor *a, struct nats_server *server) {
    struct nats_fanouts *all = &server->fanouts;
    size_t left = a->late.count > 0 ? HANDED_WHILE_LATE : HANDED_PER_TURN / 2;
    while (all->first != NULL && left > 0) {
        struct nats_fanout *f = all->first;
        const size_t cost = give_on(a, server, f, left);
        left -= cost < left ? cost : left;
        if (f->tail.begin < f->tail.end) break;
        take_out(all, f, NULL);
        end(a, server, f);
    }
    if (all->first != NULL || server->publishers.count > 0) codec_left(a, server->protocol);
}

void nats_fanouts_finish(struct acceptor *a, struct nats_server *server, uint64_t origin) {
    struct nats_fanouts *all = &server->fanouts;
    for (struct nats_fanout *f = all->first, *before = NULL; f != NULL;) {
        struct nats_fanout *next = f->next;
        if (f->origin != origin) {
            before = f;
        } else {
            while (f->tail.begin < f->tail.end) give_on(a, server, f, SIZE_MAX / 2);
            take_out(all, f, before);
            end(a, server, f);
        }
        f = next;
    }
}

void nats_fanouts_close(struct nats_server *server) {
    while (server->fanouts.first != NULL) {
        struct nats_fanout *f = server->fanouts.first;
        server->fanouts.first = f->next;
        fanout_free(server, f);
    }
}

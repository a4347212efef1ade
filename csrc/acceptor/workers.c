/* An acceptor's links to the workers: attaches and loses them, publishes requests, and receives replies. */
#include "acceptor/workers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "acceptor/asks.h"
#include "acceptor/borrowed.h"
#include "acceptor/lists.h"
#include "acceptor/packed.h"
#include "acceptor/replies.h"
#include "acceptor/slots.h"
#include "acceptor/topics.h"
#include "acceptor/upcalls.h"
#include "acceptor/wake.h"

/* --- hearing ------------------------------------------------------------------------------------------------------ */

static bool is_joined(const struct message *reply) {
    return (reply->flags & MSG_JOINED) != 0 && reply->kind == MSG_PUBLISH && reply->body_bytes == 0;
}

static bool peer_hear(struct acceptor *a, uint32_t worker, uint32_t limit) {
    struct channel *channel = a->links[worker].channel;
    const struct message *reply;
    bool any = false;
    uint32_t left = limit;
    a->hearing = &a->links[worker];
    while (left > 0 && (reply = channel_receive(channel)) != NULL) {
        uint32_t said = 1;
        if ((reply->flags & MSG_PACKED) != 0)
            packed_said(a, worker, reply);
        else if (is_joined(reply))
            said = peer_said_joined(a, worker, reply);
        else
            peer_said(a, worker, reply);
        left -= said < left ? said : left;
        any = true;
    }
    a->hearing = NULL;
    a->unheard |= !channel_drained(channel);
    return any;
}

bool peers_hear(struct acceptor *a) {
    bool any = false;
    a->unheard = false;
    for (uint32_t w = 0; w < a->workers; w++) {
        struct channel *channel = a->links[w].channel;
        if (channel == NULL || !peer_hear(a, w, REPLIES_PER_TURN)) {
            if (channel == NULL || !channel_broken(channel)) continue;
            acceptor_peer_gone(a, w);
            upcall_push(a, UPCALL_BROKEN, w, 0, NULL, NULL, 0);
            continue;
        }
        if (!a->links[w].lends) channel_release(channel);
        any = true;
    }
    return any;
}

/* --- backlogs ----------------------------------------------------------------------------------------------------- */

static void wake_shown(struct acceptor *a) {
    if (a->shown_to == 0 || a->now_ns < a->wake_ns) return;
    for (uint64_t rest = a->shown_to; rest != 0; rest &= rest - 1) {
        struct channel *channel = a->links[first_of(rest)].channel;
        if (channel != NULL) channel_wake(channel);
    }
    a->shown_to = 0;
}

void peers_look(struct acceptor *a) {
    wake_shown(a);
    for (uint32_t w = 0; w < a->workers; w++) {
        struct worker_link *link = &a->links[w];
        if (link->channel == NULL) continue;
        link->backlogged = channel_backlogged(link->channel);
        if (!link->backlogged && link->stalled.count > 0) connection_list_wake(a, &link->stalled, STALL_WORKER);
        if (channel_lends(link->channel)) a->published_to |= bit_of(w);
    }
}

static void show(struct acceptor *a, uint64_t workers) {
    for (uint64_t rest = workers; rest != 0; rest &= rest - 1) {
        struct worker_link *link = &a->links[first_of(rest)];
        if (link->channel == NULL) continue;
        if (!channel_show(link->channel)) link->backlogged = channel_backlogged(link->channel);
    }
    if (a->shown_to == 0) a->wake_ns = a->now_ns + UNHURRIED_NS;
    a->shown_to |= workers;
}

void peers_publish(struct acceptor *a) {
    const uint64_t unhurried = a->unhurried_to & ~a->published_to;
    if (unhurried != 0) show(a, unhurried);
    for (uint64_t rest = a->published_to; rest != 0; rest &= rest - 1) {
        struct worker_link *link = &a->links[first_of(rest)];
        if (link->channel == NULL) continue;
        channel_publish(link->channel);
        link->backlogged = channel_backlogged(link->channel);
    }
    a->shown_to &= ~a->published_to;
    a->published_to = a->unhurried_to = 0;
}

size_t peers_trim(struct acceptor *a) {
    size_t freed = 0;
    for (uint32_t w = 0; w < a->workers; w++)
        if (a->links[w].channel != NULL) freed += channel_trim(a->links[w].channel, a->now_ns);
    return freed;
}

/* --- attached and lost -------------------------------------------------------------------------------------------- */

static void open_topics(struct acceptor *a, uint32_t worker) {
    for (uint32_t topic = 1; topic < a->bindings.capacity; topic++) {
        const struct binding *binding = binding_at(&a->bindings, topic);
        if (binding->name != NULL && binding->worker == worker) topic_open(a, topic);
    }
}

int acceptor_peer(struct acceptor *a, uint32_t worker, int out_fd, int in_fd, int peer_wake_fd) {
    if (worker >= a->workers) {
        errno = EINVAL;
        return -1;
    }
    acceptor_peer_gone(a, worker);
    struct worker_link *link = &a->links[worker];
    link->channel = channel_open(out_fd, in_fd, peer_wake_fd, MAX_REPLY_BYTES);
    if (link->channel == NULL) return -1;
    channel_hold(link->channel);
    link->publishes = link->requests = (struct growing){0};
    open_topics(a, worker);
    for (uint32_t i = 0; i < a->highest_index; i++) {
        struct connection *c = a->table[i];
        if (c != NULL && c->codec->tell != NULL) c->codec->tell(a, c, worker);
    }
    for (uint32_t i = 0; i < a->highest_index; i++)
        if (a->table[i] != NULL) peer_ask_again(a, a->table[i], worker);
    peers_publish(a);
    if (!link->backlogged) connection_list_wake(a, &link->stalled, STALL_WORKER);
    wake_self(a);
    return 0;
}

/* The value of a barrier's slot if the dead worker had not taken the barrier. */
enum { UNTAKEN = 1 };

static void fail_slot(struct acceptor *a, struct connection *c, struct slot *slot, uint32_t number) {
    slot->answered = true;
    slot_settle_large(a, c, slot->worker, number);
    slot->status = STATUS_FAILED;
    a->expected--;
}

/* The worker is dead. Requests that it had not answered may have been done or not. */
static void lose(struct acceptor *a, struct connection *c, uint32_t worker) {
    c->touched_workers &= ~bit_of(worker);
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct slot *slot = connection_slot(c, c->head_slot + i);
        bool concerns = slot->kind >= MSG_PUBLISH && slot->worker == worker;
        if (!concerns || slot->answered || slot->unsent || slot->kind == MSG_RESERVE) continue;
        fail_slot(a, c, slot, c->head_slot + i);
        if (!slot->python) continue;
        struct message answer = {
            .kind = slot->kind, .status = STATUS_FAILED, .conn = c->number, .slot = c->head_slot + i};
        upcall_push(a, UPCALL_ANSWER, c->number, c->protocol, &answer, NULL, 0);
    }
    if (c->codec->lost != NULL) c->codec->lost(a, c, worker);
    if (!c->closed) slots_emit(a, c);
}

static struct slot *barrier_of(const struct connection *c, uint32_t number, uint32_t worker) {
    if (number - c->head_slot >= c->slot_count) return NULL;
    struct slot *slot = connection_slot(c, number);
    bool is_one = slot->kind == MSG_BARRIER && slot->worker == worker && !slot->answered;
    return is_one ? slot : NULL;
}

/* Barriers that the worker took without answering end before those that it did not take. */
static void end_barriers(struct acceptor *a, uint32_t worker, struct channel *channel) {
    struct channel_place place = {0};
    const struct message *message;
    while ((message = channel_unreleased(channel, &place)) != NULL) {
        struct connection *c = message->kind == MSG_BARRIER ? connection_find(a, message->conn) : NULL;
        struct slot *slot = c != NULL ? barrier_of(c, message->slot, worker) : NULL;
        if (slot != NULL) slot->value = UNTAKEN;
    }
    for (uint32_t i = 0; i < a->highest_index; i++) {
        struct connection *c = a->table[i];
        for (uint32_t n = 0; c != NULL && n < c->slot_count; n++) {
            struct slot *slot = barrier_of(c, c->head_slot + n, worker);
            if (slot != NULL && slot->value != UNTAKEN) fail_slot(a, c, slot, c->head_slot + n);
        }
    }
}

/* A request without a reply was not done: if it can be refused, it is. */
static void refuse(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message) {
    bool is_told = message->kind == MSG_FINISH || message->kind == MSG_REQUEUE || message->kind == MSG_EXTEND;
    struct message refused = {.kind = MSG_REFUSED,
                              .status = STATUS_FAILED,
                              .conn = message->conn,
                              .consumer = message->consumer,
                              .id = message->id,
                              .refused = message->kind};
    if (is_told && !c->closed && c->codec->pushed != NULL) c->codec->pushed(a, c, worker, &refused);
}

/* Refuses the messages that a dead worker has left in its ring, each in its place among the replies, before any later
 * one is answered. */
static void refuse_untaken(struct acceptor *a, uint32_t worker) {
    struct channel *channel = a->links[worker].channel;
    end_barriers(a, worker, channel);
    struct channel_place place = {0};
    const struct message *message;
    while ((message = channel_unreleased(channel, &place)) != NULL) {
        struct connection *c = connection_find(a, message->conn);
        if (c == NULL) continue;
        struct slot *barrier = message->kind == MSG_BARRIER ? barrier_of(c, message->slot, worker) : NULL;
        if (barrier != NULL) fail_slot(a, c, barrier, message->slot);
        refuse(a, c, worker, message);
        bool is_several = message->kind == MSG_REQUEST_EACH && request_each_is_whole(message);
        const uint32_t several = is_several ? message->several : 0;
        struct message one = {.conn = message->conn};
        for (uint32_t n = place.begun; n < several; n++) {
            request_each_get(&one, message, n);
            refuse(a, c, worker, &one);
        }
    }
}

/* What the dead worker had answered but held back, since its log was not synced, is not promised to anybody. But what
 * it had refused is told: it has given the room of these requests back, so refuse_untaken does not find them. */
static void hear_refusals(struct acceptor *a, uint32_t worker, struct channel *channel) {
    const struct message *reply;
    do {
        while ((reply = channel_receive(channel)) != NULL)
            if (reply->kind == MSG_REFUSED) peer_said(a, worker, reply);
        channel_release(channel);
    } while (!channel_drained(channel));
}

void acceptor_peer_gone(struct acceptor *a, uint32_t worker) {
    if (worker >= a->workers || a->links[worker].channel == NULL) return;
    struct worker_link *link = &a->links[worker];
    do {
        peer_hear(a, worker, UINT32_MAX);
        borrowed_give_back(a);
        channel_release(link->channel);
    } while (!channel_drained(link->channel)); /* a large message is assembled in pieces */
    packed_forget(a, worker);
    if (channel_take_unpublished(link->channel)) hear_refusals(a, worker, link->channel);
    if (!channel_broken(link->channel)) refuse_untaken(a, worker);
    channel_close(link->channel);
    link->channel = NULL;
    link->backlogged = false;
    a->published_to &= ~bit_of(worker);
    a->unhurried_to &= ~bit_of(worker);
    a->shown_to &= ~bit_of(worker);
    for (uint32_t i = 0; i < a->highest_index; i++)
        if (a->table[i] != NULL) lose(a, a->table[i], worker);
    wake_self(a);
}

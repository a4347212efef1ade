/* An acceptor's links to the workers: attaches and loses them, sends requests, receives replies, and puts the replies
 * of each connection in order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "acceptor/bridge.h"
#include "acceptor/packed.h"

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void wake_listed(struct acceptor *a, struct connection_list *waiting) {
    for (size_t i = 0; i < waiting->count; i++) {
        struct connection *c = connection_find(a, waiting->items[i]);
        if (c != NULL && c->stall == STALL_WORKER) socket_wake(a, c);
    }
    waiting->count = 0;
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static void address(struct connection *c, uint32_t worker, struct message *request, uint32_t body_bytes,
                    uint32_t slot) {
    request->conn = c->number;
    request->slot = slot;
    request->body_bytes = body_bytes;
    c->touched_workers |= bit_of(worker);
}

static void send_request(struct acceptor *a, struct connection *c, uint32_t worker, struct message *request,
                         const void *body, uint32_t body_bytes, uint32_t slot) {
    address(c, worker, request, body_bytes, slot);
    peer_send(a, worker, request, body);
}

/* Lends a large body to the channel, which copies it as the ring has room. */
static bool lend(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                 const void *body) {
    struct channel *channel = a->links[worker].channel;
    struct lent lent;
    if (channel == NULL || !socket_lend(a, c, body, request->body_bytes, &lent)) return false;
    if (!channel_lend(channel, request, body, request->body_bytes, &lent)) return false;
    socket_lent(a, c);
    a->published_to |= bit_of(worker);
    return true;
}

bool peer_may_bring_large(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes) {
    struct worker_link *link = &a->links[worker];
    if (c->large_bytes > 0) return stalled(c, STALL_IDLE);
    if (link->large_bytes == 0 || link->large_bytes + body_bytes <= LARGE_ASKED_BYTES) return true;
    connection_list_add(&link->larges, c->number);
    return stalled_by(a, c, STALL_WORKER, WAITS_WORKER);
}

static void bring_large(struct acceptor *a, struct connection *c, uint32_t worker, uint32_t body_bytes, uint32_t slot) {
    a->links[worker].large_bytes += body_bytes;
    c->large_bytes = body_bytes;
    c->large_slot = slot;
}

/* The request in a slot has been answered, or nobody waits for the answer: its large body no longer counts. */
static void no_large(struct acceptor *a, struct connection *c, uint32_t worker, uint32_t slot) {
    if (c->large_bytes == 0 || c->large_slot != slot) return;
    struct worker_link *link = &a->links[worker];
    link->large_bytes -= c->large_bytes;
    c->large_bytes = 0;
    wake_listed(a, &link->larges);
}

static uint32_t last_slot(const struct connection *c) {
    return c->head_slot + c->slot_count - 1;
}

void peer_ask(struct acceptor *a, struct connection *c, uint32_t worker, struct message *request, const void *body,
              uint32_t body_bytes, uint64_t value) {
    struct slot *slot = connection_push_slot(c, &a->blocks, request->kind);
    if (slot == NULL) {
        engine_oom(a, c);
        return;
    }
    slot->worker = (uint8_t)worker;
    slot->value = value;
    a->expected++;
    address(c, worker, request, body_bytes, last_slot(c));
    const bool publishes = request->kind == MSG_PUBLISH;
    if (!publishes || !publishes_send(a, worker, request, body)) {
        if (publishes) request->flags |= MSG_JOINED;
        if (body_bytes >= LARGE_BODY_BYTES && c->large_bytes == 0) bring_large(a, c, worker, body_bytes, request->slot);
        if (body_bytes < LENT_BYTES || !lend(a, c, worker, request, body)) peer_send(a, worker, request, body);
    }
    if (request->kind == MSG_PUBLISH || request->kind == MSG_PUBLISH_MANY) bridge_asked(a, c, slot, request, body);
}

static void send_reserve(struct acceptor *a, struct connection *c, const struct slot *slot, uint32_t number) {
    struct message request = {.kind = MSG_RESERVE, .delay_ns = slot->value};
    send_request(a, c, slot->worker, &request, NULL, 0, number);
    a->reserved = true;
}

/* Only the first reserve waits; those behind it have not begun to. */
void peer_cancel_reserves(struct acceptor *a, struct connection *c) {
    if (c->reserves == 0) return;
    for (uint32_t i = 0; i < c->slot_count; i++) {
        const struct slot *slot = connection_slot(c, c->head_slot + i);
        if (slot->kind != MSG_RESERVE || slot->answered) continue;
        struct message cancel = {.kind = MSG_CANCEL, .conn = c->number, .slot = c->head_slot + i};
        peer_send(a, slot->worker, &cancel, NULL);
        return;
    }
}

void peer_reserve(struct acceptor *a, struct connection *c, uint32_t worker, uint64_t timeout_ns) {
    struct slot *slot = connection_push_slot(c, &a->blocks, MSG_RESERVE);
    if (slot == NULL) {
        engine_oom(a, c);
        return;
    }
    slot->worker = (uint8_t)worker;
    slot->value = timeout_ns;
    c->reserve_worker = (uint8_t)worker;
    send_reserve(a, c, slot, last_slot(c));
    if (++c->reserves == 1 && c->half_closed) peer_cancel_reserves(a, c);
}

/* --- replies in order --------------------------------------------------------------------------------------------- */

void slots_changed(struct acceptor *a, struct connection *c) {
    bool over = false;
    switch (c->stall) {
    case STALL_OUTSTANDING: over = c->slot_count <= MAX_OUTSTANDING / 2; break;
    case STALL_RESERVES: over = c->reserves == 0; break;
    case STALL_IDLE: over = c->slot_count == 0; break;
    case STALL_NONE: over = c->eof && c->slot_count == 0; break;
    default: break;
    }
    if (over) socket_wake(a, c);
}

void slots_emit(struct acceptor *a, struct connection *c) {
    while (c->slot_count > 0) {
        struct slot *slot = connection_slot(c, c->head_slot);
        if (!slot->answered) break;
        if (c->muted) {
            /* There is nothing to add. */
        } else if (slot->kind == SLOT_TEXT) {
            uint8_t *room = socket_room(a, c, slot->body_bytes);
            if (room == NULL) return;
            memcpy(room, slot->body, slot->body_bytes);
            socket_written(a, c, room + slot->body_bytes);
        } else if (!slot->python) {
            c->codec->answer(a, c, slot->kind, slot->status, slot->value, slot->value, slot->body, slot->body_bytes);
            if (c->closed) return;
        }
        connection_pop_slot(c, &a->blocks);
    }
    slots_changed(a, c);
}

/* A request of Python's that waits for its worker holds a reference to its topic. */
static void forget_unsent(struct acceptor *a, struct connection *c, struct slot *slot) {
    struct message request;
    memcpy(&request, slot->body, sizeof request);
    if (request.topic != 0) topic_unbind(a, request.topic);
    connection_drop_body(c, &a->blocks, slot);
    slot->unsent = false;
}

void slots_forget(struct acceptor *a, struct connection *c) {
    for (uint32_t i = 0; i < c->slot_count; i++) {
        struct slot *slot = connection_slot(c, c->head_slot + i);
        if (!slot->answered && slot->kind >= MSG_PUBLISH && slot->kind != MSG_RESERVE) a->expected--;
        no_large(a, c, slot->worker, c->head_slot + i);
        if (slot->unsent) forget_unsent(a, c, slot);
    }
}

void reply_text(struct acceptor *a, struct connection *c, const void *text, size_t bytes) {
    if (c->slot_count == 0) {
        uint8_t *room = socket_room(a, c, bytes);
        if (room == NULL) return;
        memcpy(room, text, bytes);
        socket_written(a, c, room + bytes);
        return;
    }
    struct slot *slot = connection_push_slot(c, &a->blocks, SLOT_TEXT);
    uint8_t *room = slot != NULL ? connection_body(c, &a->blocks, slot, bytes) : NULL;
    if (room == NULL) {
        engine_oom(a, c);
        return;
    }
    memcpy(room, text, bytes);
    slot->answered = true;
}

/* What is needed of a reply whose turn has not come. */
static bool keep_reply(struct acceptor *a, struct connection *c, struct slot *slot, const struct message *reply) {
    slot->status = reply->status;
    /* Only the slot knows the id of a publish. */
    if (slot->kind != MSG_PUBLISH && slot->kind != MSG_PUBLISH_MANY) slot->value = reply->id;
    if (reply->body_bytes == 0) return true;
    uint8_t *room = connection_body(c, &a->blocks, slot, reply->body_bytes);
    if (room == NULL) return false;
    memcpy(room, reply + 1, reply->body_bytes);
    return true;
}

static void settle_reserve(struct acceptor *a, struct connection *c) {
    if (--c->reserves > 0 && c->half_closed) peer_cancel_reserves(a, c);
}

static void said_to(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *reply) {
    if (c->codec->heard_alone != NULL && c->codec->heard_alone(a, c, worker, reply)) return;
    uint32_t distance = reply->slot - c->head_slot;
    if (distance >= c->slot_count) {
        if (reply->kind == MSG_SUBSCRIBE && c->codec->pushed != NULL) c->codec->pushed(a, c, worker, reply);
        return;
    }
    struct slot *slot = connection_slot(c, reply->slot);
    if (slot->kind == SLOT_CODEC) {
        c->codec->heard(a, c, worker, reply);
        return;
    }
    /* A worker answers each request once. Anything else is ignored. */
    if (slot->answered || slot->worker != worker || slot->kind != reply->kind) return;
    slot->answered = true;
    no_large(a, c, worker, reply->slot);
    if (reply->kind == MSG_RESERVE)
        settle_reserve(a, c);
    else
        a->expected--;
    if (slot->bridged) bridge_answered(a, c, slot, reply->status);
    if (c->codec->replied != NULL) c->codec->replied(a, c, worker, slot, reply);
    if (slot->python) {
        if (reply->kind == MSG_SUBSCRIBE && c->codec->subscribed != NULL) c->codec->subscribed(a, c, reply->status);
        upcall_push(a, UPCALL_ANSWER, c->number, c->protocol, reply, reply + 1, reply->body_bytes);
        slots_emit(a, c);
    } else if (distance == 0) {
        /* A slot may have collected text to be written before its own reply. */
        const uint8_t *body = slot->body != NULL ? slot->body : (const uint8_t *)(reply + 1);
        uint32_t body_bytes = slot->body != NULL ? slot->body_bytes : reply->body_bytes;
        if (!c->muted) c->codec->answer(a, c, reply->kind, reply->status, slot->value, reply->id, body, body_bytes);
        if (c->closed) return;
        connection_pop_slot(c, &a->blocks);
        if (c->slot_count > 0 && connection_slot(c, c->head_slot)->answered)
            slots_emit(a, c);
        else if (c->stall != STALL_NONE || c->eof) /* mostly nothing waits for this */
            slots_changed(a, c);
    } else if (!keep_reply(a, c, slot, reply)) {
        engine_oom(a, c);
    }
}

void peer_said(struct acceptor *a, uint32_t worker, const struct message *reply) {
    struct connection *c = connection_find(a, reply->conn);
    if (c == NULL) return;
    if (reply->kind < MSG_DELIVER)
        said_to(a, c, worker, reply);
    else if (c->codec->pushed != NULL)
        c->codec->pushed(a, c, worker, reply);
}

static bool is_joined(const struct message *reply) {
    return (reply->flags & MSG_JOINED) != 0 && reply->kind == MSG_PUBLISH && reply->body_bytes == 0;
}

/* Handles the replies that a joined one stands for. Returns how many. */
static uint32_t said_joined(struct acceptor *a, uint32_t worker, const struct message *reply) {
    struct connection *c = connection_find(a, reply->conn);
    struct message one = *reply;
    uint32_t count = reply->count < JOINED_MOST ? reply->count : JOINED_MOST;
    one.flags &= (uint16_t)~MSG_JOINED;
    one.count = 0;
    for (uint32_t left = count; c != NULL && !c->closed && left > 0; left--, one.slot++, one.seq++)
        said_to(a, c, worker, &one);
    return count;
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
            said = said_joined(a, worker, reply);
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

void peers_look(struct acceptor *a) {
    for (uint32_t w = 0; w < a->workers; w++) {
        struct worker_link *link = &a->links[w];
        if (link->channel == NULL) continue;
        link->backlogged = channel_backlogged(link->channel);
        if (!link->backlogged && link->stalled.count > 0) wake_listed(a, &link->stalled);
        if (channel_lends(link->channel)) a->published_to |= bit_of(w);
    }
}

void peers_publish(struct acceptor *a) {
    for (uint64_t rest = a->published_to; rest != 0; rest &= rest - 1) {
        struct worker_link *link = &a->links[first_of(rest)];
        if (link->channel == NULL) continue;
        channel_publish(link->channel);
        link->backlogged = channel_backlogged(link->channel);
    }
    a->published_to = 0;
}

/* --- attached and lost -------------------------------------------------------------------------------------------- */

/* Sends a request of Python's that was kept because its worker was gone. */
static void send_unsent(struct acceptor *a, struct connection *c, struct slot *slot, uint32_t number) {
    struct message request;
    memcpy(&request, slot->body, sizeof request);
    send_request(a, c, slot->worker, &request, slot->body + sizeof request, request.body_bytes, number);
    forget_unsent(a, c, slot);
}

static void ask_again(struct acceptor *a, struct connection *c, uint32_t worker) {
    for (uint32_t i = 0; i < c->slot_count; i++) {
        uint32_t number = c->head_slot + i;
        struct slot *slot = connection_slot(c, number);
        if (slot->kind == SLOT_CODEC)
            c->codec->ask_again(a, c, worker);
        else if (slot->worker != worker || slot->answered)
            continue;
        else if (slot->unsent)
            send_unsent(a, c, slot, number);
        else if (slot->kind == MSG_RESERVE)
            send_reserve(a, c, slot, number);
    }
    if (c->half_closed && c->reserve_worker == worker) peer_cancel_reserves(a, c);
}

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
        if (a->table[i] != NULL) ask_again(a, a->table[i], worker);
    peers_publish(a);
    if (!link->backlogged) wake_listed(a, &link->stalled);
    wake_self(a);
    return 0;
}

/* The value of a barrier's slot if the dead worker had not taken the barrier. */
enum { UNTAKEN = 1 };

static void fail_slot(struct acceptor *a, struct connection *c, struct slot *slot, uint32_t number) {
    slot->answered = true;
    no_large(a, c, slot->worker, number);
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
        for (uint32_t n = 0; n < several; n++) {
            request_each_get(&one, message, n);
            refuse(a, c, worker, &one);
        }
    }
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
    if (!channel_broken(link->channel)) refuse_untaken(a, worker);
    channel_close(link->channel);
    link->channel = NULL;
    link->backlogged = false;
    a->published_to &= ~bit_of(worker);
    for (uint32_t i = 0; i < a->highest_index; i++)
        if (a->table[i] != NULL) lose(a, a->table[i], worker);
    wake_self(a);
}

/* Replies of workers: each is handled, and the replies of a connection leave in the order of its requests. */
#include "acceptor/replies.h"

#include <string.h>

#include "acceptor/bridge.h"
#include "acceptor/life.h"
#include "acceptor/lists.h"
#include "acceptor/slots.h"
#include "acceptor/socket.h"
#include "acceptor/upcalls.h"

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
            const struct codec_answer answer = {.kind = slot->kind,
                                                .status = slot->status,
                                                .body_bytes = slot->body_bytes,
                                                .value = slot->value,
                                                .id = slot->value,
                                                .body = slot->body};
            c->codec->answer(a, c, &answer);
            if (c->closed) return;
        }
        connection_pop_slot(c, &a->blocks);
    }
    slots_changed(a, c);
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
    slot_settle_large(a, c, worker, reply->slot);
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
        const struct codec_answer answer = {.kind = reply->kind,
                                            .status = reply->status,
                                            .body_bytes = slot->body != NULL ? slot->body_bytes : reply->body_bytes,
                                            .value = slot->value,
                                            .id = reply->id,
                                            .body = slot->body != NULL ? slot->body : (const uint8_t *)(reply + 1)};
        if (!c->muted) c->codec->answer(a, c, &answer);
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

/* Handles the replies that a joined one stands for. Returns how many. */
uint32_t peer_said_joined(struct acceptor *a, uint32_t worker, const struct message *reply) {
    struct connection *c = connection_find(a, reply->conn);
    struct message one = *reply;
    uint32_t count = reply->count < JOINED_MOST ? reply->count : JOINED_MOST;
    one.flags &= (uint16_t)~MSG_JOINED;
    one.count = 0;
    for (uint32_t left = count; c != NULL && !c->closed && left > 0; left--, one.slot++, one.seq++)
        said_to(a, c, worker, &one);
    return count;
}

/* A connection as the consumer of a channel: frames for the messages pushed to it, and resubscribing when its
 * worker is back.
 *
 * A worker pushes no more than WINDOW_BYTES that it has not been told to be SENT, so that is what piles up here for a
 * client that does not read.
 */
#include "acceptor/protocols/nsq/nsq_consumer.h"

#include <stdio.h>
#include <stdlib.h>

#include "acceptor/protocols/nsq/nsq_frames.h"

enum { MESSAGE_HEAD_BYTES = 8 + 2 + NSQ_ID_BYTES, REFUSED_TEXT = 96 };

static bool is_subscribed(const struct connection *c, uint32_t worker) {
    const struct nsq *n = nsq_of(c);
    return (n->state == NSQ_SUBSCRIBED || n->state == NSQ_CLOSING) && n->worker == worker;
}

void nsq_set_credit(struct acceptor *a, struct connection *c, uint64_t credit) {
    nsq_of(c)->credit = credit;
    uint16_t flags = nsq_of(c)->state == NSQ_CLOSING ? MSG_LEAVING : 0;
    struct message message = {.kind = MSG_CREDIT, .conn = c->number, .flags = flags, .id = credit};
    peer_send(a, nsq_of(c)->worker, &message, NULL);
}

/* --- what is pushed ----------------------------------------------------------------------------------------------- */

static uint8_t *put_be64(uint8_t *out, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(out, &value, sizeof value);
    return out + sizeof value;
}

static void deliver(struct acceptor *a, struct connection *c, const struct message *message) {
    size_t bytes = MESSAGE_HEAD_BYTES + (size_t)message->body_bytes;
    const bool apart = message->body_bytes >= BORROWED_BYTES;
    const size_t here = FRAME_HEAD_BYTES + (apart ? MESSAGE_HEAD_BYTES : bytes);
    /* What does not fit the block is written after the block has been sent: moving it to a larger one would cost more.
     */
    bool full = buffer_bytes(&c->out.last) + here > PUSH_BYTES && buffer_bytes(&c->out.last) > 0;
    if (full && !c->choked && c->filter == NULL) {
        socket_flush(a, c);
        if (c->closed) return;
    }
    uint8_t *room = socket_room(a, c, here);
    if (room == NULL) return;
    uint32_t attempts = message->pri < UINT16_MAX ? message->pri : UINT16_MAX;
    uint8_t *end = put_frame_head(room, FRAME_MESSAGE, bytes);
    end = put_be64(end, message->delay_ns);
    *end++ = (uint8_t)(attempts >> 8);
    *end++ = (uint8_t)attempts;
    end = nsq_put_id(end, message->id);
    if (apart) {
        socket_written(a, c, end);
        if (!socket_say(a, c, message + 1, message->body_bytes)) return;
    } else {
        if (message->body_bytes > 0) memcpy(end, message + 1, message->body_bytes);
        socket_written(a, c, end + message->body_bytes);
    }
    nsq_of(c)->delivered_bytes += sizeof *message + message->body_bytes;
}

/* The slot behind which the next reply waits until all earlier refusals have come. */
static struct slot *barrier_slot(struct connection *c, uint32_t *distance) {
    for (*distance = 0; *distance < c->slot_count; ++*distance) {
        struct slot *slot = connection_slot(c, c->head_slot + *distance);
        if (slot->kind == MSG_BARRIER && !slot->answered) return slot;
    }
    return NULL;
}

static void append(struct acceptor *a, struct connection *c, struct slot *slot, const uint8_t *frame, size_t bytes) {
    uint8_t *room = connection_body(c, &a->blocks, slot, bytes);
    if (room == NULL) {
        engine_oom(a, c);
        return;
    }
    memcpy(room, frame, bytes);
}

/* Puts a refusal at the place among the replies that its command has among the commands. */
static void say_in_turn(struct acceptor *a, struct connection *c, const char *text, size_t bytes) {
    uint8_t frame[FRAME_HEAD_BYTES + REFUSED_TEXT];
    uint32_t distance;
    struct slot *barrier = barrier_slot(c, &distance);
    memcpy(put_frame_head(frame, FRAME_ERROR, bytes), text, bytes);
    /* What has been put at the barrier waits for its answer, and all that comes later waits behind that. */
    if (barrier != NULL && (distance > 0 || barrier->body != NULL))
        append(a, c, barrier, frame, FRAME_HEAD_BYTES + bytes);
    else if (barrier == NULL && c->slot_count > 0 && c->slot_count < MAX_OUTSTANDING)
        reply_text(a, c, frame, FRAME_HEAD_BYTES + bytes);
    else
        nsq_say(a, c, FRAME_ERROR, text, bytes);
}

static void refused(struct acceptor *a, struct connection *c, const struct message *message) {
    char text[REFUSED_TEXT];
    uint8_t id[NSQ_ID_BYTES + 1] = {0};
    nsq_put_id(id, message->id);
    const char *name = message->pri == MSG_FINISH ? "FIN" : message->pri == MSG_REQUEUE ? "REQ" : "TOUCH";
    const char *why = message->status == STATUS_NONE       ? "client does not own message"
                      : message->status == STATUS_NO_SPACE ? "no space"
                                                           : "ID not in flight";
    int bytes = snprintf(text, sizeof text, "E_%s_FAILED %s %s failed %s", name, name, (const char *)id, why);
    say_in_turn(a, c, text, (size_t)bytes);
}

static void end(struct acceptor *a, struct connection *c) {
    c->closing = true;
    c->muted = true;
    socket_dirty(a, c);
}

void nsq_pushed(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message) {
    if (!is_subscribed(c, worker) || c->muted) return;
    /* An error that ends the connection comes after all earlier refusals. */
    if (c->closing && !(message->kind == MSG_REFUSED && c->slot_count > 0)) return;
    switch (message->kind) {
    case MSG_DELIVER: deliver(a, c, message); break;
    case MSG_REFUSED: refused(a, c, message); break;
    case MSG_DISMISSED: end(a, c); break;
    case MSG_SUBSCRIBE:
        /* Resubscribing failed: ending the connection tells the client. */
        if (message->status != STATUS_OK) end(a, c);
        break;
    default: break;
    }
}

/* Part of the unsent output may be other frames: then less is reported than could be, for a while. A frame is
 * shorter than what is counted for it, but by less than a half. */
void nsq_sent(struct acceptor *a, struct connection *c) {
    struct nsq *n = nsq_of(c);
    n->taken = true;
    if (n->delivered_bytes < SENT_REPORT_BYTES) return;
    uint64_t left = connection_unsent(c);
    left += left / 2;
    if (n->delivered_bytes < left + SENT_REPORT_BYTES) return;
    struct message message = {.kind = MSG_SENT, .conn = c->number, .id = n->delivered_bytes - left};
    n->delivered_bytes = left;
    peer_send(a, n->worker, &message, NULL);
}

/* --- the subscription --------------------------------------------------------------------------------------------- */

void nsq_forget_subscription(struct acceptor *a, struct nsq *n) {
    if (n->subscription == NULL) return;
    topic_unbind(a, n->subscription->topic);
    free(n->subscription);
    n->subscription = NULL;
}

bool nsq_subscribing(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                     const void *body) {
    struct nsq *n = nsq_of(c);
    if (n->state != NSQ_INIT) return false;
    nsq_forget_subscription(a, n);
    n->subscription = malloc(sizeof *request + request->body_bytes);
    if (n->subscription == NULL) return false;
    *n->subscription = *request;
    bindings_refer(&a->bindings, request->topic);
    if (request->body_bytes > 0) memcpy(n->subscription + 1, body, request->body_bytes);
    n->worker = (uint8_t)worker;
    return true;
}

void nsq_subscribed(struct acceptor *a, struct connection *c, uint8_t status) {
    struct nsq *n = nsq_of(c);
    if (n->state != NSQ_INIT || n->subscription == NULL) return;
    if (status == STATUS_OK) {
        n->state = NSQ_SUBSCRIBED;
        return;
    }
    nsq_forget_subscription(a, n);
}

/* What it had not come to has been refused: nothing more is to be heard of what was said until now. */
void nsq_lost(struct acceptor *a, struct connection *c, uint32_t worker) {
    (void)a;
    if (is_subscribed(c, worker)) nsq_of(c)->unsettled = false;
}

void nsq_tell(struct acceptor *a, struct connection *c, uint32_t worker) {
    struct nsq *n = nsq_of(c);
    if (!is_subscribed(c, worker) || c->closing) return;
    /* Nobody waits for its reply: it has the number of a slot that is not in use. */
    n->subscription->slot = c->head_slot - 1;
    c->touched_workers |= bit_of(worker);
    peer_send(a, worker, n->subscription, n->subscription + 1);
    /* The new worker knows nothing of what the dead one had delivered. */
    n->delivered_bytes = 0;
    nsq_set_credit(a, c, n->credit);
}

/* Consecutive PUBLISHes of a connection to one topic, with the same attributes, are sent as one ring message
 * (PUBLISH_EACH), to which they are added as long as the worker cannot have seen it. Each has its own slot and answer,
 * as if it had been sent by itself.
 *
 * The channel knows whether the message was sent last and is not visible yet; the link only has its place.
 */
#include "acceptor/publishes.h"

#include <string.h>

/* Whether a publish can be one of several: it has no other flags, is not large, and not delayed (a delayed message
 * becomes a delivery of each channel at once). */
static bool is_plain(const struct message *m) {
    return (m->flags & ~MSG_DURABLE) == 0 && m->body_bytes <= EACH_BODY_BYTES && m->delay_ns == 0;
}

static bool follows(const struct message *first, const struct message *m) {
    return first->conn == m->conn && first->slot + first->several == m->slot && first->topic == m->topic &&
           first->pri == m->pri && first->flags == m->flags && first->ttr_ns == m->ttr_ns && first->several < EACH_MOST;
}

static uint8_t *room_behind(struct worker_link *link, const struct message *m, size_t bytes) {
    struct growing *growing = &link->publishes;
    if (!channel_grows(link->channel, growing) || !follows(growing->message, m)) return NULL;
    uint8_t *room = channel_grow(link->channel, growing, bytes);
    if (room != NULL) growing->message->several++;
    return room;
}

static uint8_t *room_for_first(struct worker_link *link, const struct message *m, size_t bytes) {
    uint64_t place = channel_tail(link->channel);
    struct message *first = channel_reserve(link->channel, bytes);
    if (first == NULL) return NULL;
    *first = *m;
    first->kind = MSG_PUBLISH_EACH;
    first->several = 1;
    first->body_bytes = (uint32_t)bytes;
    channel_sent(link->channel);
    link->publishes = (struct growing){first, place, channel_tail(link->channel)};
    return (uint8_t *)(first + 1);
}

/* Hides from the compiler that the length is small: it would use `rep movs`, whose start takes longer than the copy. */
static void copy_body(uint8_t *to, const void *body, size_t bytes) {
    __asm__("" : "+r"(bytes));
    memcpy(to, body, bytes);
}

bool publishes_send(struct acceptor *a, uint32_t worker, const struct message *request, const void *body) {
    struct worker_link *link = &a->links[worker];
    if (link->channel == NULL || !is_plain(request)) return false;
    const struct publish_each each = {.id = request->id, .bytes = request->body_bytes};
    const size_t bytes = publish_each_bytes(each.bytes);
    uint8_t *room = room_behind(link, request, bytes);
    if (room == NULL) room = room_for_first(link, request, bytes);
    if (room == NULL) return false;
    a->published_to |= bit_of(worker);
    if (each.bytes > 0) memset(room + bytes - 8, 0, 8); /* what is not written over */
    memcpy(room, &each, sizeof each);
    if (each.bytes > 0) copy_body(room + sizeof each, body, each.bytes);
    return true;
}

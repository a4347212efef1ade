/* Consecutive requests of a connection, of any kinds without a body, are sent as one ring message (REQUEST_EACH), to
 * which they are added as long as the worker cannot have seen it. The first request is sent by itself, as often none
 * follows; the second begins the message.
 *
 * As with PUBLISHes (publishes.c), the channel knows whether a message was sent last and is not visible yet.
 */
#include "acceptor/requests.h"

enum { ROOM_BYTES = REQUESTS_AT_ONCE * sizeof(struct request_each) };
_Static_assert(REQUESTS_MOST % REQUESTS_AT_ONCE == 0, "the last room is whole");

/* Room behind the message sent last, if that can grow. */
static struct request_each *room_behind(struct worker_link *link) {
    struct message *message = link->requests.message;
    if (message == NULL || message->several == REQUESTS_MOST) return NULL;
    bool is_full = message->several % REQUESTS_AT_ONCE == 0;
    if (is_full && channel_grow(link->channel, &link->requests, ROOM_BYTES) == NULL) return NULL;
    return (struct request_each *)(void *)(message + 1) + message->several++;
}

static struct request_each *room_for_first(struct worker_link *link, uint32_t conn) {
    uint64_t place = channel_tail(link->channel);
    struct message *first = channel_reserve(link->channel, ROOM_BYTES);
    if (first == NULL) return NULL;
    *first = (struct message){.kind = MSG_REQUEST_EACH, .several = 1, .conn = conn, .body_bytes = ROOM_BYTES};
    channel_sent(link->channel);
    link->requests = (struct growing){first, place, channel_tail(link->channel)};
    return (struct request_each *)(void *)(first + 1);
}

static void send_alone(struct worker_link *link, const struct message *request) {
    uint64_t place = channel_tail(link->channel);
    channel_send(link->channel, request, NULL, 0);
    link->requests = (struct growing){NULL, place, channel_tail(link->channel)};
    link->requests_conn = request->conn;
}

void requests_send(struct worker_link *link, const struct message *request) {
    struct request_each each;
    bool follows = link->requests_conn == request->conn && channel_grows(link->channel, &link->requests);
    if (!follows || !request_each_of(&each, request)) {
        send_alone(link, request);
        return;
    }
    struct request_each *room = room_behind(link);
    if (room == NULL) room = room_for_first(link, request->conn);
    if (room == NULL)
        send_alone(link, request);
    else
        *room = each;
}

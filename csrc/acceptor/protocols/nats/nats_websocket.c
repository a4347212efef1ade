/* Tells a websocket's client why its connection ends, in a closing frame after all output, as a nats-server does. */
#include "acceptor/protocols/nats/nats_websocket.h"

enum status {
    NORMAL = 1000,
    GOING_AWAY = 1001,
    PROTOCOL_ERROR = 1002,
    POLICY_VIOLATION = 1008,
    TOO_BIG = 1009,
    INTERNAL_ERROR = 1011
};

/* By nats-server's numbers of reasons: see enum nats_reason. */
static const struct {
    uint16_t status;
    const char *why;
} REASONS[] = {
    [1] = {NORMAL, "Client Closed"},
    [NATS_AUTHENTICATION_TIMEOUT] = {POLICY_VIOLATION, "Authentication Timeout"},
    [NATS_AUTHENTICATION_VIOLATION] = {POLICY_VIOLATION, "Authentication Failure"},
    [NATS_PARSE_ERROR] = {PROTOCOL_ERROR, "Parse Error"},
    [NATS_STALE] = {GOING_AWAY, "Stale Connection"},
    [12] = {PROTOCOL_ERROR, "Bad Client Protocol Version"},
    [14] = {POLICY_VIOLATION, "Maximum Account Connections Exceeded"},
    [15] = {POLICY_VIOLATION, "Maximum Connections Exceeded"},
    [NATS_TOO_LARGE] = {TOO_BIG, "Maximum Message Payload Exceeded"},
    [NATS_TOO_LONG] = {POLICY_VIOLATION, "Maximum Control Line Exceeded"},
    [18] = {POLICY_VIOLATION, "Maximum Subscriptions Exceeded"},
    [21] = {GOING_AWAY, "Server Shutdown"},
    [22] = {POLICY_VIOLATION, "Authentication Expired"},
    [24] = {POLICY_VIOLATION, "Missing Account"},
    [25] = {POLICY_VIOLATION, "Credentials Revoked"},
    [28] = {INTERNAL_ERROR, "No Responders Requires Headers"},
    [34] = {INTERNAL_ERROR, "Kicked"},
};

void nats_say_closing(struct acceptor *a, struct connection *c) {
    uint8_t payload[WEBSOCKET_CONTROL_BYTES];
    size_t reason = nats_of(c)->reason, count = sizeof REASONS / sizeof *REASONS;
    /* The client broke the protocol: the connection ends without a frame, as if the socket had failed. */
    if (reason == NATS_PROTOCOL_VIOLATION) {
        framing_close_silently(c);
        return;
    }
    bool known = reason < count && REASONS[reason].why != NULL;
    const char *why = known ? REASONS[reason].why : "Unknown State";
    size_t bytes = websocket_closing(payload, known ? REASONS[reason].status : (uint16_t)INTERNAL_ERROR, why);
    framing_close(a, c, payload, bytes);
}

/* Timeouts of a connection: for its first byte, its PROXY header, CONNECT, PINGs, and output that the client does not
 * take. */
#include "acceptor/protocols/nats/nats_due.h"

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_clock.h"
#include "acceptor/protocols/nats/nats_proxied.h"
#include "acceptor/protocols/nats/nats_say.h"
#include "acceptor/protocols/nats/nats_write.h"

static const char PING[] = "PING\r\n";

void nats_sniffed(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes) {
    struct nats *n = nats_of(c);
    uint8_t line[6] = "SNIFF";
    n->flags &= ~(uint32_t)NATS_SNIFF;
    n->deadline_ns = 0;
    if (bytes > 0) line[5] = *data;
    reply_by_python(a, c, line, bytes > 0 ? 6 : 5);
}

/* Sends a PING, unless the client was heard from lately and its round-trip time is known. Closes it if it has too many
 * unanswered PINGs. */
static void ping(struct acceptor *a, struct connection *c) {
    const struct nats_server *server = nats_server_of(a, c);
    struct nats *n = nats_of(c);
    n->ping_ns = a->now_ns + server->ping_interval_ns;
    bool lately = n->heard_ns > 0 && a->now_ns - n->heard_ns < server->ping_interval_ns;
    bool measured = n->rtt_ns > 0 && a->now_ns - n->asked_ns <= NATS_RTT_VALID_NS;
    if (lately && measured) return;
    if (n->pings >= server->ping_max) {
        codec_count_add(a, c, NATS_STALE_CONNECTIONS, 1);
        nats_end(a, c, NATS_STALE, "Stale Connection");
        return;
    }
    /* While Python has a command, the connection may be about to be encrypted. */
    if (c->stall == STALL_PYTHON || nats_is(c, NATS_SNIFF) || nats_is(c, NATS_PROXIED)) return;
    nats_note_ping(a, &n->pings, &n->asked_ns);
    nats_say(a, c, PING, sizeof PING - 1);
}

/* Whether the client has to be closed since it does not take its output. */
static bool is_late(struct acceptor *a, struct connection *c) {
    const struct nats_server *server = nats_server_of(a, c);
    bool retries = server->write_retries && !nats_is(c, NATS_MUST_CONNECT);
    enum nats_lateness found = nats_write_check(a, c, nats_write_of(c), server->write_deadline_ns, retries);
    if (found == NATS_WRITE_IN_TIME) return false;
    codec_count_add(a, c, NATS_SLOW_CONSUMERS, 1);
    nats_account_of(a, c)->slow_consumers++;
    return found == NATS_WRITE_LATE;
}

void nats_due(struct acceptor *a, struct connection *c) {
    struct nats *n = nats_of(c);
    if (is_late(a, c)) {
        if (n->reason == 0) n->reason = NATS_SLOW_WRITE_DEADLINE;
        socket_close(a, c);
        return;
    }
    if (n->deadline_ns > 0 && a->now_ns >= n->deadline_ns && nats_is(c, NATS_SNIFF)) {
        nats_sniffed(a, c, NULL, 0);
    } else if (n->deadline_ns > 0 && a->now_ns >= n->deadline_ns && nats_is(c, NATS_PROXIED)) {
        nats_proxied_in_vain(a, c);
    } else if (n->deadline_ns > 0 && a->now_ns >= n->deadline_ns) {
        n->deadline_ns = n->ping_ns = 0;
        nats_end(a, c, NATS_AUTHENTICATION_TIMEOUT, "Authentication Timeout");
    } else if (c->closing) {
        n->ping_ns = 0; /* a time that has passed must not stay due */
    } else if (n->ping_ns > 0 && a->now_ns >= n->ping_ns) {
        ping(a, c);
    }
    if (!c->closed) nats_schedule(a, c);
}

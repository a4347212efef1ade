/* What goes to another server: RS+ and RS-, RMSG and HMSG; LS+, LS- and LMSG in the name of a cluster of leaf nodes. */
#include "acceptor/protocols/nats/nats_route_send.h"

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "acceptor/protocols/nats/nats_say.h"
#include "acceptor/protocols/nats/nats_write.h"
#include "base/decimal.h"

static uint8_t *put(uint8_t *out, const void *text, size_t bytes) {
    if (bytes > 0) memcpy(out, text, bytes);
    return out + bytes;
}

static uint8_t *put_word(uint8_t *out, const void *text, size_t bytes) {
    out = put(out, text, bytes);
    *out++ = ' ';
    return out;
}

/* The account to name; empty on a connection that carries only one. */
static struct text account_of(const struct nats_server *server, const struct connection *c, uint32_t number) {
    const struct nats_account *account = &server->accounts[number];
    if (route_of(c)->account != 0) return (struct text){0};
    return (struct text){(const uint8_t *)account->name, account->name_bytes};
}

/* --- time --------------------------------------------------------------------------------------------------------- */

void nats_route_schedule(struct acceptor *a, struct connection *c) {
    const struct nats_route *r = route_of(c);
    const uint64_t since[] = {r->write_ns, r->held_ns};
    uint64_t due = r->ping_ns;
    for (size_t i = 0; i < sizeof since / sizeof *since; i++) {
        uint64_t deadline = since[i] + route_write_deadline_ns(a, c);
        if (since[i] > 0 && (due == 0 || deadline < due)) due = deadline;
    }
    if (due > 0)
        timer_set(a, c, due);
    else
        timer_clear(a, c);
}

void nats_route_watch(struct acceptor *a, struct connection *c) {
    if (c->closed || !c->choked || route_of(c)->write_ns > 0) return;
    nats_write_waits(a, c, route_write_of(c));
    nats_route_schedule(a, c);
}

void nats_route_holds(struct acceptor *a, struct connection *c) {
    struct nats_route *r = route_of(c);
    if (c->closed) return;
    r->held_ns = a->now_ns;
    r->held_at = c->left_bytes;
    nats_route_schedule(a, c);
}

void nats_route_say(struct acceptor *a, struct connection *c, const void *text, size_t bytes) {
    nats_say(a, c, text, bytes);
    nats_route_watch(a, c);
}

void nats_route_hang_up(struct acceptor *a, struct connection *c) {
    struct nats_route *r = route_of(c);
    c->closing = true;
    if (r->reason == 0) r->reason = NATS_PROTOCOL_VIOLATION;
    nats_write_waits(a, c, route_write_of(c));
    nats_route_schedule(a, c);
    if (!c->closed) socket_dirty(a, c);
}

void nats_route_end(struct acceptor *a, struct connection *c, const char *text) {
    nats_say_error(a, c, text);
    if (!c->closed) nats_route_hang_up(a, c);
}

/* --- interest ----------------------------------------------------------------------------------------------------- */

void nats_route_say_interest(struct acceptor *a, struct nats_server *server, struct connection *c,
                             const struct nats_interest *i) {
    struct text account = account_of(server, c, i->account), origin = nats_origin_name(&server->origins, i->origin);
    if (i->origin == NATS_NO_CLUSTER) origin = (struct text){(const uint8_t *)"_", 1};
    const struct text subject = i->subject, queue = i->queue;
    struct nats_permissions *permissions = route_of(c)->permissions;
    bool is_leaf = (route_of(c)->flags & ROUTE_LEAF) != 0;
    bool passes = permissions == NULL || (is_leaf && nats_is_loop(subject)) ||
                  nats_may_publish(&server->permissions, permissions, subject);
    if (!passes) return;
    size_t words_bytes = origin.bytes + account.bytes + subject.bytes + queue.bytes;
    uint8_t *out = socket_room(a, c, words_bytes + DECIMAL_MAX_BYTES + 16);
    if (out == NULL) return;
    *out++ = is_leaf || origin.bytes > 0 ? 'L' : 'R';
    out = put(out, i->weight > 0 ? "S+ " : "S- ", 3);
    if (origin.bytes > 0) out = put_word(out, origin.at, origin.bytes);
    if (account.bytes > 0) out = put_word(out, account.at, account.bytes);
    out = put(out, subject.at, subject.bytes);
    if (queue.bytes > 0) {
        *out++ = ' ';
        out = put(out, queue.at, queue.bytes);
    }
    if (queue.bytes > 0 && i->weight > 0) {
        *out++ = ' ';
        out = decimal_put(out, i->weight);
    }
    socket_written(a, c, put(out, "\r\n", 2));
    nats_route_watch(a, c);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

bool nats_route_may_have(struct nats_server *server, const struct nats_route *r, struct text subject) {
    return r->permissions == NULL ||
           nats_may_subscribe(&server->permissions, r->permissions, subject, (struct text){0});
}

/* The cluster of leaf nodes that has the message already, if the server wants to know; else empty. */
static struct text origin_of(const struct nats_server *server, const struct nats_route *r,
                             const struct nats_message *m) {
    if (m->origin == 0 || (r->flags & ROUTE_LEAF_MESSAGES) == 0) return (struct text){0};
    return nats_origin_name(&server->origins, m->origin);
}

/* Returns an upper bound of the length of a line. */
static size_t line_bytes(const struct nats_message *m, struct text account, const struct nats_chosen *chosen) {
    return account.bytes + m->subject.bytes + m->reply.bytes + m->size.bytes + m->header_size.bytes + chosen->bytes +
           2 * DECIMAL_MAX_BYTES + 20;
}

/* "reply ", or with groups "+ reply q1 q2 " or "| q1 q2 ". */
static uint8_t *put_reply_and_groups(uint8_t *out, uint32_t other, const struct nats_message *m,
                                     const struct nats_chosen *chosen) {
    bool any = false;
    for (size_t i = 0; i < chosen->count && !any; i++) any = chosen->other[i] == other;
    if (any) out = put_word(out, m->reply.bytes > 0 ? "+" : "|", 1);
    if (m->reply.bytes > 0) out = put_word(out, m->reply.at, m->reply.bytes);
    for (size_t i = 0; any && i < chosen->count; i++)
        if (chosen->other[i] == other) out = put_word(out, chosen->name[i].at, chosen->name[i].bytes);
    return out;
}

static uint8_t *put_sizes(uint8_t *out, const struct nats_message *m, bool headers) {
    if (headers) {
        out = put_word(out, m->header_size.at, m->header_size.bytes);
        return put(out, m->size.at, m->size.bytes);
    }
    if (m->header_bytes > 0) return decimal_put(out, m->payload_bytes - m->header_bytes);
    return put(out, m->size.at, m->size.bytes);
}

enum { MOST_PENDING = 4 }; /* as a multiple of what may wait for a client */

/* Makes publishers wait for a server that takes less than they publish. Other servers do not wait: if too much of
 * theirs is unsent, this server is closed. */
static void look_whether_full(struct acceptor *a, struct nats_server *server, struct connection *c, uint32_t other,
                              bool is_servers) {
    struct nats_route_link *link = nats_link_of(server, other);
    nats_route_watch(a, c);
    if (is_servers && connection_unsent(c) > MOST_PENDING * server->max_pending + server->max_payload) {
        codec_count_add(a, c, ROUTE_SLOW, 1);
        route_of(c)->reason = NATS_SLOW_PENDING_BYTES;
        if (!c->closed) socket_close(a, c);
        return;
    }
    if (link->full || connection_unsent(c) <= server->max_pending / 4 * 3) return;
    link->full = true;
    nats_route_holds(a, c);
    nats_tell_full(a, server, other, true);
}

void nats_route_send(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t number,
                     const struct nats_message *m, const struct nats_chosen *chosen) {
    struct connection *c = nats_link_of(server, other)->connection;
    if (c == NULL || c->closed || c->closing) return;
    struct nats_route *r = route_of(c);
    bool is_leaf = (r->flags & ROUTE_LEAF) != 0;
    if ((r->flags & ROUTE_DENIED_SOME) != 0 && !nats_route_may_have(server, r, m->subject)) return;
    struct text account = account_of(server, c, number);
    bool headers = m->header_bytes > 0 && (r->flags & ROUTE_HEADERS) != 0;
    size_t cut = headers ? 0 : m->header_bytes;
    const struct text origin = origin_of(server, r, m);
    uint8_t *out = socket_room(a, c, line_bytes(m, account, chosen) + origin.bytes + m->payload_bytes);
    if (out == NULL) return;
    out = put(out, is_leaf || origin.bytes > 0 ? "LMSG " : "RMSG ", 5);
    if (headers && origin.bytes == 0) out[-5] = 'H';
    if (origin.bytes > 0) out = put_word(out, origin.at, origin.bytes);
    if (account.bytes > 0) out = put_word(out, account.at, account.bytes);
    out = put_word(out, m->subject.at, m->subject.bytes);
    out = put_reply_and_groups(out, other, m, chosen);
    /* With a cluster's name both sizes are given, even without headers. */
    if (origin.bytes > 0 && !headers) out = put(out, "0 ", 2);
    out = put(put_sizes(out, m, headers), "\r\n", 2);
    out = put(out, m->payload + cut, m->payload_bytes - cut);
    socket_written(a, c, put(out, "\r\n", 2));
    r->counted[ROUTE_OUT_MESSAGES]++;
    r->counted[ROUTE_OUT_BYTES] += m->payload_bytes - cut;
    codec_count_add(a, c, ROUTE_OUT_MESSAGES, 1);
    codec_count_add(a, c, ROUTE_OUT_BYTES, m->payload_bytes - cut);
    look_whether_full(a, server, c, other, m->from == 0);
}

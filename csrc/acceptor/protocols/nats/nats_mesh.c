/* The other acceptors of this broker, which together are one server to clients.
 *
 * Each acceptor tells the others which patterns its clients want, and how many members of a group it has. A message is
 * sent once to each acceptor that wants it, with the names of the groups of which that acceptor is to choose a member.
 * Members may be gone when the message comes. Then the acceptor passes the group on to one that still has members, and
 * so on until all have been tried.
 *
 * A client that has subscribed and receives PONG (or +OK, if verbose) gets all messages published from then on. When
 * one that has published receives PONG, the message is in the output of all recipients. So the answer waits until all
 * other acceptors have confirmed what they were told. Interest and messages go over one ring, so a request comes after
 * the subscription to its reply.
 */
#include "acceptor/protocols/nats/nats_mesh.h"

#include <stdlib.h>

#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_fanout.h"
#include "acceptor/protocols/nats/nats_fanouts.h"
#include "acceptor/protocols/nats/nats_hops.h"
#include "acceptor/protocols/nats/nats_interest.h"
#include "acceptor/protocols/nats/nats_journey.h"
#include "acceptor/protocols/nats/nats_leaving.h"
#include "acceptor/protocols/nats/nats_looks.h"
#include "acceptor/protocols/nats/nats_mesh_send.h"
#include "acceptor/protocols/nats/nats_pass.h"
#include "acceptor/protocols/nats/nats_route_send.h"
#include "acceptor/protocols/nats/nats_trace_end.h"
#include "base/subject_groups.h"

/* --- accounts ----------------------------------------------------------------------------------------------------- */

/* Another acceptor's number is not that of an account any more. */
static void drop_named(struct acceptor *a, struct nats_server *server, uint32_t number) {
    if (number != 0 && --server->accounts[number].namers == 0) nats_account_look(a, server, number);
}

static void drop_all_named(struct acceptor *a, struct nats_server *server, struct nats_peer *peer) {
    for (uint32_t i = 0; i < peer->account_count; i++) drop_named(a, server, peer->accounts[i]);
    peer->account_count = 0;
}

/* --- newcomers ---------------------------------------------------------------------------------------------------- */

struct telling {
    struct acceptor *a;
    struct nats_server *server;
    uint32_t account, other;
};

static void tell_pattern(void *context, struct subject_pattern *p) {
    const struct telling *t = context;
    struct nats_mesh_interest i = {t->account, 1, 0, 0, p->bytes, 0};
    if (p->alone.count > 0) nats_mesh_send_interest(t->a, t->server, t->other, &i, p->text, NULL);
    for (const struct subject_group *g = p->groups; g != NULL; g = g->next) {
        if (g->weight == 0) continue; /* its clients are about to be closed */
        i.weight = (uint32_t)g->weight;
        i.queue_bytes = g->name->bytes;
        nats_mesh_send_interest(t->a, t->server, t->other, &i, p->text, g->name->text);
    }
}

/* Tells what the servers behind our routes want. */
static void tell_route_entries(const struct telling *t, struct subject_entries *entries, struct nats_mesh_interest *i,
                               const struct subject_pattern *p, const char *queue) {
    struct subject_entry **items = subject_entries_items(entries);
    for (uint32_t n = 0; n < entries->count; n++) {
        const struct nats_remote *r = (const struct nats_remote *)(const void *)items[n];
        if (!nats_is_route(r->other) || nats_has_left(t->server, r)) continue;
        i->route = r->other;
        i->origin = r->origin;
        i->weight = r->entry.weight;
        nats_mesh_send_interest(t->a, t->server, t->other, i, p->text, queue);
    }
}

static void tell_route_pattern(void *context, struct subject_pattern *p) {
    const struct telling *t = context;
    struct nats_mesh_interest i = {t->account, 1, 0, 0, p->bytes, 0};
    tell_route_entries(t, &p->alone, &i, p, NULL);
    for (struct subject_group *g = p->groups; g != NULL; g = g->next) {
        i.queue_bytes = g->name->bytes;
        tell_route_entries(t, &g->entries, &i, p, g->name->text);
    }
}

void nats_mesh_joined(struct acceptor *a, void *state, uint32_t other) {
    struct nats_server *server = state;
    struct nats_peer *peer = &server->peers[other];
    peer->told = false;
    drop_all_named(a, server, peer);
    /* The newcomer serves no client until it has been told everything there is now. */
    peer->asked = peer->confirmed = server->told;
    peer->confirm = peer->confirm_at = peer->confirm_next = 0;
    peer->is_new = true;
    peer->of_servers = false;
    peer->account = 1;
    peer->cursor = (struct subjects_cursor){0};
    for (uint32_t n = 1; n < server->account_count; n++)
        if (server->accounts[n].named) nats_mesh_send_account(a, server, other, n);
    codec_left(a, server->protocol);
}

/* How much is looked at in a turn. */
enum { TOLD_AT_ONCE = 2048 };

/* Tells a newcomer a piece; changes meanwhile it is told like all others. True at the end. */
static bool tell_some(struct acceptor *a, struct nats_server *server, uint32_t other) {
    struct nats_peer *peer = &server->peers[other];
    for (size_t left = TOLD_AT_ONCE; peer->account < server->account_count;) {
        const struct nats_account *account = &server->accounts[peer->account];
        struct subjects *subjects = peer->of_servers ? account->remote : account->subjects;
        struct telling t = {a, server, peer->account, other};
        if (left == 0) return false;
        if (subjects == NULL || (peer->of_servers && server->route_count == 0))
            left--;
        else if (!subjects_each_from(subjects, &peer->cursor, &left,
                                     peer->of_servers ? tell_route_pattern : tell_pattern, &t))
            return false;
        peer->cursor = (struct subjects_cursor){0};
        if (peer->of_servers) peer->account++;
        peer->of_servers = !peer->of_servers;
    }
    return true;
}

void nats_mesh_tell_on(struct acceptor *a, struct nats_server *server) {
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1) {
        uint32_t other = first_of(rest);
        struct nats_peer *peer = &server->peers[other];
        if (!peer->is_new) continue;
        if (!tell_some(a, server, other)) {
            codec_left(a, server->protocol);
            continue;
        }
        peer->is_new = false;
        for (uint32_t n = 0; n < NATS_LINKS; n++)
            if (server->links[n].connection != NULL && server->links[n].full)
                nats_mesh_send_number(a, server, other, MESH_FULL, BOARD_MAX_ACCEPTORS + n);
        nats_mesh_send_number(a, server, other, MESH_TOLD, 0);
    }
}

bool nats_may_serve(const struct acceptor *a, const void *state) {
    const struct nats_server *server = state;
    if (server->looks.first != NULL) return false;
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1)
        if (!server->peers[first_of(rest)].told) return false;
    return true;
}

/* --- confirmations ------------------------------------------------------------------------------------------------ */

bool nats_is_known(struct acceptor *a, struct connection *c) {
    struct nats_server *server = nats_server_of(a, c);
    uint64_t number = nats_of(c)->told;
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1) {
        uint32_t other = first_of(rest);
        struct nats_peer *peer = &server->peers[other];
        if (peer->confirmed >= number) continue;
        if (peer->asked < number) {
            peer->asked = server->told;
            nats_mesh_send_number(a, server, other, MESH_CONFIRM, peer->asked);
        }
        connection_list_add(&peer->waiting, c->number);
        return stalled(c, STALL_MESH);
    }
    return true;
}

static void wake_waiting(struct acceptor *a, struct connection_list *waiting) {
    for (size_t i = 0; i < waiting->count; i++) {
        struct connection *c = connection_find(a, waiting->items[i]);
        if (c != NULL && c->stall == STALL_MESH) socket_wake(a, c);
    }
    waiting->count = 0;
}

void nats_wake_route(struct acceptor *a, struct nats_server *server, uint32_t route) {
    struct nats_route_link *link = nats_link_of(server, route);
    link->full = false;
    wake_waiting(a, &link->waiting);
}

/* --- what others tell --------------------------------------------------------------------------------------------- */

/* Our number of an account, by another acceptor's number; 0 if it has not named it. */
static uint32_t account_of(const struct nats_server *server, uint32_t other, uint32_t number) {
    const struct nats_peer *peer = &server->peers[other];
    return number < peer->account_count ? peer->accounts[number] : 0;
}

static void hear_account(struct acceptor *a, struct nats_server *server, uint32_t other, uint64_t number,
                         const uint8_t *name, size_t bytes) {
    struct nats_peer *peer = &server->peers[other];
    if (number >= NATS_MAX_ACCOUNTS) return;
    if (number >= peer->account_count) {
        uint32_t count = (uint32_t)number + 1, *larger = realloc(peer->accounts, count * sizeof *larger);
        if (larger == NULL) abort();
        for (uint32_t i = peer->account_count; i < count; i++) larger[i] = 0;
        peer->accounts = larger;
        peer->account_count = count;
    }
    uint32_t before = peer->accounts[number], now = 0;
    if (bytes > 0 && (now = nats_open_account(a, server, (struct text){name, bytes})) == 0) abort();
    peer->accounts[number] = now;
    if (now != 0) server->accounts[now].namers++;
    drop_named(a, server, before);
}

static void hear_told(struct acceptor *a, struct nats_server *server, uint32_t other, const uint8_t *body,
                      size_t bytes) {
    struct nats_mesh_interest i;
    if (bytes < sizeof i) return;
    memcpy(&i, body, sizeof i);
    if ((uint64_t)i.subject_bytes + i.queue_bytes != bytes - sizeof i) return;
    struct text subject = {body + sizeof i, i.subject_bytes},
                queue = {body + sizeof i + i.subject_bytes, i.queue_bytes};
    i.account = account_of(server, other, i.account);
    if (i.account == 0 || !subject_pattern_is_valid(subject.at, subject.bytes)) return;
    if (i.route >= NATS_OTHERS || (i.route != 0 && !nats_is_route(i.route))) return;
    /* Only the acceptor with the routes gives numbers to origins. */
    if (i.route == 0 || i.origin > NATS_MOST_ORIGINS || a->index == NATS_ROUTING_ACCEPTOR) i.origin = 0;
    nats_hear_interest(a, server, i.route != 0 ? i.route : other, i.origin, i.account, subject, queue, i.weight);
}

static void hear_lost(struct acceptor *a, struct nats_server *server, uint64_t route) {
    if (route >= NATS_OTHERS || !nats_is_route((uint32_t)route)) return;
    nats_other_left(a, server, (uint32_t)route);
    nats_wake_route(a, server, (uint32_t)route);
}

void nats_mesh_lost(struct acceptor *a, void *state, uint32_t other) {
    struct nats_server *server = state;
    nats_other_left(a, server, other);
    drop_all_named(a, server, &server->peers[other]);
    /* When the acceptor with the routes is lost, all servers behind them are. */
    for (uint32_t n = 0; other == NATS_ROUTING_ACCEPTOR && n < NATS_LINKS; n++)
        hear_lost(a, server, BOARD_MAX_ACCEPTORS + n);
    wake_waiting(a, &server->peers[other].waiting);
    nats_trace_give_up(a, server);
    listeners_update(a);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static bool take(const uint8_t **at, size_t *left, size_t bytes, struct text *out) {
    if (*left < bytes) return false;
    *out = (struct text){*at, bytes};
    *at += bytes;
    *left -= bytes;
    return true;
}

static bool take_groups(struct text names, uint32_t count, struct text *groups) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes;
        struct text length;
        if (!take(&names.at, &names.bytes, sizeof bytes, &length)) return false;
        memcpy(&bytes, length.at, sizeof bytes);
        if (!take(&names.at, &names.bytes, bytes, &groups[i])) return false;
    }
    return true;
}

/* Marks servers with plain subscribers: they have the message already, and would deliver it to these again. */
static uint64_t stamp_those_who_have_it(struct nats_server *server, struct subject_pattern *const *patterns,
                                        size_t count) {
    uint64_t stamp = ++server->stamp;
    for (size_t i = 0; i < count; i++) {
        struct subject_entry **items = subject_entries_items(&patterns[i]->alone);
        for (uint32_t n = 0; n < patterns[i]->alone.count; n++) {
            const struct nats_remote *r = (const struct nats_remote *)(const void *)items[n];
            if (nats_is_route(r->other) && !nats_has_left(server, r)) server->stamps[r->other] = stamp;
        }
    }
    return stamp;
}

/* Passes a message on to an acceptor or server that still has members, as far as is known here. */
static void hand_over(struct acceptor *a, struct nats_server *server, uint32_t number, const struct nats_message *m,
                      struct text name, bool from_route) {
    static const struct nats_alone nobody = {.count = 0};
    const struct nats_account *account = &server->accounts[number];
    struct subject_pattern *const *patterns;
    if (account->remote == NULL) return;
    size_t count = subjects_match(account->remote, server->remote_walk, m->subject.at, m->subject.bytes, &patterns);
    struct nats_candidates among = {.kinds = from_route ? NATS_ACCEPTORS : NATS_ACCEPTORS | NATS_SERVERS,
                                    .tried = m->tried,
                                    .stamp = stamp_those_who_have_it(server, patterns, count)};
    const struct subject_entry *e = nats_pick_other(server, account, patterns, count, name, among);
    among.kinds = NATS_OUTSIDE;
    if (e == NULL && !from_route) e = nats_pick_other(server, account, patterns, count, name, among);
    if (e == NULL) return;
    struct nats_chosen *chosen = &server->scratch->chosen;
    chosen->count = 1;
    chosen->bytes = nats_group_bytes(name.bytes);
    chosen->other[0] = ((const struct nats_remote *)(const void *)e)->other;
    chosen->name[0] = name;
    nats_pass_on(a, server, number, m, from_route ? PASSED_FROM_ROUTE : 0, &nobody, chosen);
}

/* Sends another acceptor's message to a server behind one of our routes. Returns for how many groups that failed. */
static size_t forward(struct acceptor *a, struct nats_server *server, const struct nats_mesh_message *head,
                      const struct nats_message *m, const struct text *groups) {
    struct nats_chosen *chosen = &server->scratch->chosen;
    chosen->count = head->groups;
    chosen->bytes = head->groups_bytes;
    if (!nats_is_route(head->route) || head->route >= NATS_OTHERS) return 0;
    if (nats_link_of(server, head->route)->connection == NULL) return head->groups;
    for (uint32_t i = 0; i < head->groups; i++) {
        chosen->other[i] = head->route;
        chosen->name[i] = groups[i];
    }
    if (server->trace != NULL)
        nats_trace_route(a, server, head->route, head->account, m, chosen);
    else
        nats_route_send(a, server, head->route, head->account, m, chosen);
    return 0;
}

static void hear_message(struct acceptor *a, struct nats_server *server, uint32_t other, const uint8_t *body,
                         size_t bytes) {
    struct nats_mesh_message head;
    struct text *groups = server->scratch->words, names, payload;
    struct nats_message m = {0};
    if (bytes < sizeof head) return;
    memcpy(&head, body, sizeof head);
    const uint8_t *at = body + sizeof head;
    size_t left = bytes - sizeof head;
    bool whole = take(&at, &left, head.subject_bytes, &m.subject) && take(&at, &left, head.reply_bytes, &m.reply) &&
                 take(&at, &left, head.size_bytes, &m.size) &&
                 take(&at, &left, head.header_size_bytes, &m.header_size) &&
                 take(&at, &left, head.groups_bytes, &names) && take(&at, &left, head.payload_bytes, &payload);
    if (!whole || left != 0 || head.groups > NATS_GROUPS || head.groups_bytes > NATS_GROUPS_BYTES) return;
    if (!take_groups(names, head.groups, groups)) return;
    head.account = account_of(server, other, head.account);
    if (head.account == 0) return;
    if (head.header_bytes > head.payload_bytes) return;
    m.payload = payload.at;
    m.payload_bytes = head.payload_bytes;
    m.header_bytes = head.header_bytes;
    m.from = head.from;
    m.tried = head.tried | bit_of(a->index);
    bool alone = (head.flags & PASSED_ALONE) != 0;
    /* While one is still being handed out more comes only if that acceptor is gone: then all of it counts. */
    if (nats_fanout_holds(server, nats_origin_of_acceptor(other)))
        nats_fanouts_finish(a, server, nats_origin_of_acceptor(other));
    if (head.trace != 0) nats_trace_continue(a, server, head.trace, head.flags);
    server->fanouts.origin = nats_origin_of_acceptor(other);
    size_t lost = head.route != 0 ? forward(a, server, &head, &m, groups)
                                  : nats_deliver_here(a, server, head.account, &m, alone, groups, head.groups);
    for (size_t i = 0; i < lost; i++)
        hand_over(a, server, head.account, &m, groups[i], (head.flags & PASSED_FROM_ROUTE) != 0);
    if (server->trace != NULL) nats_trace_tell(a, server, head.flags);
    server->fanouts.origin = 0;
    server->full_route = 0;
}

void nats_mesh_heard(struct acceptor *a, void *state, uint32_t other, const struct message *message) {
    struct nats_server *server = state;
    const uint8_t *body = (const uint8_t *)(message + 1);
    switch (message->kind) {
    case MESH_INTEREST: hear_told(a, server, other, body, message->body_bytes); break;
    case MESH_MESSAGE: hear_message(a, server, other, body, message->body_bytes); break;
    case MESH_ACCOUNT: hear_account(a, server, other, message->id, body, message->body_bytes); break;
    case MESH_CONFIRM:
        if (!nats_look_confirms_later(server, other, message->id))
            nats_mesh_send_number(a, server, other, MESH_CONFIRMED, message->id);
        break;
    case MESH_CONFIRMED:
        server->peers[other].confirmed = message->id;
        wake_waiting(a, &server->peers[other].waiting);
        break;
    case MESH_TOLD:
        server->peers[other].told = true;
        listeners_update(a);
        break;
    case MESH_LOST: hear_lost(a, server, message->id); break;
    case MESH_TRACED: nats_trace_told(a, server, message->id, body, message->body_bytes); break;
    case MESH_FULL:
    case MESH_FREE:
        if (message->id >= NATS_OTHERS || !nats_is_route((uint32_t)message->id)) break;
        if (message->kind == MESH_FULL)
            nats_link_of(server, (uint32_t)message->id)->full = true;
        else
            nats_wake_route(a, server, (uint32_t)message->id);
        break;
    default: break;
    }
}

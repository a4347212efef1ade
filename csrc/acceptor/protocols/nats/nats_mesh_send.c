/* Sends to other acceptors. */
#include "acceptor/protocols/nats/nats_mesh_send.h"

#include <assert.h>

#include "acceptor/mesh.h"
#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_account_use.h"
#include "acceptor/protocols/nats/nats_route_state.h"
#include "acceptor/protocols/nats/nats_trace_state.h"

/* Tells all others our number of an account, before anything else in it. */
static void name_account(struct acceptor *a, struct nats_server *server, uint32_t number) {
    if (server->accounts[number].named) return;
    server->accounts[number].named = true;
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1)
        nats_mesh_send_account(a, server, first_of(rest), number);
    nats_account_look(a, server, number);
}

void nats_mesh_send_interest(struct acceptor *a, struct nats_server *server, uint32_t other,
                             const struct nats_mesh_interest *i, const void *subject, const void *queue) {
    name_account(a, server, i->account);
    const struct mesh_part parts[] = {{i, sizeof *i}, {subject, i->subject_bytes}, {queue, i->queue_bytes}};
    mesh_send(a, other, server->protocol, (struct message){.kind = MESH_INTEREST}, parts, 3);
}

void nats_mesh_tell(struct acceptor *a, struct nats_server *server, const struct nats_mesh_interest *i,
                    struct text subject, struct text queue) {
    server->told++;
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1)
        nats_mesh_send_interest(a, server, first_of(rest), i, subject.at, queue.at);
}

void nats_mesh_send_account(struct acceptor *a, const struct nats_server *server, uint32_t other, uint32_t number) {
    const struct nats_account *account = &server->accounts[number];
    const struct mesh_part name = {account->name, account->name_bytes};
    mesh_send(a, other, server->protocol, (struct message){.kind = MESH_ACCOUNT, .id = number}, &name, 1);
}

void nats_mesh_unname(struct acceptor *a, struct nats_server *server, uint32_t number) {
    server->accounts[number].named = false;
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1)
        mesh_send(a, first_of(rest), server->protocol, (struct message){.kind = MESH_ACCOUNT, .id = number}, NULL, 0);
}

void nats_mesh_send_number(struct acceptor *a, const struct nats_server *server, uint32_t other,
                           enum nats_mesh_kind kind, uint64_t number) {
    mesh_send(a, other, server->protocol, (struct message){.kind = (uint8_t)kind, .id = number}, NULL, 0);
}

static void tell_number(struct acceptor *a, const struct nats_server *server, enum nats_mesh_kind kind,
                        uint64_t number) {
    for (uint64_t rest = a->mesh_there; rest != 0; rest &= rest - 1)
        mesh_send(a, first_of(rest), server->protocol, (struct message){.kind = (uint8_t)kind, .id = number}, NULL, 0);
}

void nats_tell_lost(struct acceptor *a, struct nats_server *server, uint32_t route) {
    tell_number(a, server, MESH_LOST, route);
}

void nats_tell_full(struct acceptor *a, struct nats_server *server, uint32_t route, bool full) {
    tell_number(a, server, full ? MESH_FULL : MESH_FREE, route);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

/* The names of the groups that `other` is to choose of; their bytes, and how many there are. */
static size_t put_groups(uint8_t *out, const struct nats_chosen *chosen, uint32_t other, uint32_t *count) {
    size_t at = 0;
    *count = 0;
    for (size_t i = 0; i < chosen->count; i++) {
        uint32_t bytes = (uint32_t)chosen->name[i].bytes;
        if (chosen->other[i] != other) continue;
        assert(at + nats_group_bytes(bytes) <= NATS_GROUPS_BYTES);
        memcpy(out + at, &bytes, sizeof bytes);
        memcpy(out + at + sizeof bytes, chosen->name[i].at, bytes);
        at += sizeof bytes + bytes;
        ++*count;
    }
    return at;
}

static void pass(struct acceptor *a, const struct nats_server *server, uint32_t other, struct nats_mesh_message head,
                 const struct nats_message *m, const uint8_t *groups) {
    const struct mesh_part parts[] = {
        {&head, sizeof head},           {m->subject.at, m->subject.bytes},         {m->reply.at, m->reply.bytes},
        {m->size.at, m->size.bytes},    {m->header_size.at, m->header_size.bytes}, {groups, head.groups_bytes},
        {m->payload, m->payload_bytes},
    };
    mesh_send(a, other, server->protocol, (struct message){.kind = MESH_MESSAGE}, parts, sizeof parts / sizeof *parts);
}

/* Another acceptor is sent a message that is traced: returns the trace's number, and adds to the message's flags. */
static uint64_t trace_of(const struct nats_server *server, uint32_t *flags) {
    struct nats_trace *t = server->trace;
    t->waits++;
    *flags |= t->legs << NATS_LEGS_SHIFT;
    if (t->only) *flags |= PASSED_ONLY_TRACED;
    if (t->is_part) *flags |= PASSED_HANDED_OVER;
    return t->number;
}

void nats_pass_to(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t other, uint32_t flags,
                  const struct nats_message *m, const struct nats_chosen *chosen) {
    name_account(a, server, account);
    const uint64_t trace = server->trace != NULL ? trace_of(server, &flags) : 0;
    uint8_t *groups = server->scratch->names;
    struct nats_mesh_message head = {.from = m->from,
                                     .tried = m->tried,
                                     .trace = trace,
                                     .account = account,
                                     .flags = flags,
                                     .route = nats_is_route(other) ? other : 0,
                                     .subject_bytes = (uint32_t)m->subject.bytes,
                                     .reply_bytes = (uint32_t)m->reply.bytes,
                                     .size_bytes = (uint32_t)m->size.bytes,
                                     .header_size_bytes = (uint32_t)m->header_size.bytes,
                                     .header_bytes = (uint32_t)m->header_bytes,
                                     .payload_bytes = (uint32_t)m->payload_bytes};
    head.groups_bytes = (uint32_t)put_groups(groups, chosen, other, &head.groups);
    pass(a, server, nats_is_route(other) ? NATS_ROUTING_ACCEPTOR : other, head, m, groups);
}

void nats_tell_traced(struct acceptor *a, const struct nats_server *server, uint32_t other, uint64_t number,
                      struct text head, struct text events) {
    const struct mesh_part parts[] = {{head.at, head.bytes}, {events.at, events.bytes}};
    mesh_send(a, other, server->protocol, (struct message){.kind = MESH_TRACED, .id = number}, parts, 2);
}

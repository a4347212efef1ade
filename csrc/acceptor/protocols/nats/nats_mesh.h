/* What acceptors tell each other over the mesh. */
#ifndef MQ_NATS_MESH_H
#define MQ_NATS_MESH_H

#include "acceptor/protocols/nats/nats_pass.h"

enum nats_mesh_kind {
    MESH_INTEREST = 1, /* body: struct nats_mesh_interest, subject, queue */
    MESH_MESSAGE,      /* body: struct nats_mesh_message and what it describes */
    MESH_CONFIRM,      /* id: the number to be confirmed */
    MESH_CONFIRMED,    /* id: everything up to this number is known */
    MESH_ACCOUNT,      /* id: the sender's number of an account; body: its name, or nothing: the number is free */
    MESH_TOLD,         /* the newcomer has been told everything */
    MESH_LOST,         /* id: a route that has ended */
    MESH_FULL,         /* id: a route that is full */
    MESH_FREE,         /* id: a route that is no longer full */
    MESH_TRACED,       /* id: a trace; body: what has become of a message there */
};

struct nats_mesh_interest {
    uint32_t account, weight;
    uint32_t route;  /* the route that wants it; 0: the acceptor's clients */
    uint32_t origin; /* a number given by the acceptor with the routes */
    uint32_t subject_bytes, queue_bytes;
};

/* Followed by subject, reply, size, header_size, for each group its length as uint32_t and its name, then the payload.
 * */
struct nats_mesh_message {
    uint64_t from, tried; /* as in struct nats_message */
    uint64_t trace;       /* the number of its trace; 0: it is not traced */
    uint32_t account, flags;
    uint32_t route; /* the route it is for; 0: the acceptor's clients */
    uint32_t subject_bytes, reply_bytes, size_bytes, header_size_bytes;
    uint32_t groups, groups_bytes;
    uint32_t header_bytes, payload_bytes;
};

/* --- nats_mesh_send.c --------------------------------------------------------------------------------------------- */

void nats_mesh_send_interest(struct acceptor *a, struct nats_server *server, uint32_t other,
                             const struct nats_mesh_interest *i, const void *subject, const void *queue);
void nats_mesh_send_account(struct acceptor *a, const struct nats_server *server, uint32_t other, uint32_t number);
void nats_mesh_send_number(struct acceptor *a, const struct nats_server *server, uint32_t other,
                           enum nats_mesh_kind kind, uint64_t number);
/* Tells interest to all other acceptors. */
void nats_mesh_tell(struct acceptor *a, struct nats_server *server, const struct nats_mesh_interest *i,
                    struct text subject, struct text queue);

/* Sends a message to another acceptor, for its plain subscribers and for groups; a message for a route goes to the
 * acceptor that has it. `flags` are PASSED_*. */
void nats_pass_to(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t other, uint32_t flags,
                  const struct nats_message *m, const struct nats_chosen *chosen);
/* Tells another acceptor what has become here of a message that it traces. */
void nats_tell_traced(struct acceptor *a, const struct nats_server *server, uint32_t other, uint64_t number,
                      struct text head, struct text events);
/* Tells other acceptors that a route has ended, or that it is full or no longer. */
void nats_tell_lost(struct acceptor *a, struct nats_server *server, uint32_t route);
void nats_tell_full(struct acceptor *a, struct nats_server *server, uint32_t route, bool full);
/* Tells others that our number of an account is free. */
void nats_mesh_unname(struct acceptor *a, struct nats_server *server, uint32_t number);

/* --- nats_mesh.c -------------------------------------------------------------------------------------------------- */

/* Whether all others know the connection's subscriptions and have delivered its messages; else it stalls until they
 * have. */
bool nats_is_known(struct acceptor *a, struct connection *c);
/* Lets publishers go on that waited for a route. */
void nats_wake_route(struct acceptor *a, struct nats_server *server, uint32_t route);
void nats_mesh_joined(struct acceptor *a, void *state, uint32_t other);
void nats_mesh_lost(struct acceptor *a, void *state, uint32_t other);
void nats_mesh_heard(struct acceptor *a, void *state, uint32_t other, const struct message *message);
/* Goes on telling newcomers. */
void nats_mesh_tell_on(struct acceptor *a, struct nats_server *server);
bool nats_may_serve(const struct acceptor *a, const void *state);

#endif

/* What acceptors tell each other over the mesh. */
#ifndef MQ_NATS_MESH_MESSAGE_H
#define MQ_NATS_MESH_MESSAGE_H

#include <stdint.h>

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

#endif

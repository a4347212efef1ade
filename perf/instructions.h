/* The message path of an acceptor and a worker in one process, one turn at a time, whose instructions are counted:
 * other programs on the machine change times, but not a count. Connections are socket pairs, segments are memfds.
 *
 * Each load is repeated in rounds; a round is the work that all its clients with their outstanding commands cause. */
#ifndef MQ_PERF_INSTRUCTIONS_H
#define MQ_PERF_INSTRUCTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "acceptor/calls.h"
#include "protocols.h"

enum { MAX_REMOTES = 64, BODY_BYTES = 200, OUT_BYTES = 1 << 20, TURNS = 1000 };

/* The client's side of a connection. */
struct remote {
    int fd;
    char *got; /* what the acceptor has sent and the load has not taken */
    size_t got_bytes;
};

extern struct acceptor *its_acceptor;
extern struct remote remotes[MAX_REMOTES];
extern uint64_t now_then;
extern uint64_t done; /* messages, which the loads count */

void connect_as(struct remote *c, const char *protocol);
void say_to_acceptor(struct remote *c, const char *bytes, size_t count);
void hear_acceptor(struct remote *c);

/* Gives the acceptor and the worker a few turns each. */
void turns(void);

struct counted_load {
    const char *name;
    void (*run)(unsigned rounds);
};

struct counted {
    const struct counted_load *loads;            /* the last one has no name */
    void (*answer)(const struct upcall *upcall); /* does what Python does; NULL: it is asked for nothing */
};

/* Each protocol of protocols.h has one of these. */
#define PROTOCOL(name) extern const struct counted counted_##name;
PROTOCOLS
#undef PROTOCOL

#endif

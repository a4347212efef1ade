/* A client: a worker's view of one connection of one acceptor: what it uses, watches, waits for and has in flight.
 *
 * While a client's RESERVE waits, the requests that came after it are parked here, byte for byte as they came over the
 * ring; the acceptor's limit on outstanding requests bounds them.
 */
#ifndef MQ_CLIENT_H
#define MQ_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/map.h"
#include "ringbuf/board.h"
#include "ringbuf/message.h"

/* Whose clients those are that have gone: what is answered to them is sent to nobody. */
enum { NOBODY = BOARD_MAX_ACCEPTORS };

/* A client's interest in a topic, and its place in that topic's line of waiting clients. */
struct watch {
    uint32_t arena_link;
    uint32_t topic;
    uint32_t client;
    uint32_t next; /* of the client */
    uint32_t previous_waiting, next_waiting;
};

struct parked {
    uint8_t *bytes;
    uint32_t capacity, head, tail;
};

struct client {
    uint32_t arena_link;
    uint32_t acceptor, conn; /* NOBODY: it has gone, and what is begun goes on */
    uint32_t used;           /* topic */
    uint32_t consumer;       /* first of the list; 0: it is none */
    uint32_t consumers;
    uint32_t producer;                      /* attached: the first of the list */
    uint32_t watches, watch_count;          /* the first of a list */
    uint32_t inflight_first, inflight_last; /* jobs, as they were reserved */
    uint32_t inflight;
    uint32_t soon; /* of them: their last second has begun */
    uint32_t previous_runnable, next_runnable;
    uint32_t wait_slot;
    uint32_t wait_place; /* in the worker's heap of waits */
    bool waiting;
    bool wants_headers; /* in the reply to its last request for a message */
    bool runnable;
    bool unfinished; /* its first parked request has been begun */
    uint32_t previous_unfinished, next_unfinished;
    uint64_t wait_until_ns;
    uint64_t done, upto; /* of that request, ... */
    struct sheet *sheet; /* ... and what it will answer; NULL: nothing yet */
    struct parked parked;
};

struct clients {
    struct arena arena, watches;
    struct map by_conn;
    uint64_t last_key; /* of the client that was asked for last, as most are several times in a row */
    uint32_t last;     /* 0: none */
};

bool clients_open(struct clients *clients, uint32_t limit, uint32_t watch_limit);
void clients_close(struct clients *clients);

static inline struct client *client_at(const struct clients *c, uint32_t client) {
    return arena_at(&c->arena, client);
}
static inline struct watch *watch_at(const struct clients *c, uint32_t watch) {
    return arena_at(&c->watches, watch);
}

/* The client of a connection, made if there is none yet; 0 when the limit is reached. */
uint32_t clients_get(struct clients *clients, uint32_t acceptor, uint32_t conn);
/* 0 when there is none. */
uint32_t clients_find(const struct clients *clients, uint32_t acceptor, uint32_t conn);
/* Its connection goes by another number, or none. */
void clients_unname(struct clients *clients, uint32_t client);
/* It was unnamed, and its watches, waits and jobs in flight have been let go. */
void clients_remove(struct clients *clients, uint32_t client);

/* The watch of a client on a topic, or 0. */
uint32_t client_watch(const struct clients *clients, uint32_t client, uint32_t topic);
/* 0 when the limit is reached. */
uint32_t client_add_watch(struct clients *clients, uint32_t client, uint32_t topic);
void client_remove_watch(struct clients *clients, uint32_t client, uint32_t topic);

/* A request whose time has not come. Its topic is the worker's: the acceptor may bind the number anew meanwhile. */
struct parked_request {
    uint32_t topic;
    bool apart;    /* behind it is not its body, but where the message is, body and all */
    uint16_t done; /* so many of a REQUEST_EACH are */
    struct message message;
};

/* The queue of parked requests. `apart`: the message was allocated, and becomes the queue's. NULL when memory is short; else it is valid
 * until the next parked_* call. */
struct parked_request *parked_put(struct parked *parked, uint32_t topic, const struct message *message, bool apart);
/* The oldest, or NULL. Valid until the next parked_* call. */
struct parked_request *parked_first(const struct parked *parked);
/* With its body. */
const struct message *parked_message(const struct parked_request *request);
/* One that is apart becomes the caller's; it is no more than its head then. */
struct message *parked_take_message(struct parked_request *request);
void parked_drop_first(struct parked *parked);
/* How long the RESERVE in a slot is to wait, if it is parked, or NULL. */
uint64_t *parked_wait(const struct parked *parked, uint32_t slot);

#endif

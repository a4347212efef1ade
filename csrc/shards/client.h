/* A client: a worker's view of one connection of one acceptor: the topics it uses and watches, its waiting requests,
 * its jobs in flight. */
#ifndef MQ_CLIENT_H
#define MQ_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/index.h"
#include "base/map.h"
#include "ringbuf/board.h"
#include "shards/parked.h"

/* The acceptor of clients that have gone: replies to them are dropped. */
enum { NOBODY = BOARD_MAX_ACCEPTORS };

/* A client's interest in a topic, and its place in that topic's line of waiting clients. */
struct __attribute__((packed, aligned(4))) watch {
    uint32_t chain;    /* in the index's chain, or the arena's free list */
    uint32_t previous; /* in the client's list */
    uint64_t key;      /* client, then topic */
    uint32_t next;
    uint32_t previous_waiting, next_waiting;
};
_Static_assert(offsetof(struct watch, key) == offsetof(struct indexed, key), "the index finds it by its key");

static inline uint32_t watch_topic(const struct watch *watch) {
    return (uint32_t)watch->key;
}
static inline uint32_t watch_client(const struct watch *watch) {
    return (uint32_t)(watch->key >> 32);
}

/* Lines of clients; a client is in each once at most. */
enum client_line {
    LINE_RUNNABLE,   /* their parked requests may be carried out now */
    LINE_UNFINISHED, /* their first parked request goes on in the next turn */
    LINE_LEAVING,    /* they have left, and let go of what they had in pieces; they are not runnable any more */
    LINES,
    LINE_PLACES = LINE_LEAVING
};
struct client_place {
    uint32_t previous, next;
};
struct client_line_ends {
    uint32_t first, last;
};

struct client {
    uint32_t arena_link;
    uint32_t acceptor, conn; /* NOBODY: the client has gone, but requests it began go on */
    uint32_t used;           /* topic */
    uint32_t consumer;       /* first of the list; 0: none */
    uint32_t consumers;
    uint32_t producer;                      /* attached: the first of the list */
    uint32_t watches, watch_count;          /* the first of a list */
    uint32_t inflight_first, inflight_last; /* jobs, as they were reserved */
    uint32_t inflight;
    uint32_t soon; /* how many of them are in their last second */
    struct client_place in_line[LINE_PLACES];
    uint32_t wait_slot;
    uint32_t wait_place; /* its place in the worker's heap of waits */
    bool waiting;
    bool wants_headers; /* its last request for a message wants the headers in the reply */
    uint8_t lines;      /* a bit for each that it is in */
    uint64_t wait_until_ns;
    uint64_t done, upto; /* how far its first parked request has come, if that is under way (MORE) */
    struct sheet *sheet; /* the answer to that request so far; NULL: none yet */
    struct parked parked;
};

struct clients {
    struct arena arena, watches;
    struct index watched; /* watches by client and topic */
    struct map by_conn;
    uint64_t last_key; /* the client looked up last: most are looked up several times in a row */
    uint32_t last;     /* 0: none */
    struct client_line_ends lines[LINES];
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
/* The client of a connection, or 0. */
uint32_t clients_find(const struct clients *clients, uint32_t acceptor, uint32_t conn);
/* Forgets which connection the client belongs to. */
void clients_unname(struct clients *clients, uint32_t client);
/* Removes a client that was unnamed, and whose watches, waits and jobs in flight have been released. */
void clients_remove(struct clients *clients, uint32_t client);

/* The watch of a client on a topic, or 0. */
uint32_t client_watch(const struct clients *clients, uint32_t client, uint32_t topic);
/* Adds a watch; 0 when the limit is reached. */
uint32_t client_add_watch(struct clients *clients, uint32_t client, uint32_t topic);
void client_remove_watch(struct clients *clients, uint32_t watch);

static inline struct client_place *client_place_in(struct client *c, enum client_line line) {
    return &c->in_line[line % LINE_PLACES]; /* LINE_LEAVING has the place of LINE_RUNNABLE */
}
static inline bool client_is_in(const struct client *c, enum client_line line) {
    return c->lines >> line & 1;
}
/* At the end of the line, where it must not stand yet. */
void client_line_up(struct clients *clients, enum client_line line, uint32_t client);
/* Nothing if it is not in that line. */
void client_leave_line(struct clients *clients, enum client_line line, uint32_t client);

#endif

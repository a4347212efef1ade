/* Patterns with wildcards in accounts that import very many streams: each stream has to be looked at, so that is done
 * in pieces, and the patterns take turns. Who has subscribed to one, and who waits for a confirmation, waits for that.
 * So does who unsubscribes, and a connection that is closed gives up its next pattern only then: a connection puts off
 * one look at a time, and that is the limit of how many there are.
 *
 * A look sets shadows to what is wanted when it comes to them, so it does no harm if that has changed meanwhile, or if
 * the account now imports others. A group without members must not be chosen meanwhile: a message for it looks itself
 * (nats_shadows_match()). Servers, leaf nodes and hubs would choose it, so where there are some, they are told at once.
 */
#ifndef MQ_NATS_LOOKS_H
#define MQ_NATS_LOOKS_H

#include "acceptor/protocols/nats/nats_shadows.h"

struct nats_look {
    struct nats_look *next;
    uint64_t number;
    uint32_t account;
    uint32_t waiting;           /* the connection that has subscribed or unsubscribed; 0: none */
    bool parting;               /* a group's last member leaves */
    struct connection *leaving; /* it is closed and gives up the pattern; NULL: none */
    struct subjects_cursor cursor;
    uint32_t wanted_bytes, queue_bytes;
    uint8_t texts[]; /* the pattern, and the queue */
};

/* An account's subject is wanted `weight` times from now on by these: see nats_shadows_look(). */
void nats_look(struct acceptor *a, struct nats_server *server, uint32_t account, struct text wanted, struct text queue,
               struct nats_wanting by, uint64_t weight);
/* The same when one of the others wants it so often. */
void nats_look_hear(struct acceptor *a, struct nats_server *server, const struct nats_remote *r, uint32_t weight);
/* The connection waits for the last look that was put off. */
void nats_look_for(struct nats_server *server, struct connection *c);
/* The same for one that is closed and has more to give up. */
void nats_look_leaving(struct nats_server *server, struct connection *c);
/* Whether another acceptor has to wait for the confirmation that it asks for. */
bool nats_look_confirms_later(struct nats_server *server, uint32_t other, uint64_t number);
void nats_looks_go_on(struct acceptor *a, struct nats_server *server);
void nats_looks_close(struct nats_server *server);

#endif

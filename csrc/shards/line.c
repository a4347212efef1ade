#include "shards/line.h"

#include "shards/catalog.h"
#include "shards/large.h"
#include "shards/opened.h"

void line_park(struct worker *w, uint32_t acceptor, uint32_t client, const struct message *m, uint32_t done) {
    struct parked *parked = &client_at(&w->clients, client)->parked;
    uint32_t topic = opened_find(w, acceptor, m);
    bool apart = m->body_bytes >= LARGE_PIECE_BYTES && channel_take(w->peers[acceptor].channel, m) != NULL;
    w->held_bytes += held_bytes(m);
    struct parked_request *request = parked_put(parked, topic, m, apart);
    if (!request) process_die("out of memory");
    request->done = (uint16_t)done;
    if (topic) opened_hold(w, topic);
}

void line_drop_first(struct worker *w, uint32_t client) {
    struct parked *parked = &client_at(&w->clients, client)->parked;
    uint32_t topic = parked_first(parked)->topic;
    w->held_bytes -= held_bytes(&parked_first(parked)->message);
    parked_drop_first(parked);
    if (topic) opened_let_go(w, topic);
}

void line_drop_all(struct worker *w, uint32_t client) {
    const struct parked *parked = &client_at(&w->clients, client)->parked;
    while (parked_any(parked)) line_drop_first(w, client);
}

void line_reset(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    c->done = c->upto = 0;
    sheet_free(c);
}

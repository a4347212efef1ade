#include "shards/gone.h"

#include "shards/attach.h"
#include "shards/consume.h"
#include "shards/large_left.h"
#include "shards/line.h"
#include "shards/many.h"
#include "shards/opened.h"
#include "shards/queue.h"

/* Whether the client's request goes on though the client has left: it may have released messages, which the log must
 * say when all are, or published some, or be writing a large message of a transaction. */
static bool is_letting_go(const struct client *c) {
    const struct parked_request *first = parked_first(&c->parked);
    if (!client_is_in(c, LINE_UNFINISHED) || !first) return false;
    const struct message *m = &first->message;
    if (m->kind == MSG_PUBLISH_MANY) return many_is_begun(c);
    if (m->kind == MSG_TXN_END) return true;
    return m->kind == MSG_SEEK || (m->kind == MSG_CHANGE && (m->change == CHANGE_EMPTY || m->change == CHANGE_DELETE));
}

/* How much a client that has left lets go of at once, even if others have used up the turn: most have no more. */
enum { LETS_GO_AT_ONCE = 16 };

/* Lets go of the next watch, consumer or producer of a client that has left. False: it has none. */
static bool let_go_of_one(struct worker *w, uint32_t client) {
    uint32_t watch = client_at(&w->clients, client)->watches;
    if (!watch) return consumer_leave_client(w, client) || producer_leave_client(w, client);
    opened_ignore(w, client, watch_topic(watch_at(&w->clients, watch)));
    return true;
}

static bool has_any(const struct client *c) {
    return c->watches || c->consumer || c->producer;
}

/* Lets go of some of what a client that has left had, and makes its reserved jobs ready again. False: that was all. */
static bool give_back_some(struct worker *w, uint32_t client) {
    const struct client *c = client_at(&w->clients, client);
    while (worker_spare(w) && let_go_of_one(w, client)) w->steps += WORKER_LETTING_GO;
    if (has_any(c)) return true;
    while (c->inflight_first && worker_spare(w)) {
        uint32_t job = c->inflight_first;
        if (job_is_gone(w, job_at(w, job))) {
            worker_step(w);
            queue_unreserve(w, job);
            continue;
        }
        queue_take(w, job);
        queue_make_ready(w, job);
        queue_serve(w, job_at(w, job)->topic);
    }
    return c->inflight_first != 0;
}

/* Removes a client that has left, except for a request it has begun, whose answer is dropped. */
static void has_left(struct worker *w, uint32_t client) {
    if (parked_any(&client_at(&w->clients, client)->parked))
        line_put_off(w, client);
    else
        clients_remove(&w->clients, client);
}

uint32_t client_gone(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    bool goes_on = is_letting_go(c);
    if (c->waiting) queue_stop_waiting(w, client);
    client_leave_line(&w->clients, LINE_RUNNABLE, client);
    client_leave_line(&w->clients, LINE_UNFINISHED, client);
    large_leave(w, client);
    if (!goes_on) line_reset(w, client);
    if (!goes_on) line_drop_all(w, client);
    if (c->used) (void)opened_use(w, client, 0, false);
    clients_unname(&w->clients, client);
    uint32_t at_once = 0;
    while (at_once < LETS_GO_AT_ONCE && let_go_of_one(w, client)) at_once++;
    bool has_more = give_back_some(w, client);
    consumers_stop(w, client);
    c->acceptor = NOBODY;
    if (has_more)
        client_line_up(&w->clients, LINE_LEAVING, client);
    else
        has_left(w, client);
    return at_once;
}

bool clients_leave(struct worker *w) {
    const uint32_t *first = &w->clients.lines[LINE_LEAVING].first;
    worker_share_piece(w);
    while (*first && !give_back_some(w, *first)) {
        uint32_t client = *first;
        client_leave_line(&w->clients, LINE_LEAVING, client);
        has_left(w, client);
    }
    return *first != 0;
}

/* Calls the function for each message of the shard protocol (see outcome.h), and parks requests until they can be
 * carried out. */
#include "shards/requests.h"

#include "ringbuf/request_each.h"
#include "shards/answers.h"
#include "shards/attach.h"
#include "shards/catalog.h"
#include "shards/compacted.h"
#include "shards/consume.h"
#include "shards/large.h"
#include "shards/large_left.h"
#include "shards/many.h"
#include "shards/oldest.h"
#include "shards/opened.h"
#include "shards/position.h"
#include "shards/publish.h"
#include "shards/queue.h"
#include "shards/stats.h"
#include "shards/topic_life.h"
#include "shards/transaction_acks.h"
#include "shards/transaction_end.h"
#include "shards/tube.h"

/* Carries out a request. `topic` is the worker's own number. */
static enum outcome execute(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    switch (m->kind) {
    case MSG_USE: return opened_use(w, client, topic, !(m->flags & MSG_IMPLICIT));
    case MSG_WATCH: return opened_watch(w, client, topic, !(m->flags & MSG_IMPLICIT));
    case MSG_IGNORE: opened_ignore(w, client, topic); break;
    case MSG_RETURN: tube_give_back(w, client, m); break;
    case MSG_PUBLISH: return publish(w, client, topic, m);
    case MSG_RESERVE: return tube_reserve(w, client, m);
    case MSG_PROBE: return tube_probe(w, client, m);
    case MSG_TAKE: return tube_take(w, client, m);
    case MSG_RESERVE_ID: return tube_reserve_id(w, client, m);
    case MSG_DELETE: return tube_delete(w, client, m);
    case MSG_RELEASE: return tube_release(w, client, m);
    case MSG_BURY: return tube_bury(w, client, m);
    case MSG_TOUCH: tube_touch(w, client, m); break;
    case MSG_PEEK_ID: return tube_peek_id(w, client, m);
    case MSG_PEEK_READY:
    case MSG_PEEK_DELAYED:
    case MSG_PEEK_BURIED: return tube_peek(w, client, topic, m);
    case MSG_KICK: return tube_kick(w, client, topic, m);
    case MSG_KICK_ID: return tube_kick_id(w, client, m);
    case MSG_PAUSE: tube_pause(w, client, m); break;
    case MSG_STATS_ID: stats_id(w, client, m); break;
    case MSG_STATS_TOPIC: stats_topic(w, client, m); break;
    case MSG_LIST: catalog_list(w, client, m); break;
    case MSG_PUBLISH_EACH: return publish_each(w, client, topic, m);
    case MSG_PUBLISH_MANY: return publish_many(w, client, topic, m);
    case MSG_SUBSCRIBE: return consumer_subscribe(w, client, topic, m);
    case MSG_UNSUBSCRIBE: consumer_close(w, client, m); break;
    case MSG_ATTACH: return attach(w, client, topic, m);
    case MSG_DETACH: attach_end(w, client, m); break;
    case MSG_SEEK: return position_seek(w, client, topic, m);
    case MSG_POSITION: return position_tell(w, client, topic, m);
    case MSG_PEEK_SEQ: return position_peek(w, client, topic, m);
    case MSG_SCAN: return compacted_scan(w, client, topic, m);
    case MSG_COMPACT: return compacted_make(w, client, topic, m);
    case MSG_TXN_ACK: return transaction_acknowledge(w, client, topic, m);
    case MSG_TXN_END: return transaction_end(w, client, topic, m);
    case MSG_TXN_LIST: return transactions_list(w, client, m);
    case MSG_TXN_PENDING: transaction_pending(w, client, topic, m); break;
    case MSG_BACKLOG: return position_backlog(w, client, topic, m);
    case MSG_OLDEST: return oldest(w, client, m);
    case MSG_RINGS: catalog_rings(w, client, m); break;
    case MSG_CHANGE: return topic_change(w, client, m);
    case MSG_CATALOG: return catalog(w, client, m);
    case MSG_BARRIER: request_done(w, client, m, STATUS_OK); break;
    case MSG_CREDIT: consumer_credit(w, client, m); break;
    case MSG_SENT: consumer_sent(w, client, m); break;
    case MSG_FINISH: return consumer_finish(w, client, m);
    case MSG_REQUEUE: return consumer_requeue(w, client, m);
    case MSG_EXTEND: consumer_extend(w, client, m); break;
    default:
        /* A request of a later version, if it is a request at all. */
        if (m->kind >= MSG_PUBLISH && m->kind < MSG_DELIVER) request_done(w, client, m, STATUS_INVALID);
    }
    return DONE;
}

/* Parks a request. `done`: how many requests of a REQUEST_EACH have been done. */
static void park(struct worker *w, uint32_t acceptor, uint32_t client, const struct message *m, uint32_t done) {
    struct parked *parked = &client_at(&w->clients, client)->parked;
    uint32_t topic = opened_find(w, acceptor, m);
    bool apart = m->body_bytes >= LARGE_PIECE_BYTES && channel_take(w->peers[acceptor].channel, m) != NULL;
    w->held_bytes += held_bytes(m);
    struct parked_request *request = parked_put(parked, topic, m, apart);
    if (!request) process_die("out of memory");
    request->done = (uint16_t)done;
    if (topic) opened_hold(w, topic);
}

__attribute__((always_inline)) static inline void drop_parked(struct worker *w, struct parked *parked) {
    uint32_t topic = parked_first(parked)->topic;
    w->held_bytes -= held_bytes(&parked_first(parked)->message);
    parked_drop_first(parked);
    if (topic) opened_let_go(w, topic);
}

static void cancel(struct worker *w, uint32_t client, const struct message *m) {
    struct client *c = client_at(&w->clients, client);
    if (c->waiting && c->wait_slot == m->slot) {
        queue_stop_waiting(w, client);
        request_answer(w, client, m->slot, MSG_RESERVE, STATUS_CANCELLED, 0);
        return;
    }
    /* The RESERVE is still parked: it will not wait when its turn comes. */
    uint64_t *wait_ns = parked_wait(&c->parked, m->slot);
    if (wait_ns) *wait_ns = 0;
}

static void remove_runnable(struct worker *w, uint32_t client) {
    const struct client *c = client_at(&w->clients, client);
    if (c->previous_runnable)
        client_at(&w->clients, c->previous_runnable)->next_runnable = c->next_runnable;
    else
        w->runnable_first = c->next_runnable;
    if (c->next_runnable)
        client_at(&w->clients, c->next_runnable)->previous_runnable = c->previous_runnable;
    else
        w->runnable_last = c->previous_runnable;
}

/* The client's request goes on in the next turn, behind those of other clients. */
static void put_off(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    uint32_t last = w->unfinished_last;
    c->unfinished = true;
    c->previous_unfinished = last;
    c->next_unfinished = 0;
    *(last ? &client_at(&w->clients, last)->next_unfinished : &w->unfinished_first) = client;
    w->unfinished_last = client;
}

static void finished(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    c->unfinished = false;
    c->done = c->upto = 0;
    sheet_free(c);
}

static void drop_all_parked(struct worker *w, uint32_t client) {
    struct parked *parked = &client_at(&w->clients, client)->parked;
    while (parked->head != parked->tail) drop_parked(w, parked);
}

/* Whether the client's request goes on though the client has left: it may have released messages, which the log must
 * say when all are, or published some, or be writing a large message of a transaction. */
static bool is_letting_go(const struct client *c) {
    const struct parked_request *first = parked_first(&c->parked);
    if (!c->unfinished || !first) return false;
    const struct message *m = &first->message;
    if (m->kind == MSG_PUBLISH_MANY) return many_is_begun(c);
    if (m->kind == MSG_TXN_END) return true;
    return m->kind == MSG_SEEK || (m->kind == MSG_CHANGE && (m->change == CHANGE_EMPTY || m->change == CHANGE_DELETE));
}

static void leave_unfinished(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    uint32_t previous = c->previous_unfinished, next = c->next_unfinished;
    if (!c->unfinished) return;
    *(previous ? &client_at(&w->clients, previous)->next_unfinished : &w->unfinished_first) = next;
    *(next ? &client_at(&w->clients, next)->previous_unfinished : &w->unfinished_last) = previous;
    c->unfinished = false;
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
    if (parked_first(&client_at(&w->clients, client)->parked))
        put_off(w, client);
    else
        clients_remove(&w->clients, client);
}

uint32_t client_gone(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    bool goes_on = is_letting_go(c);
    if (c->waiting) queue_stop_waiting(w, client);
    if (c->runnable) remove_runnable(w, client);
    leave_unfinished(w, client);
    large_leave(w, client);
    if (!goes_on) finished(w, client);
    if (!goes_on) drop_all_parked(w, client);
    if (c->used) (void)opened_use(w, client, 0, false);
    clients_unname(&w->clients, client);
    uint32_t at_once = 0;
    while (at_once < LETS_GO_AT_ONCE && let_go_of_one(w, client)) at_once++;
    bool has_more = give_back_some(w, client);
    consumers_stop(w, client);
    c->acceptor = NOBODY;
    if (!has_more) {
        has_left(w, client);
        return at_once;
    }
    c->next_unfinished = 0;
    *(w->leaving_first ? &client_at(&w->clients, w->leaving_last)->next_unfinished : &w->leaving_first) = client;
    w->leaving_last = client;
    return at_once;
}

/* Removes clients that have left, in the order in which they did. */
static bool clients_leave(struct worker *w) {
    worker_share_piece(w);
    while (w->leaving_first && !give_back_some(w, w->leaving_first)) {
        uint32_t client = w->leaving_first;
        w->leaving_first = client_at(&w->clients, client)->next_unfinished;
        has_left(w, client);
    }
    return w->leaving_first != 0;
}

/* Whether the client's request walked lists so long that other clients come first. */
static bool is_long(const struct worker *w, uint64_t walked_before) {
    return w->walked - walked_before >= WORKER_LONG_WALK;
}

/* Whether a request that may touch much has to wait for the next turn, because others have done so in this one. */
static bool comes_later(const struct worker *w, const struct message *m) {
    if (worker_spare(w)) return false;
    switch (m->kind) {
    case MSG_KICK:
    case MSG_LIST:
    case MSG_SEEK:
    case MSG_SCAN:
    case MSG_COMPACT:
    case MSG_TXN_ACK:
    case MSG_TXN_END:
    case MSG_TXN_LIST:
    case MSG_BACKLOG:
    case MSG_OLDEST:
    case MSG_POSITION:
    case MSG_CHANGE:
    case MSG_CATALOG:
    case MSG_SUBSCRIBE: return true;
    case MSG_FINISH: return (m->flags & MSG_UPTO) != 0;
    case MSG_REQUEUE: return (m->flags & MSG_ALL) != 0;
    case MSG_PUBLISH_MANY: return m->count > WORKER_TURN_STEPS;
    default: return false;
    }
}

/* Carries out messages that never wait and need no client. False: it is another kind. */
static bool done_at_once(struct worker *w, uint32_t acceptor, const struct message *m) {
    if (m->kind == MSG_GONE || m->kind == MSG_CANCEL) {
        uint32_t client = clients_find(&w->clients, acceptor, m->conn);
        if (client && m->kind == MSG_GONE)
            worker_walk(w, (uint64_t)client_gone(w, client) * WORKER_LETTING_GO * WORKER_TURN_WALK / WORKER_TURN_STEPS);
        if (client && m->kind == MSG_CANCEL) cancel(w, client, m);
        return true;
    }
    if (m->kind == MSG_OPEN) opened_open(w, acceptor, m);
    if (m->kind == MSG_CLOSE) opened_forget(w, acceptor, m);
    return m->kind == MSG_OPEN || m->kind == MSG_CLOSE;
}

/* Carries out the requests of a REQUEST_EACH one after the other, until one has to wait, or has walked long lists.
 * *done: how many are done. The state of a finished one is reset before the next. */
static enum outcome execute_each(struct worker *w, uint32_t client, const struct message *m, uint32_t *done) {
    const struct client *c = client_at(&w->clients, client);
    const uint64_t walked = w->walked;
    struct message one = {.conn = m->conn};
    if (*done == 0 && !request_each_is_whole(m)) {
        request_done(w, client, m, STATUS_INVALID);
        *done = m->several;
    }
    while (*done < m->several && !c->waiting && !is_long(w, walked)) {
        request_each_get(&one, m, *done);
        if (comes_later(w, &one)) return MORE;
        enum outcome outcome = execute(w, client, 0, &one);
        if (outcome != DONE) return outcome;
        if (c->done || c->upto || c->sheet) finished(w, client);
        ++*done;
    }
    return DONE;
}

static bool handle_each(struct worker *w, uint32_t acceptor, uint32_t client, const struct message *m) {
    struct peer *p = &w->peers[acceptor];
    const struct client *c = client_at(&w->clients, client);
    const uint64_t walked = w->walked;
    uint32_t done = p->stalled_at;
    enum outcome outcome = execute_each(w, client, m, &done);
    p->stalled_at = outcome == LATER ? done : 0;
    if (outcome == LATER) return false;
    if (done < m->several) park(w, acceptor, client, m, done);
    if (outcome == MORE || (is_long(w, walked) && !c->unfinished)) put_off(w, client);
    return true;
}

bool request_handle(struct worker *w, uint32_t acceptor, const struct message *m) {
    if (m->kind <= MSG_GONE && done_at_once(w, acceptor, m)) return true;
    uint32_t client = clients_get(&w->clients, acceptor, m->conn);
    if (!client)
        process_die("more connections than a worker can hold"); /* the acceptors' limits make this impossible */
    if (m->body_bytes > HELD_SMALL_BYTES && large_waits(w, client, m)) return false;
    const struct client *c = client_at(&w->clients, client);
    /* A RETURN does not wait behind a waiting RESERVE either. */
    if ((c->waiting || c->unfinished || c->parked.head != c->parked.tail) && m->kind != MSG_RETURN) {
        park(w, acceptor, client, m, w->peers[acceptor].stalled_at);
        w->peers[acceptor].stalled_at = 0;
        return true;
    }
    if (m->kind == MSG_REQUEST_EACH) return handle_each(w, acceptor, client, m);
    uint64_t walked = w->walked;
    enum outcome outcome = comes_later(w, m) ? MORE : execute(w, client, opened_find(w, acceptor, m), m);
    if (outcome == MORE) park(w, acceptor, client, m, 0);
    if (outcome == MORE || (outcome == DONE && is_long(w, walked) && !c->unfinished)) put_off(w, client);
    return outcome != LATER;
}

/* Carries out the first parked request. *is_left: it is not finished. */
static enum outcome execute_parked(struct worker *w, uint32_t client, struct parked_request *request, bool *is_left) {
    const struct message *m = parked_message(request);
    *is_left = false;
    if (m->kind != MSG_REQUEST_EACH) return execute(w, client, request->topic, m);
    uint32_t done = request->done;
    enum outcome outcome = execute_each(w, client, m, &done);
    request->done = (uint16_t)done;
    *is_left = done < m->several;
    return outcome;
}

/* Carries out a client's parked requests until one has to wait. False: it waits for a segment. */
static bool run_parked(struct worker *w, uint32_t client) {
    struct client *c = client_at(&w->clients, client);
    while (!c->waiting && !c->unfinished && c->parked.head != c->parked.tail) {
        uint64_t walked = w->walked;
        bool is_left;
        if (!worker_spare(w)) {
            put_off(w, client);
            return true;
        }
        enum outcome outcome = execute_parked(w, client, parked_first(&c->parked), &is_left);
        worker_step(w); /* after it, so that it had a step left to go on with */
        if (outcome == LATER) return false;
        if (outcome == MORE) {
            put_off(w, client);
            return true;
        }
        finished(w, client);
        if (!is_left) drop_parked(w, &c->parked);
        if (c->acceptor == NOBODY) {
            drop_all_parked(w, client);
            clients_remove(&w->clients, client);
            return true;
        }
        if (is_long(w, walked)) put_off(w, client);
    }
    return true;
}

bool requests_run_parked(struct worker *w) {
    while (w->runnable_first) {
        uint32_t client = w->runnable_first;
        struct client *c = client_at(&w->clients, client);
        if (!run_parked(w, client)) return false;
        w->runnable_first = c->next_runnable;
        if (w->runnable_first)
            client_at(&w->clients, w->runnable_first)->previous_runnable = 0;
        else
            w->runnable_last = 0;
        c->runnable = false;
    }
    return true;
}

bool requests_resume(struct worker *w) {
    bool more = clients_leave(w);
    uint32_t last = w->unfinished_last;
    worker_share_piece(w);
    while (w->unfinished_first && worker_spare(w) && w->walked < WORKER_TURN_WALK) {
        uint32_t client = w->unfinished_first;
        more = true;
        leave_unfinished(w, client);
        if (!run_parked(w, client)) put_off(w, client);
        if (client == last) break;
    }
    return more || w->unfinished_first;
}

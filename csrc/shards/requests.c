#include "shards/requests.h"

#include "ringbuf/request_each.h"
#include "shards/answers.h"
#include "shards/execute.h"
#include "shards/gone.h"
#include "shards/large.h"
#include "shards/line.h"
#include "shards/opened.h"
#include "shards/queue.h"

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

/* Whether the client's request walked lists so long that other clients come first. */
static bool is_long(const struct worker *w, uint64_t walked_before) {
    return w->walked - walked_before >= WORKER_LONG_WALK;
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
        if (execute_later(w, &one)) return MORE;
        enum outcome outcome = execute(w, client, 0, &one);
        if (outcome != DONE) return outcome;
        if (c->done || c->upto || c->sheet) line_reset(w, client);
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
    if (done < m->several) line_park(w, acceptor, client, m, done);
    if (outcome == MORE || (is_long(w, walked) && !client_is_in(c, LINE_UNFINISHED))) line_put_off(w, client);
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
    if ((c->waiting || client_is_in(c, LINE_UNFINISHED) || parked_any(&c->parked)) && m->kind != MSG_RETURN) {
        line_park(w, acceptor, client, m, w->peers[acceptor].stalled_at);
        w->peers[acceptor].stalled_at = 0;
        return true;
    }
    if (m->kind == MSG_REQUEST_EACH) return handle_each(w, acceptor, client, m);
    uint64_t walked = w->walked;
    enum outcome outcome = execute_later(w, m) ? MORE : execute(w, client, opened_find(w, acceptor, m), m);
    if (outcome == MORE) line_park(w, acceptor, client, m, 0);
    if (outcome == MORE || (outcome == DONE && is_long(w, walked) && !client_is_in(c, LINE_UNFINISHED)))
        line_put_off(w, client);
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
    while (!c->waiting && !client_is_in(c, LINE_UNFINISHED) && parked_any(&c->parked)) {
        uint64_t walked = w->walked;
        bool is_left;
        if (!worker_spare(w)) {
            line_put_off(w, client);
            return true;
        }
        enum outcome outcome = execute_parked(w, client, parked_first(&c->parked), &is_left);
        worker_step(w); /* after it, so that it had a step left to go on with */
        if (outcome == LATER) return false;
        if (outcome == MORE) {
            line_put_off(w, client);
            return true;
        }
        line_reset(w, client);
        if (!is_left) line_drop_first(w, client);
        if (c->acceptor == NOBODY) {
            line_drop_all(w, client);
            clients_remove(&w->clients, client);
            return true;
        }
        if (is_long(w, walked)) line_put_off(w, client);
    }
    return true;
}

void requests_run_runnable(struct worker *w) {
    uint32_t client;
    while ((client = w->clients.lines[LINE_RUNNABLE].first) != 0 && run_parked(w, client))
        client_leave_line(&w->clients, LINE_RUNNABLE, client);
}

bool requests_resume(struct worker *w) {
    const struct client_line_ends *unfinished = &w->clients.lines[LINE_UNFINISHED];
    bool more = clients_leave(w);
    const uint32_t last = unfinished->last;
    worker_share_piece(w);
    while (unfinished->first && worker_spare(w) && w->walked < WORKER_TURN_WALK) {
        uint32_t client = unfinished->first;
        more = true;
        client_leave_line(&w->clients, LINE_UNFINISHED, client);
        if (!run_parked(w, client)) line_put_off(w, client);
        if (client == last) break;
    }
    return more || unfinished->first;
}
